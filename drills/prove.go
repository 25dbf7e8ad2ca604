package drills

import (
	"fmt"
	"strings"

	"fleetdrill/drills/judge"
)

// Proof is what `drill prove` found about one drill: an entry of its JSON. The drill passes as it is,
// fails with its control, and without its fault says that it proved nothing; only the three together
// show that a green drill means something.
type Proof struct {
	Repeated
	// Control are the handicaps that were switched on when the fleet was steady.
	Control        []string      `json:"control"`
	ControlVerdict judge.Verdict `json:"control_verdict"`
	NoFaultVerdict judge.Verdict `json:"no_fault_verdict"`
	// ControlRunDir and NoFaultRunDir are the folders of the other two legs.
	ControlRunDir string `json:"control_run_dir"`
	NoFaultRunDir string `json:"no_fault_run_dir"`
	// ControlSentences are those of the expectations that failed with the control.
	ControlSentences []string `json:"control_sentences"`
}

// NewProof folds the three legs of a proof.
func NewProof(asIs, control, noFault Repeated, handicaps []string) Proof {
	p := Proof{Repeated: asIs, Control: handicaps, ControlVerdict: control.Verdict, NoFaultVerdict: noFault.Verdict,
		ControlRunDir: control.RunDir, NoFaultRunDir: noFault.RunDir, ControlSentences: []string{}}
	for _, r := range control.Expectations {
		if r.Verdict == judge.Fail {
			p.ControlSentences = append(p.ControlSentences, r.ID+": "+r.Sentence)
		}
	}
	return p
}

// Problems say in which legs the proof is wanting; none means that the drill is proven.
func (p Proof) Problems() []string {
	var out []string
	want := func(leg string, got judge.Verdict, want judge.Verdict) {
		if got != want {
			out = append(out, fmt.Sprintf("%s came out as %s, which must be %s", leg, got, want))
		}
	}
	want("the drill as it is", p.Verdict, judge.Pass)
	want("the drill with "+strings.Join(p.Control, ", "), p.ControlVerdict, judge.Fail)
	want("the drill without its fault", p.NoFaultVerdict, judge.Invalid)
	return out
}

// ProofVerdict is the verdict of a whole `drill prove`: an error of the lab stays one, everything else
// that is wanting is a failure.
func ProofVerdict(proofs []Proof) judge.Verdict {
	if len(proofs) == 0 {
		return judge.Error
	}
	verdict := judge.Pass
	for _, p := range proofs {
		for _, v := range []judge.Verdict{p.Verdict, p.ControlVerdict, p.NoFaultVerdict} {
			if v == judge.Error || v == Interrupted {
				return judge.Error
			}
		}
		if len(p.Problems()) > 0 {
			verdict = judge.Fail
		}
	}
	return verdict
}

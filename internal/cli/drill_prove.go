package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetdrill/drills"
	"fleetdrill/drills/judge"
)

// proveAgain is how often a leg that must come out valid is run again when the machine made it invalid.
const proveAgain = 2

func drillProveCommand() *cobra.Command {
	var o labOptions
	c := &cobra.Command{
		Use:   "prove [DIR or FILE...]",
		Short: "Prove that drills can tell a good gateway from a bad one",
		Long: `Runs each scenario in three ways: as it is, which must pass; with the scenario's control, a handicap that
is switched on in the gateway when the fleet is steady, which must fail; and without the injection, which
must come out invalid. Only the three together show that a green drill means something.

Exit codes: 0 all proven, 1 not, 4 usage or scenario error, 5 harness error, 130 or 143 interrupted.`,
		Example: `  fleetdrill drill prove scenarios/matrix/engine-killed.yaml
  fleetdrill drill prove --json | jq '.drills[] | {name, verdict, control_verdict, no_fault_verdict}'`,
		RunE: func(c *cobra.Command, args []string) error {
			files, err := o.check(c, args)
			if err != nil {
				return err
			}
			for _, f := range files {
				if len(f.scenario.Control) == 0 {
					return usage(fmt.Errorf("%s: no control: it names nothing with which the drill must fail", f.scenario.Path))
				}
			}
			return o.inLab(c, func(ctx context.Context, l *drillLab) error { return o.prove(ctx, c, l, files) })
		},
	}
	o.add(c)
	return withConfig(c)
}

// proveResult is `drill prove --json`.
type proveResult struct {
	Verdict judge.Verdict  `json:"verdict"`
	WallS   float64        `json:"wall_s"`
	Drills  []drills.Proof `json:"drills"`
}

func (o labOptions) prove(ctx context.Context, c *cobra.Command, l *drillLab, files []drillFile) error {
	began := time.Now()
	proofs := make([]*drills.Proof, len(files))
	var legs []*drills.Leg
	for i, f := range files {
		var asIs, control, noFault *drills.Repeated
		// The pool calls these one at a time.
		take := func(into **drills.Repeated) func(drills.Repeated) {
			return func(r drills.Repeated) {
				*into = &r
				if asIs != nil && control != nil && noFault != nil {
					p := drills.NewProof(*asIs, *control, *noFault, f.scenario.Control)
					proofs[i] = &p
					l.board.print(proofText(p))
				}
			}
		}
		seed := o.seedOf(f.scenario)
		legs = append(legs,
			l.leg(f, drills.OneRun(seed, proveAgain), variant{}, take(&asIs)),
			l.leg(f, drills.OneRun(seed, proveAgain), variant{name: "control", handicaps: f.scenario.Control}, take(&control)),
			l.leg(f, drills.OneRun(seed, 0), variant{name: "no fault", noFault: true}, take(&noFault)))
	}
	drills.RunLegs(ctx, legs, o.jobs)
	result := proveResult{WallS: time.Since(began).Seconds(), Drills: []drills.Proof{}}
	var all []judge.Drill
	for _, p := range proofs {
		if p != nil {
			result.Drills = append(result.Drills, *p)
			all = append(all, p.Drill)
		}
	}
	result.Verdict = drills.ProofVerdict(result.Drills)
	if err := o.write(c.OutOrStdout(), result, all, drills.ProofMarkdown(result.Verdict, result.Drills)); err != nil {
		return err
	}
	if result.Verdict == judge.Error {
		return errors.New("proving: the lab itself failed")
	}
	return exitWith(result.Verdict.ExitCode())
}

// proofText is what the terminal shows of a proof.
func proofText(p drills.Proof) string {
	var b strings.Builder
	problems := p.Problems()
	head := "PROVEN"
	if len(problems) > 0 {
		head = "NOT PROVEN"
	}
	fmt.Fprintf(&b, "%s  %s: %s as it is, %s with %s, %s without its fault\n", head, p.Name, p.Verdict, p.ControlVerdict,
		strings.Join(p.Control, ", "), p.NoFaultVerdict)
	for _, line := range problems {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	if p.Verdict != judge.Pass && p.Reason != "" {
		fmt.Fprintf(&b, "  as it is: %s\n", p.Reason)
	}
	for _, line := range p.ControlSentences {
		fmt.Fprintf(&b, "  control: %s\n", line)
	}
	fmt.Fprintf(&b, "  runs: %s, %s, %s\n", p.RunDir, p.ControlRunDir, p.NoFaultRunDir)
	return b.String()
}

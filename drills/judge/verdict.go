package judge

import "fleetdrill/drills/record"

// Verdict is the outcome of an expectation, a run or a matrix.
type Verdict string

// The verdicts. Skipped exists for expectations only: a mark it needs never came because another one
// failed; it does not count.
const (
	Pass    Verdict = "pass"
	Fail    Verdict = "fail"
	Unknown Verdict = "unknown"
	Invalid Verdict = "invalid"
	Error   Verdict = "error"
	Skipped Verdict = "skipped"
)

// ExitCode is the exit status of a process that ends with this verdict: 0 pass, 1 fail, 2 unknown,
// 3 invalid, 5 harness error.
func (v Verdict) ExitCode() int {
	switch v {
	case Pass, Skipped:
		return 0
	case Fail:
		return 1
	case Unknown:
		return 2
	case Invalid:
		return 3
	}
	return 5
}

// severity orders verdicts: the worst of a matrix wins in the order error, fail, invalid, unknown, pass.
func (v Verdict) severity() int {
	switch v {
	case Skipped:
		return 0
	case Pass:
		return 1
	case Unknown:
		return 2
	case Invalid:
		return 3
	case Fail:
		return 4
	}
	return 5
}

// Worst is the verdict of several runs together; Error when there is none, since a matrix that ran
// nothing must not be green.
func Worst(vs ...Verdict) Verdict {
	if len(vs) == 0 {
		return Error
	}
	worst := Skipped
	for _, v := range vs {
		if v.severity() > worst.severity() {
			worst = v
		}
	}
	return worst
}

// Result is the verdict of one expectation. Value, Low, High, Bound and Margin are in Unit ("s", "bytes",
// or "" for counts and shares) and nil when the expectation has none.
type Result struct {
	ID      string   `json:"id"`
	Verdict Verdict  `json:"verdict"`
	Value   *float64 `json:"value"`
	Low     *float64 `json:"low"`
	High    *float64 `json:"high"`
	Bound   *float64 `json:"bound"`
	Margin  *float64 `json:"margin"`
	Unit    string   `json:"unit"`
	// Sentence says in one line what happened, for someone who has not read the scenario.
	Sentence string `json:"sentence"`
	// Rule is the expectation as written, on one line.
	Rule string `json:"rule"`
	// ValueText is the value as printed: `2.1 s (2.0-2.2)`, `< 0.1 s`.
	ValueText string `json:"value_text"`
	// Borderline is set when the interval straddled the bound and the point decided.
	Borderline bool `json:"borderline,omitempty"`
	// FromNs and ToNs are the window that decided, DecidedNs the deciding sample; 0 when there is none.
	FromNs    int64 `json:"from_ns,omitempty"`
	ToNs      int64 `json:"to_ns,omitempty"`
	DecidedNs int64 `json:"decided_ns,omitempty"`
	// Hole is set when a sampling gap longer than max_gap kept the window from deciding.
	Hole bool `json:"hole,omitempty"`
}

// Drill is the judged run of one scenario: an entry of `drill run --json`, and verdict.json.
type Drill struct {
	Name     string  `json:"name"`
	Topology string  `json:"topology"`
	Place    string  `json:"place"`
	Target   string  `json:"target"`
	Verdict  Verdict `json:"verdict"`
	// Reason says in one line why the verdict is not pass; empty when it is.
	Reason       string         `json:"reason,omitempty"`
	Runs         int            `json:"runs"`
	Passed       int            `json:"passed"`
	Wilson95Low  float64        `json:"wilson95_low"`
	RunDir       string         `json:"run_dir"`
	Seed         uint64         `json:"seed"`
	Expectations []Result       `json:"expectations"`
	Faults       []record.Fault `json:"faults"`
	Gates        []record.Gate  `json:"gates"`
}

package drills

import (
	"fmt"
	"path/filepath"
	"strings"

	"fleetdrill/drills/judge"
)

// Summary is what a terminal shows of a series: the verdict, then per expectation k of n, the smallest,
// median and largest value, and the command that repeats its worst run.
func (r Repeated) Summary(again func(seed uint64) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n", strings.ToUpper(string(r.Verdict)), r.Name, r.countText())
	width := 0
	for _, x := range r.Rules {
		width = max(width, len(x.ID))
	}
	for _, x := range r.Rules {
		line := fmt.Sprintf("  %2d of %-2d  %-*s  %s", x.Passed, x.Runs, width, x.ID, x.spreadText())
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		if x.Passed < x.Runs {
			fmt.Fprintf(&b, "            %-*s  %s\n", width, "", x.Worst)
		}
	}
	if r.Reason != "" {
		fmt.Fprintf(&b, "  why      %s\n", r.Reason)
	}
	if r.RunDir != "" {
		fmt.Fprintf(&b, "  worst    %s\n", again(r.Seed))
		fmt.Fprintf(&b, "  report   %s\n", filepath.Join(r.RunDir, "report.html"))
	}
	return b.String()
}

// countText is "19 of 20 (73.1-99.1 %), 1 invalid, flaky".
func (r Repeated) countText() string {
	return fmt.Sprintf("%d of %d (%s)", r.Passed, r.Runs, percents(r.Wilson95Low, r.Wilson95High)) + r.apart()
}

// apart is what is counted apart from the passes: ", 1 invalid, flaky".
func (r Repeated) apart() (s string) {
	if r.Invalid > 0 {
		s += fmt.Sprintf(", %d invalid", r.Invalid)
	}
	if r.Flaky {
		s += ", flaky"
	}
	return s
}

func percents(low, high float64) string { return fmt.Sprintf("%.1f-%.1f %%", 100*low, 100*high) }

// spreadText is "0.6 / 0.9 / 2.1 s; bound 2.5 s".
func (x RuleStats) spreadText() string {
	if x.Min == nil {
		return ""
	}
	s := fmt.Sprintf("%s / %s / %s%s", figure(*x.Min), figure(*x.Median), figure(*x.Max), unit(x.Unit))
	if x.Bound != nil {
		s += "; bound " + figure(*x.Bound) + unit(x.Unit)
	}
	return s
}

func unit(u string) string {
	if u == "" {
		return ""
	}
	return " " + u
}

// figure prints a value with three digits, whole numbers as such.
func figure(v float64) string {
	if v == float64(int64(v)) {
		return fmt.Sprintf("%d", int64(v))
	}
	return fmt.Sprintf("%.3g", v)
}

// Markdown is a summary of drills for a CI job's page. again gives the command that repeats a run of
// drill i.
func Markdown(verdict judge.Verdict, all []Repeated, again func(i int, seed uint64) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## Drills: %s\n\n", verdict)
	b.WriteString("| drill | verdict | passed | Wilson 95 % | what decided |\n|---|---|---|---|---|\n")
	for _, r := range all {
		if r.Name == "" {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %d of %d%s | %s | %s |\n", r.Name, r.Verdict, r.Passed, r.Runs, r.apart(),
			percents(r.Wilson95Low, r.Wilson95High), cell(r.deciding()))
	}
	for i, r := range all {
		if r.Name != "" && r.Verdict != judge.Pass {
			fmt.Fprintf(&b, "\n%s: `%s`\n", r.Name, again(i, r.Seed))
		}
	}
	return b.String()
}

// deciding is the reason of a verdict that is not a pass, else the first measured rule.
func (r Repeated) deciding() string {
	if r.Reason != "" {
		return r.Reason
	}
	for _, x := range r.Rules {
		if x.Min != nil && x.Bound != nil {
			return x.ID + " " + x.spreadText()
		}
	}
	return ""
}

// cell keeps text from ending a table's cell.
func cell(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "|", "\\|"), "\n", " ") }

// ProofMarkdown is a summary of proofs for a CI job's page.
func ProofMarkdown(verdict judge.Verdict, proofs []Proof) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## Proofs: %s\n\n", verdict)
	b.WriteString("| drill | as it is | with its control | without its fault | what is wanting |\n|---|---|---|---|---|\n")
	for _, p := range proofs {
		fmt.Fprintf(&b, "| %s | %s | %s (%s) | %s | %s |\n", p.Name, p.Verdict, p.ControlVerdict, strings.Join(p.Control, ", "),
			p.NoFaultVerdict, cell(strings.Join(p.Problems(), "; ")))
	}
	return b.String()
}

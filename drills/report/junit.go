package report

import (
	"encoding/xml"
	"fmt"
	"io"

	"fleetdrill/drills/judge"
)

// The JUnit dialect that CI systems agree on: suites, suites' cases, failure and error with a message.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitProblem `xml:"failure,omitempty"`
		Error   *junitProblem `xml:"error,omitempty"`
		Skipped *junitProblem `xml:"skipped,omitempty"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes one testsuite per drill and one testcase per expectation. A failure's message is the
// expectation's sentence. Unknown and invalid are errors, never skipped: a CI system must not show a run
// that could not tell as green. An expectation that another failed one took the mark from is skipped; its
// suite is red already. A run whose gates broke, or that ended in an error, has one more case for that.
func WriteJUnit(w io.Writer, drills []judge.Drill) error {
	var doc junitSuites
	for _, d := range drills {
		doc.Suites = append(doc.Suites, suite(d))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("writing JUnit: %w", err)
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("writing JUnit: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// suite adds a case for the run itself when it is red and none of its expectations is.
func suite(d judge.Drill) junitSuite {
	s := junitSuite{Name: d.Name, Properties: []junitProperty{
		{"verdict", string(d.Verdict)}, {"seed", fmt.Sprint(d.Seed)}, {"target", d.Target}, {"run_dir", d.RunDir}}}
	for _, r := range d.Expectations {
		s.add(expectationCase(d.Name, r))
	}
	// Whatever is not a pass must be red: a broken gate, an error, an interrupt. What is red through an
	// expectation already is not said twice.
	if d.Verdict != judge.Pass && s.Failures+s.Errors == 0 {
		s.add(junitCase{Class: d.Name, Name: "run", Error: &junitProblem{Message: d.Reason, Type: string(d.Verdict)}})
	}
	return s
}

// expectationCase carries the sentence as the message, which CI systems show, and the rule as the text,
// which they show on a click.
func expectationCase(drill string, r judge.Result) junitCase {
	c := junitCase{Class: drill, Name: r.ID}
	problem := &junitProblem{Message: r.Sentence, Type: string(r.Verdict), Text: r.Rule}
	switch r.Verdict {
	case judge.Pass:
		c.Out = r.Sentence // a passing rule's measured value is worth reading in CI too
	case judge.Fail:
		c.Failure = problem
	case judge.Skipped:
		c.Skipped = problem
	default:
		c.Error = problem
	}
	return c
}

// add counts a case as it goes in: the counts are attributes of the suite, before its cases.
func (s *junitSuite) add(c junitCase) {
	s.Cases = append(s.Cases, c)
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
}

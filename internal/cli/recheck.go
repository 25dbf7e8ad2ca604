package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetdrill/drills/compare"
	"fleetdrill/drills/judge"
	"fleetdrill/drills/report"
	"fleetdrill/drills/scenario"
)

// recheckOptions are the flags of `drill recheck`.
type recheckOptions struct {
	scenario string
	strict   bool
	dryRun   bool
	json     bool
}

func drillRecheckCommand() *cobra.Command {
	var o recheckOptions
	c := &cobra.Command{
		Use:   "recheck RUN",
		Short: "Judge a stored run again, by edited expectations if you like",
		Long: `Judges the stored series of a run folder by the expectations of its scenario.yaml, as it stands there
now, or of --scenario FILE. Prints each expectation's old verdict and new one, and writes verdict.json,
junit.xml, the timeline and report.html anew; --dry-run writes nothing. Nothing is started.

RUN is a run folder, a link to one such as results/runs/DRILL/latest, or results/runs/DRILL.

scenario.yaml says what was run and is never changed. Rules from --scenario are kept beside it as
rules.yaml; a recheck without --scenario takes them away again. Faults, loads and marks are what they
were: only the expectations are read anew. A run that ended in an error stays one.

Exit codes: as drill run, for the new verdict; 4 for a folder that is damaged or no run folder.`,
		Example: `  fleetdrill drill recheck results/runs/engine-killed/latest
  fleetdrill drill recheck results/runs/engine-killed --scenario edited.yaml --dry-run
  fleetdrill drill recheck results/runs/engine-killed/latest --strict --json | jq .expectations`,
		Args: runFolders(1),
		RunE: func(c *cobra.Command, args []string) error {
			return recheck(o, args[0], c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.scenario, "scenario", "", "judge by the expectations of this file (default: the folder's scenario.yaml)")
	f.BoolVar(&o.strict, "strict", false, "a borderline measurement is unknown instead of decided by its point")
	f.BoolVar(&o.dryRun, "dry-run", false, "only print; leave the folder as it is")
	f.BoolVar(&o.json, "json", false, "print the new verdict and the changes as JSON")
	return withConfig(c)
}

// runFolders wants that many RUN arguments.
func runFolders(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usage(fmt.Errorf("%s takes %d run folder(s), got %d; see `%s --help`", c.CommandPath(), n, len(args), c.CommandPath()))
		}
		return nil
	}
}

// openRun reads a run folder that an argument names. Whatever is wrong with it is the caller's: nothing was
// started.
func openRun(arg string) (report.Run, error) {
	dir, err := report.Resolve(arg)
	if err != nil {
		return report.Run{}, usage(err)
	}
	r, err := report.Open(dir)
	return r, usage(err)
}

// recheckResult is `drill recheck --json`.
type recheckResult struct {
	RunDir       string           `json:"run_dir"`
	Drill        string           `json:"drill"`
	Seed         uint64           `json:"seed"`
	Rules        string           `json:"rules"`
	Was          judge.Verdict    `json:"was"`
	Verdict      judge.Verdict    `json:"verdict"`
	Reason       string           `json:"reason,omitempty"`
	Changed      int              `json:"changed"`
	Written      bool             `json:"written"`
	WallS        float64          `json:"wall_s"`
	Expectations []compare.Change `json:"expectations"`
}

func recheck(o recheckOptions, arg string, stdout io.Writer) error {
	began := time.Now()
	r, err := openRun(arg)
	if err != nil {
		return err
	}
	rules, raw, err := o.rules(r.Drill.RunDir)
	if err != nil {
		return usage(err)
	}
	was := r.Drill
	r.Scenario = rules
	if r.Drill, err = compare.Rejudge(r, rules, judge.Options{Strict: o.strict}); err != nil {
		return usage(err)
	}
	out := recheckResult{RunDir: r.Drill.RunDir, Drill: r.Drill.Name, Seed: r.Drill.Seed, Rules: rules.Path, Was: was.Verdict,
		Verdict: r.Drill.Verdict, Reason: r.Drill.Reason, Expectations: compare.Verdicts(was.Expectations, r.Drill.Expectations)}
	out.Changed = compare.Differ(out.Expectations)
	if !o.dryRun {
		if err := o.write(r, raw); err != nil {
			return err
		}
		out.Written = true
	}
	out.WallS = time.Since(began).Seconds()
	if err := printRecheck(stdout, out, o.json); err != nil {
		return err
	}
	return exitWith(out.Verdict.ExitCode())
}

// rules reads the scenario to judge by, and its text.
func (o recheckOptions) rules(dir string) (*scenario.Scenario, []byte, error) {
	path := o.scenario
	if path == "" {
		path = filepath.Join(dir, report.ScenarioFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading a scenario: %w", err)
	}
	s, err := scenario.Parse(path, raw)
	return s, raw, err
}

// write keeps the rules first: a report must never stand beside rules that it was not judged by.
func (o recheckOptions) write(r report.Run, raw []byte) error {
	path := filepath.Join(r.Drill.RunDir, report.RulesFile)
	if o.scenario == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the rules of an earlier recheck: %w", err)
		}
	} else if err := os.WriteFile(path, raw, 0o644); err != nil {
		return fmt.Errorf("keeping the rules: %w", err)
	}
	return report.Write(r.Drill.RunDir, r)
}

func printRecheck(out io.Writer, r recheckResult, asJSON bool) error {
	if asJSON {
		return printJSON(out, r)
	}
	was := ""
	if r.Was != r.Verdict {
		was = " (was " + string(r.Was) + ")"
	}
	text := fmt.Sprintf("%s%s  %s  seed %d  by %s\n%s", strings.ToUpper(string(r.Verdict)), was, r.Drill, r.Seed, r.Rules, compare.Changes(r.Expectations))
	if r.Reason != "" {
		text += "  " + r.Reason + "\n"
	}
	if r.Written {
		text += "  report   " + filepath.Join(r.RunDir, report.PageFile) + "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

// printJSON prints one indented document, with < and & as they are: a rule must read as it was written.
func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func reportCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "report RUN",
		Short: "Rebuild the report page of a stored run",
		Long: `Draws report.html, timeline.svg and timeline.txt of a run folder anew from its stored series and its
verdict.json. It judges nothing; that is drill recheck.`,
		Example: `  fleetdrill report results/runs/engine-killed/latest`,
		Args:    runFolders(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := openRun(args[0])
			if err != nil {
				return err
			}
			if err := report.WritePages(r.Drill.RunDir, r); err != nil {
				return err
			}
			page := filepath.Join(r.Drill.RunDir, report.PageFile)
			if asJSON {
				return printJSON(c.OutOrStdout(), map[string]any{"report": page, "verdict": r.Drill.Verdict})
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), page)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the path and the verdict as JSON")
	return withConfig(c)
}

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"fleetdrill/drills"
	"fleetdrill/drills/compare"
	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
	"fleetdrill/drills/report"
	"fleetdrill/drills/scenario"
)

func incidentCommand() *cobra.Command {
	return group("incident", "Look into a run that someone handed on, and run it again", incidentInspectCommand(), incidentReproduceCommand())
}

func incidentInspectCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect RUN",
		Short: "Tell what happened in a stored run, in order",
		Long: `Prints the timeline of a run folder: marks, changes of every worker's state, the evidence of each fault,
rises of the recovery counters and the deciding samples; then the requests that did not end well, grouped,
the faults, the gates and the verdict. Exit code 0 whatever the verdict; 4 for a folder that is damaged or
no run folder.`,
		Example: `  fleetdrill incident inspect results/runs/engine-killed/latest
  fleetdrill incident inspect results/runs/engine-killed/latest --json | jq .failures`,
		Args: runFolders(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := openRun(args[0])
			if err != nil {
				return err
			}
			in := report.Inspect(r)
			if asJSON {
				return printJSON(c.OutOrStdout(), in)
			}
			_, err = io.WriteString(c.OutOrStdout(), in.Text())
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the inspection as JSON")
	return withConfig(c)
}

// reproduceOptions are the flags of `incident reproduce`.
type reproduceOptions struct {
	out    string
	strict bool
	json   bool
}

func incidentReproduceCommand() *cobra.Command {
	var o reproduceOptions
	c := &cobra.Command{
		Use:   "reproduce RUN",
		Short: "Run a stored run again from its folder and say whether it came out the same",
		Long: `Runs the drill of a run folder again, from what the folder holds: its scenario.yaml, the seed and the
gateway's arguments of its plan.json. The same seed means the same victims, instants and request bytes; the
machine's pace is its own. The stored series are judged anew too, so that both verdicts are by one judge.

Exit codes: 0 every expectation came out the same, 1 one did not, 3 the new run is invalid, 4 the folder is
damaged, no run folder, or holds a run that proved nothing, 5 harness error, 130 or 143 interrupted.`,
		Example: `  fleetdrill incident reproduce results/runs/engine-killed/latest
  fleetdrill incident reproduce ~/Downloads/20261129T120000Z-7 --out /tmp/again --json`,
		Args: runFolders(1),
		RunE: func(c *cobra.Command, args []string) error {
			return reproduceRun(o, args[0], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&o.out, "out", "results/runs", "folder of run folders, for the new run")
	f.BoolVar(&o.strict, "strict", false, "a borderline measurement is unknown instead of decided by its point")
	f.BoolVar(&o.json, "json", false, "print both verdicts as JSON")
	return withConfig(c)
}

// planned is what of plan.json it takes to run a run again. Handicaps and NoFault are there for the legs of
// a proof.
type planned struct {
	Drill     string   `json:"drill"`
	Seed      *uint64  `json:"seed"`
	Gateway   []string `json:"gateway_args"`
	Handicaps []string `json:"handicaps"`
	NoFault   bool     `json:"no_fault"`
}

// bundle is a run folder ready to be run again: its scenario as it was run, and how.
type bundle struct {
	stored   judge.Drill
	scenario *scenario.Scenario
	raw      []byte
	options  drills.Options
}

// openBundle reads a run folder as something to run. A run that proved nothing has no outcome to reproduce.
func openBundle(o reproduceOptions, arg string) (bundle, error) {
	r, err := openRun(arg)
	if err != nil {
		return bundle{}, err
	}
	dir := r.Drill.RunDir
	path := filepath.Join(dir, report.ScenarioFile)
	b := bundle{}
	if b.raw, err = os.ReadFile(path); err != nil {
		return b, usage(fmt.Errorf("reading a run folder: %w", err))
	}
	if b.scenario, err = scenario.Parse(path, b.raw); err != nil {
		return b, usage(err)
	}
	if b.stored, err = compare.Rejudge(r, b.scenario, judge.Options{Strict: o.strict}); err != nil {
		return b, usage(err)
	}
	if v := b.stored.Verdict; v != judge.Pass && v != judge.Fail && v != judge.Unknown {
		return b, usage(fmt.Errorf("%s: the stored run is %s (%s): it has no outcome to reproduce", dir, v, b.stored.Reason))
	}
	b.options, err = planOptions(filepath.Join(dir, "plan.json"), b.scenario)
	return b, usage(err)
}

// planOptions turns plan.json back into the options that made it. The plan lists the gateway's arguments as
// a whole, the scenario's first.
func planOptions(path string, s *scenario.Scenario) (drills.Options, error) {
	var p planned
	if err := record.ReadJSON(path, &p); err != nil {
		return drills.Options{}, err
	}
	own := s.Gateway.Args
	switch {
	case p.Drill != s.Name:
		return drills.Options{}, fmt.Errorf("%s: it plans the drill %q, the scenario is %s", path, p.Drill, s.Name)
	case p.Seed == nil:
		return drills.Options{}, fmt.Errorf("%s: it has no seed", path)
	case len(p.Gateway) < len(own) || !slices.Equal(p.Gateway[:len(own)], own):
		return drills.Options{}, fmt.Errorf("%s: gateway_args %q do not begin with the scenario's %q: one of the two was changed after the run", path, p.Gateway, own)
	}
	return drills.Options{Seed: *p.Seed, GatewayArgs: p.Gateway[len(own):], Handicaps: p.Handicaps, NoFault: p.NoFault}, nil
}

// reproduced is `incident reproduce --json`. Was is the stored run's verdict by today's judge.
type reproduced struct {
	RunDir       string           `json:"run_dir"`
	NewRunDir    string           `json:"new_run_dir"`
	Drill        string           `json:"drill"`
	Seed         uint64           `json:"seed"`
	Was          judge.Verdict    `json:"was"`
	Verdict      judge.Verdict    `json:"verdict"`
	Reason       string           `json:"reason,omitempty"`
	Same         bool             `json:"same"`
	Expectations []compare.Change `json:"expectations"`
}

func reproduceRun(o reproduceOptions, arg string, stdout, stderr io.Writer) error {
	b, err := openBundle(o, arg)
	if err != nil {
		return err
	}
	dirty, err := drills.DirtyJournals()
	if err != nil {
		return err
	}
	if len(dirty) > 0 {
		return fmt.Errorf("an earlier run was killed and left something behind (%s); run `fleetdrill drill cleanup` first", dirty[0])
	}
	ctx, caught, stop := twoSignals()
	defer stop()
	d, err := b.run(ctx, o, stderr)
	if sig := caught(); sig != nil {
		return exitWith(signalCode(sig))
	}
	if err != nil {
		return err
	}
	out := outcome(b.stored, d)
	if err := out.print(stdout, o.json); err != nil {
		return err
	}
	return exitWith(out.exit())
}

// run runs the bundle's drill as it was run, into a folder of its own.
func (b bundle) run(ctx context.Context, o reproduceOptions, stderr io.Writer) (judge.Drill, error) {
	opts := b.options
	opts.Strict, opts.Out, opts.Timings, opts.Version = o.strict, o.out, timings, version
	opts.Reproduce = "fleetdrill incident reproduce " + b.stored.RunDir
	opts.Progress = func(line string) { fmt.Fprintf(stderr, "%s: %s\n", b.scenario.Name, line) }
	return drills.Run(ctx, b.scenario, b.raw, opts)
}

// outcome compares the new verdict with the stored one.
func outcome(was, now judge.Drill) reproduced {
	out := reproduced{RunDir: was.RunDir, NewRunDir: now.RunDir, Drill: now.Name, Seed: now.Seed, Was: was.Verdict, Verdict: now.Verdict,
		Reason: now.Reason, Expectations: compare.Verdicts(was.Expectations, now.Expectations)}
	out.Same = was.Verdict == now.Verdict && compare.Differ(out.Expectations) == 0
	return out
}

// exit is 3 when the new run proved nothing, whatever its expectations look like: neither "the same" nor
// "different" may be said then.
func (r reproduced) exit() int {
	switch {
	case r.Verdict == judge.Invalid:
		return exitInvalid
	case r.Verdict == judge.Error:
		return exitHarness
	case r.Same:
		return exitPass
	}
	return exitFail
}

func (r reproduced) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(out, r)
	}
	_, err := fmt.Fprintf(out, "%s  seed %d: %s\n%s  stored   %s\n  report   %s\n", r.Drill, r.Seed, r.sentence(), compare.Changes(r.Expectations),
		r.RunDir, filepath.Join(r.NewRunDir, report.PageFile))
	return err
}

// sentence says in one line whether the outcome was reproduced.
func (r reproduced) sentence() string {
	n := compare.Differ(r.Expectations)
	switch {
	case r.Verdict == judge.Invalid || r.Verdict == judge.Error:
		return fmt.Sprintf("the new run is %s (%s): it says nothing about the stored one, which is %s", r.Verdict, r.Reason, r.Was)
	case r.Same:
		return fmt.Sprintf("reproduced: %s again, every expectation the same", r.Verdict)
	case n == 0:
		return fmt.Sprintf("not reproduced: %s before, %s now, though every expectation is the same: %s", r.Was, r.Verdict, r.Reason)
	}
	return fmt.Sprintf("not reproduced: %d of %d expectations came out differently", n, len(r.Expectations))
}

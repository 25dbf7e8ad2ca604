package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetdrill/drills"
	"fleetdrill/drills/judge"
	"fleetdrill/drills/report"
	"fleetdrill/drills/scenario"
)

// runOptions are the flags of `drill run`.
type runOptions struct {
	labOptions
	repeat  string
	tier    string
	noFault bool
}

// ownRepeat is the value of a bare --repeat: as often as each scenario says.
const ownRepeat = "own"

func drillRunCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run [DIR or FILE...]",
		Short: "Run drills: fleet, load, fault, verdict",
		Long: `Runs each scenario: starts a fleet and a gateway, puts load on them, injects the fault, samples routing
state, judges and cleans up. Without an argument it runs the smoke tier of the scenarios built into this
binary: every core drill once.

With repeats every run has a seed of its own, invalid runs are replaced and counted apart, and each
expectation gets k of n with its Wilson 95 % interval, its smallest, median and largest value, and the
command that repeats its worst run. A failed run is never tried again.

Exit codes: 0 pass, 1 an expectation failed, 2 unknown, 3 invalid, 4 usage or scenario error, 5 harness
error or cleanup incomplete, 130 or 143 interrupted.`,
		Example: `  fleetdrill drill run scenarios/matrix/engine-killed.yaml
  fleetdrill drill run scenarios/matrix/engine-killed.yaml --gateway-arg --handicap=liveness-off   # must fail
  fleetdrill drill run scenarios/matrix --repeat 5 --jobs 1 --summary-md summary.md
  fleetdrill drill run --tier nightly
  fleetdrill drill run --seed 42 --json | jq .drills[].expectations`,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	o.add(c)
	f := c.Flags()
	f.StringVar(&o.repeat, "repeat", "", "run each drill N times; without N as often as its file says")
	f.Lookup("repeat").NoOptDefVal = ownRepeat
	f.StringVar(&o.tier, "tier", "", "which drills and how often: "+strings.Join(drills.Tiers, ", "))
	f.BoolVar(&o.noFault, "no-fault", false, "leave every injection out: each run must come out invalid")
	return withConfig(c)
}

func (o runOptions) run(c *cobra.Command, args []string) error {
	o.repeat, args = takeRepeat(o.repeat, args)
	runs, err := o.runsOf(len(args) > 0)
	if err != nil {
		return usage(err)
	}
	files, err := o.check(c, args)
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(f drillFile) bool { return runs(f.scenario) == 0 })
	if len(files) == 0 {
		return usage(fmt.Errorf("tier %s has none of these drills", o.tier))
	}
	return o.inLab(c, func(ctx context.Context, l *drillLab) error {
		began := time.Now()
		results := make([]drills.Repeated, len(files))
		var legs []*drills.Leg
		for i, f := range files {
			legs = append(legs, l.leg(f, o.series(f.scenario, runs(f.scenario)), variant{noFault: o.noFault}, func(r drills.Repeated) {
				results[i] = r
				l.board.print(o.summary(f, r))
			}))
		}
		drills.RunLegs(ctx, legs, o.jobs)
		return o.finish(c, files, results, time.Since(began))
	})
}

// takeRepeat lets `--repeat 3` mean what it says. A flag whose value is optional takes none from the next
// word, so the number arrives as an argument.
func takeRepeat(repeat string, args []string) (string, []string) {
	if repeat != ownRepeat {
		return repeat, args
	}
	for i, a := range args {
		if _, err := strconv.Atoi(a); err != nil {
			continue
		}
		if _, err := os.Stat(a); err != nil {
			return a, slices.Delete(slices.Clone(args), i, i+1)
		}
	}
	return repeat, args
}

// runsOf says how often each drill runs, 0 for not at all.
func (o runOptions) runsOf(named bool) (func(*scenario.Scenario) int, error) {
	tier := o.tier
	if tier == "" && !named && o.repeat == "" {
		tier = drills.TierSmoke
	}
	switch {
	case o.tier != "" && o.repeat != "":
		return nil, errors.New("--tier and --repeat exclude each other: a tier says how often")
	case tier != "" && !slices.Contains(drills.Tiers, tier):
		return nil, fmt.Errorf("--tier %q: want %s", tier, strings.Join(drills.Tiers, ", "))
	case tier != "":
		return func(s *scenario.Scenario) int { return drills.TierRuns(tier, s) }, nil
	case o.repeat == ownRepeat:
		return drills.OwnRuns, nil
	case o.repeat == "":
		return func(*scenario.Scenario) int { return 1 }, nil
	}
	n, err := strconv.Atoi(o.repeat)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("--repeat %q: want a number of runs, at least 1", o.repeat)
	}
	return func(*scenario.Scenario) int { return n }, nil
}

// series draws the seeds of a drill's runs. A single run has the seed that was given; the seeds of
// several follow from it.
func (o runOptions) series(s *scenario.Scenario, n int) *drills.Series {
	if n == 1 {
		return drills.OneRun(o.seedOf(s), 0)
	}
	base := s.Repeat.Seed
	if o.seedGiven {
		base = o.seed
	}
	return drills.NewSeries(n, base)
}

// summary is what the terminal shows of a finished drill.
func (o runOptions) summary(f drillFile, r drills.Repeated) string {
	if r.Runs+r.Invalid <= 1 {
		return report.Summary(r.Drill)
	}
	return r.Summary(func(seed uint64) string { return o.again(f, seed, variant{noFault: o.noFault}) })
}

// drillsResult is `drill run --json`.
type drillsResult struct {
	Verdict judge.Verdict     `json:"verdict"`
	WallS   float64           `json:"wall_s"`
	Drills  []drills.Repeated `json:"drills"`
}

// finish writes the results and turns the verdict into an exit code. A drill that an interrupt kept from
// starting is left out.
func (o runOptions) finish(c *cobra.Command, files []drillFile, results []drills.Repeated, wall time.Duration) error {
	result := drillsResult{WallS: wall.Seconds(), Drills: []drills.Repeated{}}
	var all []judge.Drill
	var verdicts []judge.Verdict
	for _, r := range results {
		if r.Name == "" && r.Reason == "" {
			continue
		}
		result.Drills = append(result.Drills, r)
		all, verdicts = append(all, r.Drill), append(verdicts, r.Verdict)
	}
	result.Verdict = judge.Worst(verdicts...)
	again := func(i int, seed uint64) string { return o.again(files[i], seed, variant{noFault: o.noFault}) }
	if err := o.write(c.OutOrStdout(), result, all, drills.Markdown(result.Verdict, results, again)); err != nil {
		return err
	}
	var errs []error
	for _, r := range result.Drills {
		if r.Verdict == judge.Error {
			errs = append(errs, fmt.Errorf("%s: %s", r.Name, r.Reason))
		}
	}
	if len(errs) > 0 {
		return &exitError{exitHarness, errors.Join(errs...)}
	}
	return exitWith(result.Verdict.ExitCode())
}

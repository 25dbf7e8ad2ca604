package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"fleetdrill/drills"
	"fleetdrill/drills/judge"
	"fleetdrill/drills/report"
	"fleetdrill/drills/scenario"
	"fleetdrill/drills/synth"
	"fleetdrill/internal/rng"
	"fleetdrill/mockworker/engine"
)

func drillCommand() *cobra.Command {
	return group("drill", "Run drills and judge them", drillRunCommand(), drillPlanCommand(), drillRecheckCommand(), drillDiffCommand(), drillCleanupCommand())
}

// drillOptions are the flags of `drill run` and `drill plan`.
type drillOptions struct {
	seed        uint64
	seedGiven   bool
	out         string
	gatewayArgs []string
	strict      bool
	json        bool
	junit       string
}

func drillRunCommand() *cobra.Command {
	var o drillOptions
	c := &cobra.Command{
		Use:   "run [DIR or FILE...]",
		Short: "Run drills: fleet, load, fault, verdict",
		Long: `Runs each scenario once: starts a fleet and a gateway, puts load on them, injects the fault, samples
routing state, judges and cleans up. Without an argument it runs the scenarios built into this binary.

Exit codes: 0 pass, 1 an expectation failed, 2 unknown, 3 invalid, 4 usage or scenario error, 5 harness
error or cleanup incomplete, 130 or 143 interrupted.`,
		Example: `  fleetdrill drill run scenarios/matrix/engine-killed.yaml
  fleetdrill drill run scenarios/matrix/engine-killed.yaml --gateway-arg --handicap=liveness-off   # must fail
  fleetdrill drill run --seed 42 --json | jq .drills[].expectations`,
		RunE: func(c *cobra.Command, args []string) error {
			o.seedGiven = c.Flags().Changed("seed")
			return runDrills(o, args, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.add(c)
	f := c.Flags()
	f.StringVar(&o.out, "out", "results/runs", "folder of run folders")
	f.BoolVar(&o.strict, "strict", false, "a borderline measurement is unknown instead of decided by its point")
	f.BoolVar(&o.json, "json", false, "print the verdicts as JSON on standard output")
	f.StringVar(&o.junit, "junit", "", "write all verdicts as JUnit XML to this file too")
	return withConfig(c)
}

func (o *drillOptions) add(c *cobra.Command) {
	c.Flags().Uint64Var(&o.seed, "seed", 0, "seed of the run (default: the first of the scenario's own)")
	c.Flags().StringArrayVar(&o.gatewayArgs, "gateway-arg", nil, "one more argument of the gateway; repeatable")
}

// seedOf is the run's seed: as given, or the first that the scenario's repeats would use.
func (o drillOptions) seedOf(s *scenario.Scenario) uint64 {
	if o.seedGiven {
		return o.seed
	}
	return rng.RunSeed(s.Repeat.Seed, 0)
}

func drillPlanCommand() *cobra.Command {
	var o drillOptions
	c := &cobra.Command{
		Use:     "plan [DIR or FILE...]",
		Short:   "Show what a drill would do, without starting anything",
		Example: `  fleetdrill drill plan scenarios/matrix/engine-killed.yaml --seed 42`,
		RunE: func(c *cobra.Command, args []string) error {
			o.seedGiven = c.Flags().Changed("seed")
			files, err := loadScenarios(args)
			if err != nil {
				return usage(err)
			}
			for _, f := range files {
				plan, err := drills.NewPlan(f.scenario, o.seedOf(f.scenario), o.gatewayArgs, timings)
				if err != nil {
					return usage(fmt.Errorf("%s: %w", f.scenario.Path, err))
				}
				if err := printPlan(c.OutOrStdout(), plan, o.json); err != nil {
					return err
				}
			}
			return nil
		},
	}
	o.add(c)
	c.Flags().BoolVar(&o.json, "json", false, "print the plans as JSON, one a line")
	return withConfig(c)
}

func printPlan(out io.Writer, p *drills.Plan, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(p)
	}
	_, err := io.WriteString(out, p.String())
	return err
}

func drillCleanupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Undo what a lab that was killed left behind",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return drills.Cleanup(func(line string) { fmt.Fprintln(c.OutOrStdout(), line) })
		},
	}
}

// timings looks up a profile's coefficients for utilisation.
func timings(profile string) (synth.Timing, error) {
	p, err := engine.LoadProfile(profile)
	if err != nil {
		return synth.Timing{}, err
	}
	t := p.Timing()
	return synth.Timing{B: t.B, C: t.C, D: t.D, E: t.E}, nil
}

// drillsResult is `drill run --json`.
type drillsResult struct {
	Verdict judge.Verdict `json:"verdict"`
	WallS   float64       `json:"wall_s"`
	Drills  []judge.Drill `json:"drills"`
}

// runDrills checks everything before it starts anything, then runs the drills one by one.
func runDrills(o drillOptions, args []string, stdout, stderr io.Writer) error {
	files, err := loadScenarios(args)
	if err != nil {
		return usage(err)
	}
	for _, f := range files {
		if _, err := drills.NewPlan(f.scenario, o.seedOf(f.scenario), o.gatewayArgs, timings); err != nil {
			return usage(fmt.Errorf("%s: %w", f.scenario.Path, err))
		}
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
	began := time.Now()
	result := drillsResult{}
	var runErr error
	for _, f := range files {
		d, err := drills.Run(ctx, f.scenario, f.raw, o.runOptions(f.scenario, stderr))
		result.Drills = append(result.Drills, d)
		if err != nil {
			runErr = errors.Join(runErr, fmt.Errorf("%s: %w", f.scenario.Name, err))
		}
		if ctx.Err() != nil {
			break
		}
		if !o.json {
			fmt.Fprint(stdout, report.Summary(d))
		}
	}
	result.WallS = time.Since(began).Seconds()
	result.Verdict = worst(result.Drills)
	if err := o.write(result, stdout); err != nil {
		return err
	}
	if sig := caught(); sig != nil {
		return exitWith(signalCode(sig))
	}
	if runErr != nil {
		return runErr
	}
	return exitWith(result.Verdict.ExitCode())
}

func (o drillOptions) runOptions(s *scenario.Scenario, stderr io.Writer) drills.Options {
	seed := o.seedOf(s)
	again := fmt.Sprintf("fleetdrill drill run %s --seed %d", s.Path, seed)
	for _, a := range o.gatewayArgs {
		again += " --gateway-arg " + a
	}
	return drills.Options{Seed: seed, Strict: o.strict, Out: o.out, GatewayArgs: o.gatewayArgs, Timings: timings,
		Version: version, Reproduce: again, Progress: func(line string) { fmt.Fprintf(stderr, "%s: %s\n", s.Name, line) }}
}

func worst(ds []judge.Drill) judge.Verdict {
	vs := make([]judge.Verdict, len(ds))
	for i, d := range ds {
		vs[i] = d.Verdict
	}
	return judge.Worst(vs...)
}

func (o drillOptions) write(r drillsResult, stdout io.Writer) error {
	if o.junit != "" {
		f, err := os.Create(o.junit)
		if err != nil {
			return fmt.Errorf("writing --junit: %w", err)
		}
		if err := errors.Join(report.WriteJUnit(f, r.Drills), f.Close()); err != nil {
			return fmt.Errorf("writing --junit %s: %w", o.junit, err)
		}
	}
	if !o.json {
		return nil
	}
	enc := json.NewEncoder(stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// healGrace is how long the first signal leaves for healing and collecting; the second one ends at once.
const healGrace = 30 * time.Second

// twoSignals is a context that the first signal ends in order. The second signal, or the end of the
// grace, ends the process at once: the children go with it, the cleanup journal stays.
func twoSignals() (ctx context.Context, caught func() os.Signal, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	first := make(chan os.Signal, 1)
	go func() {
		var sig os.Signal
		select {
		case sig = <-signals:
		case <-done:
			return
		}
		first <- sig
		cancel()
		select {
		case sig = <-signals:
		case <-time.After(healGrace):
		case <-done:
			return
		}
		os.Exit(signalCode(sig))
	}()
	caught = func() os.Signal {
		select {
		case sig := <-first:
			return sig
		default:
			return nil
		}
	}
	return ctx, caught, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

func signalCode(sig os.Signal) int {
	if sig == syscall.SIGTERM {
		return exitSIGTERM
	}
	return exitSIGINT
}

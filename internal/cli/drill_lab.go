package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"

	"github.com/spf13/cobra"

	"fleetdrill/drills"
	"fleetdrill/drills/judge"
	"fleetdrill/drills/report"
)

// labGC is the lab's GOGC. Its heap is small and the load generator shares its process: at the default
// a collection comes every second or so and takes a core just when a request is due.
const labGC = 800

// labOptions are the flags of commands that run drills.
type labOptions struct {
	drillOptions
	out        string
	strict     bool
	jobs       int
	junit      string
	summaryMD  string
	cpuProfile string
}

func (o *labOptions) add(c *cobra.Command) {
	o.drillOptions.add(c, "print the verdicts as JSON on standard output")
	f := c.Flags()
	f.StringVar(&o.out, "out", "results/runs", "folder of run folders")
	f.BoolVar(&o.strict, "strict", false, "a borderline measurement is unknown instead of decided by its point")
	f.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "runs side by side")
	f.StringVar(&o.junit, "junit", "", "write all verdicts as JUnit XML to this file too")
	f.StringVar(&o.summaryMD, "summary-md", "", "write a summary in Markdown to this file, as for a CI job's page")
	f.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile of the lab itself to this file")
}

// drillLab runs drills until they are done or a signal comes.
type drillLab struct {
	o     labOptions
	board *board
	// caught is the signal that ended the work, if one did.
	caught func() os.Signal
}

// inLab refuses to start on top of what a killed lab left behind, then calls work with everything that a
// lab needs. A signal decides the exit code whatever work says.
func (o labOptions) inLab(c *cobra.Command, work func(context.Context, *drillLab) error) (err error) {
	if o.jobs < 1 {
		return usage(fmt.Errorf("--jobs %d: want at least 1", o.jobs))
	}
	dirty, err := drills.DirtyJournals()
	if err != nil {
		return err
	}
	if len(dirty) > 0 {
		return fmt.Errorf("an earlier run was killed and left something behind (%s); run `fleetdrill drill cleanup` first", dirty[0])
	}
	stopProfile, err := o.startProfile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfile()) }()
	debug.SetGCPercent(labGC)
	ctx, caught, stop := twoSignals()
	defer stop()
	l := &drillLab{o: o, caught: caught, board: newBoard(c.OutOrStdout(), c.ErrOrStderr(), o.json)}
	stopTicks := l.board.tick()
	err = work(ctx, l)
	stopTicks()
	if sig := caught(); sig != nil {
		return exitWith(signalCode(sig))
	}
	return err
}

func (o labOptions) startProfile() (stop func() error, err error) {
	if o.cpuProfile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(o.cpuProfile)
	if err != nil {
		return nil, usage(fmt.Errorf("writing --cpuprofile: %w", err))
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("profiling: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// variant is how a leg departs from the drill as it is.
type variant struct {
	name      string // shown behind the drill's
	noFault   bool
	handicaps []string
}

// leg makes a series of runs of a drill; result takes what it came to.
func (l *drillLab) leg(f drillFile, s *drills.Series, v variant, result func(drills.Repeated)) *drills.Leg {
	name := f.scenario.Name
	if v.name != "" {
		name += " (" + v.name + ")"
	}
	row := l.board.row(name, s.Many())
	return &drills.Leg{Series: s,
		Run: func(ctx context.Context, seed uint64) (judge.Drill, error) {
			row.start()
			d, err := drills.Run(ctx, f.scenario, f.raw, drills.Options{Seed: seed, Strict: l.o.strict, Out: l.o.out, GatewayArgs: l.o.gatewayArgs,
				NoFault: v.noFault, Handicaps: v.handicaps, Timings: timings, Version: version,
				Reproduce: l.o.again(f, seed, v), Progress: row.say})
			d.Name = f.scenario.Name // also when the lab failed before it had a run
			row.end(d, err)
			return d, err
		},
		Done: func(r drills.Repeated) {
			row.done()
			result(r)
		}}
}

// again is the command that repeats one run.
func (o labOptions) again(f drillFile, seed uint64, v variant) string {
	s := fmt.Sprintf("fleetdrill drill run %s --seed %d", f.scenario.Path, seed)
	for _, a := range o.gatewayArgs {
		s += " --gateway-arg " + a
	}
	for _, h := range v.handicaps {
		s += " --gateway-arg --handicap=" + h
	}
	if v.noFault {
		s += " --no-fault"
	}
	return s
}

// write leaves the results where the flags want them.
func (o labOptions) write(stdout io.Writer, result any, all []judge.Drill, markdown string) error {
	if err := writeTo(o.junit, "--junit", func(w io.Writer) error { return report.WriteJUnit(w, all) }); err != nil {
		return err
	}
	err := writeTo(o.summaryMD, "--summary-md", func(w io.Writer) error {
		_, err := io.WriteString(w, markdown)
		return err
	})
	if err != nil || !o.json {
		return err
	}
	enc := json.NewEncoder(stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(result)
}

func writeTo(path, flag string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing %s: %w", flag, err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("writing %s %s: %w", flag, path, err)
	}
	return nil
}

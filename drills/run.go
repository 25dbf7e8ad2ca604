package drills

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/lab"
	"fleetdrill/internal/supervise"
)

// Options of a run. Out must be set; the other zero values mean what their comments say.
type Options struct {
	// Seed draws everything random of the run.
	Seed uint64
	// Strict turns borderline verdicts into unknown.
	Strict bool
	// Out is the folder of run folders.
	Out string
	// GatewayArgs are appended to the scenario's own.
	GatewayArgs []string
	// Timings computes utilisation; nil leaves it out.
	Timings Timings
	// NoFault leaves every injection out and does everything else: such a run must come out invalid.
	NoFault bool
	// Handicaps are switched on in the gateway when the steady state is reached: a run with the
	// scenario's control must fail.
	Handicaps []string
	// Exe is the fleetdrill binary; empty means this one.
	Exe string
	// Version goes into env.json.
	Version string
	// Reproduce is the command that runs the same drill again, for the report.
	Reproduce string
	// Log takes the lab's messages; nil means none.
	Log *slog.Logger
	// Progress is told what is going on, one short line at a time; nil means nobody is.
	Progress func(line string)
}

// ErrInterrupted says that the run ended early because its context did. What was observed until then is
// in the run folder.
var ErrInterrupted = errors.New("interrupted")

// bootTimeout bounds the start of fleet and gateway; on an idle machine they take well under 2 s.
const bootTimeout = 60 * time.Second

// drainTimeout bounds how long requests may stay open behind the last one sent. A request of the matrix
// takes under 2 s; one that is still open after this is hung for any purpose.
const drainTimeout = 10 * time.Second

// run is one drill in progress.
type run struct {
	s    *scenario.Scenario
	plan *Plan
	o    Options
	log  *slog.Logger
	say  func(string)

	folder  runFolder
	journal *supervise.Journal
	lab     *lab.Lab
	fleet   *lab.Fleet
	gateway *lab.Gateway
	policy  string // the gateway's own word for its placement policy
	sampler *sampler
	loads   *loads
	marks   *marks
	// deadlineNs bounds every wait for a mark.
	deadlineNs int64

	// acts are the faults prepared so far; of the timeline's goroutine, which waits for the holds.
	acts     []*act
	holds    sync.WaitGroup
	breakOff context.CancelCauseFunc // ends the timeline

	mu     sync.Mutex // guards what follows: holds write beside the timeline
	faults []*record.Fault
	gates  []record.Gate
}

// gate adds a validity gate.
func (r *run) gate(g record.Gate) {
	r.mu.Lock()
	r.gates = append(r.gates, g)
	r.mu.Unlock()
}

// Run runs a drill once and leaves its run folder. raw is the scenario's text, kept in the folder. The
// error is set when the lab itself failed or was interrupted; a drill that fails is not an error.
func Run(ctx context.Context, s *scenario.Scenario, raw []byte, o Options) (judge.Drill, error) {
	began := time.Now()
	plan, err := NewPlan(s, o.Seed, o.GatewayArgs, o.Timings)
	if err != nil {
		return judge.Drill{}, err
	}
	plan.Handicaps, plan.NoFault = o.Handicaps, o.NoFault
	r := &run{s: s, plan: plan, o: o, log: o.Log, say: o.Progress, marks: &marks{}}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.say == nil {
		r.say = func(string) {}
	}
	if r.folder, err = newRunFolder(o.Out, s.Name, o.Seed, began); err != nil {
		return judge.Drill{}, err
	}
	if err := r.writeInputs(raw, began); err != nil {
		return judge.Drill{}, err
	}
	rec, err := r.observe(ctx)
	result, writeErr := r.conclude(rec, err, began)
	return result, errors.Join(err, writeErr)
}

// writeInputs keeps what the run is made from, before anything happens.
func (r *run) writeInputs(raw []byte, began time.Time) error {
	if err := os.WriteFile(r.folder.path("scenario.yaml"), raw, 0o644); err != nil {
		return fmt.Errorf("writing scenario.yaml: %w", err)
	}
	return errors.Join(r.folder.writeJSON("plan.json", r.plan), r.folder.writeJSON("env.json", readEnvironment(r.o.Version, began)))
}

// observe starts everything, runs the timeline, and ends everything. What it returns is whatever was
// observed, also when it ends in an error.
func (r *run) observe(ctx context.Context) (rec *record.Record, err error) {
	undo, err := r.openLab()
	if err != nil {
		return r.record(), err
	}
	defer func() { err = errors.Join(err, undo()) }()
	if err := r.boot(ctx); err != nil {
		return r.record(), r.asInterrupt(ctx, err)
	}
	if r.sampler, err = startSampler(ctx, r.s.Observe.Period, r.fleet, r.gateway, r.log); err != nil {
		return r.record(), err
	}
	defer r.sampler.stop()
	r.deadlineNs = clock.MonoNs() + int64(r.budget())
	if r.loads, err = r.startLoads(ctx); err == nil {
		err = r.phases(ctx)
	}
	r.loads.end(ctx.Err() != nil)
	r.sampler.stop()
	return r.record(), r.asInterrupt(ctx, err)
}

// phases are the steady state and then the timeline, which is left out when there is none.
func (r *run) phases(ctx context.Context) error {
	steady, err := r.awaitSteady(ctx)
	if err != nil || !steady {
		return err
	}
	if len(r.o.Handicaps) > 0 {
		now, err := r.gateway.Admin.SetHandicaps(ctx, r.o.Handicaps)
		if err != nil {
			return fmt.Errorf("handicapping the gateway: %w", err)
		}
		r.say(fmt.Sprintf("handicaps switched on: %v", now))
	}
	return r.timeline(ctx)
}

// openLab opens the cleanup journal, its watchdog and the lab, in this order: the journal must exist
// before the first child does. The returned function closes them in reverse.
func (r *run) openLab() (undo func() error, err error) {
	state, err := lab.StateDir()
	if err != nil {
		return nil, err
	}
	journal, path, err := openJournal(state)
	if err != nil {
		return nil, err
	}
	r.journal = journal
	exe := r.o.Exe
	if exe == "" {
		if exe, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("finding this binary: %w", err)
		}
	}
	dog, err := supervise.StartWatchdog(exe, path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the watchdog: %w", err), journal.Close(), os.Remove(path))
	}
	r.lab, err = lab.New(lab.Options{Exe: exe, Dir: r.folder.Dir, Journal: journal, Log: r.log})
	if err != nil {
		return nil, errors.Join(err, dog.Close(), journal.Close(), os.Remove(path))
	}
	return func() error {
		err := r.lab.Close()
		err = errors.Join(err, dog.Close(), journal.Close())
		return errors.Join(err, r.cleanupReport(path))
	}, nil
}

// cleanupReport writes cleanup.json and removes the journal when nothing is left to undo.
func (r *run) cleanupReport(path string) error {
	pending, err := supervise.ReadJournal(path)
	if err != nil {
		return fmt.Errorf("reading the cleanup journal: %w", err)
	}
	err = r.folder.writeJSON("cleanup.json", map[string]any{"complete": len(pending) == 0, "pending": pending})
	if len(pending) > 0 {
		return errors.Join(err, fmt.Errorf("cleanup incomplete: %d entries left; run `fleetdrill drill cleanup`", len(pending)))
	}
	return errors.Join(err, os.Remove(path))
}

// boot starts the fleet and the gateway and waits until every worker is routable.
func (r *run) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("not up within %v", bootTimeout))
	defer cancel()
	r.say(fmt.Sprintf("starting %d workers and the gateway", r.plan.Workers))
	var err error
	r.fleet, err = r.lab.StartFleet(ctx, lab.FleetSpec{Workers: r.plan.Workers, Profile: r.plan.Profile,
		KVBlocks: r.plan.KVBlocks, BlockSize: r.plan.BlockSize, Wires: r.plan.Wires, Seed: r.plan.Seed})
	if err != nil {
		return err
	}
	if r.gateway, err = r.lab.StartGateway(ctx, r.fleet, r.plan.Gateway...); err != nil {
		return err
	}
	if err := r.gateway.AwaitRoutable(ctx, r.plan.Workers); err != nil {
		return err
	}
	state, err := r.gateway.Admin.RoutingState(ctx)
	r.policy = state.Policy
	return err
}

// asInterrupt names an error after its cause when that is the end of the run's context.
func (r *run) asInterrupt(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// record is everything observed so far.
func (r *run) record() *record.Record {
	rec := &record.Record{Drill: r.plan.Drill, Seed: r.plan.Seed, Workers: r.plan.workerIDs(), PeriodNs: r.plan.PeriodNs,
		MaxGapNs: r.plan.MaxGapNs, Targets: r.plan.targets(), Marks: r.marks.list()}
	r.mu.Lock()
	for _, f := range r.faults {
		c := *f
		c.Evidence = append([]record.Evidence{}, f.Evidence...)
		rec.Faults = append(rec.Faults, c)
	}
	rec.Gates = append(rec.Gates, r.gates...)
	r.mu.Unlock()
	if r.sampler != nil {
		rec.Samples = r.sampler.snapshot()
	}
	if r.loads != nil {
		rec.Requests = r.loads.records()
	}
	if r.fleet != nil {
		rec.Links = r.links()
	}
	return rec
}

// links are the requests that passed the engines' link proxies.
func (r *run) links() []record.Link {
	var out []record.Link
	for _, w := range r.fleet.Workers {
		for _, q := range w.HTTP.Requests(0) {
			out = append(out, record.Link{Worker: w.ID, N: q.N, StartNs: q.StartMonoNs, EndNs: q.EndMonoNs, Method: q.Method, Path: q.Path, Outcome: string(q.Outcome)})
		}
	}
	return out
}

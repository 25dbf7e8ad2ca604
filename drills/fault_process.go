package drills

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/shirou/gopsutil/v3/process"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/lab"
)

// exitFault makes a process end by itself.
type exitFault struct {
	hookFault
	canary *canary
}

func (f *exitFault) prepare(context.Context) error {
	if id := f.worker.Child.ID(); !id.Alive() {
		return fmt.Errorf("%s (pid %d) is not running before its exit", f.worker.ID, id.PID)
	}
	return nil
}

// confirm waits for the process to be reaped with the code that was asked for, and for its port to refuse. An
// engine that dies of a full report is asked for one: no load is.
func (f *exitFault) confirm(ctx context.Context) (proof, error) {
	if f.params.Word("on") == "full_report" {
		f.canary = newCanary(f.worker, f.token)
		f.canary.fullReport()
	}
	select {
	case <-f.worker.Child.Done():
	case <-ctx.Done():
		return proof{}, fmt.Errorf("%s did not exit: %w", f.worker.ID, context.Cause(ctx))
	}
	exit := f.worker.Child.Exit()
	if exit.Code != int(f.params.Whole("code")) {
		return proof{}, fmt.Errorf("%s ended with %v, want exit %d", f.worker.ID, exit, f.params.Whole("code"))
	}
	p := proof{effectiveHi: exit.MonoNs, evidence: []record.Evidence{seen(exit.MonoNs, "wait saw %s (pid %d) end: %v", f.worker.ID, f.worker.Child.ID().PID, exit)}}
	addr, err := lab.HostPort(f.worker.Ready.HTTP)
	if err == nil {
		err = awaitRefused(ctx, addr)
	}
	p.evidence = append(p.evidence, seen(clock.MonoNs(), "a connection of the lab's own to %s was refused", addr))
	return p, err
}

func (f *exitFault) check(context.Context) ([]record.Evidence, error) { return nil, errPermanent }
func (f *exitFault) heal(context.Context) error                       { return errPermanent }
func (f *exitFault) confirmHealed(context.Context) ([]record.Evidence, error) {
	return nil, errPermanent
}
func (f *exitFault) close() {}

const (
	// leakSeen is how much a process must leak before its growth is told from its garbage, in bytes.
	leakSeen = 32 << 20
	// leakCanaries bounds the completions that are sent for it.
	leakCanaries = 400
	// leakLeast is what a request must leave behind for so many to be seen, in bytes.
	leakLeast = (leakSeen + leakCanaries - 1) / leakCanaries
)

// leakFault makes every request leave memory behind. The lab sends as many as it takes to see it.
type leakFault struct {
	hookFault
	canary        *canary
	proc          *process.Process
	before, grown uint64
}

func (f *leakFault) prepare(ctx context.Context) (err error) {
	f.canary = newCanary(f.worker, f.token)
	if f.proc, err = process.NewProcess(int32(f.worker.Child.ID().PID)); err != nil {
		return err
	}
	// Completions alone make a young heap grow: those come before.
	for range 20 {
		if _, err := f.canary.complete(ctx); err != nil {
			return err
		}
	}
	f.before, err = f.rss()
	return err
}

func (f *leakFault) rss() (uint64, error) {
	m, err := f.proc.MemoryInfo()
	if err != nil {
		return 0, fmt.Errorf("reading the memory of %s: %w", f.worker.ID, err)
	}
	return m.RSS, nil
}

// confirm sends completions until they must have left leakSeen behind.
func (f *leakFault) confirm(ctx context.Context) (proof, error) {
	each := f.params.Whole("bytes_per_request")
	sent := int64(0)
	for ; sent*each < leakSeen; sent++ {
		if _, err := f.canary.complete(ctx); err != nil {
			return proof{}, err
		}
	}
	now, err := f.rss()
	if err != nil {
		return proof{}, err
	}
	if !leaked(f.before, now, uint64(sent*each)) {
		return proof{}, fmt.Errorf("%s has grown from %d to %d bytes with %d completions, not by what those should leave behind", f.worker.ID, f.before, now, sent)
	}
	f.grown = now
	acted, err := f.hook.awaitActed(ctx)
	return proof{evidence: []record.Evidence{acted, seen(clock.MonoNs(), "/proc shows %s grown from %d to %d bytes with %d completions of the lab's own", f.worker.ID, f.before, now, sent)}}, err
}

// leaked says whether a process has grown by half of what was left behind at least.
func leaked(before, now, left uint64) bool { return now > before && now-before >= left/2 }

func (f *leakFault) check(context.Context) ([]record.Evidence, error) {
	now, err := f.rss()
	if err == nil && now < f.grown-leakSeen/2 {
		err = fmt.Errorf("%s has shrunk from %d to %d bytes", f.worker.ID, f.grown, now)
	}
	return []record.Evidence{seen(clock.MonoNs(), "%s has %d bytes", f.worker.ID, now)}, err
}

func (f *leakFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	var now uint64
	err := poll(ctx, ghostPoll, "the process does not shrink", func() (bool, error) {
		var err error
		now, err = f.rss()
		return now+leakSeen/4 < f.grown, err
	})
	return []record.Evidence{seen(clock.MonoNs(), "%s has shrunk from %d to %d bytes", f.worker.ID, f.grown, now)}, err
}

func (f *leakFault) close() { f.canary.closeIf() }

// paceTokens is the length of a completion whose pace is measured; paceTries how many are.
const (
	paceTokens = 16
	paceTries  = 3
)

// slowFault makes steps longer or uneven.
type slowFault struct {
	hookFault
	canary *canary
	usual  pace
}

// pace is how tokens come: the mean pause between two of them, which does not mind when some arrive in one
// piece, and their spread, which is the distance of the quartiles as a share of it. Of several completions it
// is the least, because a busy machine only adds.
type pace struct {
	mean   time.Duration
	spread float64
}

// paceOf is the pace of one completion's pauses.
func paceOf(pauses []time.Duration) pace {
	if len(pauses) == 0 {
		return pace{}
	}
	slices.Sort(pauses)
	var sum time.Duration
	for _, d := range pauses {
		sum += d
	}
	p := pace{mean: sum / time.Duration(len(pauses))}
	p.spread = float64(pauses[len(pauses)*3/4]-pauses[len(pauses)/4]) / float64(max(1, p.mean))
	return p
}

// slowed says whether a pace differs from the usual one as the fault makes it: by half of the way at least.
func slowed(usual, now pace, factor, jitter float64) bool {
	ratio := float64(now.mean) / float64(max(1, usual.mean))
	switch {
	case factor > 1:
		return ratio >= 1+(factor-1)/2
	case factor < 1:
		return ratio <= (1+factor)/2
	}
	return now.spread >= usual.spread+jitter/4
}

func (f *slowFault) measure(ctx context.Context) (best pace, err error) {
	for i := range paceTries {
		end := f.canary.stream(ctx, paceTokens, time.Minute)
		if !end.whole {
			return best, fmt.Errorf("a stream of the lab's own to %s: %v", f.worker.ID, end)
		}
		p := paceOf(end.pauses)
		if i == 0 {
			best = p
		}
		best = pace{min(best.mean, p.mean), min(best.spread, p.spread)}
	}
	return best, nil
}

func (f *slowFault) prepare(ctx context.Context) (err error) {
	f.canary = newCanary(f.worker, f.token)
	f.usual, err = f.measure(ctx)
	return err
}

func (f *slowFault) look(ctx context.Context, want bool, what string) (e record.Evidence, err error) {
	err = poll(ctx, hookPoll, what, func() (bool, error) {
		now, err := f.measure(ctx)
		e = seen(clock.MonoNs(), "tokens of %s come %.2f ms apart (spread %.2f), %.2f (%.2f) before", f.worker.ID,
			now.mean.Seconds()*1e3, now.spread, f.usual.mean.Seconds()*1e3, f.usual.spread)
		return slowed(f.usual, now, f.params.Number("factor"), f.params.Number("jitter")) == want, err
	})
	return e, err
}

func (f *slowFault) confirm(ctx context.Context) (proof, error) {
	e, err := f.look(ctx, true, "the engine is as fast as before")
	if err != nil {
		return proof{}, err
	}
	return f.proven(ctx, e)
}

// check takes as long as a few completions do.
func (f *slowFault) check(ctx context.Context) ([]record.Evidence, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, healedWithin, fmt.Errorf("not within %v", healedWithin))
	defer cancel()
	e, err := f.look(ctx, true, "the engine is as fast as before")
	return []record.Evidence{e}, err
}

func (f *slowFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	e, err := f.look(ctx, false, "the engine is not as fast as before")
	return []record.Evidence{e}, err
}

func (f *slowFault) close() { f.canary.closeIf() }

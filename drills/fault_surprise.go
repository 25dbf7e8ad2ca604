package drills

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
)

// surprisePoll is the pause between two looks at what the tap has received; some looks read the engine's
// whole cache.
const surprisePoll = 50 * time.Millisecond

// surpriseFault makes so many batches surprise their readers. What a batch looks like then is in frames.go.
type surpriseFault struct {
	hookFault
	tap   *tap
	first int // batches the tap had received before
	usual string
}

// prepare wants a batch: beside which nothing could be said to be unusual.
func (f *surpriseFault) prepare(ctx context.Context) (err error) {
	if f.tap, _, err = readyTap(ctx, f.scene); err != nil {
		return err
	}
	return f.tap.await(ctx, "no batch before the fault", func(_ bool, seen []batch) (bool, error) {
		if len(seen) > 0 {
			f.usual = seen[0].topic
		}
		return len(seen) > 0, nil
	})
}

func (f *surpriseFault) inject(ctx context.Context) error {
	f.first = f.tap.count()
	return f.hookFault.inject(ctx)
}

// confirm waits for as many surprises as were asked for and a clean batch behind them, then compares them
// with those that the engine owns up to.
func (f *surpriseFault) confirm(ctx context.Context) (proof, error) {
	count := int(f.params.Whole("count"))
	var hits []batch
	var clean batch
	err := poll(ctx, surprisePoll, fmt.Sprintf("the lab's own subscription does not see %d batches with %s and a clean one behind them", count, f.kind), func() (bool, error) {
		s, err := f.look(ctx)
		if err != nil {
			return false, err
		}
		var over bool
		hits, clean, over = s.struck(f.kind, f.params, f.first)
		return over && len(hits) >= count, nil
	})
	if err != nil {
		return proof{}, err
	}
	said, err := f.hook.state(ctx)
	if err != nil {
		return proof{}, err
	}
	if own, its := seqsOf(hits), evidenceSeqs(said.Evidence); said.State != contract.FaultDone || !sameSeqs(own, its) {
		return proof{}, fmt.Errorf("the lab's own subscription sees %s in batches %v, and %s, which is %s, names %v", f.kind, own, f.worker.ID, said.State, its)
	}
	p := proof{effectiveHi: hits[0].monoNs, healed: &record.Interval{Lo: clean.monoNs, Hi: clean.monoNs}}
	for _, b := range hits[:min(len(hits), maxQuoted)] {
		p.evidence = append(p.evidence, seen(b.monoNs, "the lab's own subscription to %s sees %s%s in batch %d", f.worker.ID, f.kind, bracketed(f.params.String()), b.seq))
	}
	p.evidence = append(p.evidence, seen(clean.monoNs, "batch %d is clean again, after %d that %s names as well", clean.seq, len(hits), f.worker.ID))
	return p, nil
}

// sameSeqs compares the surprises that were seen with those that an engine names. It names the first ones
// only when there are many apart from each other.
func sameSeqs(own, its []int64) bool {
	if len(its) > len(own) || len(its) == 0 {
		return false
	}
	return slices.Equal(own[:len(its)], its) && (len(own) == len(its) || len(its) >= maxNamed)
}

// maxNamed is how many runs of sequence numbers an engine names at most.
const maxNamed = 32

func bracketed(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// look reads what the engine holds only where that decides, and then waits for the tap to have come as far.
func (f *surpriseFault) look(ctx context.Context) (sight, error) {
	s := sight{usual: f.usual}
	if needsHolding(f.kind, f.params) && f.tap.count() > f.first {
		var err error
		if s.has, err = holds(ctx, f.scene); err != nil {
			return s, err
		}
	}
	s.batches = f.tap.all()
	return s, nil
}

func (f *surpriseFault) check(context.Context) ([]record.Evidence, error)         { return nil, errEndsItself }
func (f *surpriseFault) confirmHealed(context.Context) ([]record.Evidence, error) { return nil, nil }
func (f *surpriseFault) close()                                                   { f.tap.closeIf() }

// holds asks an engine what its cache has now.
func holds(ctx context.Context, s scene) (holding, error) {
	head, rows, err := s.worker.Admin.Blocks(ctx, 0, "resident")
	if err != nil {
		return holding{}, err
	}
	h := holding{seq: head.Seq, blocks: make(map[uint64]int, len(rows))}
	for _, b := range rows {
		h.blocks[uint64(b.Hash)] = b.Position
	}
	return h, nil
}

// delayFault makes batches leave late, in order.
type delayFault struct {
	hookFault
	tap   *tap
	first int
}

// prepare wants a batch that comes at once.
func (f *delayFault) prepare(ctx context.Context) (err error) {
	if f.tap, _, err = readyTap(ctx, f.scene); err != nil {
		return err
	}
	_, err = f.awaitLate(ctx, func(late time.Duration) bool { return late < f.params.Duration("by")/2 }, 0)
	return err
}

func (f *delayFault) inject(ctx context.Context) error {
	f.first = f.tap.count()
	return f.hookFault.inject(ctx)
}

// confirm waits for the first batch that is late by the whole delay. It was held from its time stamp on.
func (f *delayFault) confirm(ctx context.Context) (proof, error) {
	b, err := f.awaitLate(ctx, f.isLate, f.first)
	if err != nil {
		return proof{}, err
	}
	acted, err := f.hook.awaitActed(ctx)
	if err != nil {
		return proof{}, err
	}
	return proof{effectiveHi: b.monoNs, evidence: []record.Evidence{acted, f.saw(b)}}, nil
}

// isLate leaves the two readings of the wall clock a millisecond.
func (f *delayFault) isLate(late time.Duration) bool {
	return late >= f.params.Duration("by")-time.Millisecond
}

func (f *delayFault) saw(b batch) record.Evidence {
	return seen(b.monoNs, "batch %d of %s reached the lab's own subscription %.3f s after its time stamp", b.seq, f.worker.ID, b.late.Seconds())
}

// check wants the newest batch late.
func (f *delayFault) check(context.Context) ([]record.Evidence, error) {
	all := f.tap.all()
	if b := all[len(all)-1]; !f.isLate(b.late) {
		return nil, fmt.Errorf("batch %d of %s came %.3f s after its time stamp: it was not delayed to the end", b.seq, f.worker.ID, b.late.Seconds())
	}
	return []record.Evidence{f.saw(all[len(all)-1])}, nil
}

func (f *delayFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	b, err := f.awaitLate(ctx, func(late time.Duration) bool { return late < f.params.Duration("by")/2 }, f.tap.count())
	if err != nil {
		return nil, err
	}
	return []record.Evidence{f.saw(b)}, nil
}

// awaitLate waits for a batch from index first on that is late as wanted.
func (f *delayFault) awaitLate(ctx context.Context, want func(time.Duration) bool, first int) (out batch, err error) {
	err = f.tap.await(ctx, "the lab's own subscription sees no such batch", func(_ bool, seen []batch) (bool, error) {
		for _, b := range seen[min(first, len(seen)):] {
			if b.err == nil && want(b.late) {
				out = b
				return true, nil
			}
		}
		return false, nil
	})
	return out, err
}

func (f *delayFault) close() { f.tap.closeIf() }

// muteFault makes an engine serve and publish nothing.
type muteFault struct {
	hookFault
	tap    *tap
	canary *canary
}

func (f *muteFault) prepare(ctx context.Context) (err error) {
	f.canary = newCanary(f.worker, f.token)
	f.tap, _, err = readyTap(ctx, f.scene)
	if err != nil {
		return err
	}
	return f.heard(ctx)
}

// confirm sends prompts that fill blocks until one is cached and nothing is heard for a while after.
func (f *muteFault) confirm(ctx context.Context) (proof, error) {
	var e record.Evidence
	err := poll(ctx, hookPoll, "the lab's own subscription goes on receiving", func() (quiet bool, err error) {
		e, quiet, err = f.quiet(ctx)
		return quiet, err
	})
	if err != nil {
		return proof{}, err
	}
	return f.proven(ctx, e)
}

// quiet sends one such prompt.
func (f *muteFault) quiet(ctx context.Context) (record.Evidence, bool, error) {
	before := f.tap.count()
	ids := f.canary.blocks(f.blockSize)
	if err := f.canary.prompt(ctx, ids); err != nil {
		return record.Evidence{}, false, err
	}
	cached, err := f.worker.Admin.Match(ctx, ids)
	if err != nil {
		return record.Evidence{}, false, err
	}
	if err := f.tap.silent(ctx, before, 2*canarySilence); err != nil || cached == 0 {
		return record.Evidence{}, false, ctx.Err()
	}
	return seen(clock.MonoNs(), "%s has cached %d blocks of a prompt of the lab's own, and its own subscription has received nothing for %v since",
		f.worker.ID, cached, 2*canarySilence), true, nil
}

// heard sends such a prompt and waits for a batch.
func (f *muteFault) heard(ctx context.Context) error {
	before := f.tap.count()
	if err := f.canary.prompt(ctx, f.canary.blocks(f.blockSize)); err != nil {
		return err
	}
	return f.tap.await(ctx, "the lab's own subscription receives nothing", func(_ bool, seen []batch) (bool, error) { return len(seen) > before, nil })
}

func (f *muteFault) check(ctx context.Context) ([]record.Evidence, error) {
	if err := f.tap.silent(ctx, f.tap.count(), canarySilence); err != nil {
		return nil, err
	}
	return []record.Evidence{seen(clock.MonoNs(), "the lab's own subscription to %s still receives nothing", f.worker.ID)}, nil
}

func (f *muteFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	if err := f.heard(ctx); err != nil {
		return nil, err
	}
	all := f.tap.all()
	return []record.Evidence{seen(clock.MonoNs(), "the lab's own subscription to %s has received batch %d", f.worker.ID, all[len(all)-1].seq)}, nil
}

func (f *muteFault) close() { f.tap.closeIf(); f.canary.closeIf() }

package drills

import (
	"context"
	"errors"
	"fmt"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
)

// errEndsItself answers whoever wants to heal what heals by itself.
var errEndsItself = errors.New("this fault ends by itself")

// dropFault makes an engine's publisher use up sequence numbers without sending their batches. Batches
// flow with traffic only, so its proof waits for traffic.
type dropFault struct {
	hookFault
	tap *tap
	// last is the newest sequence number when the tap was up, from the engine's own counter: every later
	// one must arrive.
	last int64
}

func (f *dropFault) prepare(ctx context.Context) (err error) {
	f.tap, f.last, err = readyTap(ctx, f.scene)
	return err
}

// readyTap subscribes to the engine of a scene and says which sequence number it sent last.
func readyTap(ctx context.Context, s scene) (*tap, int64, error) {
	t, err := newTap(s.worker)
	if err != nil {
		return nil, 0, err
	}
	if err := t.ready(ctx); err != nil {
		return t, 0, err
	}
	truth, err := s.worker.Admin.Truth(ctx)
	if err != nil {
		return t, 0, err
	}
	return t, truth.Ranks[0].NextSeq - 1, nil
}

// confirm waits until the hook has dropped its first batch, which is when the fault is in force, then
// for the batch behind the gap, which is the first that any subscriber can learn of it from.
func (f *dropFault) confirm(ctx context.Context) (proof, error) {
	var p proof
	acted, err := f.hook.awaitActed(ctx)
	if err != nil && f.hook.id != "" {
		return p, err
	}
	p.effectiveHi = clock.MonoNs()
	var g gap
	err = f.tap.await(ctx, "the lab's own subscription sees no gap", func(_ bool, seen []batch) (bool, error) {
		var found bool
		g, found = findGap(seen, f.last)
		return found, nil
	})
	if err != nil {
		return p, err
	}
	if g.missing != f.params.Whole("count") {
		return p, fmt.Errorf("the lab's own subscription sees a gap of %d batches (%d to %d), want %d", g.missing, g.from, g.after.seq-1, f.params.Whole("count"))
	}
	p.healed = &record.Interval{Lo: g.after.monoNs, Hi: g.after.monoNs}
	p.evidence = append(p.evidence, acted)
	e, err := f.askReplay(ctx, g)
	if err != nil {
		return p, err
	}
	p.evidence = append(p.evidence, e, seen(g.after.monoNs, "the lab's own subscription to %s sees a gap of exactly %d batches, %d to %d",
		f.worker.ID, g.missing, g.from, g.after.seq-1))
	return p, nil
}

// askReplay looks whether the replay buffer has the missing batches, as the fault's parameter wants.
func (f *dropFault) askReplay(ctx context.Context, g gap) (record.Evidence, error) {
	have, err := replay(ctx, f.worker, g.from)
	if err != nil {
		return record.Evidence{}, err
	}
	n := int64(0)
	for _, b := range have {
		if b.seq >= g.from && b.seq < g.after.seq {
			n++
		}
	}
	want := g.missing
	if f.params.Word("replay") == "lose" {
		want = 0
	}
	if n != want {
		return record.Evidence{}, fmt.Errorf("the replay of %s has %d of the %d dropped batches, want %d", f.worker.ID, n, g.missing, want)
	}
	return seen(clock.MonoNs(), "the replay of %s has %d of the %d dropped batches", f.worker.ID, n, g.missing), nil
}

func (f *dropFault) check(context.Context) ([]record.Evidence, error)         { return nil, errEndsItself }
func (f *dropFault) confirmHealed(context.Context) ([]record.Evidence, error) { return nil, nil }

func (f *dropFault) close() {
	if f.tap != nil {
		f.tap.close()
	}
}

// gap is a hole in a sequence: missing numbers beginning with from, seen by the batch after it.
type gap struct {
	from, missing int64
	after         batch
}

// findGap is the first hole in arriving batches; last is the sequence number before them.
func findGap(seen []batch, last int64) (gap, bool) {
	for _, b := range seen {
		if b.seq > last+1 {
			return gap{from: last + 1, missing: b.seq - last - 1, after: b}, true
		}
		last = max(last, b.seq)
	}
	return gap{}, false
}

package drills

import (
	"context"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
)

// publisherFault restarts an engine's event publisher: a new epoch, sequence numbers from 0, an empty
// replay buffer.
type publisherFault struct {
	hookFault
	tap   *tap
	epoch int64 // before
	first int   // batches the tap had seen before
}

func (f *publisherFault) prepare(ctx context.Context) (err error) {
	if f.tap, _, err = readyTap(ctx, f.scene); err != nil {
		return err
	}
	// The proof is a sequence that begins anew, which a sequence that has not begun cannot do.
	err = f.tap.await(ctx, "no batch before the restart", func(_ bool, seen []batch) (bool, error) { return len(seen) > 0, nil })
	if err != nil {
		return err
	}
	t, err := f.worker.Admin.Truth(ctx)
	f.epoch = t.Epoch
	return err
}

func (f *publisherFault) inject(ctx context.Context) error {
	f.first = f.tap.count()
	return f.hookFault.inject(ctx)
}

// confirm waits for the new epoch, which is when the fault is in force, and for a batch of the new
// publisher, which is the first that any subscriber can learn of it from.
func (f *publisherFault) confirm(ctx context.Context) (proof, error) {
	var p proof
	t, err := f.awaitEpoch(ctx)
	if err != nil {
		return p, err
	}
	p.effectiveHi = clock.MonoNs()
	p.evidence = append(p.evidence, seen(p.effectiveHi, "epoch of %s changed from %d to %d", f.worker.ID, f.epoch, t.Epoch))
	var old, anew batch
	err = f.tap.await(ctx, "the lab's own subscription sees no batch of a new publisher", func(_ bool, seen []batch) (bool, error) {
		var found bool
		old, anew, found = findRestart(seen, f.first)
		if found {
			return true, nil
		}
		// A publisher that is ahead of where the old one stopped shows nothing but higher numbers. Its
		// replay has other payloads under the old ones' numbers.
		if f.params.Whole("ahead") > 0 && len(seen) > f.first {
			old, found, err = f.compareReplay(ctx, seen[:f.first])
			anew = seen[f.first]
		}
		return found, err
	})
	if err != nil {
		return p, err
	}
	p.healed = &record.Interval{Lo: anew.monoNs, Hi: anew.monoNs}
	p.evidence = append(p.evidence, seen(anew.monoNs, "the lab's own subscription to %s got batch %d of a new publisher, after batch %d of the old one",
		f.worker.ID, anew.seq, old.seq))
	return p, nil
}

func (f *publisherFault) awaitEpoch(ctx context.Context) (t contract.Truth, err error) {
	err = poll(ctx, hookPoll, "the epoch of "+f.worker.ID+" does not change", func() (bool, error) {
		t, err = f.worker.Admin.Truth(ctx)
		return t.Epoch != f.epoch, err
	})
	return t, err
}

// compareReplay looks for a number under which the replay now has another payload than the tap saw.
func (f *publisherFault) compareReplay(ctx context.Context, before []batch) (batch, bool, error) {
	now, err := replay(ctx, f.worker, 0)
	if err != nil {
		return batch{}, false, err
	}
	prints := map[int64]uint64{}
	for _, b := range now {
		prints[b.seq] = b.print
	}
	for _, b := range before {
		if print, ok := prints[b.seq]; ok && print != b.print {
			return b, true, nil
		}
	}
	return batch{}, false, nil
}

func (f *publisherFault) check(context.Context) ([]record.Evidence, error) { return nil, errEndsItself }
func (f *publisherFault) confirmHealed(context.Context) ([]record.Evidence, error) {
	return nil, nil
}

func (f *publisherFault) close() {
	if f.tap != nil {
		f.tap.close()
	}
}

// findRestart is the first batch from index first on whose number is not above the one before it.
func findRestart(seen []batch, first int) (old, anew batch, found bool) {
	for i := max(first, 1); i < len(seen); i++ {
		if seen[i].seq <= seen[i-1].seq {
			return seen[i-1], seen[i], true
		}
	}
	return batch{}, batch{}, false
}

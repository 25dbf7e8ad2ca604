package drills

import (
	"context"
	"sync"
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
)

// readTimeout bounds one reading of an engine. A frozen engine answers late or never; it must not keep
// a connection for good.
const readTimeout = 2 * time.Second

// engineView reads one engine's truth, one reading at a time. An engine that does not answer delays
// nobody else: its samples have no truth until it does.
type engineView struct {
	worker *lab.Worker

	mu    sync.Mutex // guards all below
	busy  bool
	k     int // the sample that the last reading was for
	truth contract.Truth
	ranks []announced
}

// begin reserves the view for a reading; false while the last one is still out.
func (v *engineView) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy {
		return false
	}
	v.busy = true
	return true
}

// read asks the engine and keeps its answer as that of sample k.
func (v *engineView) read(ctx context.Context, k int) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	truth, err := v.worker.Admin.Truth(ctx)
	var fresh [][]contract.TruthDigest
	if err == nil {
		fresh, err = v.digests(ctx, truth)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.busy = false
	if err != nil {
		return
	}
	v.k, v.truth = k, truth
	for i := range v.ranks {
		v.ranks[i].add(fresh[i])
	}
}

// digests reads what each rank has announced since the last reading. Only a reading writes the ranks,
// and there is one at a time.
func (v *engineView) digests(ctx context.Context, t contract.Truth) ([][]contract.TruthDigest, error) {
	v.mu.Lock()
	if len(v.ranks) != len(t.Ranks) {
		v.ranks = make([]announced, len(t.Ranks))
	}
	from := make([]int64, len(t.Ranks))
	for i := range v.ranks {
		from[i] = v.ranks[i].next(t.Epoch)
	}
	v.mu.Unlock()
	out := make([][]contract.TruthDigest, len(t.Ranks))
	for i, r := range t.Ranks {
		if r.NextSeq <= from[i] {
			continue
		}
		var err error
		if out[i], err = v.worker.Admin.Digests(ctx, r.Rank, from[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// engineReading is one engine at one sample, and what it had announced before.
type engineReading struct {
	truth contract.Truth
	// at is what a rank had announced when a sequence number was next; false when that is not known.
	at func(rank int, nextSeq int64) (contract.TruthDigest, bool)
}

// reading is the view's answer for sample k, if it came.
func (v *engineView) reading(k int) (engineReading, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.k != k {
		return engineReading{}, false
	}
	return engineReading{truth: v.truth, at: v.announcedAt}, true
}

func (v *engineView) announcedAt(rank int, nextSeq int64) (contract.TruthDigest, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if rank < 0 || rank >= len(v.ranks) {
		return contract.TruthDigest{}, false
	}
	return v.ranks[rank].at(nextSeq)
}

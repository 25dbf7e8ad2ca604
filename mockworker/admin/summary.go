package admin

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/truth"
)

// summaryWait is how long the summary waits for the engines of all ranks. They answer at once unless they
// are kept from it, by a publisher that takes nothing or a step that clears the cache. Samplers ask every
// 100 ms and give up after two periods.
const summaryWait = 40 * time.Millisecond

// view is what was last seen of a rank.
type view struct {
	mu    sync.Mutex // guards everything below
	asked <-chan struct{}
	seen  glance
	// blind says that the last look came within a step that clears the cache, and saw nothing.
	blind bool
}

// glance is one look at a rank at monoNs: what it held at the step boundary before.
type glance struct {
	monoNs int64
	head   truth.Head
	load   engine.Load
	sets   []contract.TruthSet // the device's main one first
}

func (s *Server) truth(c *gin.Context) {
	t := contract.Truth{
		MonoNs: clock.MonoNs(), Wall: clock.Wall(), Worker: s.o.Worker, Profile: s.o.Profile, Wire: s.o.Wire,
		HashAlgo: s.o.HashAlgo, BlockSize: s.o.BlockSize, NumBlocks: s.o.NumBlocks,
		Ranks: []contract.TruthRank{}, Counters: map[string]int64{},
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), summaryWait)
	defer cancel()
	for rank := range s.o.Ranks { // all at once: their steps end side by side
		s.views[rank].ask(&s.o.Ranks[rank])
	}
	for rank := range s.o.Ranks {
		r := &s.o.Ranks[rank]
		t.Ranks = append(t.Ranks, s.views[rank].row(ctx, rank, r))
		s.count(t.Counters, r)
	}
	t.Epoch = t.Ranks[0].Epoch
	t.Faults = s.o.Faults.List(clock.MonoNs()) // with what they did to the batches that the looks waited for
	c.JSON(http.StatusOK, t)
}

// ask leaves the question at the rank's loop, unless one lies there already.
func (v *view) ask(r *Rank) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asked != nil {
		return
	}
	asked, ok := r.Loop.LeavePeek(func(e engine.Core, pending []engine.Event) { v.look(r, e, pending) })
	if ok {
		v.asked = asked
	}
}

// look runs with the engine standing still, everything announced so far being folded.
func (v *view) look(r *Rank, e engine.Core, pending []engine.Event) {
	h, ok := holdingOf(r.Fold, pending)
	if !ok {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.asked, v.blind = nil, true
		return
	}
	// On the loop goroutine, which alone publishes, so nothing can be queued behind this. It cannot fail: the
	// publisher outlives the loop.
	_ = flush(context.Background(), r)
	g := glance{load: r.Loop.Standing()}
	var same bool
	if g.sets, g.head, same = agreed(r.Fold, e, pending); !same {
		g.sets, g.head = compared(r.Fold, h.hashes(e))
	}
	g.monoNs = clock.MonoNs()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked, v.seen, v.blind = nil, g, false
}

// agreed are the sets when what is held is what was announced, which their sums tell without a look at a
// single block. It is false when they differ, or nobody can say.
func agreed(fold *truth.Fold, e engine.Core, pending []engine.Event) (sets []contract.TruthSet, at truth.Head, ok bool) {
	s, ok := e.(engine.Summer)
	if !ok {
		return nil, at, false
	}
	heads, at := fold.Heads()
	sums := s.Sums(len(pending) > 0)
	for _, h := range heads {
		sum, ok := sumOf(sums, h.Tier, h.Class)
		if !ok || sum.Blocks != h.Blocks || sum.Digest != h.Digest {
			return nil, at, false
		}
		sets = append(sets, contract.TruthSet{
			Tier: h.Tier, Class: h.Class, Resident: h.Blocks, Announced: h.Blocks, Digest: contract.U64(h.Digest),
		})
	}
	for _, sum := range sums { // what nobody has announced
		known := slices.ContainsFunc(heads, func(h truth.SetHead) bool {
			return h.Tier == truth.TierOf(sum.Medium) && h.Class == truth.ClassOf(sum.SpecKind)
		})
		if !known && sum.Blocks > 0 {
			return nil, at, false
		}
	}
	return sets, at, true
}

// sumOf is the sum of a tier and class, nothing without one; groups that share a class may share hashes, so
// that theirs cannot be added.
func sumOf(sums []engine.Sum, tier, class string) (of engine.Sum, ok bool) {
	n := 0
	for _, s := range sums {
		if truth.TierOf(s.Medium) == tier && truth.ClassOf(s.SpecKind) == class {
			of, n = s, n+1
		}
	}
	return of, n <= 1
}

// compared are the sets when every block is looked at.
func compared(fold *truth.Fold, resident []truth.Resident) ([]contract.TruthSet, truth.Head) {
	heads, shared, at := fold.Shared(resident)
	sets := make([]contract.TruthSet, len(heads))
	for i, h := range heads {
		sets[i] = contract.TruthSet{
			Tier: h.Tier, Class: h.Class, Announced: h.Blocks, Ghost: h.Blocks - shared[i], Digest: contract.U64(h.Digest),
		}
		for _, r := range resident {
			if r.Tier == h.Tier && r.Class == h.Class {
				sets[i].Resident, sets[i].Unannounced = len(r.Hashes), len(r.Hashes)-shared[i]
			}
		}
	}
	return sets, at
}

// row waits for the answer, until ctx ends. Without one it shows what is known anyway, which is everything
// but the resident set.
func (v *view) row(ctx context.Context, rank int, r *Rank) contract.TruthRank {
	v.mu.Lock()
	asked, seen, answered := v.asked, v.seen, v.asked == nil && !v.blind
	v.mu.Unlock()
	if asked != nil {
		select {
		case <-asked:
			v.mu.Lock()
			answered, seen = !v.blind, v.seen
			v.mu.Unlock()
		case <-ctx.Done():
		}
	}
	if !answered {
		seen.head, seen.load = r.Fold.Head(), r.Loop.Snapshot().Load
	}
	if len(seen.sets) == 0 { // never looked at
		seen.sets = []contract.TruthSet{{Tier: truth.TierDevice, Class: truth.ClassMain}}
	}
	main := seen.sets[0]
	return contract.TruthRank{
		Rank: rank, Epoch: seen.head.Epoch, NextSeq: seen.head.Seq + 1,
		ResidentMonoNs: seen.monoNs, ResidentBlocks: main.Resident, AnnouncedBlocks: seen.head.Blocks,
		Unannounced: main.Unannounced, Ghost: main.Ghost, Digest: contract.U64(seen.head.Digest),
		Running: seen.load.Running, Waiting: seen.load.Waiting + r.Loop.Unread(),
		WaitingUncachedTokens: seen.load.WaitingUncachedTokens,
		KVUsage:               seen.load.KVUsage, Steps: seen.load.Steps, LastStepMonoNs: r.Loop.Snapshot().LastStepMonoNs,
		Sets: seen.sets,
	}
}

package admin

import (
	"context"
	"net/http"
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
		Ranks: []contract.TruthRank{}, Counters: map[string]int64{}, Faults: s.o.Faults.List(clock.MonoNs()),
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
	load := e.Load()
	if len(pending) > 0 {
		load = r.Loop.Snapshot().Load
	}
	resident := h.hashes(e)
	heads, shared, head := r.Fold.Shared(resident)
	g := glance{monoNs: clock.MonoNs(), head: head, load: load}
	for i, s := range heads {
		g.sets = append(g.sets, contract.TruthSet{
			Tier: s.Tier, Class: s.Class, Announced: s.Blocks, Ghost: s.Blocks - shared[i], Digest: contract.U64(s.Digest),
			Unannounced: -shared[i],
		})
	}
	for _, r := range resident {
		for i := range g.sets {
			if t := &g.sets[i]; t.Tier == r.Tier && t.Class == r.Class {
				t.Resident = len(r.Hashes)
				t.Unannounced += len(r.Hashes)
			}
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked, v.seen, v.blind = nil, g, false
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

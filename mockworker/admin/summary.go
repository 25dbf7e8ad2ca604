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

// summaryWait is how long the summary waits for the steps of all ranks to end. Samplers ask every 100 ms
// and give up after two periods; a step that lasts longer is not waited for.
const summaryWait = 40 * time.Millisecond

// view is what was last seen of a rank between two steps.
type view struct {
	mu    sync.Mutex // guards everything below
	asked <-chan struct{}
	seen  glance
}

// glance is one look at a rank at a step boundary, at monoNs.
type glance struct {
	monoNs                       int64
	head                         truth.Head
	load                         engine.Load
	resident, unannounced, ghost int
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
	if asked, ok := r.Loop.Leave(func(e engine.Core) { v.look(r, e) }); ok {
		v.asked = asked
	}
}

// look runs between two steps, everything announced so far being folded.
func (v *view) look(r *Rank, e engine.Core) {
	if r.Publisher != nil {
		// On the loop goroutine, which alone publishes, so nothing can be queued behind this. It cannot
		// fail: the publisher outlives the loop.
		_ = r.Publisher.Flush(context.Background())
	}
	var hashes []uint64
	e.Blocks(func(b engine.Block) bool {
		hashes = append(hashes, b.Hash.EventInt())
		return true
	})
	shared, head := r.Fold.Shared(hashes)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = nil
	v.seen = glance{
		monoNs: clock.MonoNs(), head: head, load: e.Load(),
		resident: len(hashes), unannounced: len(hashes) - shared, ghost: head.Blocks - shared,
	}
}

// row waits for the answer, until ctx ends. Without one it shows what is known anyway, which is everything
// but the resident set.
func (v *view) row(ctx context.Context, rank int, r *Rank) contract.TruthRank {
	v.mu.Lock()
	asked, seen := v.asked, v.seen
	v.mu.Unlock()
	answered := asked == nil
	if !answered {
		select {
		case <-asked:
			v.mu.Lock()
			answered, seen = true, v.seen
			v.mu.Unlock()
		case <-ctx.Done():
		}
	}
	if !answered {
		seen.head, seen.load = r.Fold.Head(), r.Loop.Snapshot().Load
	}
	return contract.TruthRank{
		Rank: rank, Epoch: seen.head.Epoch, NextSeq: seen.head.Seq + 1,
		ResidentMonoNs: seen.monoNs, ResidentBlocks: seen.resident, AnnouncedBlocks: seen.head.Blocks,
		Unannounced: seen.unannounced, Ghost: seen.ghost, Digest: contract.U64(seen.head.Digest),
		Running: seen.load.Running, Waiting: seen.load.Waiting + r.Loop.Unread(),
		WaitingUncachedTokens: seen.load.WaitingUncachedTokens,
		KVUsage:               seen.load.KVUsage, Steps: seen.load.Steps, LastStepMonoNs: r.Loop.Snapshot().LastStepMonoNs,
	}
}

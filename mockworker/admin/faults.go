package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/gin-gonic/gin"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
	"fleetdrill/mockworker/publish"
)

const (
	// maxFaultBody bounds the body of a fault: a few short parameters.
	maxFaultBody = 64 << 10
	// actWait is how long the answer to a fault that acts once, between two steps, waits for it to have
	// happened. It happens at the next step boundary in any case.
	actWait = 2 * time.Second
)

// settle returns when every batch that is due has left, for a while: a fault is armed behind the batches of answers
// that are out, and healed and told behind what it did to them.
func (s *Server) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, actWait)
	defer cancel()
	for rank := range s.o.Ranks {
		_ = flush(ctx, &s.o.Ranks[rank]) // of a publisher that is kept from sending there is nothing to wait for
	}
}

func (s *Server) listFaults(c *gin.Context) {
	s.settle(c.Request.Context())
	now := clock.MonoNs()
	c.JSON(http.StatusOK, contract.FaultList{MonoNs: now, Wall: clock.Wall(), Faults: s.o.Faults.List(now)})
}

func (s *Server) armFault(c *gin.Context) {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxFaultBody))
	if err != nil {
		fail(c, http.StatusBadRequest, fmt.Errorf("reading the fault (at most %d bytes): %w", maxFaultBody, err))
		return
	}
	spec, err := faults.Parse(body, faults.Worker{Ranks: len(s.o.Ranks), Events: s.o.Ranks[0].Publisher != nil})
	if err != nil {
		fail(c, http.StatusBadRequest, err)
		return
	}
	s.settle(c.Request.Context())
	id, err := s.o.Faults.Arm(clock.MonoNs(), spec)
	if err != nil { // always a conflict
		fail(c, http.StatusConflict, err)
		return
	}
	if faults.ActsOnce(spec.Kind) {
		if err := s.actOnce(c.Request.Context(), id, spec); err != nil {
			s.o.Faults.Heal(clock.MonoNs(), id)
			fail(c, http.StatusServiceUnavailable, err)
			return
		}
	}
	s.wake()
	c.JSON(http.StatusOK, contract.FaultArmedReply{ID: id})
}

func (s *Server) healFault(c *gin.Context) {
	s.settle(c.Request.Context())
	f, ok := s.o.Faults.Heal(clock.MonoNs(), c.Param("id"))
	if !ok {
		fail(c, http.StatusNotFound, fmt.Errorf("no fault %q", c.Param("id")))
		return
	}
	if f.Kind == contract.FaultLeak {
		debug.FreeOSMemory() // what a leak held is garbage now, and the process shall shrink with it
	}
	s.wake()
	c.JSON(http.StatusOK, f)
}

// wake makes whoever sleeps ask the faults again: an idle or frozen loop, a publisher that holds batches.
func (s *Server) wake() {
	if s.o.Wake != nil {
		s.o.Wake()
	}
	for _, r := range s.o.Ranks {
		r.Loop.Wake()
		if r.Publisher != nil {
			r.Publisher.Wake()
		}
	}
}

// actOnce does what a fault does at the next step boundary and waits a while for it. The error is about a
// worker that is shutting down; a boundary that does not come leaves the fault armed.
func (s *Server) actOnce(ctx context.Context, id string, spec faults.Spec) error {
	ctx, cancel := context.WithTimeout(ctx, actWait)
	defer cancel()
	r := &s.o.Ranks[spec.Rank]
	err := r.Loop.Ask(ctx, func(e engine.Core) {
		if !s.o.Faults.Begin(clock.MonoNs(), id) {
			return // healed while it waited
		}
		switch spec.Kind {
		case contract.FaultRestartPublisher:
			s.restart(e, r, id, spec)
		case contract.FaultClear:
			s.clear(e, r, id)
		case contract.FaultSilentClear:
			s.silentClear(e, id)
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// cached is the number of distinct blocks in an engine's cache.
func cached(e engine.Core) (n int) {
	e.Blocks(func(engine.Block) bool { n++; return true })
	return n
}

// clear empties the cache as an operator would, running requests included.
func (s *Server) clear(e engine.Core, r *Rank, id string) {
	n := cached(e)
	if !e.ResetPrefixCache(true) {
		s.o.Faults.Finish(id, "the engine refused: blocks are in use")
		return
	}
	lines := []string{fmt.Sprintf("%d blocks cleared", n)}
	if r.Publisher != nil {
		// On the loop goroutine nothing is queued behind this, and it cannot fail: the publisher outlives the loop.
		_ = flush(context.Background(), r)
		s := r.Publisher.Stats()
		lines = append(lines, fmt.Sprintf("announced from seq %d on, with the next step", s.NextSeq+int64(s.Queued)))
	}
	s.o.Faults.Finish(id, lines...)
}

// silentClear empties the cache behind everybody's back.
func (s *Server) silentClear(e engine.Core, id string) {
	n := cached(e)
	e.DropCache()
	s.o.Faults.Finish(id, fmt.Sprintf("%d blocks lost", n))
}

// restart runs between two steps.
func (s *Server) restart(e engine.Core, r *Rank, id string, spec faults.Spec) {
	if spec.Cache == faults.Empty {
		e.DropCache()
	}
	// Not the request's context: a restart that has begun ends, or there would be no publisher.
	did, err := r.Publisher.Restart(context.Background(), publish.Restart{
		Rebind: spec.Socket == faults.Rebind, Ahead: spec.Ahead, Batch: func(i int) []engine.Event { return s.passing(r.Hasher, i) },
	})
	lines := []string{
		fmt.Sprintf("epoch %d ended before seq %d, epoch %d begins", did.OldEpoch, did.OldNext, did.NewEpoch),
	}
	if spec.Ahead > 0 {
		lines = append(lines, fmt.Sprintf("seq 0..%d went out before the socket opened", spec.Ahead-1))
	}
	if did.Lost > 0 {
		lines = append(lines, fmt.Sprintf("%d batches were still queued and are lost", did.Lost))
	}
	if err != nil {
		lines = append(lines, fmt.Sprintf("the publisher is unheard: %v", err))
		s.o.Log.Error("a restarted publisher is unheard", "fault", id, "err", err)
	}
	s.o.Faults.Finish(id, lines...)
}

// passing is the events of batch i of those that a restarted publisher is ahead by: a block of a prompt
// that nobody sends, stored and evicted again. A subscriber has work to do for it and ends with nothing, so
// announced stays a subset of what the engine itself announced.
func (s *Server) passing(h *blockhash.Hasher, i int) []engine.Event {
	ids := make([]uint32, s.o.BlockSize)
	for j := range ids {
		ids[j] = tokens.Vocab - 1
	}
	ids[0] = tokens.FirstWord + uint32(i)
	hash := []blockhash.Digest{h.Next(h.NoneHash(), ids, blockhash.Extra{})}
	return []engine.Event{
		{
			Kind: engine.Stored, Hashes: hash, Tokens: ids, BlockSize: len(ids), ExtraKeys: make([]engine.ExtraKey, 1),
			SpecKind: engine.KindFullAttention, Medium: engine.MediumGPU,
		},
		{Kind: engine.Removed, Hashes: hash, Medium: engine.MediumGPU},
	}
}

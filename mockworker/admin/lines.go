package admin

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/truth"
)

// pageItems is how many lines are copied at once under a lock that the publisher or the loop needs too.
const pageItems = 256

// lines writes JSON lines. A client that goes away ends the answer; an error nobody can be told.
type lines struct {
	w   *bufio.Writer
	enc *json.Encoder
}

func newLines(c *gin.Context) *lines {
	c.Header("Content-Type", "application/x-ndjson")
	c.Status(http.StatusOK)
	w := bufio.NewWriterSize(c.Writer, 32<<10)
	return &lines{w: w, enc: json.NewEncoder(w)}
}

// pages writes what next gives, page by page, until an empty page. next takes the number the page starts
// at and returns the number behind it.
func pages[T any](c *gin.Context, from int64, next func(from int64, dst []T) ([]T, int64)) {
	l := newLines(c)
	defer l.w.Flush()
	page := make([]T, 0, pageItems)
	for {
		page, from = next(from, page)
		if len(page) == 0 {
			return
		}
		for i := range page {
			if l.enc.Encode(&page[i]) != nil {
				return
			}
		}
	}
}

// ranked reads rank and from, which the ring answers share. What was published until now is in the rings then: who
// has an answer of the engine finds its blocks announced.
func (s *Server) ranked(c *gin.Context) (*truth.Fold, int64, bool) {
	q := newQuery(c.Request.URL.Query(), "rank", "from")
	rank := q.integer("rank", 0, 0, int64(len(s.o.Ranks)-1))
	from := q.integer("from", 0, 0, math.MaxInt64)
	if q.err != nil {
		fail(c, http.StatusBadRequest, q.err)
		return nil, 0, false
	}
	r := &s.o.Ranks[rank]
	if err := flush(c.Request.Context(), r); err != nil {
		fail(c, http.StatusServiceUnavailable, err)
		return nil, 0, false
	}
	return r.Fold, from, true
}

func (s *Server) digests(c *gin.Context) {
	fold, from, ok := s.ranked(c)
	if !ok {
		return
	}
	pages(c, from, func(from int64, dst []contract.TruthDigest) ([]contract.TruthDigest, int64) {
		dst = fold.Digests(from, dst)
		for _, d := range dst {
			from = d.Seq + 1
		}
		return dst, from
	})
}

func (s *Server) journal(c *gin.Context) {
	fold, from, ok := s.ranked(c)
	if !ok {
		return
	}
	pages(c, from, func(from int64, dst []contract.TruthJournal) ([]contract.TruthJournal, int64) {
		dst = fold.Journal(from, dst)
		for _, j := range dst {
			from = j.Seq + 1
		}
		return dst, from
	})
}

func (s *Server) requests(c *gin.Context) {
	q := newQuery(c.Request.URL.Query(), "from")
	from := q.integer("from", 0, 0, math.MaxInt64)
	if q.err != nil {
		fail(c, http.StatusBadRequest, q.err)
		return
	}
	pages(c, from, func(from int64, dst []contract.TruthRequest) ([]contract.TruthRequest, int64) {
		dst = s.o.Requests.Page(from, dst)
		for _, r := range dst {
			from = r.N + 1
		}
		return dst, from
	})
}

// The sets of blocks that can be asked for.
const (
	setResident    = "resident"
	setAnnounced   = "announced"
	setUnannounced = "unannounced"
	setGhost       = "ghost"
)

// every asks for all tiers or classes.
const every = "all"

func (s *Server) blocks(c *gin.Context) {
	q := newQuery(c.Request.URL.Query(), "rank", "set", "at", "tier", "class")
	rank := int(q.integer("rank", 0, 0, int64(len(s.o.Ranks)-1)))
	set := q.oneOf("set", setAnnounced, setResident, setUnannounced, setGhost)
	at := q.integer("at", math.MinInt64, -1, math.MaxInt64)
	tier := q.oneOf("tier", truth.TierDevice, truth.TierHost, truth.TierDisk, truth.TierExternal, every)
	class := q.oneOf("class", truth.ClassMain, truth.ClassWindow, every)
	past := c.Request.URL.Query().Has("at")
	if q.err == nil && past && set != setAnnounced {
		q.err = fmt.Errorf("parameter at needs set=%s: only what was announced has a past", setAnnounced)
	}
	if q.err != nil {
		fail(c, http.StatusBadRequest, q.err)
		return
	}
	head := contract.TruthBlocksHead{MonoNs: clock.MonoNs(), Wall: clock.Wall(), Worker: s.o.Worker, Rank: rank, Set: set}
	r := &s.o.Ranks[rank]
	var rows []contract.TruthBlock
	var stands truth.Head
	var err error
	status := http.StatusServiceUnavailable
	if past {
		var sets []truth.Set
		if err = flush(c.Request.Context(), r); err != nil {
			fail(c, status, err)
			return
		}
		if sets, stands, err = r.Fold.At(at); err != nil {
			status, err = http.StatusBadRequest, fmt.Errorf("parameter at: %w", err)
		}
		rows = announcedRows(sets)
	} else {
		rows, stands, err = s.presentRows(c.Request.Context(), r, set)
	}
	if err != nil {
		fail(c, status, err)
		return
	}
	rows = slices.DeleteFunc(rows, func(b contract.TruthBlock) bool {
		return tier != every && b.Tier != tier || class != every && b.Class != class
	})
	writeBlocks(c, head, stands, rows)
}

// presentRows are the blocks of one of the four sets as it is now.
func (s *Server) presentRows(ctx context.Context, r *Rank, set string) (rows []contract.TruthBlock, at truth.Head, err error) {
	if set == setAnnounced { // nothing about the engine is asked
		if err := flush(ctx, r); err != nil {
			return nil, at, err
		}
		sets, at := r.Fold.Sets()
		return announcedRows(sets), at, nil
	}
	var announced []contract.TruthBlock
	var said map[key]contract.TruthBlock
	err = s.look(ctx, r, func(e engine.Core, h *holding) {
		sets, head := r.Fold.Sets()
		announced, at = announcedRows(sets), head
		said = byKey(announced)
		rows = h.rows(e, said)
	})
	switch set {
	case setUnannounced:
		rows = slices.DeleteFunc(rows, func(b contract.TruthBlock) bool {
			_, is := said[keyOf(&b)]
			return is
		})
	case setGhost:
		held := byKey(rows)
		rows = slices.DeleteFunc(announced, func(b contract.TruthBlock) bool {
			_, is := held[keyOf(&b)]
			return is
		})
	}
	return rows, at, err
}

// writeBlocks sends the head and the blocks by tier, class, position, then hash, so that two answers can be
// compared as text. Count and digest are those of the blocks sent.
func writeBlocks(c *gin.Context, head contract.TruthBlocksHead, at truth.Head, blocks []contract.TruthBlock) {
	head.Epoch, head.Seq, head.Blocks, head.Digest = at.Epoch, at.Seq, len(blocks), digestOf(blocks)
	slices.SortFunc(blocks, func(a, b contract.TruthBlock) int {
		return cmp.Or(
			cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Class, b.Class),
			cmp.Compare(a.Position, b.Position), cmp.Compare(a.Hash, b.Hash),
		)
	})
	l := newLines(c)
	defer l.w.Flush()
	if l.enc.Encode(head) != nil {
		return
	}
	for i := range blocks {
		if l.enc.Encode(&blocks[i]) != nil {
			return
		}
	}
}

package admin

import (
	"bufio"
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

// ranked reads rank and from, which the ring answers share.
func (s *Server) ranked(c *gin.Context) (*truth.Fold, int64, bool) {
	q := newQuery(c.Request.URL.Query(), "rank", "from")
	rank := q.integer("rank", 0, 0, int64(len(s.o.Ranks)-1))
	from := q.integer("from", 0, 0, math.MaxInt64)
	if q.err != nil {
		fail(c, http.StatusBadRequest, q.err)
		return nil, 0, false
	}
	return s.o.Ranks[rank].Fold, from, true
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

func (s *Server) blocks(c *gin.Context) {
	q := newQuery(c.Request.URL.Query(), "rank", "set", "at")
	rank := int(q.integer("rank", 0, 0, int64(len(s.o.Ranks)-1)))
	set := q.oneOf("set", setAnnounced, setResident, setUnannounced, setGhost)
	at := q.integer("at", math.MinInt64, -1, math.MaxInt64)
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
	if past {
		announced, h, err := r.Fold.At(at)
		if err != nil {
			fail(c, http.StatusBadRequest, fmt.Errorf("parameter at: %w", err))
			return
		}
		writeBlocks(c, head, h, announcedBlocks(announced))
		return
	}
	s.presentBlocks(c, r, head)
}

// presentBlocks answers one of the four sets as it is now.
func (s *Server) presentBlocks(c *gin.Context, r *Rank, head contract.TruthBlocksHead) {
	var resident []contract.TruthBlock
	var announced map[uint64]truth.Entry
	var at truth.Head
	err := s.atBoundary(c.Request.Context(), r, func(e engine.Core) {
		resident = residentBlocks(e)
		announced, at = r.Fold.Announced()
	})
	if err != nil {
		fail(c, http.StatusServiceUnavailable, err)
		return
	}
	var out []contract.TruthBlock
	switch head.Set {
	case setAnnounced:
		out = announcedBlocks(announced)
	case setResident:
		out = resident
	case setUnannounced:
		out = slices.DeleteFunc(resident, func(b contract.TruthBlock) bool {
			_, said := announced[uint64(b.Hash)]
			return said
		})
	case setGhost:
		for _, b := range resident {
			delete(announced, uint64(b.Hash))
		}
		out = announcedBlocks(announced)
	}
	writeBlocks(c, head, at, out)
}

const tierDevice = "device"

func residentBlocks(e engine.Core) (out []contract.TruthBlock) {
	e.Blocks(func(b engine.Block) bool {
		t := contract.TruthBlock{Hash: contract.U64(b.Hash.EventInt()), Position: b.Position, Content: contract.U64(b.Content),
			Copies: b.Copies, Tier: tierDevice, Use: "free"}
		if b.Position > 0 {
			parent := contract.U64(b.Parent)
			t.Parent = &parent
		}
		if b.InUse {
			t.Use = "in_use"
		}
		out = append(out, t)
		return true
	})
	return out
}

func announcedBlocks(set map[uint64]truth.Entry) []contract.TruthBlock {
	out := make([]contract.TruthBlock, 0, len(set))
	for h, e := range set {
		b := contract.TruthBlock{Hash: contract.U64(h), Position: int(e.Position), Content: contract.U64(e.Content), Copies: int(e.Copies), Tier: tierDevice}
		if e.Position > 0 {
			parent := contract.U64(e.Parent)
			b.Parent = &parent
		}
		out = append(out, b)
	}
	return out
}

// writeBlocks sends the head and the blocks by position, then hash, so that two answers can be compared as
// text. Count and digest are the set's own.
func writeBlocks(c *gin.Context, head contract.TruthBlocksHead, at truth.Head, blocks []contract.TruthBlock) {
	head.Epoch, head.Seq, head.Blocks, head.Digest = at.Epoch, at.Seq, len(blocks), digestOf(blocks)
	slices.SortFunc(blocks, func(a, b contract.TruthBlock) int {
		if a.Position != b.Position {
			return a.Position - b.Position
		}
		if a.Hash < b.Hash {
			return -1
		}
		return 1
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

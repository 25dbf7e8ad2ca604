package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"fleetdrill/internal/badjson"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
	"fleetdrill/mockworker/loop"
	"fleetdrill/mockworker/publish"
	"fleetdrill/mockworker/truth"
)

// Rank is one data-parallel rank as the admin port sees it. Publisher is nil when events are off.
type Rank struct {
	Loop      *loop.Loop
	Publisher *publish.Publisher
	Fold      *truth.Fold
	// Hasher names the blocks that a restarted publisher makes up.
	Hasher *blockhash.Hasher
}

// Options make the handler. All fields but Token and Log are needed.
type Options struct {
	Worker    string
	Profile   string
	Wire      string
	HashAlgo  string
	BlockSize int
	NumBlocks int
	Ranks     []Rank
	Requests  *truth.Requests
	Faults    *faults.Set
	// Wake, if set, is called after every arming and healing, before the answer.
	Wake func()
	// Token, when set, must come with every request as a bearer token.
	Token string
	Log   *slog.Logger
}

// Server answers the admin port of one worker.
type Server struct {
	o     Options
	views []view // by rank
}

// askTimeout bounds the wait for an engine that does not answer: one whose publisher has it wait.
const askTimeout = 10 * time.Second

// New makes the handler of a worker's admin port.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, views: make([]view, len(o.Ranks))}
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.HandleMethodNotAllowed = true
	g.Use(s.recovery, stamp, s.authorize)
	g.NoRoute(func(c *gin.Context) { fail(c, http.StatusNotFound, errors.New("no such path")) })
	g.NoMethod(func(c *gin.Context) { fail(c, http.StatusMethodNotAllowed, errors.New("method not allowed")) })
	g.GET("/admin/truth", s.truth)
	g.GET("/admin/truth/blocks", s.blocks)
	g.GET("/admin/truth/digests", s.digests)
	g.GET("/admin/truth/journal", s.journal)
	g.GET("/admin/truth/requests", s.requests)
	g.POST("/admin/truth/match", s.match)
	g.GET("/admin/faults", s.listFaults)
	g.POST("/admin/faults", s.armFault)
	g.DELETE("/admin/faults/:id", s.healFault)
	return g
}

func (s *Server) recovery(c *gin.Context) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if err, ok := r.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			s.o.Log.Error("admin handler panicked", "path", c.Request.URL.Path, "panic", r, "stack", string(debug.Stack()))
		}
		panic(http.ErrAbortHandler) // an answer that breaks off must not look whole
	}()
	c.Next()
}

// The headers that say when an answer was begun, also where its body is lines or an error: CLOCK_MONOTONIC in
// ns, and the wall clock as in bodies.
const (
	headerMonoNs = "X-Mono-Ns"
	headerWall   = "X-Wall"
)

func stamp(c *gin.Context) {
	c.Header(headerMonoNs, strconv.FormatInt(clock.MonoNs(), 10))
	c.Header(headerWall, clock.Wall())
}

// authorize compares digests, so that neither content nor length of the token shows in the time taken.
func (s *Server) authorize(c *gin.Context) {
	if s.o.Token == "" {
		return
	}
	given, ok := strings.CutPrefix(c.GetHeader("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(s.o.Token))
	if !ok || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
		fail(c, http.StatusUnauthorized, errors.New("the admin token is missing or wrong: send Authorization: Bearer TOKEN"))
	}
}

// fail answers with {"error": text} and runs no further handler.
func fail(c *gin.Context, status int, err error) {
	c.AbortWithStatusJSON(status, gin.H{"error": err.Error()})
}

// look runs fn with a rank's engine and what it held at the last step boundary, everything announced so far
// being folded. It does not wait for the running step to end, unless that step clears the cache.
func (s *Server) look(ctx context.Context, r *Rank, fn func(engine.Core, *holding)) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	looked := false
	var flushed error
	at := func(e engine.Core, pending []engine.Event) {
		h, ok := holdingOf(r.Fold, pending)
		if !ok {
			return
		}
		// On the loop goroutine, which alone publishes, so nothing can be queued behind this.
		looked, flushed = true, flush(ctx, r)
		fn(e, h)
	}
	err := r.Loop.Peek(ctx, at)
	if err == nil && !looked {
		err = r.Loop.Ask(ctx, func(e engine.Core) { at(e, nil) })
	}
	return errors.Join(err, flushed)
}

// flush returns when every batch that is due is folded.
func flush(ctx context.Context, r *Rank) error {
	if r.Publisher == nil {
		return nil
	}
	return r.Publisher.Flush(ctx)
}

// count adds one rank's counters to sums.
func (s *Server) count(sums map[string]int64, r *Rank) {
	snap := r.Loop.Snapshot()
	skips := r.Fold.Skipped()
	for name, n := range map[string]int64{
		"prefix_queries": snap.PrefixQueries, "prefix_hits": snap.PrefixHits, "preemptions": snap.Preemptions,
		"prompt_tokens": snap.PromptTokens, "generation_tokens": snap.GenerationTokens,
		"finished_length": snap.FinishedLength, "finished_abort": snap.FinishedAbort,
		"announced_undecodable": skips.Undecodable, "announced_orphans": skips.Orphans,
		"announced_unknown_removals": skips.Unknown, "announced_other_events": skips.Other,
	} {
		sums[name] += n
	}
	if r.Publisher == nil {
		return
	}
	p := r.Publisher.Stats()
	for name, n := range map[string]int64{
		"batches": p.Batches, "subscribers": int64(p.Peers), "messages_sent": int64(p.Sent), "messages_dropped": int64(p.Dropped),
		"replay_requests": p.ReplayRequests, "replay_malformed": p.ReplayMalformed, "replay_batches": p.ReplayBatches,
	} {
		sums[name] += n
	}
}

// maxMatchBody bounds the body of a match: a prompt of the longest context in decimal.
const maxMatchBody = 8 << 20

func (s *Server) match(c *gin.Context) {
	var q contract.TruthMatchRequest
	dec := json.NewDecoder(http.MaxBytesReader(c.Writer, c.Request.Body, maxMatchBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		fail(c, http.StatusBadRequest, fmt.Errorf("reading the match request (at most %d bytes): %w", maxMatchBody, badjson.Error(err)))
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), askTimeout)
	defer cancel()
	m := contract.TruthMatch{MonoNs: clock.MonoNs(), Wall: clock.Wall(), Ranks: []contract.TruthMatchRank{}}
	for rank := range s.o.Ranks {
		row := contract.TruthMatchRank{Rank: rank}
		// What the engine holds in the middle of a step is what the next request would find.
		err := s.o.Ranks[rank].Loop.Peek(ctx, func(e engine.Core, _ []engine.Event) {
			row.Blocks = e.Match(q.TokenIDs, q.LoRAName, q.CacheSalt)
		})
		if err != nil {
			fail(c, http.StatusServiceUnavailable, fmt.Errorf("rank %d: %w", rank, err))
			return
		}
		m.Ranks = append(m.Ranks, row)
	}
	c.JSON(http.StatusOK, m)
}

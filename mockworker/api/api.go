package api

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"fleetdrill/mockworker/loop"
)

// Options make a Server. All fields but Log are needed.
type Options struct {
	Model string
	// Version is what /version tells, without the engine's name.
	Version string
	// BlockSize in tokens and NumBlocks (the null block included) tell which prompts can never fit.
	BlockSize, NumBlocks int
	MaxModelLen          int
	// ChatMaxTokens is the length of a chat answer that sets no maximum.
	ChatMaxTokens int
	// MaxBodyBytes bounds a request body.
	MaxBodyBytes int64
	// PromptTokensDetails adds prompt_tokens_details.cached_tokens to usage.
	PromptTokensDetails bool
	// Ranks are the engines, by data-parallel rank.
	Ranks []*loop.Loop
	// Metrics answers /metrics.
	Metrics http.Handler
	Log     *slog.Logger
}

// Server answers the API of one worker.
type Server struct {
	o       Options
	created int64 // unix seconds, told by /v1/models
	permID  uint64
	turn    atomic.Uint64 // rotates which rank wins a tie
}

// New makes the handler of a worker's API port.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, created: time.Now().Unix(), permID: rand.Uint64()}
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.HandleMethodNotAllowed = true
	g.Use(s.recovery)
	g.NoRoute(func(c *gin.Context) { sendJSON(c, http.StatusNotFound, []byte(`{"detail":"Not Found"}`)) })
	g.NoMethod(func(c *gin.Context) {
		sendJSON(c, http.StatusMethodNotAllowed, []byte(`{"detail":"Method Not Allowed"}`))
	})

	g.GET("/health", alive)
	g.GET("/ping", alive)
	g.POST("/ping", alive)
	g.GET("/version", s.version)
	g.GET("/v1/models", s.models)
	g.GET("/metrics", gin.WrapH(o.Metrics))
	g.POST("/tokenize", s.tokenize)
	g.POST("/detokenize", s.detokenize)
	g.POST("/v1/completions", func(c *gin.Context) { s.generate(c, completion) })
	g.POST("/v1/chat/completions", func(c *gin.Context) { s.generate(c, chat) })
	return g
}

// recovery turns a panic into a 500. gin's own would also swallow http.ErrAbortHandler, and the client of a
// stream that was cut on purpose would see a clean end.
func (s *Server) recovery(c *gin.Context) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if err, ok := r.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(http.ErrAbortHandler)
		}
		s.o.Log.Error("handler panicked", "path", c.Request.URL.Path, "panic", r, "stack", string(debug.Stack()))
		if c.Writer.Written() {
			panic(http.ErrAbortHandler)
		}
		sendError(c, apiError{status: http.StatusInternalServerError, kind: "InternalServerError", message: "internal error"})
	}()
	c.Next()
}

// pick chooses the rank of a request: the one with the fewest open requests, in turn among equals.
func (s *Server) pick() int {
	n := len(s.o.Ranks)
	if n == 1 {
		return 0
	}
	first := int(s.turn.Add(1) % uint64(n))
	best, least := first, s.o.Ranks[first].Open()
	for i := 1; i < n; i++ {
		rank := (first + i) % n
		if open := s.o.Ranks[rank].Open(); open < least {
			best, least = rank, open
		}
	}
	return best
}

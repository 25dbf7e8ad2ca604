package api

import (
	"crypto/sha256"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"fleetdrill/internal/clock"
	"fleetdrill/mockworker/faults"
	"fleetdrill/mockworker/loop"
)

// Options make a Server.
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

	// The others may be left out.

	// SGLang makes it the port of an SGLang server; nil is vLLM's.
	SGLang *SGLang
	// APIKeys guard /v1; none leaves it open.
	APIKeys []string
	// DevMode opens the routes for developers: sleeping, resetting caches, server_info.
	DevMode bool
	// Info is the configuration that /server_info tells.
	Info any
	// TrackLoad makes /load count.
	TrackLoad bool
	// RequestIDHeaders tells each answer's request id in a header.
	RequestIDHeaders bool
	// ForceIncludeUsage puts usage into every chunk of every stream.
	ForceIncludeUsage bool
	// Priority says that the scheduler orders by priority; otherwise a request with one is refused.
	Priority bool
	// Adapters are LoRA adapters, RuntimeAdapters allows to load others.
	Adapters        []Adapter
	RuntimeAdapters bool
	// WriteTimeout is how long a client may not read until it loses its stream; 0 is a minute.
	WriteTimeout time.Duration
	// Faults may cut streams and lie about load; Seed draws which.
	Faults *faults.Set
	Seed   uint64
	Log    *slog.Logger
}

// Server answers the API of one worker.
type Server struct {
	o        Options
	created  int64 // unix seconds, told by /v1/models
	permID   uint64
	turn     atomic.Uint64 // rotates which rank wins a tie
	serving  atomic.Int64  // generation requests, if they are tracked
	lie      faults.Lens[int64]
	keys     [][sha256.Size]byte
	adapters adapters
	control  control

	// Memory that requests use one after the other.
	bodies    sync.Pool // *body, zero
	documents sync.Pool // *[]byte
}

// New makes the handler of a worker's API port.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = writeTimeout
	}
	s := &Server{o: o, created: time.Now().Unix(), permID: rand.Uint64(), keys: digests(o.APIKeys)}
	for _, a := range o.Adapters {
		s.adapters.add(a.Name, a.Path)
	}
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.Use(s.recovery)
	if len(s.keys) > 0 {
		g.Use(s.authorize)
	}
	g.Use(s.cors)
	if o.SGLang != nil {
		s.sglangRoutes(g)
	} else {
		s.routes(g)
	}
	fallbacks(g)
	return g
}

func (s *Server) routes(g *gin.Engine) {
	if s.o.DevMode {
		s.devRoutes(g)
	}
	if s.o.RuntimeAdapters {
		g.POST("/v1/load_lora_adapter", s.loadAdapter)
		g.POST("/v1/unload_lora_adapter", s.unloadAdapter)
	}
	g.GET("/health", alive)
	g.GET("/ping", alive)
	g.POST("/ping", alive)
	g.GET("/version", s.version)
	g.GET("/v1/models", s.models)
	g.GET("/load", s.load)
	g.GET("/metrics", gin.WrapH(s.o.Metrics))
	g.POST("/tokenize", s.tokenize)
	g.POST("/detokenize", s.detokenize)
	g.POST("/v1/completions", s.tracked(func(c *gin.Context) { s.generate(c, completion) }))
	g.POST("/v1/chat/completions", s.tracked(func(c *gin.Context) { s.generate(c, chat) }))
	g.POST("/pause", s.pause)
	g.POST("/resume", s.resume)
	g.GET("/is_paused", s.isPaused)
}

// devRoutes are those that the engine has with VLLM_SERVER_DEV_MODE=1.
func (s *Server) devRoutes(g *gin.Engine) {
	g.GET("/server_info", s.serverInfo)
	g.POST("/reset_prefix_cache", s.resetPrefixCache)
	g.POST("/reset_mm_cache", nothingToReset)
	g.POST("/reset_encoder_cache", nothingToReset)
	g.POST("/sleep", s.sleep)
	g.POST("/wake_up", s.wakeUp)
	g.GET("/is_sleeping", s.isSleeping)
}

// tracked counts the requests of a generation route, for /load.
func (s *Server) tracked(h gin.HandlerFunc) gin.HandlerFunc {
	if !s.o.TrackLoad {
		return h
	}
	return func(c *gin.Context) {
		s.serving.Add(1)
		defer s.serving.Add(-1)
		h(c)
	}
}

func (s *Server) now() int64 { return clock.MonoNs() }

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

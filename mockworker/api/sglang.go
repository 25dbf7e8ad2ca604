package api

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// SGLang makes the port that of an SGLang server.
type SGLang struct {
	// CacheReport adds prompt_tokens_details.cached_tokens to the usage of the OpenAI routes.
	CacheReport bool
	// ServerArgs are told by /server_info, by their names in SGLang.
	ServerArgs map[string]any
	// Events say where KV events are; nil when there are none that a router could subscribe to.
	Events *SGLangEvents
	// ProbeTimeout is how long /health_generate waits for its token; 0 is what SGLang waits.
	ProbeTimeout time.Duration
}

// SGLangEvents is the kv_events block of /server_info: rank r publishes at the port EndpointPortBase + r.
type SGLangEvents struct {
	Publisher        string `json:"publisher"`
	EndpointHost     string `json:"endpoint_host"` // may be *, which is the worker's host
	EndpointPortBase int    `json:"endpoint_port_base"`
	Topic            string `json:"topic"`
	BlockSize        int    `json:"block_size"`
	DPSize           int    `json:"dp_size"`
}

// probeTimeout is SGLang's HEALTH_CHECK_TIMEOUT.
const probeTimeout = 20 * time.Second

// weightVersion is what a server says that was not told a version of its weights.
const weightVersion = "default"

// sglangRoutes are the routes of an SGLang server.
func (s *Server) sglangRoutes(g *gin.Engine) {
	g.GET("/health", alive)
	g.GET("/health_generate", s.healthGenerate)
	g.GET("/ping", alive)
	for _, path := range []string{"/get_model_info", "/model_info"} {
		g.GET(path, s.modelInfo)
	}
	for _, path := range []string{"/get_server_info", "/server_info"} {
		g.GET(path, s.sglangInfo)
	}
	g.GET("/v1/models", s.sglangModels)
	g.GET("/v1/loads", s.loads)
	g.GET("/get_load", s.getLoad)
	g.GET("/metrics", gin.WrapH(s.o.Metrics))
	for _, path := range []string{"/tokenize", "/v1/tokenize"} {
		g.POST(path, s.tokenize)
	}
	for _, path := range []string{"/detokenize", "/v1/detokenize"} {
		g.POST(path, s.detokenize)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		g.Handle(method, generatePath, func(c *gin.Context) { s.sglangGenerate(c, native) })
	}
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		g.Handle(method, "/flush_cache", s.flushCache)
	}
	g.POST("/v1/completions", func(c *gin.Context) { s.sglangGenerate(c, completion) })
	g.POST("/v1/chat/completions", func(c *gin.Context) { s.sglangGenerate(c, chat) })
}

// native is SGLang's own generation route.
const (
	native       flavour = chat + 1
	generatePath         = "/generate"
)

// sglangGenerate serves the generation routes.
func (s *Server) sglangGenerate(c *gin.Context, f flavour) {
	j, bad := s.sglangRead(c, f)
	if bad != nil {
		s.sglangRefuse(c, f, bad)
		return
	}
	w := newSGLangWriter(s, j)
	if j.stream {
		s.stream(c, w, j.rank, j.reqs)
		return
	}
	s.sglangWhole(c, w)
}

// sglangWhole answers with one JSON document.
func (s *Server) sglangWhole(c *gin.Context, w *sglangWriter) {
	switch ok, bad := s.collect(c, w.j.rank, w.j.reqs, w.choices); {
	case bad != nil:
		s.sglangRefuse(c, w.j.flavour, bad)
	case ok:
		s.sendDocument(c, w)
	}
}

// sglangRefuse sends an error in the shape of its route.
func (s *Server) sglangRefuse(c *gin.Context, f flavour, e *apiError) {
	sendJSON(c, e.status, e.sglangBody(f))
}

// sglangBody is the error as /generate tells it, a message alone, or as the OpenAI routes do, flat; so does
// /generate what it cannot read.
func (e *apiError) sglangBody(f flavour) []byte {
	if f == native && e.kind != invalidKind {
		return append(appendQuoted([]byte(`{"error":{"message":`), e.message), "}}"...)
	}
	b := appendQuoted([]byte(`{"object":"error","message":`), e.message)
	b = appendQuoted(append(b, `,"type":`...), e.kind)
	b = append(b, `,"param":`...)
	if e.param == "" {
		b = append(b, "null"...)
	} else {
		b = appendQuoted(b, e.param)
	}
	return append(appendInt(append(b, `,"code":`...), e.status), '}')
}

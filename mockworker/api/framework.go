package api

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

// What both engines' web framework (FastAPI on Starlette) does by itself, so that a client, a browser or a
// router sees the same of a path that is not there, a slash too many or another origin.

// fallbacks answers what no route answers. The routes must all be there.
func fallbacks(g *gin.Engine) {
	g.HandleMethodNotAllowed = true
	g.RedirectTrailingSlash = false // gin's own is a 301
	paths := map[string]bool{}
	for _, r := range g.Routes() {
		paths[r.Path] = true
	}
	g.NoMethod(func(c *gin.Context) { sendDetail(c, http.StatusMethodNotAllowed, "Method Not Allowed") })
	g.NoRoute(func(c *gin.Context) {
		if path := strings.TrimRight(c.Request.URL.Path, "/"); path != c.Request.URL.Path && paths[path] {
			redirect(c, path)
			return
		}
		sendDetail(c, http.StatusNotFound, "Not Found")
	})
}

// redirect sends a client to the path without its slash, with the method and body it has.
func redirect(c *gin.Context, path string) {
	u := *c.Request.URL
	u.Scheme, u.Host, u.Path, u.RawPath = "http", c.Request.Host, path, ""
	h := c.Writer.Header()
	h["Location"], h["Content-Length"] = []string{u.String()}, []string{"0"}
	c.Writer.WriteHeader(http.StatusTemporaryRedirect)
}

// The answers to browsers, which both engines allow everything by default.
var (
	anyOrigin    = []string{"*"}
	credentials  = []string{"true"}
	corsMethods  = []string{"DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"}
	corsMaxAge   = []string{"600"}
	preflightEnd = []byte("OK")
)

// cors marks the answers to requests that have an Origin, and answers what a browser asks beforehand.
func (s *Server) cors(c *gin.Context) {
	origin := c.Request.Header["Origin"]
	if len(origin) == 0 {
		return
	}
	h := c.Writer.Header()
	h["Access-Control-Allow-Origin"] = anyOrigin
	if s.o.SGLang != nil {
		h["Access-Control-Allow-Credentials"] = credentials
	}
	if c.Request.Method != http.MethodOptions || c.GetHeader("Access-Control-Request-Method") == "" {
		return
	}
	if s.o.SGLang != nil { // with credentials an origin must be told by name
		h["Access-Control-Allow-Origin"], h["Vary"] = origin, []string{"Origin"}
	}
	h["Access-Control-Allow-Methods"], h["Access-Control-Max-Age"] = corsMethods, corsMaxAge
	if asked := c.Request.Header["Access-Control-Request-Headers"]; len(asked) > 0 {
		h["Access-Control-Allow-Headers"] = asked
	}
	h["Content-Type"] = plainType
	c.Writer.WriteHeader(http.StatusOK)
	_, _ = c.Writer.Write(preflightEnd) // a client that is gone cannot be told so
	c.Abort()
}

package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

// guarded are the paths that need a key, by prefix; health, metrics and the routes for operators do not.
var guarded = []string{"/v1", "/v2", "/inference"}

// authorize compares digests, so that neither content nor length of a key shows in the time taken.
func (s *Server) authorize(c *gin.Context) {
	if c.Request.Method == http.MethodOptions || !needsKey(c.Request.URL.Path) {
		return
	}
	scheme, given, _ := strings.Cut(c.GetHeader("Authorization"), " ")
	ok := strings.EqualFold(scheme, "bearer")
	sum, known := sha256.Sum256([]byte(given)), 0
	for i := range s.keys {
		known |= subtle.ConstantTimeCompare(sum[:], s.keys[i][:])
	}
	if !ok || known == 0 {
		sendJSON(c, http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
		c.Abort()
	}
}

func needsKey(path string) bool {
	for _, p := range guarded {
		if strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}

func digests(keys []string) (out [][sha256.Size]byte) {
	for _, k := range keys {
		out = append(out, sha256.Sum256([]byte(k)))
	}
	return out
}

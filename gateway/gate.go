package gateway

import (
	"net/http"
	"sync"
)

// gate knows when the last handler has returned, which a server that is closed rather than shut down
// does not: only then may the parts that handlers use be closed.
type gate struct {
	mu     sync.RWMutex // held for reading by every handler
	closed bool         // guarded by mu
}

// guard runs h inside the gate; behind a closed one every request is refused.
func (g *gate) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.RLock()
		defer g.mu.RUnlock()
		if g.closed {
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	})
}

// close waits for the handlers inside and lets no other in.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

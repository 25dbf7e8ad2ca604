package linkproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestKeepAliveRequestsAreLogged(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	}))
	defer srv.Close()
	p := New(Options{Upstream: srv.Listener.Addr().String(), HTTP: true})
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 3 {
		r, err := http.Get("http://" + p.Addr() + "/health")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	if s := p.Stats(); s.Probes != 3 || s.Attempts != 0 || s.Conns != 1 {
		t.Errorf("stats %+v, want 3 probes on one connection", s)
	}
	http.DefaultClient.CloseIdleConnections()
}

package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"fleetdrill/gateway/fleet"
)

// told is a client that looks at the gateway at the very moment at which the last byte of its answer is
// given to it.
type told struct {
	*httptest.ResponseRecorder
	whole int    // bytes of the answer
	look  func() // called once
}

func (c *told) Write(piece []byte) (int, error) {
	if c.Body.Len() < c.whole && c.Body.Len()+len(piece) >= c.whole {
		c.look()
	}
	return c.ResponseRecorder.Write(piece)
}

// figures are what the gateway shows of its only worker's guards, and of the metrics those with how the
// requests ended.
func (g *rig) figures() string {
	w := httptest.NewRecorder()
	g.proxy.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	out := fmt.Sprint(g.worker(0).Inflight, " in flight")
	for line := range strings.Lines(w.Body.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, kind, ended := strings.Cut(name, "fleetdrill_gateway_answers_total")
		if !ended {
			_, kind, ended = strings.Cut(name, "fleetdrill_gateway_failures_total")
		}
		if ended && !strings.HasPrefix(name, "#") && value != "0" {
			out += fmt.Sprint(", ", value, kind)
		}
	}
	return out
}

// Who has an answer finds it counted and the worker free of it, however the answer is framed: clients of a
// stream stop at its [DONE], those of a whole answer at its length.
func TestAnswersAreCountedBeforeTheyAreOut(t *testing.T) {
	const done = "data: {\"text\":\"a\"}\n\ndata: [DONE]\n\n"
	large := `{"text":"` + strings.Repeat("a", 100_000) + `"}`
	for name, c := range map[string]struct {
		status int
		kind   string
		text   string
		length bool // told in the head
		hold   bool // the engine ends its answer when nobody listens any more
		leave  bool // the client hangs up once it has its answer
		want   string
	}{
		"whole":               {status: 200, kind: "application/json", text: `{"text":"a"}`, length: true, want: `1{class="2xx"}`},
		"large":               {status: 200, kind: "application/json", text: large, length: true, want: `1{class="2xx"}`},
		"stream":              {status: 200, kind: "text/event-stream", text: done, want: `1{class="2xx"}`},
		"stream without end":  {status: 200, kind: "text/event-stream", text: done, hold: true, want: `1{class="2xx"}`},
		"stream, client gone": {status: 200, kind: "text/event-stream", text: done, hold: true, leave: true, want: `1{class="2xx"}`},
		"other line ends":     {status: 200, kind: "text/event-stream", text: "data: [DONE]\r\n\r\n", hold: true, want: `1{class="2xx"}`},
		"declined":            {status: 429, kind: "application/json", text: large, length: true, want: `1{class="4xx"}`},
		"failed":              {status: 500, kind: "application/json", text: large, length: true, want: `1{class="5xx"}, 1{how="status"}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 1, func(_ *fleet.Timing, o *Options) { o.Retries = 0 })
			g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				if c.length {
					w.Header().Set("Content-Length", strconv.Itoa(len(c.text)))
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.text)
				_ = http.NewResponseController(w).Flush()
				if c.hold {
					<-r.Context().Done()
				}
			})
			want := "0 in flight, " + c.want
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			looked := false
			client := &told{ResponseRecorder: httptest.NewRecorder(), whole: len(c.text), look: func() {
				looked = true
				if got := g.figures(); got != want {
					t.Errorf("with its answer a client finds %s, want %s", got, want)
				}
				if c.leave {
					leave()
				}
			}}
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/completions", strings.NewReader(streamed))
			g.proxy.Handler().ServeHTTP(client, req)
			if got := g.figures(); !looked || got != want || client.Code != c.status || client.Body.String() != c.text {
				t.Errorf("in the end %s, want %s; answer %d of %d bytes", got, want, client.Code, client.Body.Len())
			}
		})
	}
}

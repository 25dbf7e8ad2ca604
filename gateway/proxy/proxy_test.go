package proxy

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"fleetdrill/gateway/fleet"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/deadport"
)

func TestStreamPassesUnchanged(t *testing.T) {
	g := newRig(t, 1)
	resp := g.stream()
	body, err := read(resp)
	if err != nil {
		t.Fatal(err)
	}
	want := "data: {\"text\":\"a\"}\n\ndata: {\"text\":\"b\"}\n\ndata: [DONE]\n\n"
	if body != want {
		t.Errorf("body %q, want %q", body, want)
	}
	for key, want := range map[string]string{headerWorker: "w1", headerRank: "0", headerAttempts: "1", headerPredicted: "0", "Content-Type": "text/event-stream"} {
		if got := resp.Header.Get(key); got != want {
			t.Errorf("header %s is %q, want %q", key, got, want)
		}
	}
	req := <-g.engines[0].seen
	sent, _ := io.ReadAll(req.Body)
	if string(sent) != streamed || req.URL.Path != "/v1/completions" {
		t.Errorf("the engine got %s %q, want the client's bytes", req.URL.Path, sent)
	}
}

func TestStreamComesPieceByPiece(t *testing.T) {
	g := newRig(t, 1)
	goOn := make(chan struct{})
	g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, "first")
		<-goOn
		words("second")(w, r)
	})
	r := bufio.NewReader(g.stream().Body)
	// The first event arrives while the engine waits for us.
	if got := line(t, r); !strings.Contains(got, "first") {
		t.Errorf("first line %q", got)
	}
	close(goOn)
	rest, err := io.ReadAll(r)
	if err != nil || !strings.HasSuffix(string(rest), "[DONE]\n\n") {
		t.Errorf("rest %q, %v", rest, err)
	}
}

func TestHopByHopHeadersStay(t *testing.T) {
	g := newRig(t, 1)
	req, err := http.NewRequest(http.MethodPost, g.srv.URL+"/v1/completions?x=1", strings.NewReader(streamed))
	if err != nil {
		t.Fatal(err)
	}
	for key, v := range map[string]string{"Authorization": "Bearer k", "X-Request-Id": "r1", "Connection": "X-Private", "X-Private": "1", "Te": "trailers"} {
		req.Header.Set(key, v)
	}
	resp, err := g.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := read(resp); err != nil {
		t.Fatal(err)
	}
	seen := <-g.engines[0].seen
	for key, want := range map[string]string{"Authorization": "Bearer k", "X-Request-Id": "r1", "X-Private": "", "Te": ""} {
		if got := seen.Header.Get(key); got != want {
			t.Errorf("the engine got %s: %q, want %q", key, got, want)
		}
	}
	if seen.URL.RawQuery != "x=1" {
		t.Errorf("query %q was lost", seen.URL.RawQuery)
	}
}

// A worker that is registered, was ready, and now refuses: the client notices nothing.
func TestRefusedConnectIsRetriedElsewhere(t *testing.T) {
	g := newRig(t, 2)
	g.engines[0].kill()
	for range 4 {
		resp := g.stream()
		if body, err := read(resp); err != nil || !strings.Contains(body, "[DONE]") {
			t.Fatalf("body %q, %v", body, err)
		}
		if got := resp.Header.Get(headerWorker); got != "w2" {
			t.Fatalf("routed to %q", got)
		}
	}
	g.until("w1 dead", func(ws []contract.RoutingWorker) bool {
		return ws[0].Veto != nil && ws[0].Veto.Reason == contract.VetoDead && !ws[0].Routable
	})
}

// Engines send the head of an answer when they accept a request, long before its first token. A head alone
// is nothing that the client has seen: the request moves.
func TestKilledAfterTheHeadIsRetriedElsewhere(t *testing.T) {
	for name, body := range map[string]string{"stream": streamed, "whole": `{"prompt":"x"}`} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2)
			headed := make(chan struct{})
			g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				close(headed)
				<-r.Context().Done()
			})
			go func() {
				<-headed
				g.engines[0].kill()
			}()
			resp := g.post("/v1/completions", body)
			text, err := read(resp)
			if err != nil || !strings.Contains(text, "[DONE]") || resp.Header.Get(headerWorker) != "w2" || resp.Header.Get(headerAttempts) != "2" {
				t.Errorf("got %q, %v from %s in %s attempts, want w2's answer in 2", text, err, resp.Header.Get(headerWorker), resp.Header.Get(headerAttempts))
			}
		})
	}
}

func TestKilledMidStreamEndsInAnErrorEventAndACut(t *testing.T) {
	g := newRig(t, 2)
	hold := make(chan struct{})
	defer close(hold)
	g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, "first")
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	})
	resp := g.stream()
	if got := resp.Header.Get(headerWorker); got != "w1" {
		t.Fatalf("round robin began with %s", got)
	}
	r := bufio.NewReader(resp.Body)
	line(t, r)
	g.engines[0].kill()
	rest, err := io.ReadAll(r)
	if err == nil {
		t.Error("the stream ended as if it were complete")
	}
	if strings.Contains(string(rest), "[DONE]") || !strings.Contains(string(rest), `"type":"BadGatewayError"`) {
		t.Errorf("rest of the stream %q has no error event", rest)
	}
	g.until("w1 charged and dead", func(ws []contract.RoutingWorker) bool {
		return ws[0].Failures == 1 && ws[0].Veto != nil && ws[0].Veto.Reason == contract.VetoDead
	})
}

// An engine that closes its connection in good order, but too early.
func TestCleanEndTooEarlyIsBroken(t *testing.T) {
	for name, c := range map[string]struct {
		path, body, kind, text string
	}{
		"stream": {"/v1/completions", streamed, "text/event-stream", "data: {\"text\":\"a\"}\n\n"},
		"whole":  {"/v1/completions", `{"prompt":"x"}`, "application/json", `{"choices":[{"text":"a`},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 1)
			g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.text)
				_ = http.NewResponseController(w).Flush()
			})
			if resp, err := g.try(c.path, c.body); err == nil {
				if body, err := read(resp); err == nil {
					t.Errorf("the client got a complete answer: %q", body)
				}
			}
			g.until("charged", func(ws []contract.RoutingWorker) bool { return ws[0].Failures == 1 })
		})
	}
}

// clean-end-trusting passes the same answers on as whole ones, and one that was closed in the middle of its
// framing; a reset is no clean end.
func TestCleanEndTrusting(t *testing.T) {
	piece := "data: {\"text\":\"a\"}\n\n"
	for name, c := range map[string]struct {
		how    string // the engine's last act
		failed int64
	}{
		"ended": {"", 0},
		"fin":   {"fin", 0},
		"rst":   {"rst", 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 1)
			g.proxy.SetHandicaps([]string{contract.HandicapCleanEnd})
			g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, piece)
				_ = http.NewResponseController(w).Flush()
				if c.how == "" {
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				if c.how == "rst" {
					_ = conn.(*net.TCPConn).SetLinger(0)
				}
				_ = conn.Close()
			})
			body, err := read(g.stream())
			if trusted := err == nil && body == piece; trusted != (c.failed == 0) {
				t.Errorf("the client got %q, %v", body, err)
			}
			g.until("the end", func(ws []contract.RoutingWorker) bool { return ws[0].Inflight == 0 })
			if w := g.worker(0); w.Failures != c.failed {
				t.Errorf("charged with %d failures, want %d", w.Failures, c.failed)
			}
			g.proxy.SetHandicaps(nil)
			if c.how != "rst" {
				if resp, err := g.try("/v1/completions", streamed); err == nil {
					if body, err := read(resp); err == nil {
						t.Errorf("after the handicap the client got a complete answer: %q", body)
					}
				}
			}
		})
	}
}

// Silence before the first byte, then the partition veto: the request moves, and the engine hears of it.
func TestPartitionedBeforeTheFirstByteIsRetried(t *testing.T) {
	g := newRig(t, 2, impatient)
	aborted := make(chan struct{})
	g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(aborted)
	})
	heal := g.engines[0].hang()
	defer heal()
	resp := g.stream()
	if body, err := read(resp); err != nil || !strings.Contains(body, "[DONE]") {
		t.Fatalf("body %q, %v", body, err)
	}
	if resp.Header.Get(headerWorker) != "w2" || resp.Header.Get(headerAttempts) != "2" {
		t.Errorf("routed to %s in %s attempts, want w2 in 2", resp.Header.Get(headerWorker), resp.Header.Get(headerAttempts))
	}
	select {
	case <-aborted:
	case <-time.After(wait):
		t.Error("the engine was not told that its request is over")
	}
	if w := g.worker(0); w.Routable || w.Veto == nil || w.Veto.Reason != contract.VetoPartitioned || w.Failures != 0 {
		t.Errorf("w1 is %+v", w)
	}
	heal()
	g.until("w1 back", func(ws []contract.RoutingWorker) bool { return ws[0].Routable && ws[0].Veto == nil })
}

func TestPartitionedMidStreamGetsTheErrorEvent(t *testing.T) {
	g := newRig(t, 1, impatient)
	g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, "first")
		<-r.Context().Done()
	})
	heal := g.engines[0].hang()
	defer heal()
	body, err := read(g.stream())
	if err == nil || !strings.Contains(body, "worker w1 is partitioned") {
		t.Errorf("body %q, %v", body, err)
	}
}

func TestClientDisconnectReachesTheEngine(t *testing.T) {
	g := newRig(t, 1)
	aborted := make(chan struct{})
	g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, "first")
		<-r.Context().Done()
		close(aborted)
	})
	resp := g.stream()
	line(t, bufio.NewReader(resp.Body))
	resp.Body.Close()
	select {
	case <-aborted:
	case <-time.After(wait):
		t.Fatal("the engine still works for a client that is gone")
	}
	g.until("guard given back", func(ws []contract.RoutingWorker) bool { return ws[0].Inflight == 0 })
	if w := g.worker(0); w.Failures != 0 || w.Breaker != contract.BreakerClosed {
		t.Errorf("a client's disconnect was charged to the worker: %+v", w)
	}
}

func TestStatusesOfTheEngine(t *testing.T) {
	for name, c := range map[string]struct {
		first          int // w1's status; w2 serves
		wantStatus     int
		wantWorker     string
		wantCharged    int64
		wantBodyHolds  string
		wantAttempts   string
		aloneWithFault bool
	}{
		"429 passes":                {first: 429, wantStatus: 429, wantWorker: "w1", wantBodyHolds: "fault", wantAttempts: "1"},
		"404 passes":                {first: 404, wantStatus: 404, wantWorker: "w1", wantBodyHolds: "fault", wantAttempts: "1"},
		"503 moves":                 {first: 503, wantStatus: 200, wantWorker: "w2", wantCharged: 1, wantBodyHolds: "[DONE]", wantAttempts: "2"},
		"500 of the only one stays": {first: 500, wantStatus: 502, wantWorker: "", wantCharged: 1, wantBodyHolds: "500", aloneWithFault: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := 2
			if c.aloneWithFault {
				n = 1
			}
			g := newRig(t, n)
			g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.first)
				_, _ = io.WriteString(w, `{"error":{"message":"fault"}}`)
			})
			resp := g.stream()
			body, err := read(resp)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != c.wantStatus || resp.Header.Get(headerWorker) != c.wantWorker || !strings.Contains(body, c.wantBodyHolds) ||
				resp.Header.Get(headerAttempts) != c.wantAttempts {
				t.Errorf("got %d %v %q, want %+v", resp.StatusCode, resp.Header, body, c)
			}
			if got := g.worker(0).Failures; got != c.wantCharged {
				t.Errorf("%d failures charged, want %d", got, c.wantCharged)
			}
		})
	}
}

// When the retries are used up, the engine's own answer says the most.
func TestLastErrorStatusPasses(t *testing.T) {
	g := newRig(t, 2, func(_ *fleet.Timing, o *Options) { o.Retries = 0 })
	g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(500)
		_, _ = io.WriteString(w, "own words")
	})
	resp := g.stream()
	if body, err := read(resp); err != nil || resp.StatusCode != 500 || body != "own words" {
		t.Errorf("got %d %q %v", resp.StatusCode, body, err)
	}
}

func TestSilenceHasBounds(t *testing.T) {
	t.Run("first byte", func(t *testing.T) {
		// Long enough for w2, which the bound is for, too.
		g := newRig(t, 2, func(_ *fleet.Timing, o *Options) { o.TTFTTimeout = 2 * time.Second })
		g.engines[0].set(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		resp := g.stream()
		if _, err := read(resp); err != nil || resp.Header.Get(headerWorker) != "w2" {
			t.Errorf("not moved: %v %v", resp.Header, err)
		}
	})
	t.Run("stream", func(t *testing.T) {
		g := newRig(t, 1, func(_ *fleet.Timing, o *Options) { o.StreamStallTimeout = 50 * time.Millisecond })
		g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			event(w, "first")
			<-r.Context().Done()
		})
		body, err := read(g.stream())
		if err == nil || !strings.Contains(body, errStall.Error()) {
			t.Errorf("body %q, %v", body, err)
		}
	})
}

func TestNoWorkerSaysWhenToComeBack(t *testing.T) {
	g := newRig(t, 0)
	resp := g.stream()
	body, err := read(resp)
	if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !json.Valid([]byte(body)) {
		t.Errorf("got %d %v %q %v", resp.StatusCode, resp.Header, body, err)
	}
}

// The gateway's own errors have the shape that OpenAI clients parse.
func TestErrorShapes(t *testing.T) {
	g := newRig(t, 1)
	for name, c := range map[string]struct {
		path, body string
		status     int
		message    string
	}{
		"no json":       {"/v1/completions", `{"prompt":`, 400, "not valid JSON at byte 10"},
		"no prompt":     {"/v1/completions", `{}`, 400, "prompt is missing"},
		"prompt object": {"/v1/completions", `{"prompt":{}}`, 400, "prompt must be a string"},
		"negative id":   {"/v1/completions", `{"prompt":[1,-2]}`, 400, "token id number 1 is not a whole number"},
		"huge id":       {"/v1/completions", `{"prompt":[4294967296]}`, 400, "token id number 0 is above"},
		"no messages":   {"/v1/chat/completions", `{"messages":[]}`, 400, "at least one message"},
		"image":         {"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "only text is supported"},
		"not utf-8":     {"/v1/completions", "{\"prompt\":\"\xff\"}", 400, "not valid UTF-8"},
		"too large":     {"/v1/completions", `{"prompt":"` + strings.Repeat("x", 64<<10) + `"}`, 413, "larger than 65536 bytes"},
		"unknown path":  {"/v1/embeddings", `{}`, 404, "POST /v1/embeddings is not served here"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := g.post(c.path, c.body)
			var got struct {
				Error struct {
					Message, Type string
					Param         *string
					Code          int
				}
			}
			if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != c.status || got.Error.Code != c.status || got.Error.Type == "" || !strings.Contains(got.Error.Message, c.message) {
				t.Errorf("got %d %+v, want %d with %q", resp.StatusCode, got, c.status, c.message)
			}
		})
	}
	if g.worker(0).Dispatches != 0 {
		t.Error("a request that the gateway refused reached a worker")
	}
}

func TestModelsComeFromAWorker(t *testing.T) {
	g := newRig(t, 1)
	g.engines[0].set(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"list","data":[]}`)
	})
	resp, err := g.client.Get(g.srv.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := read(resp); body != `{"object":"list","data":[]}` {
		t.Errorf("body %q", body)
	}
}

func TestHealthAndReadiness(t *testing.T) {
	g := newRig(t, 0)
	if err := g.fleet.Add(contract.WorkerSpec{ID: "gone", URL: "http://" + deadport.New(t), KVBlockSize: 16}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/health": 200, "/readiness": 503, "/metrics": 200} {
		resp, err := g.client.Get(g.srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s answers %d, want %d", path, resp.StatusCode, want)
		}
	}
}

package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/leaks"
)

// The test binary is also the worker process of trouble_test.go.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asWorkers {
		os.Exit(runWorkers(os.Args[2:]))
	}
	leaks.Main(m)
}

// running is a gateway under Run.
type running struct {
	ready contract.ReadyFile
	stop  context.CancelFunc
	ended chan error
}

// start runs a gateway in front of one upstream and waits for its ready file.
func start(t *testing.T, upstream http.HandlerFunc, tune func(*Config)) *running {
	t.Helper()
	up := httptest.NewServer(upstream)
	c := DefaultConfig()
	c.ReadyFile = filepath.Join(t.TempDir(), "ready.json")
	c.Workers = []contract.WorkerSpec{{ID: "w1", URL: up.URL}}
	if tune != nil {
		tune(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &running{stop: cancel, ended: make(chan error, 1)}
	go func() { g.ended <- Run(ctx, c) }()
	t.Cleanup(func() {
		cancel()
		http.DefaultClient.CloseIdleConnections()
		up.CloseClientConnections()
		up.Close()
	})
	until(t, "the ready file", func() bool {
		text, err := os.ReadFile(c.ReadyFile)
		return err == nil && json.Unmarshal(text, &g.ready) == nil
	})
	until(t, "readiness", func() bool { return g.get(t, g.ready.Gateway.HTTP+"/readiness") == 200 })
	return g
}

func (g *running) get(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// patience bounds every wait for a condition: only what never comes takes so long.
const patience = 2 * time.Minute

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// slow streams one event, waits for goOn, and finishes.
func slow(goOn chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-goOn:
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		case <-r.Context().Done():
		}
	}
}

func stream(t *testing.T, g *running) *http.Response {
	t.Helper()
	resp, err := http.Post(g.ready.Gateway.HTTP+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"x","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestRunServesAndDrains(t *testing.T) {
	goOn := make(chan struct{})
	g := start(t, slow(goOn), nil)
	if g.ready.Kind != contract.KindGateway || g.ready.PID != os.Getpid() || g.ready.StartTime == 0 {
		t.Errorf("ready file %+v", g.ready)
	}
	resp := stream(t, g)
	r := bufio.NewReader(resp.Body)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	g.stop()
	// The proxy port refuses while the admin port still tells of the stream.
	until(t, "the proxy port to close", func() bool {
		other, err := http.Post(g.ready.Gateway.HTTP+"/v1/completions", "application/json", strings.NewReader(`{}`))
		if err == nil {
			other.Body.Close()
		}
		return err != nil
	})
	if got := g.get(t, g.ready.Gateway.Admin+"/routing/state"); got != 200 {
		t.Errorf("the admin port answers %d during the drain", got)
	}
	close(goOn)
	rest, err := io.ReadAll(r)
	if err != nil || !strings.HasSuffix(string(rest), "[DONE]\n\n") {
		t.Errorf("the admitted stream ended with %q, %v", rest, err)
	}
	if err := <-g.ended; err != nil {
		t.Error(err)
	}
}

func TestDrainTimeoutCuts(t *testing.T) {
	g := start(t, slow(make(chan struct{})), func(c *Config) { c.DrainTimeout = 50 * time.Millisecond })
	resp := stream(t, g)
	g.stop()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a stream that was cut ended as if complete: %q", body)
	}
	if err := <-g.ended; err != nil {
		t.Error(err)
	}
}

func TestMetricsAndHandicap(t *testing.T) {
	goOn := make(chan struct{})
	close(goOn)
	g := start(t, slow(goOn), func(c *Config) {
		c.Handicaps = []string{contract.HandicapLivenessOff}
		c.IndexMaxBytes, c.EventLanes = 1<<20, 3
	})
	if _, err := io.ReadAll(stream(t, g).Body); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(g.ready.Gateway.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	for _, want := range []string{`fleetdrill_gateway_answers_total{class="2xx"} 1`, `fleetdrill_gateway_worker_dispatches_total{worker="w1"} 1`, "fleetdrill_gateway_ttft_seconds_count 1",
		"fleetdrill_gateway_index_bytes 0", "fleetdrill_gateway_index_shed_blocks_total 0", "fleetdrill_gateway_event_lanes 3"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q among the metrics", want)
		}
	}
	state, err := http.Get(g.ready.Gateway.Admin + "/routing/state")
	if err != nil {
		t.Fatal(err)
	}
	defer state.Body.Close()
	var got contract.RoutingState
	if err := json.NewDecoder(state.Body).Decode(&got); err != nil || len(got.Handicaps) != 1 || got.Workers[0].Dispatches != 1 {
		t.Errorf("state %+v, %v", got, err)
	}
	g.stop()
	if err := <-g.ended; err != nil {
		t.Error(err)
	}
}

func TestRunRefusesABadConfig(t *testing.T) {
	c := DefaultConfig()
	c.Workers = []contract.WorkerSpec{{URL: "nowhere"}}
	if err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), "starting the gateway") {
		t.Errorf("error %v", err)
	}
	c = DefaultConfig()
	c.KVIndex, c.IndexMaxBytes, c.EventLanes = "maptree", 1<<30, 0
	if err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), "cannot be bounded") || !strings.Contains(err.Error(), "event lanes 0") {
		t.Errorf("error %v", err)
	}
}

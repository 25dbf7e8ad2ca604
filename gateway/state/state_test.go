package state

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/index"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// stream is a rank whose state is fixed.
type stream struct{ rank int }

func (s *stream) State(int64) contract.RoutingRank {
	return contract.RoutingRank{Rank: s.rank, Stream: contract.StreamLive, Quality: contract.QualityExact, Blocks: 3,
		Counters: contract.RankCounters{Resyncs: map[string]int64{contract.ResyncFirst: 1}}}
}
func (s *stream) WriteDump(w io.Writer) error {
	_, err := fmt.Fprintf(w, "{\"rank\":%d}\n", s.rank)
	return err
}
func (*stream) Nudge()            {}
func (*stream) WorkerDead()       {}
func (*stream) Handicap([]string) {}
func (*stream) Close()            {}

type rig struct {
	server  *Server
	fleet   *fleet.Fleet
	url     string
	applied [][]string
}

func newRig(t testing.TB, token string) *rig {
	picker, err := policy.New(policy.CacheAware, 1)
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{fleet: fleet.New(fleet.Options{Timing: fleet.DefaultTiming(), Picker: picker,
		Subscribe: func(_ contract.WorkerSpec, rank int, _ index.Holder, _ fleet.Hooks) fleet.Stream {
			return &stream{rank}
		}})}
	g.server, err = New(Options{Fleet: g.fleet, Policy: "cache_aware", KVIndex: "maptree", Token: token,
		Counters: func() contract.RoutingCounters { return contract.RoutingCounters{Requests: 7} },
		Normalize: func(w *contract.WorkerSpec) error {
			if w.URL == "" {
				return errors.New("url is missing")
			}
			return nil
		},
		ApplyHandicaps: func(on []string) { g.applied = append(g.applied, on) }}, nil)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(g.server.Handler())
	g.url = srv.URL
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		g.fleet.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return g
}

// patience bounds a call: only one that hangs takes so long.
const patience = time.Minute

func (g *rig) call(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, g.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

const w1 = `{"id":"w1","url":"http://127.0.0.1:1","kv_block_size":16,"kv_events":{"endpoint":"tcp://127.0.0.1:2","ranks":2}}`

func TestRegistryByAPI(t *testing.T) {
	g := newRig(t, "")
	for _, c := range []struct {
		method, path, body string
		status             int
		holds              string
	}{
		{"POST", "/workers", w1, 201, `"id":"w1"`},
		{"POST", "/workers", w1, 409, `worker \"w1\" is registered already`},
		{"POST", "/workers", `{"id":"w2"}`, 400, "url is missing"},
		{"POST", "/workers", `{"id":"w2","uri":"x"}`, 400, `unknown field \"uri\"`},
		{"GET", "/workers", "", 200, `"endpoint":"tcp://127.0.0.1:2"`},
		{"GET", "/routing/dump?worker=w1&rank=1", "", 200, `{"rank":1}`},
		{"GET", "/routing/dump?worker=w1&rank=2", "", 404, "no such worker or rank"},
		{"GET", "/routing/dump?worker=w1&rank=x", "", 400, "not a whole number"},
		{"DELETE", "/workers/w1", "", 204, ""},
		{"DELETE", "/workers/w1", "", 404, "no such worker"},
	} {
		if status, body := g.call(t, c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.holds) {
			t.Errorf("%s %s %s: %d %s, want %d with %q", c.method, c.path, c.body, status, body, c.status, c.holds)
		}
	}
}

func TestStateHasTheContractsShape(t *testing.T) {
	g := newRig(t, "")
	g.call(t, "POST", "/workers", w1)
	_, body := g.call(t, "GET", "/routing/state", "")
	var got contract.RoutingState
	dec := json.NewDecoder(strings.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Counters.Requests != 7 || len(got.Workers) != 1 || len(got.Workers[0].Ranks) != 2 || got.Workers[0].Ranks[1].Rank != 1 ||
		got.Workers[0].Phase != contract.PhaseStarting || got.MonoNs == 0 || got.Handicaps == nil {
		t.Errorf("state %s", body)
	}
}

func TestHandicapsReplaceTheSet(t *testing.T) {
	g := newRig(t, "")
	on := `{"handicaps":["liveness-off"]}`
	if status, body := g.call(t, "PUT", "/routing/handicaps", on); status != 200 || strings.TrimSpace(body) != on {
		t.Errorf("%d %s", status, body)
	}
	if status, body := g.call(t, "PUT", "/routing/handicaps", `{"handicaps":["x"]}`); status != 400 || !strings.Contains(body, "liveness-off") {
		t.Errorf("an unknown handicap: %d %s", status, body)
	}
	g.call(t, "PUT", "/routing/handicaps", `{"handicaps":[]}`)
	if diff := cmp.Diff([][]string{{}, {"liveness-off"}, {}}, g.applied, cmp.Transformer("nil", func(s []string) string { return strings.Join(s, ",") })); diff != "" {
		t.Errorf("applied sets (-want +got):\n%s", diff)
	}
}

func TestEventsTellTransitions(t *testing.T) {
	g := newRig(t, "")
	resp, err := http.Get(g.url + "/routing/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	g.call(t, "POST", "/workers", w1)
	line := ""
	for lines := bufio.NewReader(resp.Body); !strings.HasPrefix(line, "data: "); { // perhaps behind signs of life
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	var got contract.RoutingEvent
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &got); err != nil || got.Worker != "w1" || got.Kind != "registry" || got.To != "added" {
		t.Errorf("first event %q: %+v, %v", line, got, err)
	}
}

func TestTokenGuardsEverything(t *testing.T) {
	g := newRig(t, "secret")
	for header, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer secret": 200} {
		for _, path := range []string{"/routing/state", "/workers", "/debug/pprof/cmdline"} {
			if status, _ := g.call(t, "GET", path, "", "Authorization", header); status != want {
				t.Errorf("%s with %q: %d, want %d", path, header, status, want)
			}
		}
	}
}

// The routing state of 128 workers is meant to cost less than a millisecond.
func BenchmarkState128(b *testing.B) {
	g := newRig(b, "")
	for i := range 128 {
		// Nothing listens on port 1: the workers stay in starting, which costs the same to show.
		spec := contract.WorkerSpec{ID: fmt.Sprintf("w%d", i), URL: "http://127.0.0.1:1", KVEvents: &contract.KVEventsSpec{Ranks: 1}}
		if err := g.fleet.Add(spec); err != nil {
			b.Fatal(err)
		}
	}
	req := httptest.NewRequest("GET", "/routing/state", nil)
	for b.Loop() {
		w := httptest.NewRecorder()
		g.server.getState(w, req)
	}
}

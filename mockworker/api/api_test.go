package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"fleetdrill/internal/leaks"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/loop"
	"fleetdrill/mockworker/metrics"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// testServer is a worker's API port over ranks engines whose steps take no time.
func testServer(t testing.TB, ranks int, change func(*Options)) *httptest.Server {
	t.Helper()
	return servedBy(t, ranks, true, change)
}

// servedBy is testServer, fast as a worker serves or without what makes streams fast.
func servedBy(t testing.TB, ranks int, fast bool, change func(*Options)) *httptest.Server {
	t.Helper()
	o := Options{
		Model: "mock-8b", Version: "0.25.0", BlockSize: 4, NumBlocks: 33, MaxModelLen: 256, ChatMaxTokens: 3,
		MaxBodyBytes: 8 << 10, PromptTokensDetails: true,
	}
	set := metrics.New(metrics.Options{Model: o.Model, BlockSize: o.BlockSize, NumBlocks: o.NumBlocks, MaxModelLen: o.MaxModelLen, Caching: true})
	for rank := range ranks {
		l := testLoop(t, o, rank, set)
		o.Ranks = append(o.Ranks, l)
		set.Watch(rank, l.Snapshot)
	}
	o.Metrics = set.Handler()
	if change != nil {
		change(&o)
	}
	srv := httptest.NewUnstartedServer(New(o))
	if fast {
		srv.Config.ConnContext = ConnContext
	}
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		for _, l := range o.Ranks {
			l.Close()
		}
		srv.Close()
	})
	return srv
}

func testLoop(t testing.TB, o Options, rank int, set *metrics.Set) *loop.Loop {
	t.Helper()
	hasher, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{
		Rank: rank, BlockSize: o.BlockSize, NumBlocks: o.NumBlocks, MaxNumSeqs: 8, MaxNumBatchedTokens: 512,
		MaxModelLen: o.MaxModelLen, EnablePrefixCaching: true, Hasher: hasher, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := loop.Start(loop.Options{Engine: e, Observer: set.Rank(rank)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// created and modelPerm are the values of an answer that differ from run to run.
var (
	created   = regexp.MustCompile(`"created":\d+`)
	modelPerm = regexp.MustCompile(`modelperm-[0-9a-f]{16}`)
)

func steady(body string) string {
	return modelPerm.ReplaceAllString(created.ReplaceAllString(body, `"created":T`), "modelperm-X")
}

// TestConversations plays testdata: real requests over a real socket, answers byte for byte.
//
// Commands:
//
//	get /path            # no body
//	post /path [Header=value]...
//	<body>
//
// and each prints status, content type and body. LONG followed by a number stands for that many letters.
// In front may stand what the server is started with:
//
//	server [dev] [load] [ids] [usage] [keys=a] [adapters=(sql,poems)]
//
// A file is played twice: as it is served, and with every stream written by its own goroutine.
func TestConversations(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		for _, fast := range []bool{true, false} {
			talk(t, path, fast)
		}
	})
}

func talk(t *testing.T, path string, fast bool) {
	var srv *httptest.Server
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "server" {
			srv = servedBy(t, 2, fast, func(o *Options) { configure(o, d) })
			return ""
		}
		if srv == nil {
			srv = servedBy(t, 2, fast, nil)
		}
		return converse(t, srv, d)
	})
}

func configure(o *Options, d *datadriven.TestData) {
	o.Info = map[string]any{"model_config": map[string]any{"model": o.Model}}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "dev":
			o.DevMode = true
		case "load":
			o.TrackLoad = true
		case "ids":
			o.RequestIDHeaders = true
		case "usage":
			o.ForceIncludeUsage = true
		case "keys":
			o.APIKeys = arg.Vals
		case "adapters":
			o.RuntimeAdapters = true
			for _, name := range arg.Vals {
				o.Adapters = append(o.Adapters, Adapter{name, "/adapters/" + name})
			}
		}
	}
}

func converse(t *testing.T, srv *httptest.Server, d *datadriven.TestData) string {
	target := d.CmdArgs[0].String() // a query looks like an argument with a value
	req, err := http.NewRequest(strings.ToUpper(d.Cmd), srv.URL+target, strings.NewReader(inflate(d.Input)))
	if err != nil {
		t.Fatal(err)
	}
	if d.Input != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range d.CmdArgs[1:] {
		req.Header.Set(h.Key, inflate(strings.ReplaceAll(h.Vals[0], "+", " ")))
	}
	status, header, body := roundTrip(t, srv.Client(), req)
	out := fmt.Sprintf("%d %s\n%s", status, header.Get("Content-Type"), steady(body))
	if id := header.Get("X-Request-Id"); id != "" {
		out = fmt.Sprintf("X-Request-Id: %s\n%s", id, out)
	}
	return strings.TrimRight(out, "\n ") + "\n"
}

var longMark = regexp.MustCompile(`LONG(\d+)`)

func inflate(s string) string {
	return longMark.ReplaceAllStringFunc(s, func(m string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(m, "LONG")) // the pattern is digits
		return strings.Repeat("a", n)
	})
}

func roundTrip(t testing.TB, c *http.Client, req *http.Request) (int, http.Header, string) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// A stream that breaks off because the engine ends must not look whole.
func TestClosedEngineBreaksTheStream(t *testing.T) {
	var loops []*loop.Loop
	srv := testServer(t, 1, func(o *Options) { loops = o.Ranks })
	body := strings.NewReader(`{"prompt":"hello","max_tokens":100,"stream":true}`)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	hold := make(chan struct{})
	started := make(chan struct{})
	go loops[0].Ask(ctx, func(engine.Core) { close(started); <-hold }) // no step can run meanwhile
	<-started
	resp, err := srv.Client().Post(srv.URL+"/v1/completions", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	closed := make(chan struct{})
	go func() { loops[0].Close(); close(closed) }()
	for !isClosed(loops[0]) {
		runtime.Gosched()
	}
	close(hold)
	<-closed
	got, err := io.ReadAll(resp.Body)
	if err == nil || bytes.Contains(got, []byte("[DONE]")) {
		t.Fatalf("the stream ended cleanly: %q, %v", got, err)
	}
	status, _, text := roundTrip(t, srv.Client(), post(t, srv, "/v1/completions", `{"prompt":"hello"}`))
	if status != http.StatusServiceUnavailable {
		t.Errorf("a closed engine answered %d %s", status, text)
	}
}

// isClosed says whether the loop takes no more letters.
func isClosed(l *loop.Loop) bool {
	s := l.Submit(engine.Request{ID: "probe"}, true)
	select {
	case <-s.Ready():
		_, state := s.Take(nil)
		return state.Err == loop.ErrClosed
	default:
		return false
	}
}

func post(t testing.TB, srv *httptest.Server, path, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequest("POST", srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

// Without X-Request-Id the server makes up an id, another one each time.
func TestMadeUpRequestIDs(t *testing.T) {
	srv := testServer(t, 1, nil)
	pattern := regexp.MustCompile(`"id":"cmpl-[0-9a-f]{32}"`)
	seen := map[string]bool{}
	for range 3 {
		_, _, body := roundTrip(t, srv.Client(), post(t, srv, "/v1/completions", `{"prompt":"a","max_tokens":1}`))
		seen[pattern.FindString(body)] = true
	}
	if len(seen) != 3 || seen[""] {
		t.Errorf("ids %v", seen)
	}
}

// The same request id at the same time is two requests, and both are served whole.
func TestRepeatedRequestIDs(t *testing.T) {
	srv := testServer(t, 1, nil)
	done := make(chan string, 8)
	for range cap(done) {
		go func() {
			req := post(t, srv, "/v1/completions", `{"prompt":"x","max_tokens":20}`)
			req.Header.Set("X-Request-Id", "same")
			_, _, body := roundTrip(t, srv.Client(), req)
			done <- body
		}()
	}
	for range cap(done) {
		if body := <-done; !strings.Contains(body, `"id":"cmpl-same"`) || !strings.Contains(body, `"completion_tokens":20`) {
			t.Errorf("answer %s", body)
		}
	}
}

// Metrics must count exactly what was served, and be at rest at the end.
func TestMetricsAreExact(t *testing.T) {
	srv := testServer(t, 1, nil)
	for range 3 {
		roundTrip(t, srv.Client(), post(t, srv, "/v1/completions", `{"prompt":[300,301,302,303,304,305,306,307,308],"max_tokens":5}`))
	}
	req, _ := http.NewRequest("GET", srv.URL+"/metrics", nil)
	// The last request still counts as running until the engine's next step.
	var text string
	for text == "" || strings.Contains(text, `vllm:num_requests_running{engine="0",model_name="mock-8b"} 1`) {
		_, _, text = roundTrip(t, srv.Client(), req)
	}
	for _, want := range []string{
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="mock-8b"} 3`,
		`vllm:request_success_total{engine="0",finished_reason="abort",model_name="mock-8b"} 0`,
		`vllm:prompt_tokens_total{engine="0",model_name="mock-8b"} 27`,
		`vllm:generation_tokens_total{engine="0",model_name="mock-8b"} 15`,
		`vllm:prefix_cache_queries_total{engine="0",model_name="mock-8b"} 27`,
		`vllm:prefix_cache_hits_total{engine="0",model_name="mock-8b"} 16`,
		`vllm:num_requests_running{engine="0",model_name="mock-8b"} 0`,
		`vllm:num_requests_waiting{engine="0",model_name="mock-8b"} 0`,
		`vllm:kv_cache_usage_perc{engine="0",model_name="mock-8b"} 0`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="mock-8b"} 3`,
		`vllm:inter_token_latency_seconds_count{engine="0",model_name="mock-8b"} 12`,
		`vllm:request_generation_tokens_bucket{engine="0",model_name="mock-8b",le="5"} 3`,
		`vllm:prompt_tokens_by_source_total{engine="0",model_name="mock-8b",source="local_cache_hit"} 16`,
		`vllm:prompt_tokens_by_source_total{engine="0",model_name="mock-8b",source="local_compute"} 11`,
		`vllm:prompt_tokens_cached_total{engine="0",model_name="mock-8b"} 16`,
		`vllm:iteration_tokens_total_sum{engine="0",model_name="mock-8b"} 42`,
		`vllm:request_prefill_kv_computed_tokens_sum{engine="0",model_name="mock-8b"} 11`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// FuzzGenerate throws bodies at both routes: any answer is right but a crash, a hang or a 5xx.
func FuzzGenerate(f *testing.F) {
	for _, seed := range []string{
		`{"prompt":"x"}`, `{"prompt":[1,2,3],"stream":true}`, `{"prompt":[[1]]}`, `{"prompt":["a"]}`, `{"prompt":[1.5]}`,
		`{"messages":[{"role":"user","content":"hi"}]}`, `{"prompt":[-1]}`, `{"prompt":[99999999999999999999]}`, `[`, `{"prompt":[[[[[1]]]]]}`,
		`{"prompt":[`, `{"prompt":[1,"a"]}`, `{"prompt":{}}`, `{"prompt":"x","max_tokens":-1}`, `{"prompt":"\ud800"}`,
	} {
		f.Add(seed)
	}
	srv := testServer(f, 1, nil)
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"} {
			status, _, text := roundTrip(t, srv.Client(), post(t, srv, path, body))
			if status >= 500 {
				t.Errorf("%s answered %d %s to %q", path, status, text, body)
			}
		}
	})
}

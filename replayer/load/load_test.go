package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/deadport"
	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds what only a fault or a hang makes long.
const patience = time.Minute

// answers are engines and gateways of many manners; the path of a request picks one. A stream is written
// piece by piece, each piece flushed: pieces are the lines of the text, or single bytes where said.
var answers = map[string]http.HandlerFunc{
	"/stream": sse(token("a"), token("b"), token("c"), usage(3, 48), "data: [DONE]\n\n"),
	"/chat": sse(
		`data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`+"\n\n",
		`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`+"\n\n",
		`data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"length"}]}`+"\n\n",
		usage(2, 0), "data: [DONE]\n\n"),
	"/no-usage":    sse(token("a"), token("b"), "data: [DONE]\n\n"),
	"/crlf":        sse(strings.ReplaceAll(": hello\n\n"+token("a")+token("b")+"retry: 5\ndata:[DONE]\n\n", "\n", "\r\n")),
	"/bytes":       sse(strings.Split(token("a")+token("b")+usage(2, 16)+"data: [DONE]\n\n", "")...),
	"/one-write":   sse(token("a") + token("b") + usage(2, 16) + "data: [DONE]\n\n"),
	"/error-chunk": sse(token("a"), `data: {"error":{"message":"engine died","type":"InternalServerError","code":500}}`+"\n\n", "data: [DONE]\n\n"),
	"/error-event": sse(token("a"), "event: error\ndata: upstream reset\n\n"),
	"/clean-end":   sse(token("a")),
	"/half-done":   sse(token("a"), "data: [DONE]\n"),
	"/after-done":  sse(token("a"), "data: [DONE]\n\n", token("b")),
	"/garbage":     sse("data: {\"choices\":[{\n\n"),
	"/endless-line": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for line := strings.Repeat("x", 64<<10); ; {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	},
	"/fin": func(w http.ResponseWriter, r *http.Request) {
		sse(token("a"))(w, r)
		panic(http.ErrAbortHandler)
	},
	"/rst":       func(w http.ResponseWriter, r *http.Request) { sse(token("a"))(w, r); reset(w) },
	"/rst-first": func(w http.ResponseWriter, r *http.Request) { reset(w) },
	"/whole": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"id":"cmpl-1","choices":[{"text":"abc"}],"usage":{"prompt_tokens":64,"total_tokens":67,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":32}}}`)
	},
	"/whole-error": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"error":"model is asleep"}`) },
	"/whole-text":  func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `hello`) },
	"/400": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(400)
		io.WriteString(w, `{"error":{"message":"prompt is too long","type":"BadRequestError","param":null,"code":400}}`)
	},
	"/404-flat": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(404)
		io.WriteString(w, `{"object":"error","message":"no such model","code":404}`)
	},
	"/503": func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no worker is routable", http.StatusServiceUnavailable)
	},
	"/503-long": func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, strings.Repeat("busy ", 5000), http.StatusServiceUnavailable)
	},
	"/redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/stream", http.StatusFound) },
	"/silent":   func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	"/stall":    func(w http.ResponseWriter, r *http.Request) { sse(token("a"))(w, r); <-r.Context().Done() },
}

func token(text string) string {
	return fmt.Sprintf(`data: {"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"%s","logprobs":null,"finish_reason":null}]}`+"\n\n", text)
}

func usage(completion, cached int) string {
	return fmt.Sprintf(`data: {"choices":[],"usage":{"prompt_tokens":64,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}`+"\n\n", 64+completion, completion, cached)
}

func sse(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("x-routed-worker", "w3")
		h.Set("x-attempts", "2")
		h.Set("x-predicted-cached-tokens", "32")
		for _, p := range pieces {
			io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}
}

// reset ends the connection with an RST.
func reset(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

func newServer(t testing.TB) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The server notices a client that hangs up only once the request is read.
		io.Copy(io.Discard, r.Body)
		answers[r.URL.Path](w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// plan asks for the paths, one every 100 us.
func plan(paths ...string) (out []Request) {
	for i, p := range paths {
		out = append(out, Request{OffsetNs: int64(i) * 100_000, ID: fmt.Sprintf("r-%d", i), Path: p, Body: []byte(`{"prompt":[1]}`),
			PromptTokens: 64, MaxTokens: 3, Head: -1})
	}
	return out
}

// result is what does not depend on time.
type result struct {
	Status, Output, Cached, Predicted, Attempts, Gaps int
	Worker, Outcome, Error                            string
	First                                             bool
}

func resultOf(r Record) result {
	return result{r.Status, r.Output, r.Cached, r.Predicted, r.Attempts, len(r.GapsNs), r.Worker, r.Outcome, r.Error, r.FirstNs != 0}
}

func TestOutcomes(t *testing.T) {
	routed := func(r result) result {
		r.Status, r.Worker, r.Attempts, r.Predicted = 200, "w3", 2, 32
		r.First = r.Output > 0
		return r
	}
	plainly := func(status int, err string) result {
		return result{Status: status, Predicted: -1, Outcome: OutcomeFailed, Error: err}
	}
	want := map[string]result{
		"/stream":       routed(result{Output: 3, Cached: 48, Gaps: 2, Outcome: OutcomeOK}),
		"/chat":         routed(result{Output: 2, Gaps: 1, Outcome: OutcomeOK}),
		"/no-usage":     routed(result{Output: 2, Gaps: 1, Outcome: OutcomeOK}),
		"/crlf":         routed(result{Output: 2, Gaps: 1, Outcome: OutcomeOK}),
		"/bytes":        routed(result{Output: 2, Cached: 16, Gaps: 1, Outcome: OutcomeOK}),
		"/one-write":    routed(result{Output: 2, Cached: 16, Gaps: 1, Outcome: OutcomeOK}),
		"/error-chunk":  routed(result{Output: 1, Outcome: OutcomeFailed, Error: "error event: engine died"}),
		"/error-event":  routed(result{Output: 1, Outcome: OutcomeFailed, Error: "error event: upstream reset"}),
		"/clean-end":    routed(result{Output: 1, Outcome: OutcomeFailed, Error: "stream ended without [DONE]"}),
		"/half-done":    routed(result{Output: 1, Outcome: OutcomeFailed, Error: "stream ended without [DONE]"}),
		"/after-done":   routed(result{Output: 1, Outcome: OutcomeFailed, Error: "an event after [DONE]"}),
		"/garbage":      routed(result{Outcome: OutcomeFailed, Error: "unreadable event: not JSON"}),
		"/endless-line": plainly(200, "event longer than 1048576 bytes"),
		"/fin":          routed(result{Output: 1, Outcome: OutcomeFailed, Error: "unexpected EOF"}),
		"/rst":          routed(result{Output: 1, Outcome: OutcomeFailed, Error: "connection reset by peer"}),
		"/rst-first":    plainly(0, "connection reset by peer"),
		"/whole":        {Status: 200, Output: 3, Cached: 32, Predicted: -1, Outcome: OutcomeOK, First: true},
		"/whole-error":  {Status: 200, Predicted: -1, Outcome: OutcomeFailed, Error: "model is asleep", First: true},
		"/whole-text":   {Status: 200, Predicted: -1, Outcome: OutcomeFailed, Error: "unreadable answer: not a JSON object", First: true},
		"/400":          plainly(400, "status 400: prompt is too long"),
		"/404-flat":     plainly(404, "status 404: no such model"),
		"/503":          plainly(503, "status 503: no worker is routable"),
		"/503-long":     plainly(503, ("status 503: " + strings.Repeat("busy ", 100))[:maxError]),
		"/redirect":     plainly(302, "unexpected status 302"),
		"/silent":       plainly(0, errTimeout.Error()),
		"/stall":        routed(result{Output: 1, Outcome: OutcomeFailed, Error: errTimeout.Error()}),
	}
	endless := []string{"/silent", "/stall"}
	var paths []string
	for p := range answers {
		if !slices.Contains(endless, p) {
			paths = append(paths, p)
		}
	}
	o := Options{URL: newServer(t).URL + "/", Load: "main", Requests: List(plan(paths...)), Timeout: patience, DrainTimeout: patience}
	records := Start(context.Background(), o).Wait()
	records = append(records, cutLate(func(after time.Duration) *Run {
		o.Requests, o.Timeout = List(plan(endless...)), after
		return Start(context.Background(), o)
	}, func(cut []Record) bool { return cut[1].FirstNs != 0 })...)
	paths = append(paths, endless...)
	for i, r := range records {
		got := resultOf(r)
		if resets := "connection reset by peer"; strings.HasSuffix(got.Error, resets) {
			got.Error = resets // before it stand the addresses of the connection
		}
		if d := cmp.Diff(want[paths[i]], got); d != "" {
			t.Errorf("%s (-want +got)\n%s", paths[i], d)
		}
		checkInstants(t, r)
	}
	if len(records) != len(want) {
		t.Errorf("%d records of %d requests", len(records), len(want))
	}
}

// cutLate is the records of a load whose requests are cut some time after they were sent. That time is doubled
// until shown, so that what answers do before they are cut does not depend on how fast the machine is.
func cutLate(start func(after time.Duration) *Run, shown func([]Record) bool) []Record {
	for after := 10 * time.Millisecond; ; after *= 2 {
		if records := start(after).Wait(); shown(records) || after > patience {
			return records
		}
	}
}

// checkInstants checks that what happened did so in order.
func checkInstants(t testing.TB, r Record) {
	t.Helper()
	last := r.ScheduledNs
	for _, at := range []int64{r.SentNs, r.HeadersNs, r.FirstNs, r.LastNs, r.EndNs} {
		if at != 0 && at < last {
			t.Errorf("%s: instants out of order: %+v", r.ID, r)
		}
		last = max(last, at)
	}
	if (r.EndNs == 0) != (r.Outcome == OutcomeOpen) {
		t.Errorf("%s: outcome %s, end %d", r.ID, r.Outcome, r.EndNs)
	}
}

func TestRefusedConnect(t *testing.T) {
	r := Start(context.Background(), Options{URL: "http://" + deadport.New(t), Requests: List(plan("/stream"))}).Wait()[0]
	if r.Outcome != OutcomeFailed || !strings.HasSuffix(r.Error, "connection refused") || r.Status != 0 || r.SentNs == 0 {
		t.Errorf("%+v", r)
	}
}

func TestUnusableURL(t *testing.T) {
	r := Start(context.Background(), Options{URL: "http://127.0.0.1:port", Requests: List(plan("/stream"))}).Wait()[0]
	if r.Outcome != OutcomeFailed || !strings.HasPrefix(r.Error, "building the request: ") || r.SentNs != 0 {
		t.Errorf("%+v", r)
	}
}

// What goes over the wire.
func TestRequestOnTheWire(t *testing.T) {
	got := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		h := r.Header
		got <- fmt.Sprintln(r.Method, r.URL.Path, h.Get("Content-Type"), h.Get("X-Request-Id"), h.Get("X-Probe"), h.Get("Accept-Encoding"), r.ContentLength, string(b))
	}))
	defer s.Close()
	Start(context.Background(), Options{URL: s.URL, Requests: List([]Request{{ID: "main-1", Body: []byte(`{}`), Headers: map[string]string{"X-Probe": "1"}}})}).Wait()
	if g, want := <-got, "POST /v1/completions application/json main-1 1  2 {}\n"; g != want {
		t.Errorf("got %q, want %q", g, want)
	}
}

func TestAbortsAreNotFailures(t *testing.T) {
	o := Options{URL: newServer(t).URL}
	records := cutLate(func(after time.Duration) *Run {
		o.Requests, o.Abort = List(plan("/silent", "/stall", "/503")), Abort{Share: 1, Min: after}
		return Start(context.Background(), o)
	}, func(r []Record) bool { return r[1].FirstNs != 0 && r[2].Status != 0 })
	var got []string
	for _, r := range records {
		got = append(got, r.Outcome+" "+r.Error)
		checkInstants(t, r)
	}
	if d := cmp.Diff([]string{"aborted ", "aborted ", "failed status 503: no worker is routable"}, got); d != "" {
		t.Error(d)
	}
	if records[1].Output != 1 {
		t.Errorf("the aborted stream shows %d tokens, want the one it had", records[1].Output)
	}
}

func TestAbortDrawsDependOnTheRequestAlone(t *testing.T) {
	a := Abort{Share: 0.25, Min: time.Second, Max: 2 * time.Second, Seed: 7}
	taken, sum := 0, time.Duration(0)
	for n := range 4000 {
		after, ok := a.draw(n)
		if again, same := a.draw(n); again != after || same != ok {
			t.Fatalf("request %d: two draws differ", n)
		}
		if !ok {
			continue
		}
		if taken++; after < a.Min || after > a.Max {
			t.Fatalf("request %d: after %v", n, after)
		}
		sum += after
	}
	if taken < 860 || taken > 1140 { // five standard deviations of 27
		t.Errorf("%d of 4,000 taken, want a quarter", taken)
	}
	if mean := sum / time.Duration(taken); mean < 1450*time.Millisecond || mean > 1550*time.Millisecond {
		t.Errorf("mean %v, want 1.5 s", mean)
	}
}

// eventually waits for a condition that the code under test brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestCancelLeavesRecordsOpen(t *testing.T) {
	far := plan("/stall", "/stream", "/stream")
	far[2].OffsetNs = int64(time.Hour)
	ctx, cancel := context.WithCancelCause(context.Background())
	run := Start(ctx, Options{URL: newServer(t).URL, Requests: List(far)})
	eventually(t, "a token of the first and the end of the second", func() bool {
		r := run.Snapshot()
		return len(r) == 2 && r[0].FirstNs != 0 && r[1].EndNs != 0
	})
	cancel(errors.New("ctrl-C"))
	records := run.Wait()
	if len(records) != 2 || records[0].Outcome != OutcomeOpen || records[0].Error != "" || records[1].Outcome != OutcomeOK {
		t.Errorf("%+v", records)
	}
	checkInstants(t, records[0])
}

func TestStopDrains(t *testing.T) {
	server := newServer(t)
	far := plan("/stall", "/stream")
	far[1].OffsetNs = int64(time.Hour)
	run := Start(context.Background(), Options{URL: server.URL, Requests: List(far), DrainTimeout: 20 * time.Millisecond})
	eventually(t, "the first request is open", func() bool { r := run.Snapshot(); return len(r) == 1 && r[0].FirstNs != 0 })
	run.Stop()
	run.Stop() // harmless
	if r := run.Wait(); len(r) != 1 || r[0].Outcome != OutcomeOpen {
		t.Errorf("%+v", r)
	}
	select {
	case <-run.Done():
	default:
		t.Error("Wait returned before Done")
	}
}

func TestMaxOpenIsCounted(t *testing.T) {
	run := Start(context.Background(), Options{URL: newServer(t).URL, MaxOpen: 3,
		Requests: List(plan("/silent", "/silent", "/silent", "/stream", "/stream")), DrainTimeout: time.Nanosecond})
	records := run.Wait()
	if run.Refused() != 2 {
		t.Errorf("refused %d, want 2", run.Refused())
	}
	for _, r := range records[3:] {
		if r.Outcome != OutcomeFailed || r.Error != "not sent: 3 requests were open" || r.SentNs != 0 {
			t.Errorf("%+v", r)
		}
	}
}

// The server answers only when four requests are there at once, and remembers the most it saw.
func TestClosedLoopKeepsItsConcurrency(t *testing.T) {
	const n = 4
	arrived := make(chan chan int, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn := make(chan int)
		arrived <- turn
		<-turn
		answers["/stream"](w, r)
	}))
	defer s.Close()
	run := Start(context.Background(), Options{URL: s.URL, Concurrency: n, Requests: List(plan(make([]string, 5*n)...))})
	for range 5 {
		var turns []chan int
		for range n {
			turns = append(turns, <-arrived)
		}
		if len(arrived) != 0 {
			t.Errorf("more than %d requests at once", n)
		}
		for _, turn := range turns {
			turn <- 0
		}
	}
	for _, r := range run.Wait() {
		if r.Outcome != OutcomeOK {
			t.Errorf("%+v", r)
		}
		checkInstants(t, r)
	}
}

func TestSlowReaderIsCutAtOnce(t *testing.T) {
	run := Start(context.Background(), Options{URL: newServer(t).URL, Requests: List(plan("/stream")), ReadPause: time.Hour})
	eventually(t, "headers", func() bool { r := run.Snapshot(); return len(r) == 1 && r[0].HeadersNs != 0 })
	run.Cancel()
	if r := run.Wait()[0]; r.Outcome != OutcomeOpen || r.FirstNs != 0 {
		t.Errorf("%+v", r)
	}
}

func TestStartInThePastShowsAsLag(t *testing.T) {
	probe := Start(context.Background(), Options{URL: newServer(t).URL, Requests: List(nil)})
	probe.Wait()
	start := probe.StartNs() - int64(time.Second)
	records := Start(context.Background(), Options{URL: newServer(t).URL, StartNs: start, Requests: List(plan("/stream", "/stream"))}).Wait()
	for i, r := range records {
		if r.ScheduledNs != start+int64(i)*100_000 || r.SentNs-r.ScheduledNs < int64(900*time.Millisecond) {
			t.Errorf("scheduled %d, sent %d, start %d", r.ScheduledNs, r.SentNs, start)
		}
	}
	if s := Summarize(records, 0); s.Valid || s.Achieved != 0 {
		t.Errorf("a second late and valid: %+v", s)
	}
}

// A connection that serves one request serves the next: a load must not measure connection set-up.
func TestConnectionsAreReused(t *testing.T) {
	conns := make(chan struct{}, 100)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers[r.URL.Path](w, r)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns <- struct{}{}
		}
	}
	s.Start()
	defer s.Close()
	client := NewClient(10)
	defer client.CloseIdleConnections()
	for range 20 {
		Start(context.Background(), Options{URL: s.URL, Client: client, Requests: List(plan("/stream", "/whole")), Concurrency: 1}).Wait()
	}
	// net/http gives up a connection whose writer has not run for 50 ms after the answer came: once in a while
	// on a busy machine, where a connection that is not reused would be there for every second request at least.
	if n := len(conns); n < 1 || n > 4 {
		t.Errorf("%d connections for 40 requests in turn, want 1", n)
	}
}

// Records kept by N from Since are, at the end, those of Snapshot.
func TestSinceAddsUp(t *testing.T) {
	var paths []string
	for range 100 {
		paths = append(paths, "/stream", "/400", "/bytes", "/clean-end")
	}
	run := Start(context.Background(), Options{URL: newServer(t).URL, Requests: List(plan(paths...))})
	kept := map[int]Record{}
	n, settled := 0, 0
	for done := false; !done; {
		select {
		case <-run.Done():
			done = true
		default:
		}
		var changed []Record
		from := n
		changed, n = run.Since(from)
		for i, r := range changed {
			if i < n-from {
				settled++
				if r.Outcome == OutcomeOpen {
					t.Fatalf("settled and open: %+v", r)
				}
			}
			kept[r.N] = r
		}
	}
	var got []Record
	for i := range paths {
		got = append(got, kept[i])
	}
	if d := cmp.Diff(run.Wait(), got); d != "" || settled != len(paths) {
		t.Errorf("%d settled of %d\n%s", settled, len(paths), d)
	}
	if rest, same := run.Since(n); len(rest) != 0 || same != n {
		t.Errorf("%d records changed after the end", len(rest))
	}
}

// A raw client of the test server, to be sure that /rst really resets and /fin does not.
func TestServerCutsDiffer(t *testing.T) {
	for path, want := range map[string]string{"/rst": "connection reset by peer", "/fin": "EOF"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(newServer(t).URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", path)
		r := bufio.NewReader(c)
		for err = nil; err == nil; {
			_, err = r.ReadByte()
		}
		c.Close()
		if !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s ends with %v, want %s", path, err, want)
		}
	}
}

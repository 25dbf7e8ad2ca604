package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/leaks"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
	"fleetdrill/mockworker/loop"
	"fleetdrill/mockworker/publish"
	"fleetdrill/mockworker/truth"
	"fleetdrill/mockworker/wire"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds every wait for something that must happen.
const patience = time.Minute

// TestConversations plays the conversations in testdata, each with a worker of its own. Every command is a
// request, with its body as input, or something that happens at the worker.
func TestConversations(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var w *worker
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "worker": // Example: worker ranks=2 [silent] [token=sesame]
				w = newWorker(t, d)
				return "ok"
			case "complete": // Example: complete id=r1 n=16 [rank=1]: a prompt of n tokens, and one token of output
				return w.complete(t, d)
			case "get", "post", "delete", "put": // Example: get /admin/faults [token=sesame]
				return w.do(d)
			}
			t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

// worker is what an admin port is in front of, of blocks of four tokens.
type worker struct {
	handler http.Handler
	ranks   []Rank
}

func newWorker(t *testing.T, d *datadriven.TestData) *worker {
	t.Helper()
	ranks, token := 1, ""
	d.MaybeScanArgs(t, "ranks", &ranks)
	d.MaybeScanArgs(t, "token", &token)
	hasher, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	w, set := &worker{}, faults.New()
	requests := truth.NewRequests()
	for rank := range ranks {
		w.addRank(t, rank, hasher, set, requests, !d.HasArg("silent"))
	}
	w.handler = New(Options{
		Worker: "w1", Profile: "test", Wire: "vllm-0.25", HashAlgo: "sha256_cbor", BlockSize: 4, NumBlocks: 65,
		Ranks: w.ranks, Requests: requests, Faults: set, Token: token,
	})
	return w
}

func (w *worker) addRank(t *testing.T, rank int, hasher *blockhash.Hasher, set *faults.Set, requests *truth.Requests, events bool) {
	t.Helper()
	e, err := engine.New(engine.Config{
		Rank: rank, BlockSize: 4, NumBlocks: 65, MaxNumSeqs: 8, MaxNumBatchedTokens: 512, MaxModelLen: 1 << 10,
		EnablePrefixCaching: true, Hasher: hasher, Seed: 1, Timing: engine.Timing{A: 1e6},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := Rank{Fold: truth.NewFold(4), Hasher: hasher}
	o := loop.Options{Engine: e, Observer: observer{requests}, Faults: set, Rank: rank}
	if events {
		enc, err := wire.New("vllm-0.25", wire.Options{Rank: rank, IntHashes: true})
		if err != nil {
			t.Fatal(err)
		}
		cfg := publish.DefaultConfig()
		cfg.Endpoint = "tcp://*:0"
		r.Publisher, err = publish.New(publish.Options{Config: cfg, Host: "127.0.0.1", Rank: rank, Encoder: enc, Fold: r.Fold, Faults: set})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Publisher.Close() })
		o.Publish = r.Publisher.Publish
	}
	if r.Loop, err = loop.Start(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Loop.Close() })
	w.ranks = append(w.ranks, r)
}

// observer writes the request log.
type observer struct{ requests *truth.Requests }

func (observer) Token(int, int64) {}
func (observer) Step(int)         {}
func (o observer) Ended(id string, _ int, s engine.RequestStats) {
	o.requests.Add(contract.TruthRequest{ID: id, PromptTokens: s.Prompt, CachedTokens: s.CachedTokens, OutputTokens: s.Output, Outcome: s.Outcome})
}

// ask is one request without a body.
func (w *worker) ask(path string) string {
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec.Body.String()
}

// Whoever has an answer finds its blocks in every ring and set, and what a fault did to its batch.
func TestAnswersAreBehindWhatIsTold(t *testing.T) {
	w := newWorker(t, &datadriven.TestData{})
	arm := httptest.NewRequest(http.MethodPost, "/admin/faults", strings.NewReader(`{"kind":"duplicate","count":1000}`))
	w.handler.ServeHTTP(httptest.NewRecorder(), arm)
	r := w.ranks[0]
	for n := range 100 {
		s := r.Loop.Submit(engine.Request{ID: "r", Tokens: []uint32{uint32(n), 1, 2, 3, 4}, MaxTokens: 1}, true)
		<-s.Ready()
		path := []string{
			"/admin/truth/journal?from=%d", "/admin/truth/digests?from=%d", "/admin/truth/blocks?at=%d", "/admin/truth/blocks",
			"/admin/faults",
		}[n%5]
		if strings.Contains(path, "%d") {
			path = fmt.Sprintf(path, n)
		}
		want := fmt.Sprintf(`"seq":%d,`, n)
		if path == "/admin/faults" {
			want = fmt.Sprintf(`"evidence":["seq 0..%d"]`, n)
		}
		if got := w.ask(path); !strings.Contains(got, want) {
			t.Fatalf("answer %d: %s says %s, want %s", n, path, got, want)
		}
	}
}

func (w *worker) complete(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	n, rank, id := 4, 0, "r"
	d.MaybeScanArgs(t, "n", &n)
	d.MaybeScanArgs(t, "rank", &rank)
	d.MaybeScanArgs(t, "id", &id)
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(300 + i)
	}
	s := w.ranks[rank].Loop.Submit(engine.Request{ID: id, Tokens: ids, MaxTokens: 1}, true)
	select {
	case <-s.Ready():
	case <-time.After(patience):
		t.Fatal("the request does not end")
	}
	_, state := s.Take(nil)
	return fmt.Sprintf("%s, %d tokens cached", state.Finish, state.Cached)
}

// What is another in every run is named in place of its value.
var volatile = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`"(\w*mono_ns)":[1-9]\d*`), `"$1":T`},
	{regexp.MustCompile(`"wall":"[^"]*"`), `"wall":"T"`},
	{regexp.MustCompile(`"epoch":[1-9]\d*`), `"epoch":E`},
	{regexp.MustCompile(`epoch \d+`), `epoch E`},
	{regexp.MustCompile(`"counters":\{[^}]*\}`), `"counters":{}`}, // what there is to count is told elsewhere
	{regexp.MustCompile(`must be one of pause, [a-z_, ]*`), `must be one of ...`},
}

func (w *worker) do(d *datadriven.TestData) string {
	body := d.Input
	if n, ok := strings.CutPrefix(body, "SPACES "); ok { // a body too long to be written here
		count, _ := strconv.Atoi(n)
		body = strings.Repeat(" ", count)
	}
	req := httptest.NewRequest(strings.ToUpper(d.Cmd), d.CmdArgs[0].Key+asked(d), strings.NewReader(body))
	for _, arg := range d.CmdArgs {
		if arg.Key == "token" {
			req.Header.Set("Authorization", "Bearer "+arg.Vals[0])
		}
	}
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, req)
	if h := rec.Header(); h.Get("X-Mono-Ns") == "" || h.Get("X-Wall") == "" {
		return "an answer without its time: " + fmt.Sprint(h)
	}
	text := rec.Body.String()
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return fmt.Sprintf("%d %s", rec.Code, text)
}

// asked is everything written after the path but for the token.
func asked(d *datadriven.TestData) string {
	var parts []string
	for _, arg := range d.CmdArgs[1:] {
		if arg.Key != "token" {
			parts = append(parts, arg.Key+"="+strings.Join(arg.Vals, ","))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "?" + strings.Join(parts, "&")
}

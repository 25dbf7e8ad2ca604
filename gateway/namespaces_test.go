package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"fleetdrill/internal/contract"
)

// TestNamespaces asks for the same tokens of a base model and two adapters, with and without salts. None of
// them serves another, each serves itself, and each time the gateway knows before.
func TestNamespaces(t *testing.T) {
	w := process(t, "--lora-modules", "sql=/adapters/sql", "--lora-modules", "law=/adapters/law")
	g := inFront(t, w)
	g.knowsModels(t)
	prompt := promptOf(3)
	for _, salt := range []string{"", "tenant-a", "tenant-b"} {
		for _, model := range []string{"mock-8b", "sql", "law"} {
			for again := range 2 {
				a := g.ask(t, question{model: model, salt: salt, prompt: prompt, output: 4})
				g.caughtUp(t, []contract.ReadyWorker{w})
				if want := again * 160; a.predicted != want || a.cached != want {
					t.Errorf("%s with salt %q, time %d: %d predicted, %d served, want %d", model, salt, again+1, a.predicted, a.cached, want)
				}
			}
		}
	}
	if a := g.ask(t, question{prompt: prompt, output: 4}); a.predicted != 160 || a.cached != 160 {
		t.Errorf("without a model: %+v", a)
	}
	g.mixed(t, w, 60)
	if n := g.workers(t)[0].Ranks[0].Counters; n.Orphans != 0 || len(n.Drops) != 0 {
		t.Errorf("orphans %d, drops %v", n.Orphans, n.Drops)
	}
}

// mixed sends a mixed load over base model, adapters and salts, one at a time, and then at once.
func (g *running) mixed(t *testing.T, w contract.ReadyWorker, n int) {
	t.Helper()
	question := func(n int) question {
		return question{model: []string{"mock-8b", "sql", "law"}[n%3], salt: []string{"", "", "tenant-a", "tenant-b"}[n/3%4],
			prompt: promptOf(n * 5 % 4), output: 1 + n%20}
	}
	served := 0
	for i := range n {
		a := g.ask(t, question(i))
		if a.predicted != a.cached {
			t.Errorf("%+v: %d predicted, %d served from cache", question(i).model, a.predicted, a.cached)
		}
		served += a.cached
		g.caughtUp(t, []contract.ReadyWorker{w})
	}
	if served == 0 {
		t.Error("nothing was served from cache, which this is about")
	}
	g.crowd(t, n, question)
	g.equalTiers(t, w, 0)
}

// An adapter that was loaded after the list was read is one all the same, and an unknown model is the
// engine's to refuse.
func TestAdapterLoadedAtRunTime(t *testing.T) {
	w := process(t, "--allow-runtime-lora-updating")
	g := inFront(t, w)
	g.knowsModels(t)
	q := question{model: "late", prompt: promptOf(1), output: 4}
	g.ask(t, question{prompt: q.prompt, output: 4})
	post(t, w.HTTP+"/v1/load_lora_adapter", `{"lora_name": "late", "lora_path": "/adapters/late"}`)
	for again := range 2 {
		g.caughtUp(t, []contract.ReadyWorker{w})
		if a := g.ask(t, q); a.predicted != again*160 || a.cached != again*160 {
			t.Errorf("time %d: %+v", again+1, a)
		}
	}
}

// knowsModels waits until the gateway has read the list of models: a name that is not in it is then not the
// base model's any more, whose prompt is cached.
func (g *running) knowsModels(t *testing.T) {
	t.Helper()
	q := question{prompt: make([]int, 40), output: 1}
	for i := range q.prompt {
		q.prompt[i] = 50_000 + i // shares nothing with promptOf
	}
	until(t, "the base model's prompt in the index", func() bool { return g.ask(t, q).predicted > 0 })
	body := fmt.Sprintf(`{"model": "nobody", "prompt": %s, "max_tokens": 1}`, jsonOf(t, q.prompt))
	until(t, "a model that is not in the list", func() bool {
		resp, err := http.Post(g.ready.Gateway.HTTP+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Fatalf("an unknown model is answered with %d", resp.StatusCode)
		}
		return resp.Header.Get("X-Predicted-Cached-Tokens") == "0"
	})
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// SGLang's events tell no adapter and its hashes know none, so the gateway cannot tell an adapter's blocks from
// the base model's and credits both, as docs/gateway.md says. The index stays what the engine announced.
func TestAdaptersOfSGLang(t *testing.T) {
	w := process(t, "--wire", "sglang-map", "--lora-modules", "sql=/adapters/sql", "--enable-cache-report")
	g := inFront(t, w)
	prompt := promptOf(1)
	g.ask(t, question{prompt: prompt, output: 4})
	g.caughtUp(t, []contract.ReadyWorker{w})
	for again, model := range []string{"mock-8b:sql", "mock-8b:sql", "anything"} {
		a := g.ask(t, question{model: model, prompt: prompt, output: 4})
		g.caughtUp(t, []contract.ReadyWorker{w})
		if a.predicted < 160 || (a.cached == 0) != (again == 0) {
			t.Errorf("%s, request %d: %+v", model, again+1, a)
		}
	}
	for n := range 20 {
		g.ask(t, question{model: []string{"mock-8b", "mock-8b:sql"}[n%2], prompt: promptOf(n / 2), output: 4})
	}
	g.equalTiers(t, w, 0)
}

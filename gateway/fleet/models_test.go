package fleet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
)

// cards are lists of models as engines give them.
const (
	vllmCards = `{"object": "list", "data": [{"id": "base", "owned_by": "vllm", "root": "base", "parent": null},
		{"id": "sql", "owned_by": "vllm", "root": "/adapters/sql", "parent": "base"}]}`
	sglangCards = `{"data": [{"id": "base", "owned_by": "sglang"}, {"id": "sql", "owned_by": "sglang", "parent": "base"}]}`
	otherCards  = `{"data": [{"id": "base", "owned_by": "me"}, {"id": "alias", "parent": "alias"}, {"id": "sql", "parent": "base"}]}`
)

func TestAdapterOfAModelName(t *testing.T) {
	for _, c := range []struct{ what, cards, name, want string }{
		{"no name", vllmCards, "", ""},
		{"the base model", vllmCards, "base", ""},
		{"an adapter", vllmCards, "sql", "sql"},
		{"loaded since, or refused", vllmCards, "new", "new"},
		{"told by no event", sglangCards, "sql", ""},
		{"any name will do", sglangCards, "whatever", ""},
		{"an adapter of another engine", otherCards, "sql", "sql"},
		{"a model that is its own parent", otherCards, "alias", ""},
		{"an engine that may take any name", otherCards, "whatever", ""},
		{"an empty list", `{"data": []}`, "sql", ""},
	} {
		m, err := parseModels([]byte(c.cards))
		if err != nil {
			t.Fatal(err)
		}
		if got := m.adapter(c.name); got != c.want {
			t.Errorf("%s: %q means adapter %q, want %q", c.what, c.name, got, c.want)
		}
	}
	if got := (*models)(nil).adapter("sql"); got != "" {
		t.Errorf("before any list %q", got)
	}
	if _, err := parseModels([]byte(`{"data": 7}`)); err == nil {
		t.Error("a list that is none was read")
	}
}

func FuzzModels(f *testing.F) {
	for _, seed := range []string{vllmCards, sglangCards, otherCards, `{}`, `[]`, `{"data": [{}, {"parent": ""}]}`} {
		f.Add([]byte(seed), "sql")
	}
	f.Fuzz(func(t *testing.T, body []byte, name string) {
		m, err := parseModels(body)
		if err != nil {
			return
		}
		if got := m.adapter(name); got != "" && got != name {
			t.Fatalf("%q means %q", name, got)
		}
	})
}

// lister is an engine whose list of models can be changed.
type lister struct {
	mu    sync.Mutex
	cards string // empty: it has none
}

func (l *lister) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.URL.Path == "/health":
	case r.URL.Path == "/v1/models" && l.cards != "":
		_, _ = w.Write([]byte(l.cards))
	default:
		http.NotFound(w, r)
	}
}

// Two workers of one list share it, one has another, one has none: three views of an adapter's prompt.
func TestViews(t *testing.T) {
	picker, err := policy.New(policy.RoundRobin, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := New(Options{Timing: DefaultTiming(), Picker: picker, Models: true})
	defer f.Close()
	for i, cards := range []string{vllmCards, vllmCards, sglangCards, ""} {
		srv := httptest.NewServer(&lister{cards: cards})
		defer srv.Close()
		if err := f.Add(contract.WorkerSpec{ID: fmt.Sprint(i), URL: srv.URL, KVBlockSize: 16}); err != nil {
			t.Fatal(err)
		}
	}
	lists := func() (out []*models) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, w := range f.core.workers {
			out = append(out, w.models.Load())
		}
		return out
	}
	until(t, "the lists of models", func() bool {
		l := lists()
		return l[0] != nil && l[1] != nil && l[2] != nil
	})
	if l := lists(); l[0] != l[1] || l[0] == l[2] || l[3] != nil {
		t.Errorf("lists %v", l)
	}
	if diff := cmp.Diff([]View{{16, ""}, {16, "sql"}}, f.Views("sql")); diff != "" {
		t.Error(diff)
	}
	for _, base := range []string{"", "base"} {
		if diff := cmp.Diff([]View{{16, ""}}, f.Views(base)); diff != "" {
			t.Errorf("%q: %s", base, diff)
		}
	}
	if got := strings.Count(fmt.Sprint(f.Views("sql")), "sql"); got != 1 {
		t.Errorf("%d views of the adapter", got)
	}
}

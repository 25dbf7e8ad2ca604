package metrics

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/mockworker/loop"
)

var rewrite = flag.Bool("rewrite", false, "write the golden page anew")

var stamps = regexp.MustCompile(`(_created\{[^}]*\}|lora_requests_info\{[^}]*\}) [0-9.e+]+`)

// TestPageOfAFreshEngine is /metrics of an engine that has served nobody: every name, label and bucket.
func TestPageOfAFreshEngine(t *testing.T) {
	s := New(Options{Model: "mock-8b", BlockSize: 16, NumBlocks: 12_000, MaxModelLen: 4096, Caching: true, HashAlgo: "sha256", Adapters: 2})
	s.Rank(0)
	s.Watch(0, func() loop.Snapshot { return loop.Snapshot{} })
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	got := stamps.ReplaceAllString(rec.Body.String(), "$1 T")
	path := filepath.Join("testdata", "fresh.txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the page changed (-want +got):\n%s", diff)
	}
}

// What is told of several ranks must not be the same series twice, which a scraper refuses as a whole.
func TestRanksHaveSeriesOfTheirOwn(t *testing.T) {
	s := New(Options{Model: "m", BlockSize: 16, NumBlocks: 100, MaxModelLen: 4096, Adapters: 1})
	for rank := range 3 {
		s.Rank(rank)
		s.Watch(rank, func() loop.Snapshot { return loop.Snapshot{RunningAdapters: "sql"} })
	}
	if _, err := s.registry.Gather(); err != nil {
		t.Error(err)
	}
}

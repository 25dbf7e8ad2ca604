package metrics

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/mockworker/loop"
)

var rewrite = flag.Bool("rewrite", false, "write the golden pages anew")

var stamps = regexp.MustCompile(`(_created\{[^}]*\}|lora_requests_info\{[^}]*\}) [0-9.e+]+`)

// TestPagesOfAFreshEngine is /metrics of engines that have served nobody: every name, label and bucket, in both
// formats that Python's client has.
func TestPagesOfAFreshEngine(t *testing.T) {
	o := Options{Model: "mock-8b", BlockSize: 16, NumBlocks: 12_000, MaxModelLen: 4096, Caching: true, HashAlgo: "sha256", Adapters: 2}
	for file, x := range map[string]struct {
		set    Family
		accept string
		kind   string
	}{
		"fresh.txt":        {New(o), "", "text/plain"},
		"fresh_open.txt":   {New(o), prometheusAccepts, "application/openmetrics-text"},
		"sglang.txt":       {NewSGLang(o, 1), "*/*", "text/plain"},
		"sglang_open.txt":  {NewSGLang(o, 1), openMetrics + "; version=1.0.0,*/*;q=0.1", "application/openmetrics-text"},
		"sglang_ranks.txt": {NewSGLang(o, 2), "", "text/plain"},
	} {
		ranks := 1
		if s, ok := x.set.(*SGLangSet); ok {
			ranks = s.ranks
		}
		for rank := range ranks {
			x.set.For(rank)
			x.set.Watch(rank, func() loop.Snapshot { return loop.Snapshot{} })
		}
		kind, got := scrape(x.set, x.accept)
		if !strings.HasPrefix(kind, x.kind+";") {
			t.Errorf("%s: content type %q, want %s", file, kind, x.kind)
		}
		if open := strings.HasSuffix(got, "\n# EOF\n"); open != (x.kind == openMetrics) {
			t.Errorf("%s: the page ends with %q", file, got[len(got)-20:])
		}
		golden(t, file, stamps.ReplaceAllString(got, "$1 T"))
	}
}

// prometheusAccepts is what Prometheus asks with when it also takes protobuf, which no engine answers with.
const prometheusAccepts = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6," +
	"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"

func scrape(set Family, accept string) (kind, page string) {
	rec, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	set.Handler().ServeHTTP(rec, req)
	return rec.Header().Get("Content-Type"), rec.Body.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
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
		t.Errorf("%s changed (-want +got):\n%s", file, diff)
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

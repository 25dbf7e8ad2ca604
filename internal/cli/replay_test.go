package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetdrill/replayer/live"
)

// replay runs `fleetdrill replay` in a folder of its own.
func replay(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("FLEETDRILL_STATE_DIR", t.TempDir())
	var out, errs bytes.Buffer
	code = Main(append([]string{"replay"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestReplayUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"--sim --live", "--live, --sim and --url are three ways: give one"},
		{"--url http://127.0.0.1:1 --sim", "--live, --sim and --url are three ways: give one"},
		{"--url http://127.0.0.1:1 --workers 4", "--workers: not with --url, whose fleet is already running"},
		{"--workers-file w.json", "--workers-file: only with --url"},
		{"--kv-index btree", `--kv-index: kv index "btree" is not one of chain `},
		{"--policy fastest", `--policy "fastest": want some of round_robin, `},
		{"--policy round_robin,round_robin", "--policy round_robin: given twice"},
		{"--policy ", "--policy: want at least one"},
		{"--workers 0", "--workers 0: want 1 to 512"},
		{"--profile warp", "--profile: unknown timing profile"},
		{"--rows 9-1", `--rows: rows "9-1"`},
		{"--rows 900-", "the trace has 900 rows"},
		{"--speed 0", "--speed 0: want a number above zero"},
		{"--arrivals burst", `arrivals "burst": want spread or raw`},
		{"--slo ttft", `--slo: slo "ttft"`},
		{"--hot-prefix share=2", "--hot-prefix: hot prefix: share 2"},
		{"--max-input 1", "no row is left of 900"},
		{"--max-output 0", "--max-output and --max-model-len"},
		{"--load-interval push", "--load-interval push: only with --sim"},
		{"--load-interval soon", `--load-interval "soon"`},
		{"--load-report full", "--load-report: only with --sim"},
		{"--event-delay 5ms", "--event-delay: only with --sim"},
		{"--published --arrivals raw", "--arrivals: --published says it already"},
		{"--sim --load-report all", `--load-report "all": want full or vllm`},
		{"--sim --gateway-arg x", "--gateway-arg: not with --sim"},
		{"one.jsonl two.jsonl", "one trace at a time"},
		{"missing.jsonl", "opening a trace"},
		{"--retries 3", "unknown flag: --retries"},
	} {
		code, stdout, stderr := replay(t, strings.Split(c.args, " ")...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("replay %s: exit %d, %q%q, want exit %d and %q", c.args, code, stdout, stderr, exitUsage, c.want)
		}
	}
}

// simulated are flags of a replay that takes a moment.
var simulated = []string{"--sim", "--rows", "0-59", "--speed", "3", "--workers", "2", "--profile", "fast"}

func TestReplayInSimulatedTime(t *testing.T) {
	code, stdout, stderr := replay(t, append(simulated, "--json", "--out", "run")...)
	if code != exitPass {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var s map[string]any
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields(`trace rows mode policy workers speed seed requests errors valid ttft_ms tpot_ms gap_ms goodput_rps within_slo
		within_slo_ok within_slo_strict slo profile kv_index hash cached_tokens prompt_tokens hit_over_best_holder hit_over_pooled late_hits balance credit
		preemptions virtual_s wall_s digest`) {
		if _, ok := s[key]; !ok {
			t.Errorf("no key %s", key)
		}
	}
	if s["mode"] != "sim" || s["policy"] != "cache_aware" || s["requests"] != 60.0 || s["errors"] != 0.0 || s["valid"] != true {
		t.Errorf("%v", s)
	}
	for _, name := range []string{"summary.json", "report.html", "requests.jsonl"} {
		if _, err := os.Stat(filepath.Join("run", name)); err != nil {
			t.Error(err)
		}
	}
	_, again, _ := replay(t, append(simulated, "--json")...)
	var other map[string]any
	if err := json.Unmarshal([]byte(again), &other); err != nil {
		t.Fatal(err)
	}
	if other["digest"] != s["digest"] {
		t.Error("the same seed gave another digest")
	}
	_, seeded, _ := replay(t, append(simulated, "--json", "--seed", "2")...)
	if strings.Contains(seeded, s["digest"].(string)) {
		t.Error("another seed gave the same digest")
	}
}

// What a replay writes is a trace: replayed again it sends the same requests.
func TestReplayOfAReplay(t *testing.T) {
	if code, _, stderr := replay(t, append(simulated, "--out", "first")...); code != exitPass {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	first, err := filepath.Abs("first/requests.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := func(path string) (out []string) {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(raw), "\n")
	}
	before := lines(first)
	if code, _, stderr := replay(t, append([]string{first, "--out", "second"}, simulated...)...); code != exitPass {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if !slices.Equal(before, lines("second/requests.jsonl")) {
		t.Error("the second replay came to something else")
	}
}

func TestReplayOfSeveralPolicies(t *testing.T) {
	code, stdout, stderr := replay(t, append(simulated, "--policy", "round_robin,cache_aware", "--out", "run")...)
	if code != exitPass {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if strings.Count(stdout, "round_robin") != 2 || strings.Count(stdout, "cache_aware") != 2 { // two tables
		t.Errorf("table: %s", stdout)
	}
	for _, name := range []string{"summary.json", "report.html", "round_robin/requests.jsonl", "cache_aware/requests.jsonl"} {
		if _, err := os.Stat(filepath.Join("run", name)); err != nil {
			t.Error(err)
		}
	}
	raw, err := os.ReadFile("run/summary.json")
	if err != nil {
		t.Fatal(err)
	}
	var s struct{ Runs []struct{ Policy string } }
	if err := json.Unmarshal(raw, &s); err != nil || len(s.Runs) != 2 || s.Runs[1].Policy != "cache_aware" {
		t.Errorf("%+v, %v", s, err)
	}
	if !strings.Contains(stderr, "report: run/report.html") {
		t.Errorf("stderr: %s", stderr)
	}
}

func TestProgressLines(t *testing.T) {
	var plain, screen bytes.Buffer
	at := func(s, ended int) live.Progress {
		return live.Progress{Planned: 400, Sent: ended + 3, Ended: ended, Errors: 1, Elapsed: time.Duration(s) * time.Second, Rate: 9.25, TTFTP50Ms: 182.4, Hit: 0.3141}
	}
	quiet, moving := &progress{out: &plain, name: "cache_aware"}, &progress{out: &screen, name: "cache_aware", terminal: true}
	for _, now := range []live.Progress{at(1, 9), at(10, 90), at(11, 99), at(30, 400)} {
		quiet.live(now)
		moving.live(now)
	}
	quiet.sim(3, 400, 52.5, 45*time.Second)
	quiet.end()
	moving.end()
	wantPlain := `cache_aware: 90 of 400 rows, 3 open, 9.2/s, TTFT p50 182 ms, hit ratio 0.314, 1 errors
cache_aware: 400 of 400 rows, 3 open, 9.2/s, TTFT p50 182 ms, hit ratio 0.314, 1 errors
cache_aware: 3 of 400 rows, 52 virtual seconds, 1x
`
	if plain.String() != wantPlain {
		t.Errorf("elsewhere:\n%s\nwant\n%s", plain.String(), wantPlain)
	}
	if got := screen.String(); strings.Count(got, "\r") != 4 || strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "\x1b[K\n") {
		t.Errorf("on a terminal: %q", got)
	}
}

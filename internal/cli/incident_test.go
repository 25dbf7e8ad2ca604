package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/drills"
	"fleetdrill/drills/judge"
)

// TestInspect: a folder is told, whatever its verdict.
func TestInspect(t *testing.T) {
	drill := storedRun(t)
	code, out, errs := call("incident", "inspect", drill)
	for _, want := range []string{"PASS  stored  seed 42", "death.effective", "w2: not routable", "out-of-routing pass", "requests that did not end well\n  none"} {
		if code != exitPass || !strings.Contains(out, want) {
			t.Errorf("code %d, no %q in %q %s", code, want, out, errs)
		}
	}
	_, out, _ = call("incident", "inspect", drill, "--json")
	var got struct {
		Drill    string
		Timeline []struct {
			AtS  float64 `json:"at_s"`
			Kind string
			What string
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Drill != "stored" || len(got.Timeline) == 0 || got.Timeline[0].What == "" {
		t.Errorf("%+v", got)
	}
}

// TestBundle: a folder gives back the options that its run was made with.
func TestBundle(t *testing.T) {
	drill := storedRun(t)
	b, err := openBundle(reproduceOptions{}, filepath.Join(drill, "latest"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(drills.Options{Seed: 42, GatewayArgs: []string{"--handicap=liveness-off"}}, b.options,
		cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Timings" || p.Last().String() == ".Progress" }, cmp.Ignore())); d != "" {
		t.Error(d)
	}
	if b.stored.Verdict != judge.Pass || string(b.raw) != storedScenario {
		t.Errorf("verdict %s, scenario %q", b.stored.Verdict, b.raw)
	}
	writeFile(t, filepath.Join(drill, "1", "plan.json"), `{"drill": "stored", "seed": 0, "gateway_args": ["--policy", "cache_aware"], "handicaps": ["liveness-off"], "no_fault": true}`)
	if b, err = openBundle(reproduceOptions{}, drill); err != nil || len(b.options.GatewayArgs) != 0 || !b.options.NoFault || len(b.options.Handicaps) != 1 {
		t.Errorf("%+v, %v", b.options, err)
	}
}

// TestBundlesThatCannotBeRun: nothing is started from a folder that does not say how.
func TestBundlesThatCannotBeRun(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"no seed", "plan.json", `{"drill": "stored", "gateway_args": ["--policy", "cache_aware"]}`, "plan.json: it has no seed"},
		{"another drill's plan", "plan.json", `{"drill": "x", "seed": 1}`, `it plans the drill "x"`},
		{"a gateway of its own", "plan.json", `{"drill": "stored", "seed": 1, "gateway_args": ["--policy", "random"]}`, "one of the two was changed after the run"},
		{"a plan cut short", "plan.json", "{\n", "plan.json:2: "},
		{"a run that proved nothing", "gates.jsonl", `{"name": "steady", "ok": false, "detail": "never came"}` + "\n", "it has no outcome to reproduce"},
	} {
		t.Run(c.name, func(t *testing.T) {
			drill := storedRun(t)
			writeFile(t, filepath.Join(drill, "1", c.file), c.text)
			if code, _, errs := call("incident", "reproduce", drill, "--out", t.TempDir()); code != exitUsage || !strings.Contains(errs, c.want) {
				t.Errorf("code %d, %q, want %q", code, errs, c.want)
			}
		})
	}
}

// TestOutcome: what the exit code and the sentence say of two verdicts.
func TestOutcome(t *testing.T) {
	drill := func(v judge.Verdict, expectations ...judge.Verdict) judge.Drill {
		d := judge.Drill{Name: "stored", Verdict: v, Reason: "why"}
		for i, e := range expectations {
			d.Expectations = append(d.Expectations, judge.Result{ID: string(rune('a' + i)), Verdict: e})
		}
		return d
	}
	for _, c := range []struct {
		name     string
		was, now judge.Drill
		exit     int
		says     string
	}{
		{"same pass", drill("pass", "pass", "pass"), drill("pass", "pass", "pass"), exitPass, "reproduced: pass again"},
		{"same failure", drill("fail", "fail", "skipped"), drill("fail", "fail", "skipped"), exitPass, "reproduced: fail again"},
		{"one differs", drill("fail", "fail", "pass"), drill("fail", "fail", "fail"), exitFail, "not reproduced: 1 of 2"},
		{"only the run differs", drill("pass", "pass"), drill("unknown", "pass"), exitFail, "pass before, unknown now"},
		{"invalid now", drill("fail", "fail"), drill("invalid", "fail"), exitInvalid, "the new run is invalid (why): it says nothing"},
		{"the lab failed", drill("fail", "fail"), drill("error", "fail"), exitHarness, "the new run is error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := outcome(c.was, c.now)
			if r.exit() != c.exit || !strings.Contains(r.sentence(), c.says) {
				t.Errorf("exit %d, %q; want %d, %q", r.exit(), r.sentence(), c.exit, c.says)
			}
		})
	}
}

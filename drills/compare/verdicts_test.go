package compare

import (
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/drills/judge"
)

// TestRejudge: the stored series of the late run, judged by edited rules.
func TestRejudge(t *testing.T) {
	text, err := os.ReadFile("testdata/drill.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := stored(t, "late", 8)
	edit := strings.NewReplacer("count(failed) <= 2", "count(failed) <= 4", "  - {id: stays-out", "  - {id: renamed")
	d, err := Rejudge(r, rules(t, edit.Replace(string(text))), judge.Options{})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "changes.txt", Changes(Verdicts(r.Drill.Expectations, d.Expectations)))
	if d.RunDir != r.Drill.RunDir || d.Seed != 8 {
		t.Errorf("the verdict is of %s, seed %d", d.RunDir, d.Seed)
	}
}

// TestRejudgeRefuses: rules of another drill or fleet say nothing about this run.
func TestRejudgeRefuses(t *testing.T) {
	text, err := os.ReadFile("testdata/drill.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := stored(t, "late", 8)
	for edit, want := range map[[2]string]string{
		{"name: story", "name: other"}: "is the drill other, the run was story",
		{"workers: 3", "workers: 4"}:   "has 4 workers, the run had 3",
	} {
		_, err := Rejudge(r, rules(t, strings.Replace(string(text), edit[0], edit[1], 1)), judge.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestAnErrorStaysOne: a lab that failed proves nothing, however its samples look.
func TestAnErrorStaysOne(t *testing.T) {
	r := stored(t, "prompt", 7)
	r.Drill.Verdict, r.Drill.Reason = judge.Error, "the gateway ended on its own"
	d, err := Rejudge(r, r.Scenario, judge.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Verdict != judge.Error || d.Reason != r.Drill.Reason || d.Passed != 0 {
		t.Errorf("%s, %q, passed %d", d.Verdict, d.Reason, d.Passed)
	}
}

// TestVerdictsPairEverything: each id of either side is there once, with the verdict that each side gave.
func TestVerdictsPairEverything(t *testing.T) {
	side := rapid.MapOf(rapid.StringMatching("[a-f]"), rapid.SampledFrom([]judge.Verdict{judge.Pass, judge.Fail, judge.Unknown}))
	list := func(m map[string]judge.Verdict) []judge.Result {
		var out []judge.Result
		for id, v := range m {
			out = append(out, judge.Result{ID: id, Verdict: v})
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		was, now := side.Draw(t, "was"), side.Draw(t, "now")
		seen, differ := map[string]bool{}, 0
		changes := Verdicts(list(was), list(now))
		for _, c := range changes {
			if seen[c.ID] || c.Was != was[c.ID] || c.Now != now[c.ID] {
				t.Fatalf("%s: was %q, now %q, seen before %v", c.ID, c.Was, c.Now, seen[c.ID])
			}
			seen[c.ID] = true
			if was[c.ID] != now[c.ID] {
				differ++
			}
		}
		for _, m := range []map[string]judge.Verdict{was, now} {
			for id := range m {
				if !seen[id] {
					t.Fatalf("%s is missing", id)
				}
			}
		}
		if Differ(changes) != differ {
			t.Fatalf("%d differ, want %d", Differ(changes), differ)
		}
	})
}

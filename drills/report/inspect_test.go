package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/drills/record"
	"fleetdrill/replayer/load"
)

// TestInspectGolden holds the telling of a run in which everything changes to its golden files.
func TestInspectGolden(t *testing.T) {
	rec := healed()
	for k := range rec.Samples {
		s := &rec.Samples[k]
		s.Text["stream(w3/0)"], s.Text["digest(w3/0)"] = "live", string(rune('a'+k%20))
		s.Values["resyncs(w3/0)"], s.Values["resyncs.first(w3/0)"] = 1, 1
		if s.SentNs > kill+second && s.SentNs < kill+4*second {
			s.Text["stream(w3/0)"] = "down"
		}
		s.Values["thin(w3)"] = 0
		if s.SentNs > kill+5*second && s.SentNs < kill+6*second {
			s.Values["thin(w3)"] = 1
		}
		if s.SentNs > kill+5*second {
			s.Values["resyncs(w3/0)"], s.Values["resyncs.restart(w3/0)"] = 2, 1
		} else {
			s.Values["resyncs.restart(w3/0)"] = 0
		}
	}
	in := Inspect(run(t, rec))
	raw, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"inspect.txt": in.Text(), "inspect.json": string(raw) + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		golden(t, filepath.Join("testdata", "healed", name), filepath.Join(dir, name))
	}
}

// TestInspectNothing: a run that ended before its first sample can be told too.
func TestInspectNothing(t *testing.T) {
	in := Inspect(run(t, &record.Record{Drill: "engine-killed", Workers: []string{"w1"}, PeriodNs: 100 * ms, MaxGapNs: 300 * ms}))
	if len(in.Timeline) != 0 || in.Text() == "" {
		t.Errorf("%+v", in)
	}
}

// TestFailuresLoseNone: every request that did not end well is in exactly one group, and no group mixes
// workers, outcomes or statuses.
func TestFailuresLoseNone(t *testing.T) {
	request := rapid.Custom(func(t *rapid.T) load.Record {
		return load.Record{
			Worker:  rapid.SampledFrom([]string{"", "w1", "w2"}).Draw(t, "worker"),
			Outcome: rapid.SampledFrom([]string{load.OutcomeOK, load.OutcomeFailed, load.OutcomeAborted, load.OutcomeOpen}).Draw(t, "outcome"),
			Status:  rapid.SampledFrom([]int{0, 200, 502}).Draw(t, "status"),
			Error:   rapid.SampledFrom([]string{"", "dial 127.0.0.1:4001: refused", "dial 127.0.0.1:4002: refused", "cut"}).Draw(t, "error"),
			EndNs:   rapid.Int64Range(0, 100).Draw(t, "end"),
		}
	})
	type kind struct {
		worker, outcome string
		status          int
	}
	rapid.Check(t, func(t *rapid.T) {
		rec := &record.Record{Requests: rapid.SliceOf(request).Draw(t, "requests")}
		want, got := map[kind]int{}, map[kind]int{}
		total := 0
		for _, q := range rec.Requests {
			if q.Outcome != load.OutcomeOK {
				want[kind{q.Worker, q.Outcome, q.Status}]++
			}
		}
		for i, g := range failures(rec, 0) {
			if g.Count == 0 || g.FirstS > g.LastS || (i > 0 && g.Count > total) {
				t.Fatalf("group %d: %+v", i, g)
			}
			total = g.Count
			got[kind{g.Worker, g.Outcome, g.Status}] += g.Count
		}
		if len(want) != len(got) {
			t.Fatalf("groups %v, want %v", got, want)
		}
		for k, n := range want {
			if got[k] != n {
				t.Fatalf("%s %s %d: %d, want %d", k.worker, k.outcome, k.status, got[k], n)
			}
		}
	})
}

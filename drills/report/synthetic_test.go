package report

import (
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
	"fleetdrill/replayer/load"
	"fleetdrill/scenarios"
)

const (
	second = int64(1e9)
	ms     = int64(1e6)
	start  = 1000 * second // of the steady window
	kill   = start + 4*second
)

// synthetic is a made-up run of engine-killed: steady for three seconds, w3 killed a second later, out of
// routing outAfter later (never when 0), sampled each 100 ms until seven seconds after the kill. A gateway
// that retries hides the refused requests from its clients.
func synthetic(outAfter int64, retries bool) *record.Record {
	rec := &record.Record{Drill: "engine-killed", Seed: 7, Workers: []string{"w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"},
		PeriodNs: 100 * ms, MaxGapNs: 300 * ms, Targets: map[string]string{"death": "w3"},
		Marks: []record.Mark{
			{Name: "main.start", Interval: record.Interval{Lo: start - second, Hi: start - second}},
			{Name: "steady.start", Interval: record.Interval{Lo: start, Hi: start}},
			{Name: "steady.end", Interval: record.Interval{Lo: start + 3*second, Hi: start + 3*second}},
			{Name: "death.inject", Interval: record.Interval{Lo: kill - 2*ms, Hi: kill - ms}},
			{Name: "death.effective", Interval: record.Interval{Lo: kill - 2*ms, Hi: kill + ms}},
			{Name: "settle.start", Interval: record.Interval{Lo: kill + ms, Hi: kill + ms}},
			{Name: "settle.end", Interval: record.Interval{Lo: kill + 7*second - 2*ms, Hi: kill + 7*second + ms}},
			{Name: "main.end", Interval: record.Interval{Lo: kill + 7*second + 10*ms, Hi: kill + 7*second + 10*ms}},
		},
		Faults: []record.Fault{{ID: "death", Kind: "kill", Target: "w3", Confirmed: true, Evidence: []record.Evidence{
			{MonoNs: kill - ms, What: "wait saw w3 (pid 4711) end: signal killed"},
			{MonoNs: kill + ms, What: "a connection of the lab's own to 127.0.0.1:9003 was refused <ECONNREFUSED>"}}}},
		Gates: []record.Gate{{Name: "steady", OK: true, Detail: "everything required held for 3s"}, {Name: "generator", OK: true, Detail: "send lag p99 0.41 ms, 288 of 288 sent"},
			{Name: "sampler", OK: true, Detail: "125 samples, lag p99 180µs, bound 50ms"}},
	}
	out := kill + outAfter
	if outAfter == 0 {
		out = 1 << 62
	}
	for t := start - second; t < kill+7*second+300*ms; t += 100 * ms {
		rec.Samples = append(rec.Samples, sampleAt(rec, len(rec.Samples), t, out))
	}
	requests(rec, out, retries)
	return rec
}

func sampleAt(rec *record.Record, k int, t, out int64) record.Sample {
	s := record.Sample{K: k, SentNs: t, ReceivedNs: t + 4*ms, LagNs: 180_000, Values: map[string]float64{}, Text: map[string]string{}}
	for i, w := range rec.Workers {
		s.Values["routable("+w+")"], s.Text["veto("+w+")"] = 1, "none"
		s.Values["inflight("+w+")"] = float64(1 + (k+i)%2)
		s.Values["dispatches("+w+")"] = float64((min(t, out) - start + second) / (333 * ms))
		s.Values["engine_running("+w+")"], s.Values["engine_waiting("+w+")"] = 1, 0
		if w != "w3" || t < kill {
			continue
		}
		s.Absent = []string{"engine_running(w3)", "engine_waiting(w3)"}
		delete(s.Values, "engine_running(w3)")
		delete(s.Values, "engine_waiting(w3)")
		if t >= out {
			s.Values["routable(w3)"], s.Text["veto(w3)"] = 0, "dead"
			s.Values["inflight(w3)"] = 0
		}
	}
	return s
}

// requests sends 24 a second in turn; those on w3 fail from the kill until it is out.
func requests(rec *record.Record, out int64, retries bool) {
	for n, t := 0, start-second; t < kill+7*second; n, t = n+1, t+second/24 {
		w := rec.Workers[n%8]
		q := load.Record{N: n, Load: "main", ID: fmt.Sprintf("main-%d", n), ScheduledNs: t, SentNs: t + 200_000, Worker: w, Attempts: 1,
			PromptTokens: 900, Output: 80, NewPrefix: n%2 == 0, Status: 200, Outcome: load.OutcomeOK}
		q.HeadersNs, q.FirstNs = t+40*ms, t+60*ms+int64(n*37%90)*ms
		q.LastNs = q.FirstNs + 500*ms
		q.EndNs, q.MaxGapNs, q.MaxGapEndNs = q.LastNs, 12*ms, q.FirstNs+12*ms
		link := record.Link{Worker: w, N: n, StartNs: t + 2*ms, EndNs: q.EndNs, Method: "POST", Path: "/v1/completions", Outcome: "ok"}
		switch {
		case w == "w3" && t > out:
			q.Worker, link.Worker = "w4", "w4"
		case w == "w3" && t > kill && retries:
			q.Worker, q.Attempts = "w4", 2
			rec.Links = append(rec.Links, record.Link{Worker: "w3", N: n, StartNs: t + 2*ms, EndNs: t + 3*ms, Method: "POST", Path: "/v1/completions", Outcome: "reset"})
			link.Worker = "w4"
		case w == "w3" && t > kill:
			q.Outcome, q.Status, q.Error = load.OutcomeFailed, 502, `upstream said "refused" & <closed>`
			q.FirstNs, q.LastNs, q.MaxGapNs, q.MaxGapEndNs = 0, 0, 0, 0
			q.EndNs, link.EndNs, link.Outcome = t+5*ms, t+4*ms, "reset"
		case w == "w3" && q.EndNs > kill:
			q.Outcome, q.Error, q.EndNs, q.LastNs = load.OutcomeFailed, "stream broke", kill+3*ms, kill
			link.EndNs, link.Outcome = kill, "reset"
		}
		rec.Requests, rec.Links = append(rec.Requests, q), append(rec.Links, link)
	}
	slices.SortFunc(rec.Requests, func(a, b load.Record) int { return a.N - b.N })
}

// healed is a run in which the fault is taken away four seconds after it began: w3 is back half a second
// later, its index wrong by a fifth, then by a little, then equal.
func healed() *record.Record {
	rec := synthetic(2100*ms, true)
	heal, proof, back := kill+4*second, kill+4*second+300*ms, kill+4500*ms
	rec.Marks = append(rec.Marks, record.Mark{Name: "death.heal", Interval: record.Interval{Lo: heal, Hi: heal + ms}},
		record.Mark{Name: "death.healed", Interval: record.Interval{Lo: heal, Hi: proof}})
	for k := range rec.Samples {
		s := &rec.Samples[k]
		if s.SentNs >= back {
			s.Values["routable(w3)"], s.Text["veto(w3)"], s.Absent = 1, "none", nil
		}
		for i, w := range rec.Workers {
			if (w == "w3" && s.SentNs >= kill && s.SentNs < back) || (k+i)%4 == 3 {
				continue // not at one sequence number, or owned by the fault
			}
			equal, off := 1.0, 0.0
			switch since := s.SentNs - back; {
			case w != "w3" || since < 0 || since >= second:
			case since < 500*ms:
				equal, off = 0, 0.2
			default:
				equal, off = 0, 0.002
			}
			s.Values["index_equal("+w+"/0)"], s.Values["count_error("+w+"/0)"] = equal, off
		}
	}
	return rec
}

// run judges a synthetic record by the embedded scenario.
func run(t testing.TB, rec *record.Record) Run {
	t.Helper()
	src, err := fs.ReadFile(scenarios.FS(), "matrix/engine-killed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse("scenarios/matrix/engine-killed.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	d := judge.Judge(s, rec, judge.Options{})
	d.RunDir = "results/runs/engine-killed/20261129T120000Z-7"
	return Run{Drill: d, Scenario: s, Record: rec, Reproduce: "fleetdrill drill run scenarios/matrix/engine-killed.yaml --seed 7",
		Started: "2026-11-29T12:00:00Z", Version: "0.1.0"}
}

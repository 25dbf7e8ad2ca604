package record

import "fleetdrill/replayer/load"

// Interval is an instant known to lie in [Lo, Hi], CLOCK_MONOTONIC nanoseconds. Every mark is one: what
// the lab did and saw is never known more precisely than its own two clock readings around it.
type Interval struct {
	Lo int64 `json:"lo"`
	Hi int64 `json:"hi"`
}

// Mark is one line of marks.jsonl: a named instant such as death.effective.
type Mark struct {
	Name string `json:"name"`
	Interval
}

// Sample is one line of samples.jsonl: what the lab read between SentNs and ReceivedNs. A value is true
// at some instant in between.
//
// Values are keyed by series, per-worker ones as name(w3), per-rank ones as name(w3/0). A series that
// could not be read in this sample has no key; one whose source is owned by a fault is listed in Absent
// by the same key. Booleans are 0 and 1.
type Sample struct {
	K          int                `json:"k"`
	SentNs     int64              `json:"sent_ns"`
	ReceivedNs int64              `json:"received_ns"`
	Values     map[string]float64 `json:"values"`
	// Text holds the series whose values are words: veto(w3) "dead", breaker(w3) "closed", stream(w3/0).
	Text   map[string]string `json:"text,omitempty"`
	Absent []string          `json:"absent,omitempty"`
	// Lag is how late the sample was sent against its slot, in nanoseconds.
	LagNs int64 `json:"lag_ns"`
}

// Link is one request that passed an engine's link proxy: a line of engines.jsonl. EndNs is 0 while the
// response is incomplete.
type Link struct {
	Worker  string `json:"worker"`
	N       int    `json:"n"`
	StartNs int64  `json:"start_ns"`
	EndNs   int64  `json:"end_ns"`
	Method  string `json:"method"`
	Path    string `json:"path"`
	Outcome string `json:"outcome"`
}

// Fault is one fault of the timeline: a line of faults.jsonl.
type Fault struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	Target    string     `json:"target"`
	Confirmed bool       `json:"confirmed"`
	Evidence  []Evidence `json:"evidence"`
	Error     string     `json:"error,omitempty"`
}

// Evidence is one observation by the lab, with its time.
type Evidence struct {
	MonoNs int64  `json:"mono_ns"`
	What   string `json:"what"`
}

// Gate is one validity gate of a run: a run whose gates do not all hold is invalid, not failed.
type Gate struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Record is everything a run observed: what the judge and the report read, live or from a run folder.
type Record struct {
	// Drill, Seed and Workers (ids in order) name the run; PeriodNs is the sampling period and MaxGapNs
	// the longest hole between samples that a deciding window may have.
	Drill   string   `json:"drill"`
	Seed    uint64   `json:"seed"`
	Workers []string `json:"workers"`
	// Ranks is the number of data-parallel ranks of every worker; 0 means 1.
	Ranks    int   `json:"ranks,omitempty"`
	PeriodNs int64 `json:"period_ns"`
	MaxGapNs int64 `json:"max_gap_ns"`
	// Targets maps a fault id to the worker it was aimed at: death.target in a predicate.
	Targets map[string]string `json:"targets"`

	Marks    []Mark        `json:"-"`
	Samples  []Sample      `json:"-"`
	Requests []load.Record `json:"-"`
	Links    []Link        `json:"-"`
	Faults   []Fault       `json:"-"`
	Gates    []Gate        `json:"-"`
}

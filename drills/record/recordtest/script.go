package recordtest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/replayer/load"
)

// roundTrip is the time from a sample's send to its receipt.
const roundTrip = 2 * time.Millisecond

// Parse builds a record from a script, one command a line, in order:
//
//	workers w1 w2 w3
//	period 100ms 300ms             sampling period and max_gap; samples come each period
//	target death w3                death.target
//	mark death.effective 10..10.1  or one instant
//	fault death kill w3            a confirmed fault
//	samples 0..20                  from..to, without values
//	set 12.5.. routable(w3) 0      a value in every sample sent in [from, to); a word is text
//	count 0..20 dispatches(w1) 5   a counter that grows by 5 each second
//	absent 10.. epoch(w3)          the key is removed and listed as absent
//	drop 12..13                    samples sent in [from, to) are missing
//	request 9 w1 ttft=0.1 end=1 gap=0.2 outcome=failed new attempts=2 predicted=0 prompt=512 cached=256
//	                               scheduled at 9; ttft, end and gaps count from there; - is no worker
//	link 9..10 w1 reset            a request through w1's link proxy; an open end is unfinished
//	gate steady ok                 or: gate steady broken
//
// Lines that are empty or begin with # are skipped.
func Parse(script string) (*record.Record, error) {
	rec := &record.Record{Drill: "story", Seed: 1, PeriodNs: 1e8, MaxGapNs: 3e8, Targets: map[string]string{}}
	for i, line := range strings.Split(script, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if err := command(rec, fields[0], fields[1:]); err != nil {
			return nil, fmt.Errorf("line %d (%s): %w", i+1, line, err)
		}
	}
	return rec, nil
}

// command checks the number of arguments first, so that every command below may index its own.
func command(rec *record.Record, name string, args []string) error {
	need := map[string]int{"workers": 1, "period": 2, "target": 2, "mark": 2, "fault": 3, "samples": 1, "set": 3, "count": 3,
		"absent": 2, "drop": 1, "request": 2, "link": 3, "gate": 2}
	n, ok := need[name]
	if !ok {
		return fmt.Errorf("unknown command")
	}
	if len(args) < n {
		return fmt.Errorf("needs %d arguments", n)
	}
	switch name {
	case "workers":
		rec.Workers = args
	case "target":
		rec.Targets[args[0]] = args[1]
	case "fault":
		rec.Faults = append(rec.Faults, record.Fault{ID: args[0], Kind: args[1], Target: args[2], Confirmed: true})
	case "gate":
		rec.Gates = append(rec.Gates, record.Gate{Name: args[0], OK: args[1] == "ok", Detail: args[1]})
	case "period":
		return period(rec, args)
	case "request":
		return request(rec, args)
	}
	return ranged(rec, name, args)
}

// period sets the sampling period and the longest gap of a deciding window.
func period(rec *record.Record, args []string) error {
	p, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	gap, err := time.ParseDuration(args[1])
	rec.PeriodNs, rec.MaxGapNs = int64(p), int64(gap)
	return err
}

// ranged runs the commands that have a stretch of time as an argument.
func ranged(rec *record.Record, name string, args []string) error {
	switch name {
	case "mark":
		from, to, err := stretch(args[1])
		rec.Marks = append(rec.Marks, record.Mark{Name: args[0], Interval: record.Interval{Lo: from, Hi: to}})
		return err
	case "samples":
		from, to, err := stretch(args[0])
		for t := from; err == nil && t < to; t += rec.PeriodNs {
			rec.Samples = append(rec.Samples, record.Sample{K: len(rec.Samples), SentNs: t, ReceivedNs: t + int64(roundTrip),
				Values: map[string]float64{}, Text: map[string]string{}})
		}
		return err
	case "link":
		from, to, err := stretch(args[0])
		if to == math.MaxInt64 {
			to = 0 // how a record says that a response is incomplete
		}
		rec.Links = append(rec.Links, record.Link{Worker: args[1], StartNs: from, EndNs: to, Method: "POST", Outcome: args[2]})
		return err
	case "set", "count", "absent", "drop":
		from, to, err := stretch(args[0])
		if err != nil {
			return err
		}
		return change(rec, name, from, to, args[1:])
	}
	return nil
}

// change edits the samples sent in [from, to).
func change(rec *record.Record, name string, from, to int64, args []string) error {
	// Dropping comes first: it changes the slice that the loop below walks.
	if name == "drop" {
		rec.Samples = slices.DeleteFunc(rec.Samples, func(s record.Sample) bool { return s.SentNs >= from && s.SentNs < to })
		return nil
	}
	for i := range rec.Samples {
		s := &rec.Samples[i]
		if s.SentNs < from || s.SentNs >= to {
			continue
		}
		delete(s.Values, args[0])
		delete(s.Text, args[0])
		if name == "absent" {
			s.Absent = append(s.Absent, args[0])
			continue
		}
		s.Absent = slices.DeleteFunc(s.Absent, func(k string) bool { return k == args[0] })
		v, err := strconv.ParseFloat(args[1], 64)
		switch {
		case name == "count" && err != nil:
			return err
		case name == "count":
			// A counter is whole; the tiny addend keeps 0.1 s of 10 a second from falling to 0 in binary.
			s.Values[args[0]] = math.Floor(v*float64(s.SentNs-from)/1e9 + 1e-6)
		case err != nil:
			s.Text[args[0]] = args[1]
		default:
			s.Values[args[0]] = v
		}
	}
	return nil
}

// request adds one request; what its options leave out is that of a quick success.
func request(rec *record.Record, args []string) error {
	at, err := instant(args[0])
	if err != nil {
		return err
	}
	q := load.Record{N: len(rec.Requests), Load: "main", ScheduledNs: at, SentNs: at, Worker: args[1], Attempts: 1, Predicted: -1, Outcome: load.OutcomeOK}
	if q.Worker == "-" {
		q.Worker = ""
	}
	for _, a := range args[2:] {
		key, value, _ := strings.Cut(a, "=")
		if key == "new" {
			q.NewPrefix = true
			continue
		}
		if key == "outcome" {
			q.Outcome = value
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return err
		}
		if err := set(&q, key, v); err != nil {
			return err
		}
	}
	rec.Requests = append(rec.Requests, q)
	return nil
}

// set reads one option; times count from the scheduled instant, as latencies do.
func set(q *load.Record, key string, v float64) error {
	after := int64(math.Round(v * 1e9))
	switch key {
	case "lag":
		q.SentNs = q.ScheduledNs + after
	case "ttft":
		q.FirstNs = q.ScheduledNs + after
		q.HeadersNs, q.LastNs = q.FirstNs, q.FirstNs
	case "gap":
		q.GapsNs = append(q.GapsNs, after)
		q.LastNs += after
	case "end":
		q.EndNs = q.ScheduledNs + after
	case "attempts":
		q.Attempts = int(v)
	case "prompt":
		q.PromptTokens = int(v)
	case "cached":
		q.Cached = int(v)
	case "predicted":
		q.Predicted = int(v)
	default:
		return fmt.Errorf("unknown field %q", key)
	}
	return nil
}

// stretch reads A..B, A.. (no end) or A (an instant), in seconds.
func stretch(s string) (from, to int64, err error) {
	a, b, ranged := strings.Cut(s, "..")
	if from, err = instant(a); err != nil || !ranged {
		return from, from, err
	}
	if b == "" {
		return from, math.MaxInt64, nil
	}
	to, err = instant(b)
	return from, to, err
}

// instant reads seconds on the run's clock.
func instant(s string) (int64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not an instant: %w", s, err)
	}
	return int64(math.Round(v * 1e9)), nil
}

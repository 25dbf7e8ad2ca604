package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"fleetdrill/drills/record"
	"fleetdrill/replayer/load"
)

// letters of a worker's state in timeline.txt.
var letters = map[string]string{"up": "R", "danger": "!", "down": "x", "veto": "V", "absent": "-", "hole": "."}

// writeText writes timeline.txt: one line per sample at which something changed, a state letter per worker,
// the requests that ended since the last line, and what happened.
func writeText(w io.Writer, r Run) error {
	rec := r.Record
	var b strings.Builder
	zero := origin(rec)
	fmt.Fprintf(&b, "%s, seed %d: %s\n", r.Drill.Name, r.Drill.Seed, r.Drill.Verdict)
	fmt.Fprintf(&b, "seconds from %s; one letter per worker %s:\n", zeroName(rec), strings.Join(rec.Workers, " "))
	fmt.Fprintf(&b, "R routable, ! routable while its engine is down, x down and out, V vetoed, - absent, . not sampled\n\n")
	events := eventsOf(r)
	prevStates, from := "", int64(0)
	for k := range rec.Samples {
		now := rec.Samples[k].ReceivedNs
		var happened []string
		// An event is told with the first sample after it, the first that can show its effect.
		for len(events) > 0 && events[0].at <= now {
			happened = append(happened, events[0].what)
			events = events[1:]
		}
		states, changes := statesAt(rec, k, prevStates)
		happened = append(happened, changes...)
		if k > 0 && rec.MaxGapNs > 0 && now-rec.Samples[k-1].ReceivedNs > rec.MaxGapNs {
			happened = append(happened, fmt.Sprintf("no sample for %.2f s", float64(now-rec.Samples[k-1].ReceivedNs)/1e9))
		}
		// Successes alone make no line: under load there are some in every sample.
		ok, failed := ended(rec, from, now)
		if len(happened) == 0 && states == prevStates && failed == 0 {
			continue
		}
		fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%+8.2f  %s  %s  %s", float64(now-zero)/1e9, states, counts(ok, failed), strings.Join(happened, "; ")), " "))
		prevStates, from = states, now
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// zeroName is the mark that times count from.
func zeroName(rec *record.Record) string {
	name, _ := Origin(rec)
	return name
}

// textEvent is a mark or a decision that is due to be told.
type textEvent struct {
	at   int64
	what string
}

// eventsOf are the marks and the deciding samples, in order.
func eventsOf(r Run) []textEvent {
	var out []textEvent
	for _, m := range r.Record.Marks {
		out = append(out, textEvent{m.Hi, m.Name})
	}
	for _, e := range r.Drill.Expectations {
		if e.DecidedNs != 0 {
			out = append(out, textEvent{e.DecidedNs, e.ID + " " + string(e.Verdict)})
		}
	}
	slices.SortStableFunc(out, func(a, b textEvent) int { return int(min(max(a.at-b.at, -1), 1)) })
	return out
}

// statesAt is one letter per worker and, for workers whose letter changed, the words.
func statesAt(rec *record.Record, k int, prev string) (states string, changes []string) {
	var b strings.Builder
	for i, w := range rec.Workers {
		class, words := State(rec, k, w)
		b.WriteString(letters[class])
		if len(prev) == len(rec.Workers) && prev[i:i+1] != letters[class] {
			changes = append(changes, w+" "+words)
		}
	}
	return b.String(), changes
}

// ended counts the requests that ended in (from, to].
func ended(rec *record.Record, from, to int64) (ok, failed int) {
	for _, q := range rec.Requests {
		if q.EndNs <= from || q.EndNs > to {
			continue
		}
		switch q.Outcome {
		case load.OutcomeOK:
			ok++
		case load.OutcomeFailed:
			failed++
		}
	}
	return ok, failed
}

// counts keeps its width whether anything failed or not, so that the words after it stay in line.
func counts(ok, failed int) string {
	s := fmt.Sprintf("ok %-4d", ok)
	if failed > 0 {
		return s + fmt.Sprintf(" failed %-3d", failed)
	}
	return s + strings.Repeat(" ", 11)
}

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fleetdrill/drills/record"
)

// silentTexts are words that change without anything having happened: the digest at every batch. veto is
// said by a worker's state already.
var silentTexts = []string{"digest", "veto"}

// flags are worker states that samples hold as 0 and 1 and that no word of the routing state repeats.
var flags = []string{"thin"}

// loudCounters are the counters of recovery: each rise is an event that someone looks for.
var loudCounters = []string{"gaps", "replayed", "refilled", "unrecovered", "resyncs.", "restarts."}

// transitions are the samples at which a worker's state, a word of the routing state or a counter of
// recovery is another one than when it was last known.
func transitions(rec *record.Record) []Happening {
	var out []Happening
	states, texts, counts := map[string]string{}, map[string]string{}, map[string]float64{}
	for k := range rec.Samples {
		s := &rec.Samples[k]
		add := func(kind, format string, args ...any) {
			out = append(out, Happening{Kind: kind, What: fmt.Sprintf(format, args...), ns: s.ReceivedNs})
		}
		if words := firstWords(rec, k, states); words != "" {
			add("worker", "%s", words)
		}
		for _, w := range rec.Workers {
			_, words := State(rec, k, w)
			if was, seen := states[w]; seen && was != words {
				add("worker", "%s: %s", w, words)
			}
			states[w] = words
		}
		// A key that is missing from a sample keeps its last word: not read is not changed.
		for _, key := range slices.Sorted(maps.Keys(s.Text)) {
			was, seen := texts[key]
			if now := s.Text[key]; seen && was != now && !silent(key) {
				add("worker", "%s: %s -> %s", key, was, now)
			}
			texts[key] = s.Text[key]
		}
		for _, key := range slices.Sorted(maps.Keys(s.Values)) {
			was, seen := counts[key]
			// A counter that fell began anew in another process; what it has since is told from its next rise.
			switch now := s.Values[key]; {
			case !seen || now == was:
			case loud(key) && now > was:
				add("count", "%s %+g, now %g", key, now-was, now)
			case flag(key):
				add("worker", "%s: %s", key, map[bool]string{true: "yes", false: "no longer"}[now != 0])
			}
			counts[key] = s.Values[key]
		}
	}
	return out
}

// firstWords says the states of the first sample on one line, workers of one state together: transitions
// alone would leave it to be guessed where they began.
func firstWords(rec *record.Record, k int, states map[string]string) string {
	if len(states) > 0 {
		return ""
	}
	var order []string // of first appearance, so that equal records print equally
	of := map[string][]string{}
	for _, w := range rec.Workers {
		_, words := State(rec, k, w)
		if of[words] == nil {
			order = append(order, words)
		}
		of[words] = append(of[words], w)
	}
	parts := make([]string, len(order))
	for i, words := range order {
		parts[i] = strings.Join(of[words], " ") + ": " + words
	}
	return strings.Join(parts, "; ")
}

// silent reports whether a text series is one whose changes are not told.
func silent(key string) bool {
	name, _, _ := strings.Cut(key, "(")
	return slices.Contains(silentTexts, name)
}

// flag reports whether a series is a state of its own.
func flag(key string) bool {
	name, _, _ := strings.Cut(key, "(")
	return slices.Contains(flags, name)
}

// loud reports whether a series is one of the counters whose rises are told.
func loud(key string) bool {
	name, _, _ := strings.Cut(key, "(")
	return slices.ContainsFunc(loudCounters, func(c string) bool {
		// A sum over causes would say every rise twice; only the causes are listed.
		return name == c || (strings.HasSuffix(c, ".") && strings.HasPrefix(name, c))
	})
}

package judge

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"fleetdrill/drills/predicate"
	"fleetdrill/drills/scenario"
	"fleetdrill/internal/contract"
)

// phrase is how a predicate reads in a sentence. became and still are followed by "2.1 s after"; held,
// notHeld, isTrue and isFalse by "at 3 of 51 samples".
type phrase struct {
	worker          string
	became, still   string
	held, broken    string
	isTrue, isFalse string
}

// phrase words the predicates that nearly every drill asks about, and quotes the others.
func (j *judging) phrase(x *predicate.Expr) phrase {
	series, ref, negated, ok := x.Atom()
	w := j.env.Worker(ref)
	switch {
	case ok && series == "routable" && w != "" && negated:
		return phrase{worker: w, became: w + " left routing", still: w + " was still routable",
			held: w + " stayed out of routing", broken: w + " was routable again",
			isTrue: w + " was not routable", isFalse: w + " was always routable"}
	case ok && series == "routable" && w != "":
		return phrase{worker: w, became: w + " was routable again", still: w + " was still not routable",
			held: w + " stayed routable", broken: w + " was not routable",
			isTrue: w + " was routable", isFalse: w + " was never routable"}
	case x.String() == "hung_streams > 0":
		return phrase{became: "a client stream hung", still: "no client stream had hung", isTrue: "a client stream hung", isFalse: "no client stream hung"}
	}
	text := j.show(x.String())
	return phrase{became: text + " was true", still: text + " was still false",
		held: text + " held", broken: text + " did not hold", isTrue: text + " was true", isFalse: text + " was never true"}
}

// stayed words a rule that held at every sample.
func (p phrase) stayed(op string) string {
	if op == scenario.OpNever {
		if p.isFalse == "" {
			return "never: " + p.became
		}
		return p.isFalse
	}
	if p.held == "" {
		return "always: " + p.became
	}
	return p.held
}

// broke words a rule that did not hold at some sample.
func (p phrase) broke(op string) string {
	switch {
	case op == scenario.OpNever && p.isTrue != "":
		return p.isTrue
	case op == scenario.OpNever:
		return p.became
	case p.broken != "":
		return p.broken
	}
	return p.still
}

// show replaces fault targets by the workers they were, so that a reader needs no scenario.
func (j *judging) show(text string) string {
	for id, w := range j.rec.Targets {
		text = strings.ReplaceAll(text, id+".target", w)
	}
	return text
}

// pastTense says what a fault did to its target.
var pastTense = map[string]string{"kill": "was killed", "term": "was told to end", "stop": "was stopped", "restart": "was restarted",
	"partition": "was cut off", "listener": "lost its listener", "starve": "was starved", "pause": "was paused", "wedge": "was wedged",
	"drop_batches": "left out batches", "restart_publisher": "restarted its publisher", "delay_publisher": "published late",
	"mute_publisher": "fell silent", "duplicate": "published something twice", "reorder": "published out of order",
	"corrupt": "published something wrong", "truncate": "published a cut batch", "unknown_event": "published an unknown event",
	"unknown_field": "published an unknown field", "unknown_parent": "published an unknown parent", "masked_store": "published a masked store",
	"stale_store": "stored again what it removed",
	"mute_stores": "kept its stores to itself", "mute_removals": "kept its evictions to itself", "late_removals": "announced its evictions late", "replay_hang": "answered no replay",
	"replay_empty": "answered replays with nothing", "replay_truncate": "cut its replays", "silent_clear": "lost its cache",
	"clear": "cleared its cache", "slow": "became slow", "leak": "began to leak", "exit": "exited", "health": "lied about its health",
	"errors": "answered errors", "cut_stream": "cut its streams", "stale_load": "lied about its load"}

// since names a mark as an event: "it was killed" when the sentence is about the target already.
func (j *judging) since(m predicate.Mark, subject string) string {
	id, what, _ := strings.Cut(m.Name, ".")
	if len(m.Offsets) > 0 {
		return m.String()
	}
	target, kind := j.rec.Targets[id], ""
	for _, f := range j.rec.Faults {
		if f.ID == id {
			kind = f.Kind
		}
	}
	who := target
	if who != "" && who == subject {
		who = "it"
	}
	switch {
	case what == "effective" && who != "" && pastTense[kind] != "":
		return who + " " + pastTense[kind]
	case what == "healed" && target != "" && (kind == contract.FaultDropBatches || kind == contract.FaultRestartPublisher):
		return "the next batch of " + target
	case what == "healed" && target != "":
		return "the fault on " + target + " was healed"
	case what == "seen":
		return id + " was seen"
	}
	return m.Name
}

// traffic says how many requests reached a worker while it should have been out of routing: the cost of
// being late, from the link proxies' log.
func (j *judging) traffic(x *predicate.Expr, from, to int64) string {
	series, ref, negated, ok := x.Atom()
	if !ok || series != "routable" || !negated || len(j.rec.Links) == 0 {
		return ""
	}
	sent, failed := 0, 0
	for _, l := range j.rec.Links {
		if l.Worker != j.env.Worker(ref) || l.Method == "GET" || l.StartNs < from || l.StartNs > to {
			continue
		}
		sent++
		if l.Outcome != "ok" {
			failed++
		}
	}
	switch sent {
	case 0:
		return "; no request was sent to it"
	case 1:
		return fmt.Sprintf("; 1 request was sent to it, %d failed", failed)
	}
	return fmt.Sprintf("; %d requests were sent to it, %d failed", sent, failed)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// interval prints a measured time with its uncertainty: `2.1 s (2.0-2.2)`, or `< 0.1 s` below one period,
// where more digits would be invented.
func (j *judging) interval(point, low, high int64) string {
	if point < j.rec.PeriodNs {
		return "< " + j.seconds(j.rec.PeriodNs)
	}
	n := j.decimals()
	f := func(v int64) string { return strconv.FormatFloat(float64(v)/1e9, 'f', n, 64) }
	return fmt.Sprintf("%s s (%s-%s)", f(point), f(low), f(high))
}

// seconds prints a time with the digits that sampling supports.
func (j *judging) seconds(v int64) string {
	return strconv.FormatFloat(float64(v)/1e9, 'f', j.decimals(), 64) + " s"
}

// decimals is how many digits the sampling period supports: 1 for 100 ms, 2 for 10 ms.
func (j *judging) decimals() int {
	if j.rec.PeriodNs <= 0 {
		return 1
	}
	return max(1, int(math.Ceil(-math.Log10(float64(j.rec.PeriodNs)/1e9)-1e-9)))
}

func (j *judging) bound(d time.Duration) string { return Number(d.Seconds(), "s") }

// Number prints a value in its unit with at most three significant decimals.
func Number(v float64, unit string) string {
	switch unit {
	case string(predicate.UnitBytes):
		return bytes(v)
	case string(predicate.UnitTime):
		return trimmed(v) + " s"
	}
	return trimmed(v)
}

// trimmed drops zeros that say nothing, and the sign of a zero.
func trimmed(v float64) string {
	s := strconv.FormatFloat(v, 'f', 3, 64)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}

func bytes(v float64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for math.Abs(v) >= 1000 && i < len(units)-1 {
		v, i = v/1000, i+1
	}
	return trimmed(math.Round(v*10)/10) + " " + units[i]
}

// sentenceCase capitalises a first word unless it is an id or code, which must stay as it is written.
func sentenceCase(s string) string {
	if strings.HasPrefix(s, "a ") || strings.HasPrefix(s, "no ") || strings.HasPrefix(s, "never: ") || strings.HasPrefix(s, "always: ") {
		return strings.ToUpper(s[:1]) + s[1:]
	}
	return s
}

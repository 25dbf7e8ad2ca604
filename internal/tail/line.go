package tail

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"fleetdrill/gateway/events"
)

// Kind says what a Line tells.
type Kind string

// The kinds of line; they are the "kind" of `events tail --json`.
const (
	KindConnected  Kind = "connected"
	KindDown       Kind = "down"
	KindTopic      Kind = "topic"
	KindLayout     Kind = "layout"
	KindHashes     Kind = "hashes"
	KindBatch      Kind = "batch"
	KindGap        Kind = "gap"        // From..To did not arrive
	KindRefilled   Kind = "refilled"   // Count batches of From..To came by replay
	KindLost       Kind = "lost"       // From..To are in no replay
	KindLate       Kind = "late"       // the batch that follows was missing
	KindDuplicate  Kind = "duplicate"  // Seq arrived again with the same bytes
	KindRestart    Kind = "restart"    // the numbers began again
	KindReplay     Kind = "replay"     // an answer of the replay socket ended
	KindMalformed  Kind = "malformed"  // frames that are no message
	KindUnreadable Kind = "unreadable" // a payload that is no batch; its number counts
	KindLoad       Kind = "load"       // a load record without a batch, over gRPC only
	KindSummary    Kind = "summary"
)

// ofOneRank says whether a kind tells of one rank's numbers.
func (k Kind) ofOneRank() bool {
	switch k {
	case KindGap, KindRefilled, KindLost, KindLate, KindDuplicate, KindRestart, KindUnreadable:
		return true
	}
	return false
}

// Line is one thing that was seen. What a kind does not have is left out.
type Line struct {
	Kind   Kind    `json:"kind"`
	MonoNs int64   `json:"mono_ns"`
	Seq    *uint64 `json:"seq,omitempty"`
	From   *uint64 `json:"from,omitempty"`
	To     *uint64 `json:"to,omitempty"`
	// Rank is told when several ranks share the stream; a batch has its own.
	Rank *int `json:"rank,omitempty"`
	// Count is a number of batches.
	Count *uint64 `json:"count,omitempty"`
	// Text says it in words.
	Text  string   `json:"text,omitempty"`
	Batch *Batch   `json:"batch,omitempty"`
	Sum   *Summary `json:"summary,omitempty"`
}

// Sources of a batch.
const (
	SourceLive   = "live"
	SourceReplay = "replay"
)

// Batch is what a batch line shows.
type Batch struct {
	Source string `json:"source"`
	// TS is unix seconds as the engine stamped them, 0 for what is no time; Rank is -1 when none is stamped.
	TS     float64 `json:"ts"`
	Rank   int     `json:"rank"`
	Layout string  `json:"layout"`
	Bytes  int     `json:"bytes"`
	Stored Moves   `json:"stored"`
	// Removed and Stored count per event and per block.
	Removed Moves `json:"removed"`
	Cleared int   `json:"cleared"`
	// Malformed and UnknownType are events that cannot be read.
	Malformed   int `json:"malformed"`
	UnknownType int `json:"unknown_type"`
}

// Moves are the events of a kind: how many, how many blocks they name, and the first of those.
type Moves struct {
	Events int `json:"events"`
	Blocks int `json:"blocks"`
	// First are the first blocks' event integers in hex.
	First []string `json:"first,omitempty"`
	// Mediums are the blocks of each medium other than the device's, by the name that the event gives.
	Mediums map[string]int `json:"mediums,omitempty"`
}

// shownHashes is how many hashes of a kind a line shows.
const shownHashes = 3

func (m *Moves) add(e *events.Event) {
	hashes := e.Hashes
	m.Events++
	m.Blocks += len(hashes)
	if e.Medium != "" && !strings.EqualFold(e.Medium, "GPU") {
		if m.Mediums == nil {
			m.Mediums = map[string]int{}
		}
		m.Mediums[e.Medium] += len(hashes)
	}
	for _, h := range hashes[:min(len(hashes), shownHashes-len(m.First))] {
		m.First = append(m.First, fmt.Sprintf("%016x", h))
	}
}

func (m Moves) text(word string) string {
	if m.Events == 0 {
		return ""
	}
	more := ""
	if m.Blocks > len(m.First) {
		more = ".."
	}
	return fmt.Sprintf("  %s %d in %d%s: %s%s", word, m.Blocks, m.Events, m.elsewhere(), strings.Join(m.First, " "), more)
}

// elsewhere names the mediums, so that a copy in the host does not look like a second store on the device.
// Names come from the wire: they are quoted when they hold more than printable characters.
func (m Moves) elsewhere() string {
	if len(m.Mediums) == 0 {
		return ""
	}
	parts := make([]string, 0, len(m.Mediums))
	for _, name := range slices.Sorted(maps.Keys(m.Mediums)) {
		shown := strconv.Quote(name)
		if shown == `"`+name+`"` {
			shown = name
		}
		parts = append(parts, fmt.Sprintf("%d %s", m.Mediums[name], shown))
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// Summary counts what a tail saw. Batches are counted as their lines are, by source.
type Summary struct {
	Live       uint64 `json:"live"`
	Replayed   uint64 `json:"replayed"`
	Events     uint64 `json:"events"`
	Gaps       uint64 `json:"gaps"`
	Missing    uint64 `json:"missing"` // in gaps, whatever came later
	Refilled   uint64 `json:"refilled"`
	Lost       uint64 `json:"lost"` // in no replay either
	Duplicates uint64 `json:"duplicates"`
	Restarts   uint64 `json:"restarts"`
	Unreadable uint64 `json:"unreadable"` // payloads, and messages of other frames
	Layout     string `json:"layout"`
	Hashes     string `json:"hashes"`
}

func (s Summary) text() string {
	return fmt.Sprintf("batches %d live, %d by replay; events %d; gaps %d (batches missing %d, refilled %d, lost %d); duplicates %d; restarts %d; unreadable %d; hashes %s",
		s.Live, s.Replayed, s.Events, s.Gaps, s.Missing, s.Refilled, s.Lost, s.Duplicates, s.Restarts, s.Unreadable, s.Hashes)
}

// describe is what a line shows of a decoded batch.
func describe(b *events.Batch, source, layout string, bytes int) *Batch {
	out := &Batch{Source: source, Rank: b.Rank, Layout: layout, Bytes: bytes, Malformed: b.Malformed, UnknownType: b.UnknownType}
	if b.TS > 0 && b.TS < lastSecond { // JSON has no words for what else a float can be
		out.TS = b.TS
	}
	for i := range b.Events {
		switch e := &b.Events[i]; e.Kind {
		case events.Stored:
			out.Stored.add(e)
		case events.Removed:
			out.Removed.add(e)
		case events.Cleared:
			out.Cleared++
		}
	}
	return out
}

// String is the line for people: a batch by its number, everything else behind two dashes.
func (l Line) String() string {
	if l.Kind != KindBatch && l.Rank != nil {
		return fmt.Sprintf("-- %s: rank %d: %s", l.Kind, *l.Rank, l.Text)
	}
	if l.Kind != KindBatch {
		return "-- " + string(l.Kind) + ": " + l.Text
	}
	b := l.Batch
	var s strings.Builder
	fmt.Fprintf(&s, "%6d  %-6s  %s  %-9s", *l.Seq, b.Source, stamp(b.TS), b.Layout)
	if b.Rank >= 0 {
		fmt.Fprintf(&s, "  rank %d", b.Rank)
	}
	s.WriteString(b.Stored.text("stored"))
	s.WriteString(b.Removed.text("removed"))
	for _, c := range []struct {
		word string
		n    int
	}{{"cleared", b.Cleared}, {"malformed", b.Malformed}, {"unknown", b.UnknownType}} {
		if c.n > 0 {
			fmt.Fprintf(&s, "  %s %d", c.word, c.n)
		}
	}
	return s.String()
}

// lastSecond is the end of the year 9999, the last one that is written in four digits.
const lastSecond = 253_402_300_799

// stamp is the engine's time of day in UTC, or a dash where the stamp is no time.
func stamp(ts float64) string {
	if ts == 0 {
		return "-           "
	}
	return time.UnixMilli(int64(ts * 1000)).UTC().Format("15:04:05.000")
}

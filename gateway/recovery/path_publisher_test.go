package recovery

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"

	"github.com/zeebo/xxh3"

	"fleetdrill/gateway/events"
	"fleetdrill/internal/contract"
	mock "fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/truth"
	"fleetdrill/mockworker/twist"
)

// incarnation is one life of a publisher: what it numbered, and what was announced after each number.
type incarnation struct {
	n     int
	fold  *truth.Fold
	after []announced // by sequence number
	// places are where announced blocks are, the latest if there were several.
	places map[uint64]pathPlace
	// torn says that a block was announced at two places, or that its parent was.
	torn bool
	// named counts the copies that events of main groups named, whether anybody could tell where they belong;
	// windows are the other groups.
	named   [2]map[uint64]int
	windows map[int64]bool
	batch   events.Batch
}

// announced is what stands announced after a batch.
type announced struct {
	tiers  [2]map[uint64]truth.Entry // device and host, of the main groups
	digest [2]uint64
	named  [2]map[uint64]int
	// clears says that the batch carried the engine's clear; most is the largest number of copies ever.
	clears  bool
	most    uint32
	orphans int64
}

func newIncarnation(n, size int) *incarnation {
	return &incarnation{n: n, fold: truth.NewFold(size), places: map[uint64]pathPlace{}, named: [2]map[uint64]int{{}, {}}, windows: map[int64]bool{}}
}

// nothing is what is announced before the first batch.
func nothing() announced {
	return announced{tiers: [2]map[uint64]truth.Entry{{}, {}}, named: [2]map[uint64]int{{}, {}}}
}

// upTo is what is announced after batch seq.
func (c *incarnation) upTo(seq int64) announced {
	if seq < 0 {
		return nothing()
	}
	return c.after[seq]
}

// number uses up the next sequence number, for a payload or for one that is lost for good (nil).
func (c *incarnation) number(payload []byte) error {
	seq, last := int64(len(c.after)), c.upTo(int64(len(c.after))-1)
	var unreadable error
	if payload == nil {
		c.fold.Lost(seq, seq)
	} else {
		unreadable = c.fold.Apply(seq, seq, payload)
		c.name(payload)
	}
	now := announced{tiers: [2]map[uint64]truth.Entry{{}, {}}, most: last.most, clears: payload != nil && events.HasClear(payload), orphans: c.fold.Skipped().Orphans}
	sets, _ := c.fold.Sets()
	for _, s := range sets {
		if at := tierAt(s.Tier); at >= 0 && s.Class == truth.ClassMain {
			now.tiers[at] = s.Blocks
			for _, entry := range s.Blocks {
				now.most = max(now.most, entry.Copies)
			}
		}
	}
	heads, _ := c.fold.Heads()
	for _, h := range heads {
		if at := tierAt(h.Tier); at >= 0 && h.Class == truth.ClassMain {
			now.digest[at] = h.Digest
		}
	}
	for i := range c.named {
		now.named[i] = maps.Clone(c.named[i])
	}
	c.place(seq)
	c.after = append(c.after, now)
	return unreadable
}

func tierAt(tier string) int {
	switch tier {
	case truth.TierDevice:
		return 0
	case truth.TierHost:
		return 1
	}
	return -1
}

// place notes where the blocks of a batch are, in the order of its journal.
func (c *incarnation) place(seq int64) {
	for _, line := range c.fold.Journal(seq, make([]contract.TruthJournal, 0, 1)) {
		stores := line.Stored
		for _, other := range line.Others {
			if other.Tier == truth.TierHost && other.Class == truth.ClassMain {
				stores = append(stores, other.Stored...)
			}
		}
		for _, s := range stores {
			c.placeStore(s)
		}
	}
}

func (c *incarnation) placeStore(s contract.TruthStore) {
	at := firstPlace(uint64(s.Content))
	switch {
	case s.Position < 0:
		return
	case s.Parent != nil:
		parent, ok := c.places[uint64(*s.Parent)]
		c.torn = c.torn || !ok || parent.position+1 != s.Position
		at = parent.under(uint64(s.Content))
	}
	old, ok := c.places[uint64(s.Hash)]
	c.torn = c.torn || ok && old != at
	c.places[uint64(s.Hash)] = at
}

// name counts what events name.
func (c *incarnation) name(payload []byte) {
	if c.batch.Decode(payload) != nil {
		return
	}
	for i := range c.batch.Events {
		e := &c.batch.Events[i]
		tier := tierAt(truth.TierOf(e.Medium))
		if truth.ClassOf(e.SpecKind) == truth.ClassWindow {
			c.windows[e.Group] = true
		}
		switch {
		case e.Kind == events.Cleared:
			clear(c.named[0])
			clear(c.named[1])
		case tier < 0 || e.HasGroup && c.windows[e.Group]:
		case e.Kind == events.Stored:
			for _, h := range e.Hashes {
				c.named[tier][h]++
			}
		default:
			for _, h := range e.Hashes {
				if c.named[tier][h]--; c.named[tier][h] <= 0 {
					delete(c.named[tier], h)
				}
			}
		}
	}
}

// pathSent is a batch as the replay buffer has it.
type pathSent struct {
	seq     int64
	payload []byte
	topic   []byte
}

// frames are the batch as the event socket sends it.
func (m pathSent) frames() [][]byte {
	return [][]byte{m.topic, binary.BigEndian.AppendUint64(nil, uint64(m.seq)), m.payload}
}

// applies is which batch a payload is.
type applies struct {
	by  *incarnation
	seq int64
}

// pathPublisher is the publisher's rules without its sockets: numbers, the replay buffer, and what faults do.
type pathPublisher struct {
	*pathEngine
	by    *incarnation
	count int // incarnations
	ts    float64
	// steps is the size of the replay buffer, in batches.
	steps    int
	buffer   []pathSent
	stalled  bool
	queue    [][]byte // of a stalled publisher
	overtook *pathSent
	// which says by the hash of its payload which batch one is.
	which map[uint64]applies
	// rough publishers lose and twist.
	rough bool
	say   func(format string, args ...any)
	// send hands frames to whoever listens; firm ones are not lost on the way.
	send func(m pathSent, firm bool)
	// firm is set while the next batch must arrive: it is the first sign of a restart.
	firm bool
}

// publish encodes the events of a step and queues them.
func (p *pathPublisher) publish(list []mock.Event) {
	if len(list) == 0 {
		return
	}
	p.ts++
	p.queue = append(p.queue, p.enc.AppendBatch(nil, 1e9+p.ts, list))
	for !p.stalled && len(p.queue) > 0 {
		payload := p.queue[0]
		p.queue = p.queue[1:]
		p.let(payload)
	}
}

// Fates of a batch.
const (
	fateSend = iota
	fateTwist
	fateTwice
	fateReorder
	fateHide
	fateLose
	fateMute
	fates
)

// let gives a batch its number and lets it go, one way or another.
func (p *pathPublisher) let(payload []byte) {
	fate := fateSend
	if p.rough && !p.firm {
		fate = max(0, p.pick("fate: sent, twisted, twice, overtaken, hidden, lost, mute", 0, 5*fates)-4*fates)
	}
	twisted := ""
	if fate == fateTwist {
		payload, twisted = p.twist(payload)
	}
	m := pathSent{seq: int64(len(p.by.after)), payload: payload, topic: []byte("kv")}
	switch fate {
	case fateMute:
		p.say("a batch of %d bytes is never published", len(payload))
		return
	case fateLose:
		p.say("batch %d.%d is lost for good: %s", p.by.n, m.seq, describe(payload))
		p.must(p.by.number(nil))
		return
	}
	err := p.by.number(payload)
	if fate != fateTwist {
		p.must(err)
	}
	p.say("batch %d.%d%s: %s", p.by.n, m.seq, twisted, describe(payload))
	p.which[xxh3.Hash(payload)] = applies{p.by, m.seq}
	if p.buffer = append(p.buffer, m); len(p.buffer) > p.steps {
		p.buffer = p.buffer[1:]
	}
	firm := p.firm
	switch p.firm = false; {
	case fate == fateHide:
		p.say("%d.%d is only in the replay", p.by.n, m.seq)
	case fate == fateReorder && p.overtook == nil:
		p.say("%d.%d waits to be overtaken", p.by.n, m.seq)
		p.overtook = &m
	default:
		p.send(m, firm)
		if fate == fateTwice {
			p.send(m, firm)
		}
		if p.overtook != nil {
			p.send(*p.overtook, false)
			p.overtook = nil
		}
	}
}

func (p *pathPublisher) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("the truth cannot read what the encoder wrote: %v", err))
	}
}

// twist changes a batch for good.
func (p *pathPublisher) twist(payload []byte) ([]byte, string) {
	b, err := twist.Parse(payload)
	p.must(err)
	kinds := []struct {
		name string
		do   func() bool
	}{
		{"an unknown event", b.UnknownEvent},
		{"an unknown field", b.UnknownField},
		{"an unknown element", b.UnknownElement},
		{"a store twice", b.DuplicateStore},
		{"a hash twice", b.DuplicateHash},
		{"an unknown parent", b.UnknownParent},
		{"half masked", func() bool { return b.Mask(false) }},
		{"all masked", func() bool { return b.Mask(true) }},
		{"a wrong hash", func() bool { return b.Corrupt("hash") }},
		{"no parent", func() bool { return b.Corrupt("parent") }},
		{"wrong tokens", func() bool { return b.Corrupt("tokens") }},
		{"a wrong payload", func() bool { return b.Corrupt("payload") }},
		{"no removals", func() bool { return b.DropRemovals(everyMedium) > 0 && !b.Empty() }},
	}
	at := p.pick("twist", 0, len(kinds))
	if at == len(kinds) {
		return twist.Truncate(payload), " (cut)"
	}
	if !kinds[at].do() {
		return payload, ""
	}
	return b.Bytes(), " (" + kinds[at].name + ")"
}

func everyMedium(string) bool { return true }

// restart begins a new incarnation.
func (p *pathPublisher) restart() {
	p.count++
	p.by = newIncarnation(p.count, p.cfg.BlockSize)
	p.buffer, p.queue, p.overtook, p.stalled = nil, nil, nil, false
}

// replay is what a call from seq is answered with, the end marker not included.
func (p *pathPublisher) replay(from int64) (out [][][]byte) {
	for _, m := range p.buffer {
		if m.seq >= from {
			out = append(out, p.reply(m.topic, m.frames()[1], m.payload))
		}
	}
	return out
}

func (p *pathPublisher) reply(topic, seq, payload []byte) [][]byte {
	if p.enc.ReplayHasTopic() {
		return [][]byte{{}, topic, seq, payload}
	}
	return [][]byte{{}, seq, payload}
}

func (p *pathPublisher) replayEnd() [][]byte {
	return p.reply([]byte{}, binary.BigEndian.AppendUint64(nil, math.MaxUint64), []byte{})
}

// describe tells a batch in a line, with hashes by their last four digits.
func describe(payload []byte) (out string) {
	var b events.Batch
	if err := b.Decode(payload); err != nil {
		return "unreadable"
	}
	for i := range b.Events {
		e := &b.Events[i]
		if i > 0 {
			out += "; "
		}
		out += fmt.Sprintf("%s %s%s", shortKind[e.Kind], e.Medium, shortHashes(e.Hashes))
		if e.HasParent {
			out += fmt.Sprintf(" under %04x", e.Parent&0xffff)
		}
		if e.HasGroup && e.Group > 0 || e.Window > 0 {
			out += fmt.Sprintf(" (group %d %s)", e.Group, e.SpecKind)
		}
	}
	return out
}

var shortKind = map[events.Kind]string{events.Stored: "store", events.Removed: "remove", events.Cleared: "clear"}

func shortHashes(list []uint64) (out string) {
	for _, h := range list {
		out += fmt.Sprintf(" %04x", h&0xffff)
	}
	return out
}

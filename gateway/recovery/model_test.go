package recovery

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/maptree"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
	"fleetdrill/oracle"
)

// publisher is one incarnation of an engine's publisher: what it sent, and what a subscriber that lost
// nothing holds.
type publisher struct {
	epoch    int
	payloads [][]byte
	truth    *oracle.Reference
}

func newPublisher(epoch int) *publisher {
	return &publisher{epoch: epoch, truth: oracle.NewReference(8)}
}

func (p *publisher) message(seq int) message {
	return message{seq: int64(seq), hash: xxh3.Hash(p.payloads[seq]), payload: p.payloads[seq]}
}

// publish makes a batch of one or two random events over few hashes; blocks are one token long.
func (p *publisher) publish(t *rapid.T) message {
	var list []any
	for range rapid.IntRange(1, 2).Draw(t, "events") {
		list = append(list, p.event(t))
	}
	// The time stamp makes payloads differ between incarnations and numbers, as it does on the wire.
	ts := float64(p.epoch*1_000_000 + len(p.payloads))
	p.payloads = append(p.payloads, pack([]any{ts, list, 0}))
	return p.message(len(p.payloads) - 1)
}

func (p *publisher) event(t *rapid.T) any {
	var have []uint64
	for hash := range uint64(40) {
		if p.truth.Chain(0, hash) != nil {
			have = append(have, hash)
		}
	}
	kind := rapid.IntRange(0, 9).Draw(t, "event")
	switch {
	case kind == 0:
		p.truth.Clear(0)
		return []any{"AllBlocksCleared"}
	case kind < 4 && len(have) > 0:
		hash := rapid.SampledFrom(have).Draw(t, "removed")
		p.truth.Remove(0, []uint64{hash})
		return map[string]any{"type": "BlockRemoved", "block_hashes": []uint64{hash}, "medium": "GPU"}
	}
	// A child of any block but itself, or a root. Hashes of the incarnations differ, as after a new seed.
	hash := rapid.Uint64Range(1, 12).Draw(t, "stored")
	token := rapid.Uint32Range(1, 3).Draw(t, "token")
	var parent any
	if len(have) > 0 && rapid.Bool().Draw(t, "child") {
		if under := rapid.SampledFrom(have).Draw(t, "parent"); under != hash {
			parent = under
		}
	}
	under, _ := parent.(uint64)
	p.truth.Store(0, under, parent != nil, []uint64{hash}, []uint64{tokens.ContentHash([]uint32{token})})
	return map[string]any{"type": "BlockStored", "block_hashes": []uint64{hash}, "parent_block_hash": parent,
		"token_ids": []uint32{token}, "block_size": 1, "lora_id": nil, "medium": "GPU"}
}

func pack(v any) []byte {
	var buf bytes.Buffer
	e := msgpack.NewEncoder(&buf)
	e.UseCompactInts(true)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// world is a publisher, a subscription to it, and a cursor with everything behind it.
type world struct {
	*rapid.T
	pub       *publisher
	connected bool      // the subscription stands, at the publisher's end
	inbox     []arrived // what the subscription has yet to deliver, in order
	call      *replayCall

	now       int64
	cursor    *cursor
	apply     *applier
	residency *index.Residency

	// anyRace lets an engine restart while batches of its predecessor are on their way. The replay then
	// tells of a newer incarnation than the stream does, which may show for a moment.
	anyRace bool
	// oldest is the oldest incarnation that a batch applied since the last restart was of, floor the oldest
	// before it: that one is over. (A subscription that outlived its publisher can mix two for a moment.)
	oldest, floor int
}

// arrived is an event of the subscription: up, down, or a batch.
type arrived struct {
	up, down bool
	message  message
}

// replayCall is an open call. It is answered by whoever publishes when it gets there, truthfully.
type replayCall struct {
	id, from int64
	served   bool
	frames   []message
}

func newWorld(t *rapid.T) *world {
	r := index.NewResidency(maptree.New())
	return &world{
		T: t, pub: newPublisher(1), now: second, residency: r,
		cursor: newCursor(true), apply: newApplier(Source{BlockSize: 1}, r),
	}
}

// step does one random thing.
func (w *world) step() {
	switch rapid.IntRange(0, 19).Draw(w.T, "step") {
	case 0:
		w.restart(rapid.Bool().Draw(w.T, "keeps its socket"))
	case 1:
		w.disconnect()
	case 2, 3:
		w.connect()
	case 4, 5, 6, 7, 8:
		w.publish(rapid.IntRange(0, 4).Draw(w.T, "dropped") == 0)
	case 9:
		if n := len(w.pub.payloads); w.connected && n > 0 {
			w.inbox = append(w.inbox, arrived{message: w.pub.message(rapid.IntRange(max(n-3, 0), n-1).Draw(w.T, "duplicate"))})
		}
	case 10, 11, 12, 13, 14:
		w.deliver()
	case 15, 16, 17:
		w.answer()
	case 18:
		if w.call != nil && w.cursor.ask.round < 5 { // a replay that breaks ten times is given up, rightly
			id := w.call.id
			w.call = nil
			w.cursor.replayFailed(w.now, id)
		}
	case 19:
		if w.cursor.ask.round < 5 {
			w.tick(rapid.Int64Range(second/10, 3*second).Draw(w.T, "wait"))
		}
	}
	w.settle()
}

// restart replaces the publisher. With the socket kept, subscriptions stand, and the new numbers must show
// on them: had they all been lost up to the old cursor, nobody could tell.
func (w *world) restart(keepsSocket bool) {
	if !w.anyRace {
		w.drain()
	}
	w.pub = newPublisher(w.pub.epoch + 1)
	if keepsSocket && w.connected {
		w.publish(false)
		return
	}
	w.disconnect()
	for range rapid.IntRange(0, 8).Draw(w.T, "ahead") {
		w.pub.publish(w.T)
	}
}

// drain lets everything arrive that is on its way.
func (w *world) drain() {
	for len(w.inbox) > 0 || w.call != nil {
		w.deliver()
		w.answer()
		w.settle()
	}
}

func (w *world) publish(dropped bool) {
	m := w.pub.publish(w.T)
	if w.connected && !dropped {
		w.inbox = append(w.inbox, arrived{message: m})
	}
}

func (w *world) disconnect() {
	if w.connected {
		w.connected = false
		w.inbox = append(w.inbox, arrived{down: true})
	}
}

func (w *world) connect() {
	if !w.connected {
		w.connected = true
		w.inbox = append(w.inbox, arrived{up: true})
	}
}

// deliver lets one event of the subscription arrive.
func (w *world) deliver() {
	if len(w.inbox) == 0 {
		return
	}
	a := w.inbox[0]
	w.inbox = w.inbox[1:]
	switch {
	case a.up:
		w.cursor.up(w.now)
	case a.down:
		w.cursor.down()
	default:
		w.cursor.live(w.now, a.message)
	}
}

// answer serves an open call, or lets one frame of its answer arrive.
func (w *world) answer() {
	c := w.call
	switch {
	case c == nil:
	case !c.served:
		c.served = true
		for seq := c.from; seq < int64(len(w.pub.payloads)); seq++ {
			c.frames = append(c.frames, w.pub.message(int(seq)))
		}
	case len(c.frames) > 0:
		m := c.frames[0]
		c.frames = c.frames[1:]
		w.cursor.replayed(w.now, c.id, m)
	default:
		w.call = nil
		w.cursor.replayEnd(w.now, c.id)
	}
}

func (w *world) tick(d int64) {
	w.now += d
	w.cursor.tick(w.now, true)
}

// settle carries out what the cursor asked for.
func (w *world) settle() {
	for i := 0; i < len(w.cursor.out); i++ {
		switch a := w.cursor.out[i]; a.kind {
		case doApply:
			w.cursor.applied(w.apply.apply(a.message.payload))
			w.checkEpoch(int(w.apply.batch.TS) / 1_000_000)
		case doClear:
			if a.restart {
				w.apply.restart()
				w.floor, w.oldest = max(w.floor, w.oldest), 0
			} else {
				w.apply.clear()
			}
		case doAsk:
			w.call = &replayCall{id: a.id, from: a.from}
		case doCancel:
			w.call = nil
		case doResubscribe:
			w.connected, w.inbox = false, nil
		}
	}
	w.cursor.out = w.cursor.out[:0]
}

// checkEpoch checks that no batch of an incarnation comes back once its end was recognised.
func (w *world) checkEpoch(epoch int) {
	if epoch <= w.floor && !w.anyRace {
		w.Fatalf("a batch of incarnation %d was applied after the restart that ended incarnation %d", epoch, w.floor)
	}
	if w.oldest == 0 || epoch < w.oldest {
		w.oldest = epoch
	}
}

// calm lets everything arrive, with the network up, until nothing changes any more.
func (w *world) calm() {
	for range 30 {
		w.connect()
		w.drain()
		w.tick(second)
		w.settle()
	}
}

// Whatever is lost, repeated, cut or restarted: with a replay that tells the truth, the index is what the
// engine announced, and is known to be.
func TestIndexEqualsAnnounced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.anyRace = rapid.Bool().Draw(t, "any race")
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			w.step()
		}
		w.calm()
		got := map[uint64]oracle.Block{}
		w.residency.Index().Each(0, func(m index.Membership) bool {
			got[m.Hash] = oracle.Block{Hash: m.Hash, Position: m.Position, Content: m.Content}
			return true
		})
		if diff := cmp.Diff(w.pub.truth.Blocks(0), got); diff != "" {
			t.Fatalf("announced by incarnation %d against the index (-want +got):\n%s", w.pub.epoch, diff)
		}
		if s := w.cursor; s.stream != contract.StreamLive || s.quality != contract.QualityExact || s.last != int64(len(w.pub.payloads))-1 {
			t.Fatalf("in the end: %s, %s, last %d of %d", s.stream, s.quality, s.last, len(w.pub.payloads))
		}
		closedLists(t, w.cursor.counters)
	})
}

func closedLists(t teller, k contract.RankCounters) {
	for rule := range k.Restarts {
		if !slices.Contains(contract.RestartRules, rule) {
			t.Fatalf("restart rule %q is not in the closed list", rule)
		}
	}
	for cause := range k.Resyncs {
		if !slices.Contains(contract.ResyncCauses, cause) {
			t.Fatalf("resync cause %q is not in the closed list", cause)
		}
	}
}

package publish

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/zsock"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
	"fleetdrill/mockworker/truth"
)

// arm arms what a body says and returns its id.
func (p *pair) arm(body string) string {
	p.t.Helper()
	sp, err := faults.Parse([]byte(body), faults.Worker{Ranks: 1, Events: true})
	if err != nil {
		p.t.Fatal(err)
	}
	id, err := p.pub.o.Faults.Arm(clock.MonoNs(), sp)
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

// fault is the state of the one fault, with its evidence.
func (p *pair) fault() string {
	list := p.pub.o.Faults.List(clock.MonoNs())
	v := list[len(list)-1]
	return fmt.Sprintf("%s, %d times: %s", v.State, v.Acted, strings.Join(v.Evidence, ", "))
}

// withFaults is a pair whose publisher can be broken.
func withFaults(t *testing.T) *pair {
	return start(t, func(o *Options) { o.Faults = faults.New() })
}

// chain is the events of one step: blocks from..to-1 of a prompt, stored behind block from-1.
func chain(t testing.TB, from, to int) []engine.Event {
	t.Helper()
	h, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	e := engine.Event{
		Kind: engine.Stored, BlockSize: 4, Medium: engine.MediumGPU, SpecKind: engine.KindFullAttention,
		ExtraKeys: make([]engine.ExtraKey, to-from),
	}
	last := h.NoneHash()
	for i := range to {
		ids := []uint32{uint32(2000 + i), 1, 2, 3}
		next := h.Next(last, ids, blockhash.Extra{})
		if i == from && from > 0 {
			parent := last
			e.Parent = &parent
		}
		if last = next; i >= from {
			e.Hashes, e.Tokens = append(e.Hashes, next), append(e.Tokens, ids...)
		}
	}
	return []engine.Event{e}
}

// removal is the events of a step that evicts blocks from..to-1 of the same prompt.
func removal(t testing.TB, from, to int) (events []engine.Event) {
	for _, h := range chain(t, from, to)[0].Hashes {
		events = append(events, engine.Event{Kind: engine.Removed, Hashes: []blockhash.Digest{h}, Medium: engine.MediumGPU})
	}
	return events
}

// put publishes the events of steps and waits until they are out.
func (p *pair) put(steps ...[]engine.Event) {
	p.t.Helper()
	for _, events := range steps {
		if err := p.pub.Publish(p.ctx, events); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := p.pub.Flush(p.ctx); err != nil {
		p.t.Fatal(err)
	}
}

// live is the next n messages: their numbers from base on, with the topic and the payload if they are odd.
func (p *pair) live(n int) string {
	p.t.Helper()
	var out []string
	for range n {
		m := p.next()
		word := "no number"
		if len(m[1]) == 8 {
			word = fmt.Sprint(binary.BigEndian.Uint64(m[1]) - p.base)
		}
		if string(m[0]) != "kv@w1@mock" {
			word += " under " + string(m[0])
		}
		var v any
		if msgpack.Unmarshal(m[2], &v) != nil {
			word += " unreadable"
		}
		out = append(out, word)
	}
	return strings.Join(out, ", ")
}

// foldReplay folds everything there is to get by replay, which must come to what the truth says.
func (p *pair) foldReplay() *truth.Fold {
	p.t.Helper()
	fold := truth.NewFold(4)
	for _, m := range p.replay(p.dealer(), 0) {
		if len(m[2]) > 0 {
			_ = fold.Apply(int64(binary.BigEndian.Uint64(m[1])), 0, m[2])
		}
	}
	got, want := p.fold.Head(), fold.Head()
	if got.Epoch = want.Epoch; got != want {
		p.t.Errorf("truth %+v, folded from the replay %+v", got, want)
	}
	return fold
}

// Each kind of surprise, of a chain of four blocks in two batches and a third batch behind it: what a
// subscriber hears, how many of the five blocks everybody must know in the end, and what the fold skipped.
func TestSurprises(t *testing.T) {
	for _, c := range []struct {
		body     string
		live     string // of one who subscribes to kv@
		blocks   int
		skips    truth.Skips
		evidence string // seq N is the number after so many
	}{
		{`{"kind":"duplicate"}`, "0, 0, 1, 2", 5, truth.Skips{}, "done, 1 times: seq 0"},
		{`{"kind":"duplicate","count":2}`, "0, 0, 1, 1, 2", 5, truth.Skips{}, "done, 2 times: seq 0..1"},
		{`{"kind":"duplicate","of":"store"}`, "0, 1, 2", 5, truth.Skips{}, "done, 1 times: seq 0"},
		{`{"kind":"duplicate","of":"hash"}`, "0, 1, 2", 5, truth.Skips{}, "done, 1 times: seq 0"},
		{`{"kind":"reorder"}`, "1, 0, 2", 5, truth.Skips{}, "done, 1 times: seq 1"},
		{`{"kind":"corrupt"}`, "0 unreadable, 1, 2", 1, truth.Skips{Undecodable: 1, Orphans: 1}, "done, 1 times: seq 0"},
		{`{"kind":"corrupt","field":"seq"}`, "no number, 1, 2", 5, truth.Skips{}, "done, 1 times: seq 0"},
		{`{"kind":"corrupt","field":"topic"}`, "1, 2", 5, truth.Skips{}, "done, 1 times: seq 0"},
		// The second of two blocks is the parent of the next batch, so a wrong first one costs nobody else.
		{`{"kind":"corrupt","field":"hash"}`, "0, 1, 2", 5, truth.Skips{}, "done, 1 times: seq 0"},
		{`{"kind":"corrupt","field":"parent"}`, "0, 1, 2", 5, truth.Skips{}, "done, 1 times: seq 1"},
		{`{"kind":"corrupt","field":"tokens"}`, "0, 1, 2", 5, truth.Skips{}, "done, 1 times: seq 0"},
		{`{"kind":"truncate"}`, "0 unreadable, 1, 2", 1, truth.Skips{Undecodable: 1, Orphans: 1}, "done, 1 times: seq 0"},
		{`{"kind":"unknown_event","count":3}`, "0, 1, 2", 5, truth.Skips{Other: 3}, "done, 3 times: seq 0..2"},
		{`{"kind":"unknown_field","count":3}`, "0, 1, 2", 5, truth.Skips{}, "done, 3 times: seq 0..2"},
		{`{"kind":"unknown_field","count":3,"in":"batch"}`, "0, 1, 2", 5, truth.Skips{}, "done, 3 times: seq 0..2"},
		{`{"kind":"unknown_parent"}`, "0, 1, 2", 1, truth.Skips{Orphans: 2}, "done, 1 times: seq 0"},
		{`{"kind":"masked_store"}`, "0, 1, 2", 1, truth.Skips{Other: 1, Orphans: 1}, "done, 1 times: seq 0"},
		{`{"kind":"masked_store","mask":"all"}`, "0, 1, 2", 1, truth.Skips{Other: 1, Orphans: 1}, "done, 1 times: seq 0"},
	} {
		t.Run(c.body, func(t *testing.T) {
			p := withFaults(t)
			before, skips := p.fold.Head().Blocks, p.fold.Skipped()
			p.arm(c.body)
			p.put(chain(t, 0, 2), chain(t, 2, 4), store(t, 7))
			if got := p.live(strings.Count(c.live, ",") + 1); got != c.live {
				t.Errorf("a subscriber hears %s, want %s", got, c.live)
			}
			if got := p.fold.Head().Blocks - before; got != c.blocks {
				t.Errorf("%d blocks announced, want %d", got, c.blocks)
			}
			got := p.fold.Skipped()
			got.Undecodable -= skips.Undecodable
			if got != c.skips {
				t.Errorf("skipped %+v, want %+v", got, c.skips)
			}
			want := c.evidence
			for i := range 3 { // the numbers of this stream
				want = strings.ReplaceAll(want, fmt.Sprintf("seq %d", i), fmt.Sprintf("seq <%d>", i))
				want = strings.ReplaceAll(want, fmt.Sprintf("..%d", i), fmt.Sprintf("..<%d>", i))
			}
			for i := range 3 {
				want = strings.ReplaceAll(want, fmt.Sprintf("<%d>", i), fmt.Sprint(p.base+uint64(i)))
			}
			if got := p.fault(); got != want {
				t.Errorf("evidence: %s, want %s", got, want)
			}
			p.foldReplay()
		})
	}
}

// One who subscribes to everything gets the batch of the wrong topic, under that topic; the replay has it
// right.
func TestWrongTopicIsStillSent(t *testing.T) {
	p := withFaults(t)
	events, _ := p.pub.Endpoints()
	all, err := zsock.DialSub(events, zsock.SubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	narrow := p.sub
	p.sub = all
	p.arrive()
	p.arm(`{"kind":"corrupt","field":"topic"}`)
	p.put(chain(t, 0, 1), chain(t, 1, 2))
	if got := p.live(2); got != "0 under corrupt, 1" {
		t.Errorf("heard %s", got)
	}
	for p.sub = narrow; p.live(1) != "1"; { // the batches that arrive spent come first
	}
}

// A batch that nothing overtakes waits until it is healed. It is in the truth and in the replay meanwhile: to
// a subscriber, a gap that it can fill.
func TestReorderWaitsForASecondBatch(t *testing.T) {
	p := withFaults(t)
	id := p.arm(`{"kind":"reorder","count":2}`)
	p.put(chain(t, 0, 1))
	if got := p.fault(); got != "armed, 0 times: " {
		t.Errorf("with one batch held: %s", got)
	}
	if got := p.replay(p.dealer(), p.base); len(got) != 2 {
		t.Errorf("%d replies while it is held", len(got))
	}
	p.pub.o.Faults.Heal(clock.MonoNs(), id)
	p.pub.Wake()
	if got := p.live(1); got != "0" {
		t.Errorf("healed: %s", got)
	}
	p.arm(`{"kind":"reorder","count":2}`)
	p.put(chain(t, 1, 2), chain(t, 2, 3), chain(t, 3, 4), chain(t, 4, 5), chain(t, 5, 6))
	if got := p.live(5); got != "2, 1, 4, 3, 5" {
		t.Errorf("heard %s", got)
	}
	p.foldReplay()
}

// Surprises add up, and those that need a readable batch come before those that break it.
func TestSurprisesAddUp(t *testing.T) {
	p := withFaults(t)
	for _, body := range []string{`{"kind":"truncate"}`, `{"kind":"unknown_event"}`, `{"kind":"duplicate"}`, `{"kind":"masked_store"}`} {
		p.arm(body)
	}
	p.put(chain(t, 0, 2))
	if got := p.live(2); got != "0 unreadable, 0 unreadable" {
		t.Errorf("heard %s", got)
	}
	for _, v := range p.pub.o.Faults.List(clock.MonoNs()) {
		if v.State != contract.FaultDone || v.Acted != 1 {
			t.Errorf("%+v", v)
		}
	}
	p.foldReplay()
}

// A surprise that finds nothing to do in a batch waits for one where it does.
func TestSurpriseWaitsForItsBatch(t *testing.T) {
	p := withFaults(t)
	p.arm(`{"kind":"unknown_parent"}`)
	p.put(chain(t, 0, 2), []engine.Event{{Kind: engine.Cleared}})
	p.arm(`{"kind":"corrupt","field":"hash"}`)
	p.put([]engine.Event{{Kind: engine.Cleared}})
	if got := p.fault(); got != "armed, 0 times: " {
		t.Errorf("after a batch without blocks: %s", got)
	}
}

// Muted removals leave every other event in its place; a batch of nothing else is no batch.
func TestMuteRemovals(t *testing.T) {
	p := withFaults(t)
	p.put(chain(t, 0, 4))
	id := p.arm(`{"kind":"mute_removals"}`)
	p.put(append(removal(t, 3, 4), store(t, 7)...), removal(t, 2, 3), chain(t, 4, 5))
	if got := p.live(3); got != "0, 1, 2" {
		t.Errorf("heard %s", got)
	}
	if got, want := p.fault(), fmt.Sprintf("acting, 2 times: removals of seq %d..%d", p.base+1, p.base+2); got != want {
		t.Errorf("evidence: %s, want %s", got, want)
	}
	if set, _ := p.fold.Announced(); len(set) < 6 {
		t.Errorf("%d blocks announced", len(set))
	}
	p.pub.o.Faults.Heal(clock.MonoNs(), id)
	before := p.fold.Head().Blocks
	p.put(removal(t, 4, 5))
	if got := p.fold.Head().Blocks; got != before-1 {
		t.Errorf("healed: %d blocks announced, then %d", before, got)
	}
	p.foldReplay()
}

// A removed block is announced once more, as it was stored, behind its removal; nothing ever removes it. It
// waits for a batch that removes something of which the replay buffer has the store.
func TestStaleStore(t *testing.T) {
	p := withFaults(t)
	p.put(chain(t, 0, 4))
	p.arm(`{"kind":"stale_store","count":2}`)
	p.put(store(t, 7), removal(t, 2, 4), removal(t, 0, 1), removal(t, 2, 3), chain(t, 2, 3))
	if got := p.live(6); got != "0, 1, 2, 3, 4, 5" {
		t.Errorf("heard %s", got)
	}
	if got, want := p.fault(), fmt.Sprintf("done, 2 times: seq %d..%d", p.base+2, p.base+3); got != want {
		t.Errorf("evidence: %s, want %s", got, want)
	}
	journal := p.fold.Journal(int64(p.base)+2, make([]contract.TruthJournal, 0, 2))
	// Of 2 and 3 the former has its parent still; 0 is a first block. 2 comes back by the engine's own store.
	for i, want := range []struct{ removed, stored, position int }{{2, 1, 2}, {1, 1, 0}} {
		j := journal[i]
		if len(j.Removed) != want.removed || len(j.Stored) != want.stored || j.Stored[0].Position != want.position || j.Stored[0].Hash != j.Removed[0] {
			t.Errorf("batch %d removed %v and stored %+v", i+2, j.Removed, j.Stored)
		}
	}
	p.foldReplay()
}

// Muted stores are known to nobody, and what is behind them hangs on nothing.
func TestMuteStores(t *testing.T) {
	p := withFaults(t)
	p.put(chain(t, 0, 2))
	before := p.fold.Head().Blocks
	id := p.arm(`{"kind":"mute_stores","tier":"device"}`)
	p.put(chain(t, 2, 4), append(chain(t, 4, 6), removal(t, 1, 2)...))
	p.pub.o.Faults.Heal(clock.MonoNs(), id)
	p.put(chain(t, 6, 7))
	if got := p.live(3); got != "0, 1, 2" {
		t.Errorf("heard %s", got)
	}
	if got, want := p.fault(), fmt.Sprintf("healed, 4 times: stores of seq %d", p.base+1); got != want {
		t.Errorf("evidence: %s, want %s", got, want)
	}
	if got := p.fold.Head().Blocks; got != before-1 || p.fold.Skipped().Orphans != 1 {
		t.Errorf("%d blocks announced of %d, skipped %+v", got, before, p.fold.Skipped())
	}
	p.arm(`{"kind":"mute_stores","tier":"host"}`)
	p.put(store(t, 8))
	if got := p.fault(); got != "armed, 0 times: " {
		t.Errorf("a store of the device: %s", got)
	}
	p.foldReplay()
}

// Late removals come with the step that they are due in, alone when no step comes, and at once when healed.
func TestLateRemovals(t *testing.T) {
	p := withFaults(t)
	p.put(chain(t, 0, 4))
	id := p.arm(`{"kind":"late_removals","steps":2}`)
	p.put(append(removal(t, 3, 4), store(t, 7)...), removal(t, 2, 3), store(t, 8))
	if got := p.live(3); got != "0, 1, 2" {
		t.Errorf("heard %s", got)
	}
	if got, want := p.fault(), fmt.Sprintf("acting, 2 times: removals of seq %d..%d", p.base+1, p.base+2); got != want {
		t.Errorf("evidence: %s, want %s", got, want)
	}
	journal := p.fold.Journal(int64(p.base)+1, make([]contract.TruthJournal, 0, 2))
	if len(journal[0].Removed) != 0 || len(journal[1].Removed) != 1 || len(journal[1].Stored) != 1 {
		t.Errorf("journal %+v", journal)
	}
	p.pub.o.Faults.Heal(clock.MonoNs(), id)
	p.pub.Wake()
	if got := p.live(1); got != "3" {
		t.Errorf("healed: %s", got)
	}
	p.arm(`{"kind":"late_removals","by":"1h","for":"100ms"}`)
	p.put(removal(t, 1, 2))
	if got := p.live(1); got != "4" { // when its time is over nobody else wakes the publisher
		t.Errorf("over: %s", got)
	}
	p.foldReplay()
}

// A late removal dies with its incarnation, as what is queued does.
func TestRestartForgetsLateRemovals(t *testing.T) {
	p := withFaults(t)
	id := p.arm(`{"kind":"late_removals","by":"1h"}`)
	p.put(chain(t, 0, 2), removal(t, 0, 2))
	if _, err := p.pub.Restart(p.ctx, Restart{}); err != nil {
		t.Fatal(err)
	}
	p.pub.o.Faults.Heal(clock.MonoNs(), id)
	p.put(store(t, 1))
	if h := p.fold.Head(); h.Seq != 0 || h.Blocks != 1 || p.fold.Skipped().Unknown != 0 {
		t.Errorf("head %+v, skipped %+v", h, p.fold.Skipped())
	}
}

// Who sees that batches have changed places finds the fault to have acted.
func TestReorderIsBehindItsEvidence(t *testing.T) {
	p := withFaults(t)
	p.arm(`{"kind":"reorder"}`)
	p.pub.followers.mu.Lock() // the publisher comes no further than the first message
	p.publish(2)
	if n := binary.BigEndian.Uint64(p.next()[1]); n != p.base+1 {
		t.Errorf("the first batch is %d, want %d", n, p.base+1)
	}
	if got, want := p.fault(), fmt.Sprintf("done, 1 times: seq %d", p.base+1); got != want {
		t.Errorf("evidence: %s, want %s", got, want)
	}
	p.pub.followers.mu.Unlock()
	if n := binary.BigEndian.Uint64(p.next()[1]); n != p.base {
		t.Errorf("the second batch is %d, want %d", n, p.base)
	}
}

// The replay socket that misbehaves: what a client gets, to the end marker or as far as anything comes.
func TestReplayMisbehaves(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"kind":"replay_hang"}`, ""},
		{`{"kind":"replay_empty"}`, "end"},
		{`{"kind":"replay_truncate","after":2}`, "0 1"},
		{`{"kind":"replay_truncate","after":0}`, ""},
		{`{"kind":"replay_truncate","after":2,"end":"keep"}`, "0 1 end"},
		{`{"kind":"replay_truncate","after":9,"end":"keep"}`, "0 1 2 end"},
	} {
		t.Run(c.body, func(t *testing.T) {
			p := withFaults(t)
			p.put(store(t, 1), store(t, 2), store(t, 3))
			id := p.arm(c.body)
			d := p.dealer()
			if err := d.Send(nil, seqFrame(p.base)); err != nil {
				t.Fatal(err)
			}
			for p.fault() == "armed, 0 times: " {
				time.Sleep(time.Millisecond)
			}
			if got, want := p.fault(), fmt.Sprintf("acting, 1 times: request from seq %d", p.base); got != want {
				t.Errorf("evidence: %s, want %s", got, want)
			}
			p.pub.o.Faults.Heal(clock.MonoNs(), id)
			// A healthy answer behind it shows where the first one ended.
			if err := d.Send(nil, seqFrame(1<<64-1)); err != nil {
				t.Fatal(err)
			}
			want := strings.TrimSpace(c.want + " end")
			got := strings.Join(p.answers(d), " ")
			if strings.HasSuffix(c.want, "end") {
				got += " " + strings.Join(p.answers(d), " ")
			}
			if got != want {
				t.Errorf("a client gets %q, want %q", got, want)
			}
		})
	}
}

// answers reads replies to the next end marker.
func (p *pair) answers(d *zsock.Dealer) (got []string) {
	p.t.Helper()
	for {
		frames, err := d.Recv(p.ctx)
		if err != nil {
			p.t.Fatal(err)
		}
		if seq := frames[len(frames)-2]; !bytes.Equal(seq, endSeq) {
			got = append(got, fmt.Sprint(binary.BigEndian.Uint64(seq)-p.base))
			continue
		}
		return append(got, "end")
	}
}

// Whatever is done to its batches, the truth stays what a reader makes of the bytes that were sent: live as far
// as they came, and by replay.
func TestTruthSurvivesSurprises(t *testing.T) {
	p := withFaults(t)
	rng := rand.New(rand.NewPCG(1, 2))
	bodies := []string{
		`{"kind":"duplicate","count":2}`, `{"kind":"duplicate","of":"store"}`, `{"kind":"duplicate","of":"hash"}`, `{"kind":"reorder","count":2}`,
		`{"kind":"corrupt"}`, `{"kind":"corrupt","field":"hash"}`, `{"kind":"corrupt","field":"parent"}`, `{"kind":"corrupt","field":"tokens"}`,
		`{"kind":"truncate"}`, `{"kind":"unknown_event","count":3}`, `{"kind":"unknown_field","count":3}`, `{"kind":"unknown_field","in":"batch"}`,
		`{"kind":"stale_store"}`, `{"kind":"mute_stores","for":"5ms"}`, `{"kind":"unknown_parent"}`, `{"kind":"masked_store"}`, `{"kind":"masked_store","mask":"all"}`, `{"kind":"mute_removals","for":"5ms"}`,
		`{"kind":"late_removals","steps":3,"for":"9ms"}`, `{"kind":"drop_batches","count":2}`, `{"kind":"drop_batches","count":1,"replay":"lose"}`,
	}
	const steps = 500
	for range steps {
		for range rng.IntN(3) {
			sp, err := faults.Parse([]byte(bodies[rng.IntN(len(bodies))]), faults.Worker{Ranks: 1, Events: true})
			if err != nil {
				t.Fatal(err)
			}
			_, _ = p.pub.o.Faults.Arm(clock.MonoNs(), sp) // refused while one of its kind is live
		}
		first := rng.IntN(6)
		events := chain(t, first, first+1+rng.IntN(4))
		switch rng.IntN(5) {
		case 0:
			events = removal(t, first, first+2)
		case 1:
			events = append(removal(t, first, first+1), events...)
		case 2:
			if rng.IntN(8) == 0 {
				events = []engine.Event{{Kind: engine.Cleared}}
			}
		}
		p.put(events)
	}
	for _, v := range p.pub.o.Faults.List(clock.MonoNs()) {
		p.pub.o.Faults.Heal(clock.MonoNs(), v.ID)
	}
	p.put(store(t, 7), store(t, 8))
	p.foldReplay()
	replayed := map[uint64][]byte{}
	for _, m := range p.replay(p.dealer(), p.base) {
		replayed[binary.BigEndian.Uint64(m[1])] = m[2]
	}
	for last := uint64(p.pub.Stats().NextSeq) - 1; ; {
		m := p.next()
		n := binary.BigEndian.Uint64(m[1])
		if !bytes.Equal(m[2], replayed[n]) {
			t.Fatalf("batch %d is one live and another in the replay", n)
		}
		if n == last {
			return
		}
	}
}

package drills

import (
	"errors"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"fleetdrill/drills/scenario"
	"fleetdrill/internal/contract"
)

// store and removal are events as an engine with arrays sends them.
func store(parent any, hashes ...int) []any {
	list, ids := []any{}, []any{}
	for _, h := range hashes {
		list, ids = append(list, h), append(ids, 7, 8)
	}
	return []any{wireStored, list, parent, ids, 2, nil, "GPU"}
}

func removal(hashes ...any) []any { return []any{wireRemoved, hashes, "GPU"} }

// sent is a batch as the tap makes it of a message.
func sent(t *testing.T, seq int64, root ...any) batch {
	t.Helper()
	payload, err := msgpack.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	frames := [][]byte{[]byte("kv"), {0, 0, 0, 0, 0, 0, 0, byte(seq)}, payload}
	return newBatch(frames, seq-1, seq)
}

func events(es ...any) []any { return es }

func TestStruck(t *testing.T) {
	plain := func(seq int64) batch { return sent(t, seq, 1.5, events(store(nil, int(seq)*10, int(seq)*10+1)), 0) }
	cut, garbled, wrongTopic, wrongSeq := plain(2), plain(2), plain(2), plain(2)
	cut.wire, cut.err = readBatch([]byte{0x93, 0xcb, 0})
	garbled.wire, garbled.err = readBatch([]byte{0x92, 0x01, 0xc1})
	wrongTopic.topic = "corrupt"
	wrongSeq.badSeq = true
	holds := holding{seq: 9, blocks: map[uint64]int{10: 0, 11: 1, 20: 4, 21: 5, 30: 0, 31: 1}}
	word := func(name, w string) scenario.Params { return scenario.Params{{Name: name, Value: w}} }
	for _, c := range []struct {
		name, kind string
		params     scenario.Params
		second     batch
		hits       bool
	}{
		{"nothing", contract.FaultTruncate, nil, plain(2), false},
		{"cut", contract.FaultTruncate, nil, cut, true},
		{"garbled is not cut", contract.FaultTruncate, nil, garbled, false},
		{"garbled", contract.FaultCorrupt, word("field", "payload"), garbled, true},
		{"cut is not garbled", contract.FaultCorrupt, word("field", "payload"), cut, false},
		{"topic", contract.FaultCorrupt, word("field", "topic"), wrongTopic, true},
		{"number", contract.FaultCorrupt, word("field", "seq"), wrongSeq, true},
		{"token 0", contract.FaultCorrupt, word("field", "tokens"), sent(t, 2, 1.5, events([]any{wireStored, []any{20}, nil, []any{0, 8}, 2}), 0), true},
		{"other tokens", contract.FaultCorrupt, word("field", "tokens"), plain(2), false},
		{"a hash that the engine has", contract.FaultCorrupt, word("field", "hash"), plain(2), false},
		{"a hash that it has not", contract.FaultCorrupt, word("field", "hash"), sent(t, 2, 1.5, events(store(nil, 99, 21)), 0), true},
		{"a parent is missing", contract.FaultCorrupt, word("field", "parent"), plain(2), true}, // the engine has 20 in the middle
		{"a first block has none", contract.FaultCorrupt, word("field", "parent"), sent(t, 2, 1.5, events(store(nil, 30, 31)), 0), false},
		{"unknown event", contract.FaultUnknownEvent, nil, sent(t, 2, 1.5, events([]any{"BlockInactive", []any{1}}), 0), true},
		{"known events", contract.FaultUnknownEvent, nil, sent(t, 2, 1.5, events(removal(10), []any{wireCleared}), 0), false},
		{"a field too many", contract.FaultUnknownField, word("in", "event"), sent(t, 2, 1.5, events(append(store(nil, 20), make([]any, 9)...)), 0), true},
		{"as many as there may be", contract.FaultUnknownField, word("in", "event"), sent(t, 2, 1.5, events(append(store(nil, 20), make([]any, 8)...)), 0), false},
		{"a key too many", contract.FaultUnknownField, word("in", "event"), sent(t, 2, 1.5, events(map[string]any{"type": wireRemoved, "remaining_copy_counts": 1}), 0), true},
		{"known keys", contract.FaultUnknownField, word("in", "event"), sent(t, 2, 1.5, events(map[string]any{"type": wireRemoved, "medium": "GPU"}), 0), false},
		{"of the batch", contract.FaultUnknownField, word("in", "batch"), sent(t, 2, 1.5, events(store(nil, 20)), 0, []byte{1}), true},
		{"not of the batch", contract.FaultUnknownField, word("in", "batch"), plain(2), false},
		{"masked", contract.FaultMaskedStore, word("mask", "part"), sent(t, 2, 1.5, events([]any{wireStored, []any{20}, nil, []any{7, 7, 7, 7}, 2}), 0), true},
		{"half is not all", contract.FaultMaskedStore, word("mask", "all"), sent(t, 2, 1.5, events([]any{wireStored, []any{20}, nil, []any{7, 7, 7, 7}, 2}), 0), false},
		{"all", contract.FaultMaskedStore, word("mask", "all"), sent(t, 2, 1.5, events([]any{wireStored, []any{}, nil, []any{7, 7}, 2}), 0), true},
		{"stored behind its removal", contract.FaultStaleStore, nil, sent(t, 2, 1.5, events(removal(20), store(nil, 20)), 0), true},
		{"removed behind its store", contract.FaultStaleStore, nil, sent(t, 2, 1.5, events(store(nil, 20), removal(20)), 0), false},
		{"not masked", contract.FaultMaskedStore, word("mask", "part"), plain(2), false},
		{"unknown parent", contract.FaultUnknownParent, nil, sent(t, 2, 1.5, events(store(77, 20)), 0), true},
		{"a parent that was announced", contract.FaultUnknownParent, nil, sent(t, 2, 1.5, events(store(11, 20)), 0), false},
		{"a parent that the engine has", contract.FaultUnknownParent, nil, sent(t, 2, 1.5, events(store(31, 20)), 0), false},
		{"the batch again", contract.FaultDuplicate, word("of", "batch"), plain(1), true},
		{"another batch", contract.FaultDuplicate, word("of", "batch"), plain(2), false},
		{"a store again", contract.FaultDuplicate, word("of", "store"), sent(t, 2, 1.5, events(store(nil, 20), store(nil, 20)), 0), true},
		{"two stores", contract.FaultDuplicate, word("of", "store"), sent(t, 2, 1.5, events(store(nil, 20), store(nil, 21)), 0), false},
		{"a hash again", contract.FaultDuplicate, word("of", "hash"), sent(t, 2, 1.5, events(store(nil, 20, 20)), 0), true},
		{"different hashes", contract.FaultDuplicate, word("of", "hash"), plain(2), false},
	} {
		s := sight{batches: []batch{plain(1), c.second, plain(3)}, usual: "kv", has: holds}
		hits, clean, over := s.struck(c.kind, c.params, 0)
		if (len(hits) > 0) != c.hits || over != c.hits || c.hits && clean.seq != 3 {
			t.Errorf("%s: %d hits, clean behind them %v (batch %d)", c.name, len(hits), over, clean.seq)
		}
	}
}

// Of a pair out of order the first has overtaken and the second is not clean.
func TestReordered(t *testing.T) {
	s := sight{batches: batches(4, 6, 5, 7)}
	hits, clean, over := s.struck(contract.FaultReorder, nil, 0)
	if !slices.Equal(seqsOf(hits), []int64{6}) || !over || clean.seq != 7 {
		t.Errorf("hits %v, clean %d (%v)", seqsOf(hits), clean.seq, over)
	}
	if _, _, over := (sight{batches: batches(4, 6, 5)}).struck(contract.FaultReorder, nil, 0); over {
		t.Error("the overtaken batch counts as clean")
	}
	if hits, _, _ := (sight{batches: batches(4, 5, 6, 0, 1)}).struck(contract.FaultReorder, nil, 0); len(hits) > 0 {
		t.Error("a restart counts as out of order")
	}
}

// What a subscriber holds at a number, beside what the engine has.
func TestGhosts(t *testing.T) {
	seen := []batch{
		sent(t, 1, 1.5, events(store(nil, 1, 2, 3)), 0),
		sent(t, 2, 1.5, events(removal(3)), 0),
		sent(t, 3, 1.5, events(store(nil, 1)), 0), // a second copy
		sent(t, 4, 1.5, events(removal(1)), 0),
		sent(t, 5, 1.5, events(store(nil, 9)), 0),
	}
	for _, c := range []struct {
		upTo int64
		has  []uint64
		want []uint64
	}{
		{1, []uint64{1, 2, 3}, nil},
		{1, []uint64{1}, []uint64{2, 3}},
		{4, []uint64{1, 2}, nil}, // one copy is left
		{4, nil, []uint64{1, 2}},
		{5, []uint64{1, 2}, []uint64{9}},
	} {
		h := holding{seq: c.upTo, blocks: map[uint64]int{}}
		for _, b := range c.has {
			h.blocks[b] = 0
		}
		var got []uint64
		for g := range ghosts(seen, h) {
			got = append(got, g)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("up to %d beside %v: %v, want %v", c.upTo, c.has, got, c.want)
		}
	}
	if u := unheard(seen[:1], holding{seq: 1, blocks: map[uint64]int{1: 0, 2: 1, 8: 0}}); len(u) != 1 || !u[8] {
		t.Errorf("unheard of: %v", u)
	}
	seen = append(seen, sent(t, 6, 1.5, events([]any{wireCleared}), 0))
	if g := ghosts(seen, holding{seq: 6}); len(g) > 0 {
		t.Errorf("after a clear: %v", g)
	}
}

func TestEvidenceSeqs(t *testing.T) {
	got := evidenceSeqs([]string{"seq 4", "seq 7..9", "removals of seq 11", "request cmpl-1", "seq x"})
	if !slices.Equal(got, []int64{4, 7, 8, 9}) {
		t.Errorf("%v", got)
	}
	for _, c := range []struct {
		own, its []int64
		same     bool
	}{
		{[]int64{4, 5}, []int64{4, 5}, true},
		{[]int64{4, 5}, []int64{4}, false},
		{[]int64{4}, []int64{5}, false},
		{nil, nil, false},
	} {
		if sameSeqs(c.own, c.its) != c.same {
			t.Errorf("%v beside %v: %v", c.own, c.its, !c.same)
		}
	}
}

func TestReplayAnswersOfFaults(t *testing.T) {
	after := func(n int64, end string) scenario.Params {
		return scenario.Params{{Name: "after", Value: n}, {Name: "end", Value: end}}
	}
	for _, c := range []struct {
		kind   string
		params scenario.Params
		answer replayAnswer
		right  bool
	}{
		{contract.FaultReplayHang, nil, replayAnswer{0, false}, true},
		{contract.FaultReplayHang, nil, replayAnswer{0, true}, false},
		{contract.FaultReplayEmpty, nil, replayAnswer{0, true}, true},
		{contract.FaultReplayEmpty, nil, replayAnswer{5, true}, false},
		{contract.FaultReplayTruncate, after(3, "lose"), replayAnswer{3, false}, true},
		{contract.FaultReplayTruncate, after(3, "lose"), replayAnswer{3, true}, false},
		{contract.FaultReplayTruncate, after(3, "keep"), replayAnswer{3, true}, true},
		{contract.FaultReplayTruncate, after(3, "keep"), replayAnswer{90, true}, false},
	} {
		if wrong := c.answer.wrong(c.kind, c.params); (wrong == "") != c.right {
			t.Errorf("%s, %v: %q", c.kind, c.answer, wrong)
		}
	}
}

func TestHowAConnectionEnds(t *testing.T) {
	for _, c := range []struct {
		err    error
		silent bool
		stream string
		port   string
	}{
		{syscall.ECONNRESET, false, "rst", "reset"},
		{io.ErrUnexpectedEOF, false, "fin", io.ErrUnexpectedEOF.Error()},
		{io.EOF, false, "clean_end", "EOF"},
		{syscall.ECONNREFUSED, false, syscall.ECONNREFUSED.Error(), "closed"},
		{errors.New("cancelled"), true, "silence", "blackhole"},
	} {
		if got := endOf(c.err, c.silent); got != c.stream {
			t.Errorf("a stream, %v: %s, want %s", c.err, got, c.stream)
		}
		if got := refusal(c.err, c.silent); got != c.port {
			t.Errorf("a port, %v: %s, want %s", c.err, got, c.port)
		}
	}
}

func TestStaleGauge(t *testing.T) {
	at := func(n float64) gauge { return gauge{n, true} }
	for _, c := range []struct {
		name          string
		g             gauge
		mode          string
		before, after float64
		stale         bool
	}{
		{"frozen at 1 of 9", at(1), "freeze", 9, 9, true},
		{"it follows", at(9), "freeze", 9, 9, false},
		{"too near to tell", at(1), "freeze", 3, 3, false},
		{"it may have been so in between", at(1), "freeze", 1, 9, false},
		{"zero", at(0), "zero", 8, 9, true},
		{"not zero", at(8), "zero", 8, 9, false},
		{"nothing to tell", at(0), "zero", 0, 0, false},
		{"absent", gauge{}, "absent", 8, 8, true},
		{"told", at(8), "absent", 8, 8, false},
		{"frozen is not absent", gauge{}, "freeze", 8, 8, false},
	} {
		if got := c.g.stale(c.mode, 1, c.before, c.after); got != c.stale {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	text := "# HELP vllm:num_requests_running x\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\nvllm:num_requests_running{engine=\"1\"} 2.0\nother{} 9\n"
	if g := readGauge(text); g != at(5) {
		t.Errorf("read %v", g)
	}
	if g := readGauge("other{} 9\n"); g.known {
		t.Errorf("read %v out of nothing", g)
	}
}

func TestPace(t *testing.T) {
	ms := func(n ...float64) (out []time.Duration) {
		for _, x := range n {
			out = append(out, time.Duration(x*1e6))
		}
		return out
	}
	usual := paceOf(ms(5, 5, 5, 5))
	for _, c := range []struct {
		name           string
		now            []time.Duration
		factor, jitter float64
		slowed         bool
	}{
		{"three times as long", ms(15, 15, 15, 15), 3, 0, true},
		{"as before", ms(5, 5, 5, 5), 3, 0, false},
		{"a little slower is no proof", ms(7, 7, 7, 7), 3, 0, false},
		{"faster", ms(2.5, 2.5, 2.5, 2.5), 0.5, 0, true},
		{"as before, not faster", ms(5, 5, 5, 5), 0.5, 0, false},
		{"uneven", ms(2, 3, 7, 8), 1, 0.8, true},
		{"as even as before", ms(5, 5, 5, 5), 1, 0.8, false},
	} {
		if got := slowed(usual, paceOf(c.now), c.factor, c.jitter); got != c.slowed {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if !leaked(100, 160, 100) || leaked(100, 140, 100) || leaked(100, 90, 0) {
		t.Error("growth by half of what was left behind is the measure")
	}
}

// TestEveryFaultCanBeInjected: whatever the language takes has a row in the lab's table, and the other way
// round.
func TestEveryFaultCanBeInjected(t *testing.T) {
	var rows []string
	for _, k := range faultKinds {
		rows = append(rows, k.name)
		if k.proof == "" || k.make(scene{}) == nil {
			t.Errorf("%s has no proof", k.name)
		}
	}
	if want := scenario.Kinds(); !slices.Equal(slices.Sorted(slices.Values(rows)), slices.Sorted(slices.Values(want))) {
		t.Errorf("the lab injects %v\nthe language takes %v", rows, want)
	}
}

package drills

import "testing"

func batches(seqs ...int64) []batch {
	out := make([]batch, len(seqs))
	for i, s := range seqs {
		out[i] = batch{seq: s, monoNs: int64(i)}
	}
	return out
}

func TestFindGap(t *testing.T) {
	for _, c := range []struct {
		name string
		seen []batch
		last int64
		from int64
		n    int64 // 0: no gap
	}{
		{"nothing arrived", nil, 6, 0, 0},
		{"all arrived", batches(7, 8, 9), 6, 0, 0},
		{"the engine's counter is ahead of the subscription", batches(5, 6, 7), 6, 0, 0},
		{"missing from the start", batches(9, 10), 6, 7, 2},
		{"missing in the middle", batches(7, 8, 29), 6, 9, 20},
		{"the first of two", batches(8, 20), 6, 7, 1},
	} {
		g, found := findGap(c.seen, c.last)
		if found != (c.n > 0) || g.missing != c.n || g.from != c.from {
			t.Errorf("%s: gap of %d from %d (found %v), want %d from %d", c.name, g.missing, g.from, found, c.n, c.from)
		}
	}
}

func TestFindRestart(t *testing.T) {
	for _, c := range []struct {
		name  string
		seen  []batch
		first int
		anew  int64 // -1: none
	}{
		{"old ones only", batches(4, 5, 6), 2, -1},
		{"from zero", batches(4, 5, 0), 2, 0},
		{"an old one is still on its way", batches(4, 5, 6, 0, 1), 2, 0},
		{"one before, one after, the same number", batches(0, 0), 1, 0},
		{"a gap is no restart", batches(4, 5, 90), 2, -1},
	} {
		_, anew, found := findRestart(c.seen, c.first)
		if found != (c.anew >= 0) || (found && anew.seq != c.anew) {
			t.Errorf("%s: batch %d (found %v), want %d", c.name, anew.seq, found, c.anew)
		}
	}
}

func TestReplayAnswersOfBothShapes(t *testing.T) {
	seq, end, payload := []byte{0, 0, 0, 0, 0, 0, 0, 9}, []byte{255, 255, 255, 255, 255, 255, 255, 255}, []byte("x")
	for _, c := range []struct {
		frames [][]byte
		seq    int64
		end    bool
		bad    bool
	}{
		{[][]byte{{}, seq, payload}, 9, false, false},
		{[][]byte{{}, []byte("kv"), seq, payload}, 9, false, false},
		{[][]byte{{}, end, {}}, -1, true, false},
		{[][]byte{{}, {}, end, {}}, -1, true, false},
		{[][]byte{seq, payload}, 0, false, true},
		{[][]byte{{}, payload, payload}, 0, false, true},
	} {
		b, isEnd, err := replayed(c.frames)
		if (err != nil) != c.bad || isEnd != c.end || (!c.bad && b.seq != c.seq) {
			t.Errorf("%q: seq %d, end %v, %v", c.frames, b.seq, isEnd, err)
		}
	}
}

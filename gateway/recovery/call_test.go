package recovery

import (
	"testing"

	"github.com/zeebo/xxh3"
)

func TestReplyShapes(t *testing.T) {
	payload := []byte("payload")
	end := seqFrame(1<<64 - 1)
	for _, c := range []struct {
		name   string
		frames [][]byte
		want   callStatus
		seq    int64
	}{
		{"up to vLLM 0.25 and SGLang", [][]byte{nil, seqFrame(7), payload}, replyBatch, 7},
		{"from vLLM 0.26", [][]byte{nil, []byte("topic"), seqFrame(7), payload}, replyBatch, 7},
		{"end", [][]byte{nil, end, nil}, replyEnd, 0},
		{"end with topic", [][]byte{nil, nil, end, nil}, replyEnd, 0},
		{"end with a payload", [][]byte{nil, end, payload}, replyBad, 0},
		{"no delimiter", [][]byte{[]byte("x"), seqFrame(7), payload}, replyBad, 0},
		{"short number", [][]byte{nil, []byte{7}, payload}, replyBad, 0},
		{"two frames", [][]byte{seqFrame(7), payload}, replyBad, 0},
		{"nothing", nil, replyBad, 0},
	} {
		got := parseReply(c.frames)
		if got.status != c.want || got.reply.seq != c.seq {
			t.Errorf("%s: status %d, seq %d; want %d, %d", c.name, got.status, got.reply.seq, c.want, c.seq)
		}
		if got.status == replyBatch && (string(got.reply.payload) != "payload" || got.reply.hash != xxh3.Hash(payload)) {
			t.Errorf("%s: payload %q", c.name, got.reply.payload)
		}
	}
}

func FuzzReply(f *testing.F) {
	f.Add([]byte{}, seqFrame(1), []byte("p"), 3)
	f.Add([]byte("t"), seqFrame(1<<64-1), []byte{}, 4)
	f.Fuzz(func(t *testing.T, a, b, c []byte, n int) {
		frames := [][]byte{nil, a, b, c}[:min(max(n, 0), 4)]
		if r := parseReply(frames); r.status == 0 || r.reply.seq < 0 {
			t.Fatalf("%q gave %+v", frames, r)
		}
		if m, ok := parseMessage(frames); ok && m.seq < 0 {
			t.Fatalf("%q gave %+v", frames, m)
		}
	})
}

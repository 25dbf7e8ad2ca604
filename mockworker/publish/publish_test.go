package publish

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/leaks"
	"fleetdrill/internal/shared"
	"fleetdrill/internal/zsock"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/truth"
	"fleetdrill/mockworker/wire"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func ptr[T any](v T) *T { return &v }

func TestParseConfig(t *testing.T) {
	for _, c := range []struct {
		text    string
		enabled bool
		wrong   string // part of the error
	}{
		{text: ``},
		{text: `{}`},
		{text: `{"enable_kv_cache_events": true}`, enabled: true},
		{text: `{"enable_kv_cache_events": true, "publisher": "zmq", "topic": "kv@a@b"}`, enabled: true},
		{text: `{"enable_kv_cache_events": true, "publisher": "null"}`},
		{text: `{"publisher": "zmq"}`},
		{text: `{"enable_kv_cache_event": true}`, wrong: "enable_kv_cache_event"},
		{text: `{"publisher": "kafka"}`, wrong: "kafka"},
		{text: `{"hwm": 0, "max_queue_size": 0}`},
		{text: `{"hwm": -1}`, wrong: "hwm is -1"},
		{text: `{"max_queue_size": -1}`, wrong: "max_queue_size is -1"},
		{text: `{"buffer_steps": -1}`, wrong: "buffer_steps is -1"},
		{text: `{} {}`, wrong: "behind the JSON object"},
		{text: `{"hwm": "x"}`, wrong: "hwm is a string, must be a whole number"},
		{text: `[]`, wrong: "it is a list, must be an object"},
	} {
		got, err := ParseConfig(c.text)
		if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: error %v, want one about %q", c.text, err, c.wrong)
		}
		if err == nil && got.Enabled() != c.enabled {
			t.Errorf("%s: enabled is %v", c.text, got.Enabled())
		}
	}
	got, err := ParseConfig(`{"enable_kv_cache_events": true}`)
	want := Config{EnableKVCacheEvents: true, Endpoint: "tcp://*:5557", BufferSteps: 10_000, HWM: 100_000, MaxQueueSize: 100_000}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("defaults: %v (-want +got):\n%s", err, diff)
	}
}

func TestResolveEndpoints(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		rank     int
		sglang   bool
		want     Target
		wrong    string
	}{
		{endpoint: "tcp://*:5557", want: Target{"tcp://10.0.0.1:5557", true}},
		{endpoint: "tcp://*:5557", rank: 3, want: Target{"tcp://10.0.0.1:5560", true}},
		{endpoint: "tcp://*:0", rank: 3, want: Target{"tcp://10.0.0.1:0", true}},
		{endpoint: "tcp://*:*", want: Target{"tcp://10.0.0.1:0", true}},
		{endpoint: "tcp://[::]:5557", rank: 1, want: Target{"tcp://[::]:5558", true}},
		{endpoint: "tcp://0.0.0.0:5557", want: Target{"tcp://0.0.0.0:5557", false}},
		{endpoint: "tcp://0.0.0.0:5557", rank: 1, sglang: true, want: Target{"tcp://0.0.0.0:5558", true}},
		{endpoint: "tcp://central:5557", rank: 2, want: Target{"tcp://central:5559", false}},
		{endpoint: "ipc:///tmp/a", want: Target{"ipc:///tmp/a", true}},
		{endpoint: "ipc:///tmp/a", rank: 1, wrong: "no port to add rank 1"},
		{endpoint: "inproc://a", wrong: "inside one process"},
		{endpoint: "udp://a:1", wrong: "must begin with"},
		{endpoint: "tcp://central:0", wrong: "needs a port"},
		{endpoint: "tcp://*:65535", rank: 1, wrong: "beyond 65535"},
		{endpoint: "tcp://*:x", wrong: `port "x"`},
		{endpoint: "tcp://host", wrong: "host:port"},
	} {
		got, err := ResolveEvents(c.endpoint, "10.0.0.1", c.rank, c.sglang)
		if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s rank %d: error %v, want one about %q", c.endpoint, c.rank, err, c.wrong)
		}
		if got != c.want {
			t.Errorf("%s rank %d: %+v, want %+v", c.endpoint, c.rank, got, c.want)
		}
	}
}

// patience bounds every wait for something that must happen, and each test.
const patience = 2 * time.Minute

// pair is a publisher and one subscriber of it that has arrived. The batches before base were spent on
// finding that out.
type pair struct {
	base uint64
	t    *testing.T
	pub  *Publisher
	fold *truth.Fold
	sub  *zsock.Sub
	ctx  context.Context
}

func start(t *testing.T, change func(*Options)) *pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	enc, err := wire.New("vllm-0.25", wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Endpoint, cfg.ReplayEndpoint, cfg.Topic = "tcp://*:0", ptr("tcp://*:0"), "kv@w1@mock"
	o := Options{Config: cfg, Host: "127.0.0.1", Encoder: enc, Fold: truth.NewFold(4)}
	if change != nil {
		change(&o)
	}
	p := &pair{t: t, fold: o.Fold, ctx: ctx}
	if p.pub, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.pub.Close(); err != nil {
			t.Error(err)
		}
	})
	events, _ := p.pub.Endpoints()
	if p.sub, err = zsock.DialSub(events, zsock.SubOptions{Topic: "kv@"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.sub.Close() })
	p.arrive()
	return p
}

// arrive publishes until the subscriber receives: a PUB drops what it sends before it knows a subscriber.
func (p *pair) arrive() {
	p.t.Helper()
	got := make(chan uint64)
	go func() {
		defer close(got)
		for {
			ev, err := p.sub.Recv(p.ctx)
			if err != nil || ev.Kind == zsock.SubMessage {
				if err == nil {
					got <- binary.BigEndian.Uint64(ev.Frames[1])
				}
				return
			}
		}
	}()
	for {
		p.publish(1)
		select {
		case seq, ok := <-got:
			if !ok {
				p.t.Fatal("the subscriber received nothing")
			}
			if err := p.pub.Flush(p.ctx); err != nil {
				p.t.Fatal(err)
			}
			for p.base = uint64(p.pub.Stats().NextSeq); seq+1 < p.base; {
				seq = binary.BigEndian.Uint64(p.next()[1])
			}
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (p *pair) eventually(what string, ok func() bool) {
	p.t.Helper()
	for !ok() {
		select {
		case <-p.ctx.Done():
			p.t.Fatalf("waited %s for %s", patience, what)
		case <-time.After(time.Millisecond):
		}
	}
}

// store is an event of one block, another one for each n.
func store(t testing.TB, n int) []engine.Event {
	t.Helper()
	h, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	ids := []uint32{uint32(1000 + n), 1001, 1002, 1003}
	return []engine.Event{{
		Kind: engine.Stored, Hashes: []blockhash.Digest{h.Next(h.NoneHash(), ids, blockhash.Extra{})}, Tokens: ids,
		BlockSize: 4, Medium: engine.MediumGPU, SpecKind: engine.KindFullAttention,
	}}
}

func (p *pair) publish(n int) {
	p.t.Helper()
	for i := range n {
		if err := p.pub.Publish(p.ctx, store(p.t, i)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// next is the next message of the subscriber, connection events skipped.
func (p *pair) next() [][]byte {
	p.t.Helper()
	for {
		ev, err := p.sub.Recv(p.ctx)
		if err != nil {
			p.t.Fatal(err)
		}
		if ev.Kind == zsock.SubMessage {
			return ev.Frames
		}
	}
}

func (p *pair) dealer() *zsock.Dealer {
	p.t.Helper()
	_, replay := p.pub.Endpoints()
	d, err := zsock.DialDealer(p.ctx, replay, zsock.DealerOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { d.Close() })
	return d
}

func seqFrame(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// replay asks from start and reads replies to the end marker.
func (p *pair) replay(d *zsock.Dealer, start uint64) (got [][][]byte) {
	p.t.Helper()
	if err := d.Send(nil, seqFrame(start)); err != nil {
		p.t.Fatal(err)
	}
	for {
		frames, err := d.Recv(p.ctx)
		if err != nil {
			p.t.Fatal(err)
		}
		if bytes.Equal(frames[len(frames)-2], endSeq) {
			return append(got, frames)
		}
		got = append(got, frames)
	}
}

func TestReplayIsTheLiveBytes(t *testing.T) {
	p := start(t, func(o *Options) { o.Config.BufferSteps = 5 })
	p.publish(8)
	var live [][][]byte
	for i := range 8 {
		m := p.next()
		if len(m) != 3 || string(m[0]) != "kv@w1@mock" || !bytes.Equal(m[1], seqFrame(p.base+uint64(i))) {
			t.Fatalf("message %d: %q", i, m)
		}
		if head := p.fold.Head(); head.Seq < int64(p.base)+int64(i) {
			t.Fatalf("message %d arrived before it was folded: %+v", i, head)
		}
		live = append(live, [][]byte{{}, m[1], m[2]})
	}
	end := [][]byte{{}, endSeq, {}}
	d := p.dealer()
	for _, c := range []struct {
		start uint64
		want  [][][]byte
	}{
		{0, append(live[3:8:8], end)}, // the older ones have left the buffer: the reply starts later
		{p.base + 6, append(live[6:8:8], end)},
		{p.base + 8, [][][]byte{end}},
		{1<<64 - 1, [][][]byte{end}},
	} {
		if diff := cmp.Diff(c.want, p.replay(d, c.start)); diff != "" {
			t.Errorf("replay from %d (-live +replayed):\n%s", c.start, diff)
		}
	}
	if s := p.pub.Stats(); s.ReplayRequests != 4 || s.ReplayBatches != 7 || s.NextSeq != int64(p.base)+8 {
		t.Errorf("stats %+v", s)
	}
}

// Sockets in the file system carry the same frames; rank 0 needs no port to add to.
func TestIPC(t *testing.T) {
	dir := t.TempDir()
	p := start(t, func(o *Options) {
		o.Config.Endpoint, o.Config.ReplayEndpoint = "ipc://"+dir+"/events", ptr("ipc://"+dir+"/replay")
	})
	p.publish(2)
	for i := range uint64(2) {
		if m := p.next(); len(m) != 3 || !bytes.Equal(m[1], seqFrame(p.base+i)) {
			t.Errorf("message %d: %q", i, m)
		}
	}
	if got := p.replay(p.dealer(), p.base); len(got) != 3 {
		t.Errorf("%d replies", len(got))
	}
}

// A request that is not exactly an empty frame and 8 bytes gets no reply; the next right one does.
func TestMalformedReplayRequests(t *testing.T) {
	p := start(t, nil)
	p.publish(1)
	p.next()
	d := p.dealer()
	for _, frames := range [][][]byte{{seqFrame(0)}, {nil, nil, seqFrame(0)}, {nil, {1}}, {{1}, seqFrame(0)}, {nil, make([]byte, 9)}} {
		if err := d.Send(frames...); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.replay(d, p.base); len(got) != 2 {
		t.Errorf("%d replies, want one batch and the end", len(got))
	}
	if s := p.pub.Stats(); s.ReplayMalformed != 5 || s.ReplayRequests != 1 {
		t.Errorf("stats %+v", s)
	}
}

// A peer that asks for replay after replay and never reads is put out; it cost a bounded number of frames, and
// a peer beside it is answered.
func TestReplaysThatNobodyReads(t *testing.T) {
	p := start(t, nil)
	const batches = 2_000
	p.publish(batches)
	greedy := p.dealer()
	var err error
	for err == nil && p.ctx.Err() == nil {
		answered := p.pub.Stats().ReplayRequests
		if int(answered)*batches > 20*maxOwed(DefaultConfig().BufferSteps) {
			t.Fatalf("%d replays of %d batches wait for a peer that reads nothing", answered, batches)
		}
		if err = greedy.Send(nil, seqFrame(0)); err == nil {
			<-time.After(time.Millisecond) // about one at a time: what counts is what is answered
		}
	}
	if !errors.Is(err, zsock.ErrPeerGone) {
		t.Fatalf("asking for ever ended in: %v", err)
	}
	if got := p.replay(p.dealer(), p.base); len(got) != batches+1 {
		t.Errorf("%d replies to a peer that reads, want %d", len(got), batches+1)
	}
}

// The shapes of vLLM 0.26 and later carry the topic.
type topicEncoder struct{ Encoder }

func (topicEncoder) ReplayHasTopic() bool { return true }

func TestReplayShapesAreGolden(t *testing.T) {
	raw, err := os.ReadFile(shared.Path(t, "vectors/frames.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Old []string `json:"replay_reply_old"`
		New []string `json:"replay_reply_new"`
		End string   `json:"replay_end_seq"`
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		shape  []string
		change func(*Options)
	}{
		{golden.Old, nil},
		{golden.New, func(o *Options) { o.Encoder = topicEncoder{o.Encoder} }},
	} {
		p := start(t, c.change)
		p.publish(1)
		live := p.next()
		named := map[string][]byte{"": {}, "topic": live[0], "seq": live[1], "payload": live[2]}
		var want [][]byte
		for _, name := range c.shape {
			want = append(want, named[name])
		}
		got := p.replay(p.dealer(), p.base)
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Errorf("reply %v (-want +got):\n%s", c.shape, diff)
		}
		if last := got[1]; len(last) != len(want) || golden.End != "ffffffffffffffff" || len(last[len(last)-1]) != 0 {
			t.Errorf("end of reply %v: %q", c.shape, last)
		}
	}
}

// A full queue stops whoever publishes, until there is room again.
func TestFullQueueBlocks(t *testing.T) {
	q := newQueue(2)
	ctx, cancel := context.WithCancel(context.Background())
	for range 2 {
		if err := q.push(ctx, item{}); err != nil {
			t.Fatal(err)
		}
	}
	pushed := make(chan error, 1)
	go func() { pushed <- q.push(ctx, item{monoNs: 3}) }()
	select {
	case err := <-pushed:
		t.Fatalf("a full queue took a batch: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	q.pop()
	if err := <-pushed; err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := q.push(ctx, item{}); err == nil {
		t.Fatal("a full queue took a batch after the end")
	}
}

// A port in use is an error that says whose socket it was for.
func TestNewFailsClearly(t *testing.T) {
	enc, _ := wire.New("vllm-0.25", wire.Options{})
	taken := start(t, nil)
	events, _ := taken.pub.Endpoints()
	port := events[strings.LastIndexByte(events, ':')+1:]
	cfg := DefaultConfig()
	cfg.Endpoint = "tcp://*:" + port
	if p, err := New(Options{Config: cfg, Host: "127.0.0.1", Encoder: enc, Fold: truth.NewFold(4)}); err == nil {
		p.Close()
		t.Fatal("a port in use was bound")
	} else if !strings.Contains(err.Error(), "opening the event socket of rank 0") {
		t.Errorf("error %v", err)
	}
}

func FuzzParseReplay(f *testing.F) {
	f.Add(2, []byte{}, seqFrame(5))
	f.Fuzz(func(t *testing.T, n int, a, b []byte) {
		frames := [][]byte{a, b, a}[:max(0, min(n, 3))]
		start, ok := parseReplay(frames)
		if want := len(frames) == 2 && len(a) == 0 && len(b) == 8; ok != want || ok && !bytes.Equal(seqFrame(start), b) {
			t.Fatalf("%q: %d, %v", frames, start, ok)
		}
	})
}

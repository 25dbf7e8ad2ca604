package tail

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/leaks"
	"fleetdrill/internal/zsock"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds a whole tail; only one that hangs takes so long.
const patience = time.Minute

// speaker makes payloads as one engine version does, a second apart.
type speaker struct {
	t   *testing.T
	enc *wire.Encoder
	h   *blockhash.Hasher
	ts  float64
}

func newSpeaker(t *testing.T, profile string, h *blockhash.Hasher) *speaker {
	t.Helper()
	enc, err := wire.New(profile, wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	return &speaker{t: t, enc: enc, h: h, ts: 1757500000.25}
}

func hasher(t *testing.T, algo, seed string) *blockhash.Hasher {
	t.Helper()
	h, err := blockhash.New(algo, seed)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (s *speaker) batch(events ...engine.Event) []byte {
	s.ts++
	return s.enc.AppendBatch(nil, s.ts, events)
}

// store is n blocks of 4 tokens from the first token on.
func (s *speaker) store(from uint32, n int) engine.Event {
	ev := engine.Event{Kind: engine.Stored, BlockSize: 4, SpecKind: engine.KindFullAttention, Medium: engine.MediumGPU, ExtraKeys: make([]engine.ExtraKey, n)}
	parent := s.h.NoneHash()
	for i := range n {
		block := []uint32{from, from + 1, from + 2, from + uint32(i)}
		parent = s.h.Next(parent, block, blockhash.Extra{})
		ev.Tokens, ev.Hashes = append(ev.Tokens, block...), append(ev.Hashes, parent)
	}
	return ev
}

func removal(of engine.Event, i int) engine.Event {
	return engine.Event{Kind: engine.Removed, Hashes: of.Hashes[i : i+1], Medium: engine.MediumGPU}
}

func seqOf(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// algorithms are two that are tried.
func algorithms(t *testing.T) []Algorithm {
	return []Algorithm{
		{Name: "sha256", Chain: chain(hasher(t, "sha256", "0"))},
		{Name: "SGLang", Chain: chain(blockhash.NewSGLang())},
	}
}

func chain(h *blockhash.Hasher) func([][]uint32, string, string) []uint64 {
	return func(blocks [][]uint32, lora, salt string) (out []uint64) {
		parent := h.NoneHash()
		for _, block := range blocks {
			parent = h.Next(parent, block, blockhash.Extra{LoRAName: lora, CacheSalt: salt})
			out, salt = append(out, parent.EventInt()), ""
		}
		return out
	}
}

// publisher is a bound PUB socket and, when it has a past, a ROUTER that replays it.
type publisher struct {
	t      *testing.T
	pub    *zsock.Pub
	router *zsock.Router
	o      Options
	done   chan struct{}
}

func publish(t *testing.T, past [][]byte, topic string) *publisher {
	t.Helper()
	p := &publisher{t: t, pub: zsock.NewPub(zsock.PubOptions{}), done: make(chan struct{})}
	var err error
	if p.o.Events, err = p.pub.Bind("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.o.Wait, p.o.Algorithms = patience, algorithms(t)
	if past == nil {
		close(p.done)
	} else {
		p.router = zsock.NewRouter(zsock.RouterOptions{})
		if p.o.Replay, err = p.router.Bind("tcp://127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		go p.serve(past, topic)
	}
	t.Cleanup(func() {
		if err := p.pub.Close(); err != nil {
			t.Error(err)
		}
		if p.router != nil {
			if err := p.router.Close(); err != nil {
				t.Error(err)
			}
		}
		<-p.done
	})
	return p
}

// serve replays past, whose nil entries are in no replay. Answers have the topic frame if there is a topic.
func (p *publisher) serve(past [][]byte, topic string) {
	defer close(p.done)
	for {
		q, err := p.router.Recv(context.Background())
		if err != nil {
			return
		}
		answer := func(topicFrame, seq, payload []byte) {
			frames := [][]byte{{}, topicFrame, seq, payload}
			if topic == "" {
				frames = [][]byte{{}, seq, payload}
			}
			if err := q.Reply(frames...); err != nil {
				return // the asker had enough
			}
		}
		for seq := binary.BigEndian.Uint64(q.Frames[1]); seq < uint64(len(past)); seq++ {
			if past[seq] != nil {
				answer([]byte(topic), seqOf(seq), past[seq])
			}
		}
		answer(nil, seqOf(math.MaxUint64), nil)
	}
}

// golden tails count batches, says once when to send, and compares the lines with a file.
func (p *publisher) golden(file string, count int, send func()) {
	p.t.Helper()
	p.o.Count = count
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var got strings.Builder
	sent := false
	err := Run(ctx, p.o, func(l Line) {
		got.WriteString(strings.ReplaceAll(l.String(), p.o.Events, "ENDPOINT") + "\n")
		if l.Kind == KindConnected && !sent {
			sent = true
			send()
		}
	})
	if err != nil || ctx.Err() != nil {
		p.t.Fatalf("%v, %v after:\n%s", err, ctx.Err(), got.String())
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		p.t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// TestLive shows everything that a publisher without a replay can do to a subscriber.
func TestLive(t *testing.T) {
	p := publish(t, nil, "")
	s := newSpeaker(t, "vllm-0.25", hasher(t, "sha256", "0"))
	p.golden("testdata/live.txt", 9, func() {
		send := func(seq uint64, payload []byte) { p.pub.Send([]byte("kv"), seqOf(seq), payload) }
		five := s.store(1000, 5)
		one := s.batch(removal(five, 4), removal(five, 3))
		send(0, s.batch(five))
		send(1, one)
		send(1, one)
		missing := s.batch(s.store(2000, 1))
		send(4, s.batch(s.store(3000, 2), removal(five, 2)))
		send(3, missing)
		send(5, []byte("not msgpack"))
		p.pub.Send([]byte("kv"), seqOf(6)[:7], missing)
		p.pub.Send([]byte("kv"), seqOf(6))
		send(6, s.batch(engine.Event{Kind: engine.Cleared}))
		// The engine is replaced by another one that counts from 0, too.
		sg := newSpeaker(t, "sglang-array", blockhash.NewSGLang())
		send(0, sg.batch(engine.Event{Kind: engine.Cleared}))
		send(1, sg.batch(sg.store(1000, 3)))
		// An engine with a seed that nobody knows, of an old version.
		old := newSpeaker(t, "vllm-0.9", hasher(t, "sha256", "drawn at random"))
		send(0, old.batch(old.store(1000, 3)))
	})
}

// TestHostTier shows that copies in the host are told from stores on the device.
func TestHostTier(t *testing.T) {
	p := publish(t, nil, "")
	s := newSpeaker(t, "sglang-map", blockhash.NewSGLang())
	p.golden("testdata/host.txt", 3, func() {
		send := func(seq uint64, payload []byte) { p.pub.Send([]byte("kv"), seqOf(seq), payload) }
		device := s.store(1000, 3)
		host, odd := device, removal(device, 0)
		host.Medium, odd.Medium = "CPU_PINNED", "\x1b[2J"
		send(0, s.batch(device, host))
		send(1, s.batch(host))
		send(2, s.batch(removal(device, 1), odd))
	})
}

// TestReplay joins when the replay has batches 0 to 4 but for 1, then hears of 6: 5 is lost for good.
func TestReplay(t *testing.T) {
	s := newSpeaker(t, "vllm-0.28", hasher(t, "xxhash", "0"))
	past := make([][]byte, 7)
	for i := range past {
		past[i] = s.batch(s.store(uint32(1000*i), i+1))
	}
	six := past[6]
	past[1], past[5], past[6] = nil, nil, nil
	p := publish(t, past[:6:6], "kv")
	p.golden("testdata/replay.txt", 5, func() { p.pub.Send([]byte("kv"), seqOf(6), six) })
}

// TestUnknownHashes says so once and keeps looking.
func TestUnknownHashes(t *testing.T) {
	p := publish(t, nil, "")
	s, known := newSpeaker(t, "vllm-0.15", hasher(t, "sha256", "random")), newSpeaker(t, "vllm-0.15", hasher(t, "sha256", "0"))
	p.golden("testdata/unknown.txt", 3, func() {
		for seq, payload := range [][]byte{s.batch(s.store(1000, 2)), s.batch(s.store(2000, 2)), known.batch(known.store(1000, 2))} {
			p.pub.Send(nil, seqOf(uint64(seq)), payload)
		}
	})
}

// The end that is asked for is none that failed, and has its summary.
func TestEndsWhenAsked(t *testing.T) {
	p := publish(t, nil, "")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var kinds []Kind
	err := Run(ctx, p.o, func(l Line) {
		kinds = append(kinds, l.Kind)
		cancel()
	})
	if diff := cmp.Diff([]Kind{KindConnected, KindSummary}, kinds); err != nil || diff != "" {
		t.Errorf("%v, lines:\n%s", err, diff)
	}
}

// full is a disk that is.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestCaptureThatCannotBeWritten(t *testing.T) {
	p := publish(t, nil, "")
	p.o.Record = full{}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := Run(ctx, p.o, func(Line) {}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v, want that of the capture", err)
	}
}

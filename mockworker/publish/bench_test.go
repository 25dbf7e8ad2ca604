package publish

import (
	"encoding/binary"
	"strconv"
	"testing"

	"fleetdrill/internal/tokens"
	"fleetdrill/internal/zsock"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/truth"
	"fleetdrill/mockworker/wire"
)

// BenchmarkBlockEvents is the whole way of an event, from a request in the engine to a subscriber's hands:
// hashing, scheduling, encoding, the fold of the truth, replay buffer, socket. Prompts of 1,024 tokens, none
// seen before, two output tokens each, as fast as steps go; a step has eight of them. A block event is one
// hash stored or removed. In a pool that fills nothing is removed; in a full one every store evicts.
//
//	go test ./mockworker/publish -run xxx -bench BlockEvents -benchtime 3s
func BenchmarkBlockEvents(b *testing.B) {
	for _, c := range []struct {
		name string
		wire string
		full bool
	}{{"filling", "vllm-0.25", false}, {"full", "vllm-0.25", true}, {"full-array", "vllm-0.23", true}} {
		b.Run(c.name, func(b *testing.B) { benchBlockEvents(b, c.wire, c.full) })
	}
}

const (
	benchBlocks = 16_384
	benchPrompt = 1_024
	benchBatch  = 8
)

func benchBlockEvents(b *testing.B, profile string, full bool) {
	hasher, err := blockhash.New("sha256", blockhash.DefaultSeed)
	if err != nil {
		b.Fatal(err)
	}
	enc, err := wire.New(profile, wire.Options{IntHashes: true})
	if err != nil {
		b.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Endpoint = "tcp://*:0"
	p, err := New(Options{Config: cfg, Host: "127.0.0.1", Encoder: enc, Fold: truth.NewFold(16)})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	events, _ := p.Endpoints()
	sub, err := zsock.DialSub(events, zsock.SubOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer sub.Close()
	for ev, err := sub.Recv(b.Context()); ev.Kind != zsock.SubUp; ev, err = sub.Recv(b.Context()) {
		if err != nil {
			b.Fatal(err)
		}
	}
	received := make(chan uint64, 1) // the last number, told when the last batch has come
	last := make(chan uint64, 1)
	go hear(b, sub, last, received)

	src := &source{b: b, hasher: hasher}
	src.refill()
	if full {
		for src.blocks < benchBlocks+1000 {
			src.step(nil)
		}
		src.blocks = 0
	}
	b.ReportAllocs()
	b.ResetTimer()
	sent := uint64(0)
	for range b.N {
		if !full && src.blocks-src.base > benchBlocks-benchBatch*(benchPrompt/16+2) {
			b.StopTimer()
			src.refill()
			if err := p.Publish(b.Context(), []engine.Event{{Kind: engine.Cleared}}); err != nil {
				b.Fatal(err)
			}
			sent++
			b.StartTimer()
		}
		if src.step(p) {
			sent++
		}
	}
	last <- sent + 1 // told before there is that one, so that it is not waited for in vain
	if err := p.Publish(b.Context(), []engine.Event{{Kind: engine.Cleared}}); err != nil {
		b.Fatal(err)
	}
	<-received
	b.StopTimer()
	b.ReportMetric(float64(src.blocks)/b.Elapsed().Seconds(), "blockevents/s")
	b.ReportMetric(float64(src.blocks)/float64(b.N), "blockevents/op")
	if s := p.Stats(); s.Dropped > 0 {
		b.Errorf("%d batches were dropped on the way", s.Dropped)
	}
}

// hear receives until it has the batch whose number is one less than last.
func hear(b *testing.B, sub *zsock.Sub, last <-chan uint64, received chan<- uint64) {
	want, got := uint64(1<<63), uint64(0)
	for {
		select {
		case want = <-last:
		default:
		}
		if got >= want {
			received <- got
			return
		}
		ev, err := sub.Recv(b.Context())
		if err != nil {
			received <- got
			return
		}
		if ev.Kind == zsock.SubMessage {
			got = binary.BigEndian.Uint64(ev.Frames[1]) + 1
		}
	}
}

// source is an engine with prompts without end.
type source struct {
	b            *testing.B
	hasher       *blockhash.Hasher
	eng          *engine.Engine
	n            int
	blocks, base int64 // block events so far, and of those before the engine was a new one
	ids          [benchPrompt]uint32
}

// refill makes the engine a new one with an empty cache.
func (s *source) refill() {
	e, err := engine.New(engine.Config{
		BlockSize: 16, NumBlocks: benchBlocks, MaxNumSeqs: 256, MaxNumBatchedTokens: 1 << 20, MaxModelLen: 1 << 20,
		EnablePrefixCaching: true, Hasher: s.hasher, Seed: 1,
	})
	if err != nil {
		s.b.Fatal(err)
	}
	s.eng, s.base = e, s.blocks
}

// step runs one step of eight new requests and publishes its events; it says whether there were any.
func (s *source) step(p *Publisher) bool {
	for range benchBatch {
		s.n++
		for i := range s.ids {
			s.ids[i] = tokens.FirstWord + uint32(s.n*31+i*7)%150_000
		}
		s.ids[0], s.ids[1] = uint32(s.n)&0xffff+300, uint32(s.n)>>16+300
		if err := s.eng.Add(0, engine.Request{ID: strconv.Itoa(s.n), Tokens: s.ids[:], MaxTokens: 2}); err != nil {
			s.b.Fatal(err)
		}
	}
	r := s.eng.Step(0)
	for i := range r.Events {
		s.blocks += int64(len(r.Events[i].Hashes))
	}
	if p != nil {
		if err := p.Publish(s.b.Context(), r.Events); err != nil {
			s.b.Fatal(err)
		}
	}
	return len(r.Events) > 0
}

package recovery

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/maptree"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/leaks"
	"fleetdrill/internal/tokens"
	"fleetdrill/internal/zsock"
	"fleetdrill/oracle"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// engine is a publisher on real sockets: PUB and replay ROUTER, as an engine has them.
type engine struct {
	t      *testing.T
	events string
	replay string
	pub    *zsock.Pub
	router *zsock.Router
	done   sync.WaitGroup

	mu       sync.Mutex
	payloads [][]byte
	truth    *oracle.Reference
	salt     uint64        // makes this incarnation's hashes and payloads its own
	late     time.Duration // how old a batch says that it is
}

// startEngine binds new sockets, or those of a predecessor that has ended.
func startEngine(t *testing.T, events, replay string, salt uint64) *engine {
	t.Helper()
	e := &engine{t: t, pub: zsock.NewPub(zsock.PubOptions{}), router: zsock.NewRouter(zsock.RouterOptions{}),
		truth: oracle.NewReference(8), salt: salt}
	// A predecessor's port may be somebody's for a moment: whoever dials takes any that is free.
	bind := func(f func(string) (string, error), endpoint string) (bound string) {
		eventually(t, "port "+endpoint, func() (err error) { bound, err = f(endpoint); return err })
		return bound
	}
	e.events, e.replay = bind(e.pub.Bind, events), bind(e.router.Bind, replay)
	e.done.Add(1)
	go e.serve()
	return e
}

// stop ends the sockets, as a killed process does.
func (e *engine) stop() {
	e.pub.Close()
	e.router.Close()
	e.done.Wait()
}

// serve answers replay calls in the newer of the two shapes, with the topic.
func (e *engine) serve() {
	defer e.done.Done()
	for {
		q, err := e.router.Recv(context.Background())
		if err != nil {
			return
		}
		if len(q.Frames) != 2 || len(q.Frames[1]) != 8 {
			continue
		}
		from := binary.BigEndian.Uint64(q.Frames[1])
		e.mu.Lock()
		payloads := e.payloads
		e.mu.Unlock()
		for seq := from; seq < uint64(len(payloads)); seq++ {
			q.Reply(nil, []byte("topic"), seqFrame(seq), payloads[seq])
		}
		q.Reply(nil, nil, seqFrame(1<<64-1), nil)
	}
}

func seqFrame(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// publish makes n batches; lost ones are remembered but not sent. Batch i stores a block under the one of
// batch i-1, and every fifth removes the block of batch i-3.
func (e *engine) publish(n int, lost bool) {
	for range n {
		e.mu.Lock()
		seq := uint64(len(e.payloads))
		payload := pack([]any{float64(time.Now().Add(-e.late).UnixNano()) / 1e9, e.batch(seq), 0})
		e.payloads = append(e.payloads, payload)
		e.mu.Unlock()
		if !lost {
			e.pub.Send(nil, seqFrame(seq), payload)
		}
	}
}

func (e *engine) batch(seq uint64) []any {
	hash := e.salt + seq
	var list []any
	if seq%5 == 4 {
		list = append(list, map[string]any{"type": "BlockRemoved", "block_hashes": []uint64{hash - 3}, "medium": "GPU"})
		e.truth.Remove(0, []uint64{hash - 3})
	}
	token := uint32(seq)
	stored := map[string]any{"type": "BlockStored", "block_hashes": []uint64{hash}, "parent_block_hash": nil,
		"token_ids": []uint32{token}, "block_size": 1, "lora_id": nil, "medium": "GPU"}
	if seq > 0 {
		stored["parent_block_hash"] = hash - 1
	}
	e.truth.Store(0, hash-1, seq > 0, []uint64{hash}, []uint64{tokens.ContentHash([]uint32{token})})
	return append(list, stored)
}

// follow subscribes to e.
func follow(t *testing.T, e *engine, d Deps) *Subscription {
	t.Helper()
	if d.Residency == nil {
		d.Residency = index.NewResidency(maptree.New())
	}
	s := Start(Source{Worker: "w1", Events: e.events, Replay: e.replay, BlockSize: 1}, d)
	t.Cleanup(s.Close)
	return s
}

// patience bounds every wait for a condition: only what never comes takes so long.
const patience = time.Minute

// eventually waits until check has nothing to complain about.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %s: %v", what, err)
		}
	}
}

// until waits for the state to be as ok wants it.
func until(t *testing.T, s *Subscription, what string, ok func(contract.RoutingRank) bool) (state contract.RoutingRank) {
	t.Helper()
	eventually(t, what, func() error {
		if state = s.State(clock.MonoNs()); !ok(state) {
			return fmt.Errorf("%+v", state)
		}
		return nil
	})
	return state
}

// equal waits until the index is what e announced.
func (e *engine) equal(s *Subscription) contract.RoutingRank {
	e.t.Helper()
	e.mu.Lock()
	next, want := int64(len(e.payloads)), e.truth.Blocks(0)
	e.mu.Unlock()
	var digest uint64
	for hash := range want {
		digest += tokens.DigestTerm(hash)
	}
	return until(e.t, s, "index equal to what was announced", func(r contract.RoutingRank) bool {
		return r.NextSeq == next && r.Blocks == len(want) && uint64(r.Digest) == digest && r.Stream == contract.StreamLive
	})
}

const anyPort = "tcp://127.0.0.1:0"

func TestLateJoinDropsAndDump(t *testing.T) {
	e := startEngine(t, anyPort, anyPort, 1000)
	defer e.stop()
	start := time.Now()
	e.publish(300, true) // before anyone listens
	var contacts atomic.Int64
	s := follow(t, e, Deps{OnBatch: func(int64) { contacts.Add(1) }})
	if r := e.equal(s); r.Quality != contract.QualityExact || r.Counters.Resyncs[contract.ResyncFirst] != 1 || contacts.Load() != 0 {
		t.Fatalf("after joining late: %+v, %d contacts", r, contacts.Load())
	}
	e.publish(5, false)
	e.equal(s)
	e.publish(20, true)
	e.publish(3, false)
	r := e.equal(s)
	if r.Counters.Gaps == 0 || r.Counters.Refilled < 20 || r.Counters.Unrecovered != 0 || r.Quality != contract.QualityExact {
		t.Fatalf("after 20 lost batches: %+v", r.Counters)
	}
	if most := time.Since(start); r.ApplyLagMs <= 0 || r.ApplyLagMs > float64(most.Microseconds())/1e3 {
		t.Fatalf("apply lag %v ms, %v after the first batch of all", r.ApplyLagMs, most)
	}
	// A replay may overtake a live batch, which then is a repeated one. It is told behind the state.
	eventually(t, "contact for each live batch that was new", func() error {
		if n, d := contacts.Load(), s.State(clock.MonoNs()).Counters.Duplicates; n+d != 8 {
			return fmt.Errorf("%d contacts and %d repeated batches, want 8 in all", n, d)
		}
		return nil
	})
	e.checkDump(s)
}

// checkDump checks a dump against the engine's truth at the dump's number, as the oracle does.
func (e *engine) checkDump(s *Subscription) {
	e.t.Helper()
	var out bytes.Buffer
	if err := s.WriteDump(&out); err != nil {
		e.t.Fatal(err)
	}
	dec := json.NewDecoder(&out)
	var head contract.DumpHead
	if err := dec.Decode(&head); err != nil {
		e.t.Fatal(err)
	}
	got := map[uint64]oracle.Block{}
	for dec.More() {
		var b contract.DumpBlock
		if err := dec.Decode(&b); err != nil {
			e.t.Fatal(err)
		}
		got[uint64(b.Hash)] = oracle.Block{Hash: uint64(b.Hash), Position: b.Position, Content: uint64(b.Content)}
	}
	if head.Seq != int64(len(e.payloads))-1 || head.Blocks != len(got) || head.Worker != "w1" || head.Epoch < 1 {
		e.t.Fatalf("head %+v for %d blocks", head, len(got))
	}
	if diff := cmp.Diff(e.truth.Blocks(0), got); diff != "" {
		e.t.Fatalf("dump (-want +got):\n%s", diff)
	}
}

// A restarted publisher passes the old cursor before the subscription is back. Its numbers look like a
// short gap; its payloads do not.
func TestRestartAhead(t *testing.T) {
	old := startEngine(t, anyPort, anyPort, 1000)
	residency := index.NewResidency(maptree.New())
	s := follow(t, old, Deps{Residency: residency})
	until(t, s, "connection", func(r contract.RoutingRank) bool { return r.Stream == contract.StreamLive })
	old.publish(10, false)
	old.equal(s)
	old.stop()
	until(t, s, "end of the stream", func(r contract.RoutingRank) bool { return r.Stream == contract.StreamDown })

	e := startEngine(t, old.events, old.replay, 5000)
	defer e.stop()
	e.publish(15, true)
	s.Nudge()
	r := e.equal(s)
	if r.Epoch != 2 || r.Counters.Restarts[contract.RestartReplay] != 1 || r.Quality != contract.QualityExact {
		t.Fatalf("after the restart: %+v", r)
	}
	e.publish(2, false)
	e.equal(s)
	s.Close()
	if st := residency.Index().Stats(); st != (index.Stats{}) {
		t.Fatalf("a closed subscription left %+v", st)
	}
}

// The last batch is lost and nothing follows it. With work in flight the silence is looked into.
func TestTailProbe(t *testing.T) {
	e := startEngine(t, anyPort, anyPort, 1000)
	defer e.stop()
	s := follow(t, e, Deps{Busy: func() bool { return true }})
	until(t, s, "connection", func(r contract.RoutingRank) bool { return r.Stream == contract.StreamLive })
	e.publish(3, false)
	e.equal(s)
	e.publish(1, true)
	if r := e.equal(s); r.Counters.Gaps != 0 || r.Counters.Replayed == 0 {
		t.Fatalf("after the probe: %+v", r.Counters)
	}
}

// lag-blind hides how far behind the index is, and nothing else.
func TestLagBlind(t *testing.T) {
	e := startEngine(t, anyPort, anyPort, 0)
	defer e.stop()
	e.late = time.Minute
	s := follow(t, e, Deps{})
	e.publish(1, false)
	e.equal(s)
	// Only what arrives live has a lag, and a batch may have come by replay.
	late := func(r contract.RoutingRank) bool {
		e.publish(1, false)
		return r.ApplyLagMs >= 60_000
	}
	until(t, s, "lag of a minute", late)
	s.Handicap([]string{contract.HandicapLagBlind})
	e.publish(3, false)
	if r := e.equal(s); r.ApplyLagMs != 0 {
		t.Errorf("under the handicap the lag is %g ms", r.ApplyLagMs)
	}
	s.Handicap(nil)
	until(t, s, "lag of a minute again", late)
}

func TestStrangeMessages(t *testing.T) {
	e := startEngine(t, anyPort, anyPort, 1000)
	defer e.stop()
	s := follow(t, e, Deps{})
	until(t, s, "connection", func(r contract.RoutingRank) bool { return r.Stream == contract.StreamLive })
	e.pub.Send([]byte("topic"), []byte("short"), nil)
	e.pub.Send([]byte("two"), seqFrame(0))
	// A payload that cannot be read keeps its place in the sequence.
	e.mu.Lock()
	e.payloads = append(e.payloads, []byte{0xc1})
	e.mu.Unlock()
	e.pub.Send(nil, seqFrame(0), []byte{0xc1})
	r := until(t, s, "batch 0", func(r contract.RoutingRank) bool { return r.NextSeq == 1 })
	want := map[string]int64{contract.DropBadFrames: 2, contract.DropMalformed: 1}
	if diff := cmp.Diff(want, r.Counters.Drops); diff != "" {
		t.Fatalf("drops (-want +got):\n%s", diff)
	}
}

// An endpoint that is none is an error in the log, not a crash.
func TestBadEndpoint(t *testing.T) {
	s := Start(Source{Worker: "w1", Events: "carrier pigeon"}, Deps{Residency: index.NewResidency(maptree.New())})
	defer s.Close()
	s.WorkerDead()
	s.Nudge()
	if r := s.State(clock.MonoNs()); r.Stream != contract.StreamDown {
		t.Fatalf("%+v", r)
	}
}

// BenchmarkPayloadToIndex applies payloads of one store of 64 blocks of 16 tokens and 64 removals.
func BenchmarkPayloadToIndex(b *testing.B) {
	const blocks, batches = 64, 512
	var payloads [][]byte
	for i := range uint64(batches) {
		var hashes, gone []uint64
		var ids []uint32
		for j := range uint64(blocks) {
			hashes = append(hashes, 0xbeef_0000_0000_0000+i*blocks+j)
			gone = append(gone, 0xbeef_0000_0000_0000+((i+batches/2)%batches)*blocks+blocks-1-j)
		}
		for j := range uint32(blocks * 16) {
			ids = append(ids, uint32(i)*1000+j)
		}
		var list []any
		for _, hash := range gone {
			list = append(list, map[string]any{"type": "BlockRemoved", "block_hashes": []uint64{hash}, "medium": "GPU", "group_idx": 0})
		}
		list = append(list, map[string]any{"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": nil, "token_ids": ids,
			"block_size": 16, "lora_id": nil, "medium": "GPU", "lora_name": nil, "group_idx": 0, "kv_cache_spec_kind": "full_attention"})
		payloads = append(payloads, pack([]any{1757500000.25, list, 0}))
	}
	a := newApplier(Source{BlockSize: 16}, index.NewResidency(maptree.New()))
	for _, p := range payloads[batches/2:] {
		a.apply(p)
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		a.apply(payloads[i%batches])
		i++
	}
	b.ReportMetric(float64(2*blocks*b.N)/b.Elapsed().Seconds(), "blocks/s")
}

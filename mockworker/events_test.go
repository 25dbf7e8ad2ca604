package mockworker

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/zsock"
	"fleetdrill/mockworker/truth"
)

// smallPool makes blocks be evicted and copied within a few requests.
func smallPool(c *Config) { c.NumGPUBlocksOverride, c.MaxModelLen = 40, 400 }

// follower is a subscriber that keeps what it receives.
type follower struct {
	sub  *zsock.Sub
	done chan struct{}

	mu   sync.Mutex // guards live
	live []message
}

type message struct {
	seq     int64
	payload []byte
}

func (f *fleet) follow() *follower {
	f.t.Helper()
	sub, err := zsock.DialSub(f.worker().Ranks[0].Events, zsock.SubOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	fl := &follower{sub: sub, done: make(chan struct{})}
	go fl.run()
	f.t.Cleanup(func() {
		sub.Close()
		<-fl.done
	})
	return fl
}

func (fl *follower) run() {
	defer close(fl.done)
	for {
		ev, err := fl.sub.Recv(context.Background())
		if err != nil {
			return
		}
		if ev.Kind == zsock.SubMessage {
			fl.mu.Lock()
			fl.live = append(fl.live, message{int64(binary.BigEndian.Uint64(ev.Frames[1])), ev.Frames[2]})
			fl.mu.Unlock()
		}
	}
}

func (fl *follower) received() []message {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return slices.Clone(fl.live)
}

// fold folds the replayed batches before the first live one, then the live ones, as a gateway that joined
// late would. It fails on a gap and on a replayed batch that differs from the live one.
func (fl *follower) fold(t *testing.T, replayed [][][]byte) *truth.Fold {
	t.Helper()
	fold, live := truth.NewFold(16), fl.received()
	for i, frames := range replayed {
		payload := frames[2]
		if n := int64(i) - live[0].seq; n >= 0 {
			if live[n].seq != int64(i) || !bytes.Equal(live[n].payload, payload) {
				t.Fatalf("live batch %d and replayed batch %d differ", live[n].seq, i)
			}
			payload = live[n].payload
		}
		if err := fold.Apply(int64(i), 0, payload); err != nil {
			t.Fatal(err)
		}
	}
	return fold
}

// load runs n requests, a few at once, with shared prefixes, repeats and fully cached aligned prompts.
func (f *fleet) load(n int) {
	var wg sync.WaitGroup
	lanes := make(chan struct{}, 4)
	for i := range n {
		wg.Add(1)
		lanes <- struct{}{}
		go func() {
			defer func() { <-lanes; wg.Done() }()
			head, tail := prompt(i%5, 64), prompt(100+i, 16*(i%4))
			f.complete(append(head, tail...), 1+i%20, "")
		}()
	}
	wg.Wait()
}

// The worker's announced set must be what a subscriber that lost nothing holds, at every sequence number.
func TestTruthIsWhatASubscriberFolds(t *testing.T) {
	f := start(t, smallPool)
	fl := f.follow()
	f.load(60)
	row := f.truth().Ranks[0]
	f.eventually("the subscriber to catch up", func() bool {
		live := fl.received()
		return len(live) > 0 && live[len(live)-1].seq == row.NextSeq-1
	})
	folded := fl.fold(t, f.replay(0))
	if head := folded.Head(); uint64(row.Digest) != head.Digest || row.AnnouncedBlocks != head.Blocks || row.NextSeq != head.Seq+1 {
		t.Fatalf("truth %+v, a subscriber folds to %+v", row, head)
	}
	if row.Unannounced != 0 || row.Ghost != 0 || row.ResidentBlocks == 0 {
		t.Errorf("resident and announced differ at rest: %+v", row)
	}
	want := folded.Digests(0, make([]contract.TruthDigest, 0, 10_000))
	got := jsonLines[contract.TruthDigest](f, "/admin/truth/digests", nil)
	for i := range want {
		want[i].MonoNs = got[i].MonoNs
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("digests by sequence number (-folded +told):\n%s", diff)
	}
	f.checkPast(folded, row.NextSeq)
	f.checkResident()
}

// replay reads every batch from start on, without the end marker.
func (f *fleet) replay(start uint64) (out [][][]byte) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d, err := zsock.DialDealer(ctx, f.worker().Ranks[0].Replay, zsock.DealerOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	defer d.Close()
	if err := d.Send(nil, binary.BigEndian.AppendUint64(nil, start)); err != nil {
		f.t.Fatal(err)
	}
	for {
		frames, err := d.Recv(ctx)
		if err != nil {
			f.t.Fatal(err)
		}
		if len(frames) == 3 && binary.BigEndian.Uint64(frames[1]) == 1<<64-1 {
			return out
		}
		out = append(out, frames)
	}
}

// checkPast compares the announced set at past sequence numbers with the folded past.
func (f *fleet) checkPast(fold *truth.Fold, next int64) {
	f.t.Helper()
	for _, at := range []int64{-1, 0, next / 2, next - 2, next - 1} {
		sets, head, err := fold.At(at)
		if err != nil {
			f.t.Fatal(err)
		}
		set := sets[0].Blocks
		var told contract.TruthBlocksHead
		blocks := jsonLines[contract.TruthBlock](f, fmt.Sprintf("/admin/truth/blocks?set=announced&at=%d", at), &told)
		if told.Seq != at || uint64(told.Digest) != head.Digest || told.Blocks != head.Blocks || len(blocks) != len(set) {
			f.t.Errorf("at %d: told %+v with %d blocks, folded %+v", at, told, len(blocks), head)
		}
		for _, b := range blocks {
			e := set[uint64(b.Hash)]
			if int(e.Position) != b.Position || e.Content != uint64(b.Content) || int(e.Copies) != b.Copies || (b.Parent == nil) != (b.Position == 0) {
				f.t.Errorf("at %d: told %+v, folded %+v", at, b, e)
			}
		}
	}
}

// checkResident compares the pool's own view of every block with the announced one.
func (f *fleet) checkResident() {
	f.t.Helper()
	var head contract.TruthBlocksHead
	resident := jsonLines[contract.TruthBlock](f, "/admin/truth/blocks?set=resident", &head)
	announced := jsonLines[contract.TruthBlock](f, "/admin/truth/blocks?set=announced", nil)
	announced = announced[1:] // the head
	for i := range resident {
		if resident[i].Use == "" {
			f.t.Errorf("resident block without use: %+v", resident[i])
		}
		resident[i].Use = ""
	}
	if diff := cmp.Diff(announced, resident); diff != "" {
		f.t.Errorf("(-announced +resident):\n%s", diff)
	}
}

// TestLibzmqReadsTheSameBytes lets a real libzmq and Python's msgpack read the stream.
func TestLibzmqReadsTheSameBytes(t *testing.T) {
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-c", "import zmq, msgpack").CombinedOutput(); err != nil {
		if os.Getenv("FLEETDRILL_REQUIRE_SHARED") == "1" {
			t.Fatalf("python3-zmq and python3-msgpack are missing and FLEETDRILL_REQUIRE_SHARED=1: %v: %s", err, out)
		}
		t.Skipf("python3-zmq and python3-msgpack are not here: %v", err)
	}
	f := start(t, smallPool)
	rank := f.worker().Ranks[0]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "testdata/peer.py", rank.Events, rank.Replay)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.load(20)
	f.eventually("libzmq to be connected", func() bool { return f.truth().Counters["subscribers"] == 1 })
	f.load(20)
	last := f.truth().Ranks[0].NextSeq - 1
	fmt.Fprintln(stdin, last)
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("peer: %v\n%s", err, out.String())
	}
	want := fmt.Sprintf("replayed 0..%d", last)
	if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "live 0 ") {
		t.Errorf("peer said %q, want %q and some live batches", out.String(), want)
	}
}

// A client that goes away frees its slot and its blocks, streaming or not, running or waiting.
func TestGoneClientFreesItsBlocks(t *testing.T) {
	f := start(t, func(c *Config) { c.MaxNumSeqs = 1; c.Profile = "drill" })
	for _, stream := range []string{"true", "false"} {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for i := range 2 { // the second one waits
			wg.Go(func() {
				body := fmt.Sprintf(`{"prompt":"client %d %s","max_tokens":50000,"stream":%s}`, i, stream, stream)
				f.hang(ctx, body)
			})
		}
		f.eventually("one to run and one to wait", func() bool {
			row := f.truth().Ranks[0]
			return row.Running == 1 && row.Waiting == 1
		})
		cancel()
		wg.Wait()
		f.eventually("an idle engine", func() bool {
			row := f.truth().Ranks[0]
			return row.Running == 0 && row.Waiting == 0 && row.KVUsage == 0
		})
	}
	for i, r := range jsonLines[contract.TruthRequest](f, "/admin/truth/requests", nil) {
		if r.Outcome != contract.OutcomeAbort || r.N != int64(i) || !strings.HasPrefix(r.ID, "cmpl-") {
			t.Errorf("request log: %+v", r)
		}
	}
	if got := f.truth().Counters["finished_abort"]; got != 4 {
		t.Errorf("%d requests counted as aborted, want 4", got)
	}
}

// A client that does not read costs nobody else anything: steps go on while its stream is stuck.
func TestClientThatNeverReads(t *testing.T) {
	f := start(t, nil)
	conn := f.dialRaw("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", `{"prompt":"a","max_tokens":100000,"stream":true}`)
	defer conn.Close()
	f.eventually("the stuck stream to run", func() bool { return f.truth().Ranks[0].Running == 1 })
	before := f.truth().Ranks[0].Steps
	for i := range 20 {
		f.complete(prompt(i, 20), 5, "")
	}
	if after := f.truth().Ranks[0].Steps; after < before+20 {
		t.Errorf("%d steps for 20 requests of 5 tokens", after-before)
	}
}

func TestRequestLogAndMatch(t *testing.T) {
	f := start(t, nil)
	ids := prompt(1, 50)
	f.complete(ids, 4, "")
	f.complete(ids, 4, "")
	log := jsonLines[contract.TruthRequest](f, "/admin/truth/requests?from=1", nil)
	if len(log) != 1 || log[0].CachedTokens != 48 || log[0].PromptTokens != 50 || log[0].OutputTokens != 4 || log[0].Outcome != contract.OutcomeLength {
		t.Fatalf("request log from 1: %+v", log)
	}
	r := log[0]
	stamps := []int64{0, r.ArrivalMonoNs, r.ScheduledMonoNs, r.FirstTokenMonoNs, r.LastTokenMonoNs, clock.MonoNs()}
	for i := 1; i < len(stamps); i++ {
		if stamps[i] < stamps[i-1] {
			t.Errorf("stamps do not rise: %v", stamps)
		}
	}
	status, _, body := f.do("POST", f.worker().Admin+"/admin/truth/match", `{"token_ids":`+jsonOf(t, ids)+`}`)
	if status != 200 || !strings.Contains(body, `"ranks":[{"rank":0,"blocks":3}]`) {
		t.Errorf("match: %d %s", status, body)
	}
	status, _, body = f.do("POST", f.worker().Admin+"/admin/truth/match", `{"token_ids":`+jsonOf(t, ids)+`,"cache_salt":"x"}`)
	if status != 200 || !strings.Contains(body, `"blocks":0`) {
		t.Errorf("match of another salt: %d %s", status, body)
	}
	journal := jsonLines[contract.TruthJournal](f, "/admin/truth/journal?rank=0&from=0", nil)
	if len(journal) != 1 || len(journal[0].Stored) != 3 || journal[0].MonoNs < r.ArrivalMonoNs-int64(patience) {
		t.Errorf("journal: %+v", journal)
	}
}

// Steps must not be longer than the model says: the sum of many is what a client would notice.
func BenchmarkStepLateness(b *testing.B) {
	f := start(b, func(c *Config) { c.Profile = "drill"; c.KVEventsConfig = "" })
	tokens := 0
	for range b.N {
		f.complete(prompt(1, 3), 200, "")
		tokens += 200
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(tokens), "us/step") // the model's is 5,003
}

func BenchmarkTinyCompletions(b *testing.B) {
	profile := stepProfile(b, 0)
	f := start(b, func(c *Config) { c.Profile = profile })
	body := `{"model":"mock-8b","prompt":"a b c","max_tokens":1}`
	b.SetParallelism(8) // 16 clients on two cores
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if status, text := f.api("POST", "/v1/completions", body); status != 200 {
				b.Errorf("%d %s", status, text)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

// stepProfile is an engine whose steps take stepNs, whatever is in them.
func stepProfile(t testing.TB, stepNs int64) string {
	t.Helper()
	path := t.TempDir() + "/step.yaml"
	text := fmt.Sprintf("name: step\nabout: for tests\nstep_ns: {value: %d, basis: chosen}\n", stepNs)
	for _, key := range []string{"prefill_token_ns", "decode_seq_ns", "decode_context_token_ns", "prefill_token_context_ns"} {
		text += key + ": {value: 0, basis: chosen}\n"
	}
	for key, n := range map[string]int{"num_blocks": 16384, "block_size": 16, "max_num_seqs": 256, "max_num_batched_tokens": 8192} {
		text += fmt.Sprintf("%s: {value: %d, basis: chosen}\n", key, n)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

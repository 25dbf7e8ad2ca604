package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/deadport"
	"fleetdrill/internal/tail"
	"fleetdrill/mockworker"
	"fleetdrill/mockworker/wire"
)

// runEvents runs `fleetdrill events args...`.
func runEvents(args ...string) (stdout, stderr string, code int) {
	var out, errOut bytes.Buffer
	code = Main(append([]string{"events"}, args...), &out, &errOut)
	return out.String(), errOut.String(), code
}

// mockEngine runs a mock engine that publishes two batches; the last one may still be on its way.
func mockEngine(t *testing.T, wireName, algo string) contract.ReadyWorker {
	t.Helper()
	var c mockworker.Config
	mockworker.AddFlags(pflag.NewFlagSet("worker", pflag.ContinueOnError), &c)
	c.GRPCPort = 0
	c.Port, c.Wire, c.HashAlgo, c.HashSeed = 0, wireName, algo, "0"
	c.KVEventsConfig = `{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}`
	c.ReadyFile = filepath.Join(t.TempDir(), "ready.json")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mockworker.Run(ctx, c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var ready contract.ReadyFile
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(c.ReadyFile)
		if err == nil && json.Unmarshal(text, &ready) == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%s: no ready file", wireName)
		}
	}
	for prompt := range 2 { // a prompt of 48 tokens: one batch, with three blocks
		ids := make([]int, 48)
		for i := range ids {
			ids[i] = 1000 + 100*prompt + i
		}
		body, err := json.Marshal(map[string]any{"model": "mock-8b", "prompt": ids, "max_tokens": 1})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(ready.Workers[0].HTTP+"/v1/completions", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d", wireName, resp.StatusCode)
		}
	}
	return ready.Workers[0]
}

// TestTailKnowsEveryWire tails a mock engine of every wire profile and checks what it recognises.
func TestTailKnowsEveryWire(t *testing.T) {
	algos := []string{"sha256", "sha256_cbor", "xxhash", "xxhash_cbor"}
	layouts := map[string][2]string{ // of a batch, and as whose it is recognised
		"vllm-0.9":     {"array/2", "vLLM 0.9"},
		"vllm-0.11":    {"array/3", "vLLM 0.11 or SGLang until September 2026"},
		"vllm-0.15":    {"array/3", "vLLM 0.15"},
		"vllm-0.23":    {"array/3", "vLLM 0.23"},
		"vllm-0.25":    {"map/3", "vLLM 0.24 or newer"},
		"vllm-0.28":    {"map/3", "vLLM 0.24 or newer"},
		"vllm-0.32":    {"map/3", "vLLM 0.24 or newer"},
		"sglang-array": {"array/3", "vLLM 0.11 or SGLang until September 2026"},
		"sglang-map":   {"map/3", "SGLang since September 2026"},
	}
	for i, name := range wire.Names() {
		t.Run(name, func(t *testing.T) {
			algo := algos[i%len(algos)]
			worker := mockEngine(t, name, algo)
			rank := worker.Ranks[0]
			hashes, replies := algo+" with seed 0", "no topic"
			if wire.IsSGLang(name) {
				hashes = "SGLang"
			}
			if name == "vllm-0.28" || name == "vllm-0.32" {
				replies = "carry the topic"
			}
			capture := filepath.Join(t.TempDir(), "capture.jsonl")
			out, errOut, code := runEvents("tail", rank.Events, "--replay", rank.Replay, "--count", "2", "--json", "--record", capture)
			if code != exitPass || errOut != "" {
				t.Fatalf("exit %d, %s", code, errOut)
			}
			lines := map[tail.Kind]tail.Line{}
			for line := range strings.Lines(out) {
				var l tail.Line
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				lines[l.Kind] = l
			}
			sum, batch := lines[tail.KindSummary].Sum, lines[tail.KindBatch]
			if sum == nil || sum.Live+sum.Replayed != 2 || sum.Gaps != 0 || sum.Hashes != hashes {
				t.Errorf("summary %+v, want 2 batches, hashes %s", sum, hashes)
			}
			if batch.Batch == nil || *batch.Seq != 1 || batch.Batch.Layout != layouts[name][0] || batch.Batch.Stored.Blocks != 3 {
				t.Errorf("last batch %+v of %+v", batch.Batch, batch)
			}
			if got := lines[tail.KindLayout].Text; !strings.HasSuffix(got, "; as "+layouts[name][1]) {
				t.Errorf("layout %q, want one as %s", got, layouts[name][1])
			}
			if got := lines[tail.KindReplay].Text; !strings.Contains(got, replies) {
				t.Errorf("replay %q, want %q in it", got, replies)
			}
			checkCapture(t, capture, rank)
			checkGRPC(t, worker.GRPC, hashes)
		})
	}
}

// checkGRPC tails the same engine over gRPC: the same batches, numbered from 1, and the same hashes.
func checkGRPC(t *testing.T, port, hashes string) {
	t.Helper()
	out, errOut, code := runEvents("tail", "grpc://"+port, "--count", "2", "--json")
	if code != exitPass || errOut != "" {
		t.Fatalf("gRPC: exit %d, %s", code, errOut)
	}
	var last uint64
	for line := range strings.Lines(out) {
		var l tail.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		switch {
		case l.Kind == tail.KindBatch && (*l.Seq != last+1 || l.Batch.Layout != "grpc" || last == 1 && l.Batch.Stored.Blocks != 3):
			t.Errorf("gRPC batch %d behind %d: %+v", *l.Seq, last, l.Batch)
		case l.Kind == tail.KindBatch:
			last = *l.Seq
		case l.Kind == tail.KindSummary && (l.Sum.Live != 2 || l.Sum.Hashes != hashes):
			t.Errorf("gRPC summary %+v", l.Sum)
		}
	}
	if last != 2 {
		t.Errorf("gRPC: last batch %d of 2", last)
	}
}

// checkCapture reads a capture of two batches or more.
func checkCapture(t *testing.T, path string, rank contract.ReadyRank) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	last := int64(0)
	for line := range strings.Lines(string(text)) {
		var r tail.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.MonoNs < last || r.Wall == "" {
			t.Errorf("record %+v: no time, or before the last one", r)
		}
		if r.Kind == "capture" && (r.Version != tail.CaptureVersion || r.Events != rank.Events || r.Replay != rank.Replay) {
			t.Errorf("head %+v", r)
		}
		if n := len(r.Frames); n > 0 && len(r.Frames[n-2]) != 16 {
			t.Errorf("frames %v", r.Frames)
		}
		last = r.MonoNs
		kinds = append(kinds, r.Kind)
	}
	if len(kinds) < 4 || kinds[0] != "capture" || kinds[1] != "up" {
		t.Errorf("records %v, want the head, up and two messages", kinds)
	}
}

// TestTailMistakes are told in words, with exit 4, and a publisher that is not there with exit 5.
func TestTailMistakes(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // it takes connections and says nothing
	silent := "tcp://" + ln.Addr().String()
	gone := "tcp://" + deadport.New(t)
	exists := filepath.Join(t.TempDir(), "capture.jsonl")
	if err := os.WriteFile(exists, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "wants one URL, as tcp://127.0.0.1:5557, got 0 arguments"},
		{[]string{"127.0.0.1:5557"}, exitUsage, "has no scheme: want tcp://HOST:PORT"},
		{[]string{"udp://127.0.0.1:5557"}, exitUsage, "udp is no transport of KV events here"},
		{[]string{"grpc://127.0.0.1"}, exitUsage, "want grpc://HOST:PORT"},
		{[]string{"grpc://127.0.0.1:1", "--replay", gone}, exitUsage, "--replay grpc://127.0.0.1:1"},
		{[]string{"grpc://127.0.0.1:1", "--topic", "kv"}, exitUsage, "gRPC has no topics"},
		{[]string{gone, "--from", "3"}, exitUsage, "--from is for grpc:// streams"},
		{[]string{"grpc://" + silent[len("tcp://"):], "--wait", "200ms"}, exitHarness, "nobody answers within 200ms: something listens there"},
		{[]string{"tcp://*:5557"}, exitUsage, "is where an engine binds: name its host, as in tcp://127.0.0.1:5557"},
		{[]string{"tcp://127.0.0.1"}, exitUsage, "want tcp://HOST:PORT"},
		{[]string{gone, "--replay", "5558"}, exitUsage, "--replay: endpoint"},
		{[]string{gone, "--count", "-1"}, exitUsage, "--count is -1"},
		{[]string{gone, "--record", exists}, exitUsage, "file exists"},
		{[]string{gone, "--wait", "200ms"}, exitHarness, "no publisher answers at " + gone + " within 200ms: dial tcp"},
		{[]string{silent, "--wait", "200ms"}, exitHarness, "something listens there that does not speak ZMQ"},
	} {
		out, errOut, code := runEvents(append([]string{"tail"}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.want) || out != "" {
			t.Errorf("%s: exit %d, %q, printed %q; want exit %d and %q", fmt.Sprint(c.args), code, errOut, out, c.code, c.want)
		}
	}
}

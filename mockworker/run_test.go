package mockworker

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"fleetdrill/internal/contract"
)

func TestServesAndTellsTheTruth(t *testing.T) {
	f := start(t, nil)
	if status, body := f.api("GET", "/health", ""); status != 200 || body != "" {
		t.Fatalf("health: %d %q", status, body)
	}
	f.complete(prompt(1, 40), 10, "")
	row := f.truth().Ranks[0]
	// 40 prompt + 10 output - 1 tokens are 3 full blocks of 16.
	if row.ResidentBlocks != 3 || row.AnnouncedBlocks != 3 || row.Unannounced != 0 || row.Ghost != 0 || row.Running != 0 {
		t.Errorf("truth after one completion: %+v", row)
	}
	var head contract.TruthBlocksHead
	blocks := jsonLines[contract.TruthBlock](f, "/admin/truth/blocks?set=announced", &head)
	if len(blocks) != 3 || head.Blocks != 3 || head.Digest != row.Digest || head.Seq != row.NextSeq-1 {
		t.Errorf("announced: head %+v, %d blocks", head, len(blocks))
	}
	if status, body := f.api("GET", "/version", ""); status != 200 || body != `{"version":"0.25.0"}` {
		t.Errorf("version: %d %s", status, body)
	}
}

func TestReadyFileNamesThisProcess(t *testing.T) {
	f := start(t, func(c *Config) { c.Count, c.DataParallelSize = 3, 2 })
	if f.ready.PID != os.Getpid() || f.ready.Kind != contract.KindWorker || f.ready.StartTime == 0 {
		t.Errorf("ready file %+v", f.ready)
	}
	seen := map[string]bool{}
	for i, w := range f.ready.Workers {
		if w.ID != "w"+strconv.Itoa(i+1) || len(w.Ranks) != 2 {
			t.Errorf("worker %d: %+v", i, w)
		}
		for _, at := range []string{w.HTTP, w.Admin, w.Ranks[0].Events, w.Ranks[0].Replay, w.Ranks[1].Events, w.Ranks[1].Replay} {
			if seen[at] || strings.HasSuffix(at, ":0") {
				t.Errorf("endpoint %q is no port of its own", at)
			}
			seen[at] = true
		}
	}
	// Ranks have caches of their own.
	ids := jsonOf(t, prompt(1, 32))
	for _, rank := range []string{"0", "1", "1"} {
		f.api("POST", "/v1/completions", `{"prompt":`+ids+`,"max_tokens":1}`, "X-data-parallel-rank", rank)
	}
	log := jsonLines[contract.TruthRequest](f, "/admin/truth/requests", nil)
	if len(log) != 3 || log[0].CachedTokens != 0 || log[1].CachedTokens != 0 || log[2].CachedTokens != 16 || log[2].Rank != 1 {
		t.Errorf("request log of two ranks: %+v", log)
	}
}

func TestPortsAreConsecutiveFromABase(t *testing.T) {
	base := freePorts(t, 3)
	f := start(t, func(c *Config) { c.Count, c.Port, c.KVEventsConfig = 3, base, "" })
	for i, w := range f.ready.Workers {
		if want := "http://127.0.0.1:" + strconv.Itoa(base+i); w.HTTP != want || w.Ranks[0].Events != "" {
			t.Errorf("worker %d: %+v, want API at %s and no events", i, w, want)
		}
	}
}

// freePorts finds n consecutive free ports.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for base := 20_000; base < 60_000; base += 97 {
		free := 0
		for ; free < n; free++ {
			ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(base+free))
			if err != nil {
				break
			}
			ln.Close()
		}
		if free == n {
			return base
		}
	}
	t.Skip("no consecutive free ports")
	return 0
}

func TestWithoutEventsNothingIsAnnounced(t *testing.T) {
	f := start(t, func(c *Config) { c.KVEventsConfig = "" })
	f.complete(prompt(1, 40), 1, "")
	if row := f.truth().Ranks[0]; row.ResidentBlocks != 2 || row.AnnouncedBlocks != 0 || row.Unannounced != 2 || row.NextSeq != 0 {
		t.Errorf("truth without events: %+v", row)
	}
}

func TestAPortInUseIsAnError(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c := defaults()
	c.Port = ln.Addr().(*net.TCPAddr).Port
	err = Run(context.Background(), c)
	if err == nil || !strings.Contains(err.Error(), "starting worker w1: API port: binding") {
		t.Errorf("error %v", err)
	}
}

func TestBadConfigurations(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		wrong  string
	}{
		{func(c *Config) { c.Port = 70_000 }, "--port is 70000"},
		{func(c *Config) { c.Port, c.Count = 65_535, 2 }, "leaves no room for --count 2"},
		{func(c *Config) { c.AdminPort, c.Count = 65_535, 2 }, "--admin-port 65535 leaves no room"},
		{func(c *Config) { c.Count = 0 }, "--count is 0"},
		{func(c *Config) { c.AdminHost = "0.0.0.0" }, "give --admin-token"},
		{func(c *Config) { c.AdminHost = "worker.example" }, "give --admin-token"},
		{func(c *Config) { c.Model = "" }, "--model is empty"},
		{func(c *Config) { c.IDs = []string{"a", "b"} }, "--id is given 2 times"},
		{func(c *Config) { c.IDs, c.Count = []string{"a", "a"}, 2 }, `--id "a"`},
		{func(c *Config) { c.Profile = "slow" }, "--profile"},
		{func(c *Config) { c.HashAlgo = "md5" }, "--prefix-caching-hash-algo"},
		{func(c *Config) { c.Wire = "vllm-9" }, "--wire"},
		{func(c *Config) { c.Wire, c.IntBlockHashes = "sglang-map", false }, "--int-block-hashes=false"},
		{func(c *Config) { c.EngineFamily = "trt" }, "--engine is \"trt\""},
		{func(c *Config) { c.EngineFamily = "sglang" }, "--engine sglang needs --wire"},
		{func(c *Config) { c.Wire, c.RadixEvictionPolicy = "sglang-map", "random" }, "--radix-eviction-policy"},
		{func(c *Config) { c.Wire, c.SpeculativeAlgo = "sglang-map", "NGRAM" }, "--speculative-algorithm"},
		{func(c *Config) { c.Wire, c.HostDescribed = "sglang-map", true }, "--host-events-described is for vLLM engines"},
		{func(c *Config) { c.Wire, c.ReserveFullISL = "sglang-map", true }, "--scheduler-reserve-full-isl is for vLLM engines"},
		{func(c *Config) { c.Wire, c.RetentionInterval = "sglang-map", 64 }, "--kv-cache-retention-interval is for vLLM engines"},
		{func(c *Config) { c.Wire, c.HiCacheWritePolicy = "sglang-map", "never" }, "--hicache-write-policy"},
		{func(c *Config) { c.Wire, c.HiCacheWritePolicy = "sglang-map", "write_back" }, "without --host-blocks"},
		{func(c *Config) { c.HostBlocks, c.HiCacheWritePolicy = 10, "write_back" }, "--hicache-write-policy is for SGLang engines"},
		{func(c *Config) { c.RadixEvictionPolicy = "lfu" }, "--radix-eviction-policy is for SGLang engines"},
		{func(c *Config) { c.EnableCacheReport = true }, "--enable-cache-report is for SGLang engines"},
		{func(c *Config) { c.Wire, c.EngineFamily, c.SpeculativeAlgo = "sglang-map", "vllm", "EAGLE" }, "--speculative-algorithm is for SGLang engines"},
		{func(c *Config) { c.HostBlocks = -1 }, "--host-blocks is -1, must be from 0 to 16777216"},
		{func(c *Config) { c.SchedulingPolicy = "lifo" }, `scheduling policy "lifo"`},
		{func(c *Config) { c.Watermark = 1 }, "watermark is 1"},
		{func(c *Config) { c.KVCacheGroups = "full,swa" }, "a sliding window needs its tokens"},
		{func(c *Config) { c.KVCacheGroups = "full@32" }, "has the engine's block size, 16 tokens"},
		{func(c *Config) { c.KVCacheGroups, c.RetentionInterval = "full,swa:64@32", 48 }, "retention interval of 48"},
		{func(c *Config) { c.KVCacheGroups, c.HostBlocks = "full,swa:64", 10 }, "a host tier needs a single cache group"},
		{func(c *Config) { c.KVCacheGroups, c.Wire = "swa:64", "vllm-0.15" }, "do not tell groups apart"},
		{func(c *Config) { c.KVEventsConfig = `{"enabled":1}` }, "--kv-events-config"},
		{func(c *Config) { c.KVEventsConfig = `{"enable_kv_cache_events":true,"endpoint":"inproc://x"}` }, "--kv-events-config"},
		{func(c *Config) { c.KVEventsConfig, c.Count = `{"enable_kv_cache_events":true}`, 2 }, "would share tcp://127.0.0.1:5557"},
		{func(c *Config) { c.NumGPUBlocksOverride = 1 }, "--num-gpu-blocks-override is 1"},
		{func(c *Config) { c.MaxBodyBytes = 0 }, "--max-body-bytes is 0"},
		{func(c *Config) { c.ShutdownGrace = -1 }, "--shutdown-grace"},
		{func(c *Config) { c.TimeoutKeepAlive = 0 }, "--timeout-keep-alive"},
	} {
		cfg := defaults()
		c.change(&cfg)
		if err := Validate(cfg); err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("error %v, want one about %q", err, c.wrong)
		}
	}
	for _, fine := range []func(*Config){
		func(c *Config) { c.AdminHost = "localhost" },
		func(c *Config) { c.AdminHost, c.AdminToken = "0.0.0.0", "x" },
		func(c *Config) {
			c.KVEventsConfig, c.Count = `{"enable_kv_cache_events":true,"endpoint":"tcp://central:5557"}`, 2
		},
	} {
		cfg := defaults()
		fine(&cfg)
		if err := Validate(cfg); err != nil {
			t.Errorf("refused: %v", err)
		}
	}
}

func TestAdminTokenAndQueries(t *testing.T) {
	f := start(t, func(c *Config) { c.AdminToken = "sesame" })
	get := func(path, token string) (int, string) {
		status, _, body := f.do("GET", f.worker().Admin+path, "", "Authorization", token)
		return status, body
	}
	for _, token := range []string{"", "sesame", "Bearer", "Bearer ", "Bearer sesam", "Bearer sesame2"} {
		if status, body := get("/admin/truth", token); status != http.StatusUnauthorized {
			t.Errorf("token %q: %d %s", token, status, body)
		}
	}
	for _, c := range []struct {
		path   string
		status int
		part   string
	}{
		{"/admin/truth", 200, `"worker":"w1"`},
		{"/admin/truth/blocks?set=ghost", 200, `"set":"ghost"`},
		{"/admin/truth/blocks?set=all", 400, `parameter set is \"all\"`},
		{"/admin/truth/blocks?rank=1", 400, "parameter rank"},
		{"/admin/truth/blocks?at=5", 400, "not sent yet"},
		{"/admin/truth/blocks?at=0&set=ghost", 400, "parameter at needs set=announced"},
		{"/admin/truth/digests?from=x", 400, "parameter from"},
		{"/admin/truth/journal?form=1", 400, `parameter \"form\" is not known`},
		{"/admin/truth/requests?from=-1", 400, "parameter from"},
		{"/admin/nothing", 404, "no such path"},
	} {
		if status, body := get(c.path, "Bearer sesame"); status != c.status || !strings.Contains(body, c.part) {
			t.Errorf("%s: %d %s, want %d with %s", c.path, status, body, c.status, c.part)
		}
	}
	for _, body := range []string{"", "[", `{"tokens":[1]}`, `{"token_ids":[-1]}`} {
		status, _, text := f.do("POST", f.worker().Admin+"/admin/truth/match", body, "Authorization", "Bearer sesame")
		if status != 400 {
			t.Errorf("match %q: %d %s", body, status, text)
		}
	}
}

// A termination lets an open request end within the grace, and takes no new one.
func TestGraceLetsRequestsEnd(t *testing.T) {
	f := start(t, func(c *Config) { c.Profile, c.ShutdownGrace = "drill", patience })
	answer := make(chan string, 1)
	go func() {
		_, body := f.api("POST", "/v1/completions", `{"prompt":"a","max_tokens":40}`)
		answer <- body
	}()
	f.eventually("the request to run", func() bool { return f.truth().Ranks[0].Running == 1 })
	f.cancel()
	if body := <-answer; !strings.Contains(body, `"completion_tokens":40`) {
		t.Errorf("answer %s", body)
	}
	f.client.CloseIdleConnections()
	if err := <-f.done; err != nil {
		t.Errorf("run: %v", err)
	}
	f.done <- nil
	if conn, err := net.DialTimeout("tcp", strings.TrimPrefix(f.worker().HTTP, "http://"), time.Second); err == nil {
		conn.Close()
		t.Error("the port is still open")
	}
}

// After the grace a stream is cut, and does not look whole.
func TestGraceEnds(t *testing.T) {
	f := start(t, func(c *Config) { c.Profile, c.ShutdownGrace = "drill", 20*time.Millisecond })
	resp, err := f.client.Post(f.worker().HTTP+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a","max_tokens":100000,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	f.cancel()
	var sink strings.Builder
	buf := make([]byte, 4096)
	for err == nil {
		var n int
		n, err = resp.Body.Read(buf)
		sink.Write(buf[:n])
	}
	if err.Error() == "EOF" || strings.Contains(sink.String(), "[DONE]") {
		t.Errorf("a cut stream ended with %v", err)
	}
}

func TestReadyFileIsWrittenWhole(t *testing.T) {
	dir := t.TempDir()
	if err := writeReady(filepath.Join(dir, "none", "r.json"), nil); err == nil {
		t.Error("a missing folder is no error")
	}
	path := filepath.Join(dir, "r.json")
	if err := writeReady(path, nil); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	var f contract.ReadyFile
	if err != nil || json.Unmarshal(b, &f) != nil {
		t.Errorf("ready file %q: %v", b, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".ready-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Every field has a flag: what AddFlags leaves out nobody can set.
func TestFlagsSetTheConfig(t *testing.T) {
	var c Config
	fs := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	AddFlags(fs, &c)
	err := fs.Parse([]string{"--port", "0", "--id", "a", "--id", "b", "--count", "2", "--max-num-seqs", "7", "--seed", "9",
		"--kv-events-config", eventsOn, "--enable-prompt-tokens-details=false", "--profile", "drill", "--scheduling-policy", "priority",
		"--kv-cache-groups", "swa:128@32,full", "--watermark", "0.01", "--scheduler-reserve-full-isl"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.plan()
	if err != nil {
		t.Fatal(err)
	}
	if p.engine.MaxNumSeqs != 7 || p.engine.MaxNumBatchedTokens != 2048 || p.engine.BlockSize != 16 || p.engine.Seed != 9 ||
		p.profile != "drill" || !p.events.Enabled() || p.ids[1] != "b" || c.EnablePromptTokensDetails ||
		p.engine.SchedulingPolicy != "priority" || p.engine.Groups[0].BlockSize != 32 || p.engine.Watermark != 0.01 || !p.engine.ReserveFullISL {
		t.Errorf("plan %+v", p)
	}
}

// A connection waits for its next request as long as the flag says, and for its first one longer.
func TestConnectionsAreKept(t *testing.T) {
	f := start(t, func(c *Config) { c.TimeoutKeepAlive = 50 * time.Millisecond })
	addr := strings.TrimPrefix(f.worker().HTTP, "http://")
	open := func() net.Conn {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	ask := func(conn net.Conn) *bufio.Reader {
		if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("answer %v, %v", resp, err)
		}
		return r
	}
	unused := open()
	if _, err := ask(open()).ReadByte(); err != io.EOF {
		t.Fatalf("after an idle time: %v, want the end", err)
	}
	ask(unused) // has waited at least as long
}

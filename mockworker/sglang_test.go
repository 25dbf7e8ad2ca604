package mockworker

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"fleetdrill/internal/contract"
)

// TestSGLangWorker: a worker of an SGLang wire is one in all it shows. Its first batch is the clear of a new
// tree, pages of an output appear when the request ends, and what a router needs is in /server_info.
func TestSGLangWorker(t *testing.T) {
	for _, wire := range []string{"sglang-array", "sglang-map"} {
		t.Run(wire, func(t *testing.T) {
			f := start(t, func(c *Config) {
				c.Wire, c.KVEventsConfig = wire, `{"publisher": "zmq", "endpoint": "tcp://*:0"}`
			})
			f.eventually("the clear of the beginning", func() bool { return f.truth().Ranks[0].NextSeq == 1 })
			status, text := f.api("POST", "/generate", `{"input_ids":`+jsonOf(t, prompt(1, 40))+`,"sampling_params":{"max_new_tokens":25},"rid":"r1"}`)
			if status != 200 || !strings.Contains(text, `"finish_reason":{"type":"length","length":25}`) {
				t.Fatalf("generate: %d %s", status, text)
			}
			// Batches are queued before the answer goes out, and sent beside it.
			f.eventually("three batches", func() bool { return f.truth().Ranks[0].NextSeq == 3 })
			lines := jsonLines[contract.TruthJournal](f, "/admin/truth/journal", nil)
			if len(lines) != 3 || !lines[0].Cleared || len(lines[1].Stored) != 2 || len(lines[2].Stored) != 2 {
				t.Errorf("published %+v, want a clear, the prompt's two pages, the output's two pages", lines)
			}
			if r := f.truth().Ranks[0]; r.ResidentBlocks != 4 || r.AnnouncedBlocks != 4 || r.Ghost != 0 || r.Unannounced != 0 {
				t.Errorf("truth %+v", r)
			}
			log := jsonLines[contract.TruthRequest](f, "/admin/truth/requests", nil)
			if len(log) != 1 || log[0].ID != "r1" || log[0].OutputTokens != 25 {
				t.Errorf("request log %+v", log)
			}
			f.checkServerInfo(t)
		})
	}
}

func (f *fleet) checkServerInfo(t *testing.T) {
	t.Helper()
	var info struct {
		PageSize int `json:"page_size"`
		Events   struct {
			Host string `json:"endpoint_host"`
			Port int    `json:"endpoint_port_base"`
			Size int    `json:"block_size"`
			DP   int    `json:"dp_size"`
		} `json:"kv_events"`
	}
	_, text := f.api("GET", "/server_info", "")
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	ev := info.Events
	if info.PageSize != 16 || ev.Host != "*" || ev.Size != 16 || ev.DP != 1 || !strings.HasSuffix(f.worker().Ranks[0].Events, ":"+strconv.Itoa(ev.Port)) {
		t.Errorf("/server_info %s, events at %s", text, f.worker().Ranks[0].Events)
	}
}

// The old pair, vLLM's engine behind an SGLang wire, is still to be had.
func TestVLLMEngineOnSGLangWire(t *testing.T) {
	f := start(t, func(c *Config) { c.Wire, c.EngineFamily = "sglang-map", familyVLLM })
	if status, text := f.api("GET", "/v1/models", ""); status != 200 || !strings.Contains(text, `"owned_by":"vllm"`) {
		t.Errorf("models: %d %s", status, text)
	}
	if got := f.truth(); got.Ranks[0].NextSeq != 0 || got.HashAlgo != "sglang" {
		t.Errorf("truth %+v", got)
	}
}

// SGLang's names of flags set what vLLM's do, and their defaults are the same.
func TestSGLangFlagNames(t *testing.T) {
	var plain, named Config
	AddFlags(pflag.NewFlagSet("plain", pflag.ContinueOnError), &plain)
	fs := pflag.NewFlagSet("named", pflag.ContinueOnError)
	AddFlags(fs, &named)
	if plain.MaxModelLen != 131_072 || plain.DataParallelSize != 1 {
		t.Errorf("aliases change defaults: %+v", plain)
	}
	if err := fs.Parse(strings.Fields("--page-size 32 --chunked-prefill-size 4096 --max-running-requests 64 --context-length 8192 --dp-size 2 --lora-paths sql=/a --lora-paths b=/b")); err != nil {
		t.Fatal(err)
	}
	got := [5]int{named.BlockSize, named.MaxNumBatchedTokens, named.MaxNumSeqs, named.MaxModelLen, named.DataParallelSize}
	if want := [5]int{32, 4096, 64, 8192, 2}; got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := strings.Join(named.LoRAModules, " "); got != "sql=/a b=/b" {
		t.Errorf("adapters %s", got)
	}
}

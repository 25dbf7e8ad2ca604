package mockworker

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/api"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/metrics"
	"fleetdrill/mockworker/radix"
	"fleetdrill/mockworker/wire"
)

// The engine families: whose scheduler and cache run, and whose HTTP surface answers.
const (
	familyAuto   = "auto" // that of the wire
	familyVLLM   = "vllm"
	familySGLang = "sglang"
)

// SGLangConfig is what only an SGLang engine is told, and which family it is of.
type SGLangConfig struct {
	EngineFamily        string
	RadixEvictionPolicy string
	HiCacheWritePolicy  string
	EnableCacheReport   bool
	SpeculativeAlgo     string
}

// addSGLangFlags adds the flags, and SGLang's names of those that vLLM calls otherwise.
func addSGLangFlags(fs *pflag.FlagSet, c *Config) {
	fs.StringVar(&c.EngineFamily, "engine", familyAuto, "whose scheduler, cache and HTTP surface: vllm, sglang, or auto for that of --wire")
	fs.StringVar(&c.RadixEvictionPolicy, "radix-eviction-policy", string(radix.LRU), "which leaf an SGLang engine evicts first: "+strings.Join(radix.Policies(), ", "))
	fs.StringVar(&c.HiCacheWritePolicy, "hicache-write-policy", string(radix.WriteThrough), "when an SGLang engine copies pages to the host tier of --host-blocks: "+strings.Join(radix.WritePolicies(), ", "))
	fs.BoolVar(&c.EnableCacheReport, "enable-cache-report", false, "usage of an SGLang engine tells prompt_tokens_details.cached_tokens")
	fs.StringVar(&c.SpeculativeAlgo, "speculative-algorithm", "", "EAGLE or EAGLE3 makes an SGLang engine cache and announce pages of token pairs; it does not speculate")
	fs.StringArrayVar(&c.LoRAModules, "lora-paths", nil, "SGLang's name of --lora-modules")
	for _, alias := range []struct {
		name string
		of   *int
		is   string
	}{
		{"page-size", &c.BlockSize, "block-size"},
		{"chunked-prefill-size", &c.MaxNumBatchedTokens, "max-num-batched-tokens"},
		{"max-running-requests", &c.MaxNumSeqs, "max-num-seqs"},
		{"context-length", &c.MaxModelLen, "max-model-len"},
		{"dp-size", &c.DataParallelSize, "data-parallel-size"},
	} {
		fs.IntVar(alias.of, alias.name, *alias.of, "SGLang's name of --"+alias.is)
	}
}

// lookUpFamily chooses between the engines, once the engine's figures are known.
func (p *plan) lookUpFamily() error {
	families := []string{familyAuto, familyVLLM, familySGLang}
	onSGLang := wire.IsSGLang(p.Wire)
	switch {
	case !slices.Contains(families, p.EngineFamily):
		return fmt.Errorf("--engine is %q, must be one of %s", p.EngineFamily, strings.Join(families, ", "))
	case p.EngineFamily == familySGLang && !onSGLang:
		return fmt.Errorf("--engine sglang needs --wire sglang-array or sglang-map: %s cannot tell a salt as SGLang does", p.Wire)
	}
	if onSGLang {
		p.HashAlgo, p.engine.Hasher = "sglang", blockhash.NewSGLang()
	}
	p.sglang = onSGLang && p.EngineFamily != familyVLLM
	if !p.sglang {
		return p.onlySGLang()
	}
	if err := p.onlyVLLM(); err != nil {
		return err
	}
	if err := radix.Policy(p.RadixEvictionPolicy).Validate(); err != nil {
		return fmt.Errorf("--radix-eviction-policy: %w", err)
	}
	if err := radix.WritePolicy(p.HiCacheWritePolicy).Validate(); err != nil {
		return fmt.Errorf("--hicache-write-policy: %w", err)
	}
	if p.HiCacheWritePolicy != string(radix.WriteThrough) && p.HostBlocks == 0 {
		return errors.New("--hicache-write-policy without --host-blocks: there is no host tier to write to")
	}
	if algo := p.SpeculativeAlgo; algo != "" && !p.bigram() {
		return fmt.Errorf("--speculative-algorithm is %q, must be EAGLE or EAGLE3", algo)
	}
	return nil
}

func (c SGLangConfig) bigram() bool {
	return c.SpeculativeAlgo == "EAGLE" || c.SpeculativeAlgo == "EAGLE3"
}

// onlyVLLM refuses flags that an SGLang engine would silently pass over.
func (p *plan) onlyVLLM() error {
	for _, f := range []struct {
		flag string
		set  bool
	}{
		{"scheduling-policy", p.SchedulingPolicy != engine.PolicyFCFS},
		{"long-prefill-token-threshold", p.LongPrefillTokenThreshold != 0},
		{"watermark", p.Watermark != 0},
		{"scheduler-reserve-full-isl", p.ReserveFullISL},
		{"kv-cache-groups", p.KVCacheGroups != ""},
		{"kv-cache-retention-interval", p.RetentionInterval != 0},
		{"host-events-described", p.HostDescribed},
	} {
		if f.set {
			return fmt.Errorf("--%s is for vLLM engines: leave it out, or give --engine vllm", f.flag)
		}
	}
	return nil
}

// onlySGLang refuses flags that a vLLM engine would silently pass over.
func (p *plan) onlySGLang() error {
	for _, f := range []struct {
		flag string
		set  bool
	}{
		{"radix-eviction-policy", p.RadixEvictionPolicy != string(radix.LRU)},
		{"hicache-write-policy", p.HiCacheWritePolicy != string(radix.WriteThrough)},
		{"enable-cache-report", p.EnableCacheReport},
		{"speculative-algorithm", p.SpeculativeAlgo != ""},
	} {
		if f.set {
			return fmt.Errorf("--%s is for SGLang engines: leave it out, or give --wire sglang-array or sglang-map and no --engine vllm", f.flag)
		}
	}
	return nil
}

// readAsSGLang reads the events configuration as SGLang does, where naming a publisher enables it.
func (p *plan) readAsSGLang() {
	if p.sglang && p.events.Publisher != nil {
		p.events.EnableKVCacheEvents = true
	}
}

// newCore makes the engine of a rank.
func (p *plan) newCore(rank int, h *blockhash.Hasher) (engine.Core, error) {
	c := p.engine
	c.Rank, c.Hasher = rank, h
	if p.sglang {
		return radix.New(radix.Config{Config: c, Eviction: radix.Policy(p.RadixEvictionPolicy), Bigram: p.bigram(), WritePolicy: radix.WritePolicy(p.HiCacheWritePolicy)})
	}
	return engine.New(c)
}

// newMetrics makes the series of a worker, with the family's names.
func (p *plan) newMetrics() metrics.Family {
	o := metrics.Options{
		Model: p.Model, BlockSize: p.engine.BlockSize, NumBlocks: p.engine.NumBlocks,
		MaxModelLen: p.MaxModelLen, Caching: p.EnablePrefixCaching, HashAlgo: p.HashAlgo, Adapters: p.mostAdapters(),
	}
	if p.sglang {
		return metrics.NewSGLang(o, p.DataParallelSize)
	}
	return metrics.New(o)
}

// sglangAPI is the API port of an SGLang worker with these ranks, nil of another.
func (p *plan) sglangAPI(ranks []contract.ReadyRank) *api.SGLang {
	if !p.sglang {
		return nil
	}
	return &api.SGLang{
		CacheReport: p.EnableCacheReport,
		Events:      p.sglangEvents(ranks),
		ServerArgs: map[string]any{
			"model_path": p.Model, "served_model_name": p.Model, "tokenizer_path": p.Model, "host": p.Host,
			"page_size": p.engine.BlockSize, "max_total_num_tokens": (p.engine.NumBlocks - 1) * p.engine.BlockSize,
			"context_length": p.MaxModelLen, "chunked_prefill_size": p.engine.MaxNumBatchedTokens,
			"max_running_requests": p.engine.MaxNumSeqs, "dp_size": p.DataParallelSize, "tp_size": 1, "pp_size": 1,
			"schedule_policy": "fcfs", "radix_eviction_policy": p.RadixEvictionPolicy, "disable_radix_cache": !p.EnablePrefixCaching,
			"enable_metrics": true, "enable_cache_report": p.EnableCacheReport, "kv_events_config": p.KVEventsConfig,
			"disaggregation_mode": "null", "speculative_algorithm": orNull(p.SpeculativeAlgo), "random_seed": p.Seed,
		},
	}
}

// sglangEvents says where a router finds the events: one host, and a port from which the ranks count up. What
// cannot be said so is not said: streams that connect out, and free ports that are no run.
func (p *plan) sglangEvents(ranks []contract.ReadyRank) *api.SGLangEvents {
	ev := &api.SGLangEvents{Publisher: "zmq", Topic: p.events.Topic, BlockSize: p.engine.BlockSize, DPSize: len(ranks)}
	for i, r := range ranks {
		at, err := url.Parse(r.Events)
		if err != nil || at.Scheme != "tcp" {
			return nil
		}
		port, err := strconv.Atoi(at.Port())
		switch {
		case err != nil:
			return nil
		case i == 0:
			ev.EndpointHost, ev.EndpointPortBase = at.Hostname(), port
		case port != ev.EndpointPortBase+i:
			return nil
		}
	}
	if strings.HasPrefix(p.events.Endpoint, "tcp://*:") {
		ev.EndpointHost = "*"
	}
	return ev
}

// orNull is text, or JSON's null when it is empty.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

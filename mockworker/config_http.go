package mockworker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"fleetdrill/internal/badjson"
	"fleetdrill/mockworker/api"
	"fleetdrill/mockworker/engine"
)

// HTTPConfig is the part of a configuration that is about the API port alone.
type HTTPConfig struct {
	APIKeys                  []string
	ServerDevMode            bool
	EnableServerLoadTracking bool
	EnableRequestIDHeaders   bool
	EnableForceIncludeUsage  bool
	LoRAModules              []string
	AllowRuntimeLoRAUpdating bool
	ClientWriteTimeout       time.Duration
	TimeoutKeepAlive         time.Duration
	BootDelay                time.Duration
	BootModels               string
	adapters                 []api.Adapter
}

// The values of BootModels.
const (
	bootModelsLate  = "late"
	bootModelsEarly = "early"
)

func addHTTPFlags(fs *pflag.FlagSet, c *HTTPConfig) {
	fs.StringSliceVar(&c.APIKeys, "api-key", nil, "key that every request to /v1 must carry as a bearer token; may be given several times")
	fs.BoolVar(&c.ServerDevMode, "server-dev-mode", false, "open the routes for developers, VLLM_SERVER_DEV_MODE in the engine: sleep, wake_up, reset_prefix_cache, server_info")
	fs.BoolVar(&c.EnableServerLoadTracking, "enable-server-load-tracking", false, "make /load count the requests being served")
	fs.BoolVar(&c.EnableRequestIDHeaders, "enable-request-id-headers", false, "tell each answer's request id as X-Request-Id")
	fs.BoolVar(&c.EnableForceIncludeUsage, "enable-force-include-usage", false, "put usage into every chunk of every stream")
	fs.StringArrayVar(&c.LoRAModules, "lora-modules", nil, `LoRA adapter served as a model of its own: name=path, or {"name": ..., "path": ...}; may be given several times`)
	fs.BoolVar(&c.AllowRuntimeLoRAUpdating, "allow-runtime-lora-updating", false, "open /v1/load_lora_adapter and /v1/unload_lora_adapter, VLLM_ALLOW_RUNTIME_LORA_UPDATING in the engine")
	fs.DurationVar(&c.ClientWriteTimeout, "client-write-timeout", time.Minute, "how long a client may not read until it loses its stream")
	fs.DurationVar(&c.TimeoutKeepAlive, "timeout-keep-alive", 5*time.Second, "how long a connection stays open for its next request, VLLM_HTTP_TIMEOUT_KEEP_ALIVE in the engine")
	fs.DurationVar(&c.BootDelay, "boot-delay", 0, "how long a worker takes to start: nothing answers before")
	fs.StringVar(&c.BootModels, "boot-models", bootModelsLate, "late: the API port opens when the engine is ready; early: it opens at once, /v1/models answers, and everything else is refused with 503 until then")
}

func (p *plan) checkHTTP() error { return p.HTTPConfig.check(p.Model) }

// check looks at the flags of a worker that serves model.
func (c *HTTPConfig) check(model string) error {
	switch {
	case c.ClientWriteTimeout <= 0:
		return fmt.Errorf("--client-write-timeout is %s, must be above 0", c.ClientWriteTimeout)
	case c.TimeoutKeepAlive <= 0:
		return fmt.Errorf("--timeout-keep-alive is %s, must be above 0", c.TimeoutKeepAlive)
	case c.BootDelay < 0:
		return fmt.Errorf("--boot-delay is %s, must not be negative", c.BootDelay)
	case c.BootModels != bootModelsLate && c.BootModels != bootModelsEarly:
		return fmt.Errorf("--boot-models is %q, must be %s or %s", c.BootModels, bootModelsLate, bootModelsEarly)
	}
	for _, key := range c.APIKeys {
		if key == "" {
			return errors.New("--api-key is empty: leave it out to serve without a key")
		}
	}
	c.adapters = nil
	seen := map[string]bool{}
	for _, text := range c.LoRAModules {
		a, err := parseAdapter(text)
		if err != nil {
			return fmt.Errorf("--lora-modules: %w", err)
		}
		switch {
		case a.Name == model:
			return fmt.Errorf("--lora-modules: %s is the name of --model: nobody could ask for the adapter", a.Name)
		case seen[a.Name]:
			return fmt.Errorf("--lora-modules: %s is given twice", a.Name)
		}
		seen[a.Name] = true
		c.adapters = append(c.adapters, a)
	}
	return nil
}

// parseAdapter reads an adapter in either of the forms that the engine takes.
func parseAdapter(text string) (api.Adapter, error) {
	var a struct {
		Name string `json:"name"`
		Path string `json:"path"`
	}
	if strings.HasPrefix(text, "{") {
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			return api.Adapter{}, fmt.Errorf("reading %s: %w", text, badjson.Error(err))
		}
	} else {
		a.Name, a.Path, _ = strings.Cut(text, "=")
	}
	if a.Name == "" || a.Path == "" {
		return api.Adapter{}, fmt.Errorf("%q has no name or no path: want name=path", text)
	}
	return api.Adapter{Name: a.Name, Path: a.Path}, nil
}

// apiOptions are the options of worker's API, without what only a running worker has.
func (p *plan) apiOptions() api.Options {
	return api.Options{
		Model: p.Model, Version: engineVersion(p.Wire), BlockSize: p.engine.BlockSize, NumBlocks: p.engine.NumBlocks,
		MaxModelLen: p.MaxModelLen, ChatMaxTokens: p.ChatMaxTokens, MaxBodyBytes: p.MaxBodyBytes,
		PromptTokensDetails: p.EnablePromptTokensDetails,
		APIKeys:             p.APIKeys, DevMode: p.ServerDevMode, Info: p.info(), TrackLoad: p.EnableServerLoadTracking,
		RequestIDHeaders: p.EnableRequestIDHeaders, ForceIncludeUsage: p.EnableForceIncludeUsage,
		Adapters: p.adapters, RuntimeAdapters: p.AllowRuntimeLoRAUpdating, WriteTimeout: p.ClientWriteTimeout, Seed: p.Seed,
		Priority: p.engine.SchedulingPolicy == engine.PolicyPriority,
	}
}

// info is the configuration as /server_info tells it, by the engine's names.
func (p *plan) info() any {
	type section = map[string]any
	var events any
	if p.events.Enabled() {
		events = section{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": p.events.Endpoint, "replay_endpoint": p.events.ReplayEndpoint}
	}
	return section{
		"model_config": section{"model": p.Model, "max_model_len": p.MaxModelLen, "seed": p.Seed},
		"cache_config": section{
			"block_size": p.engine.BlockSize, "num_gpu_blocks": p.engine.NumBlocks,
			"enable_prefix_caching": p.EnablePrefixCaching, "prefix_caching_hash_algo": p.HashAlgo,
		},
		"scheduler_config": section{"max_num_seqs": p.engine.MaxNumSeqs, "max_num_batched_tokens": p.engine.MaxNumBatchedTokens},
		"parallel_config":  section{"data_parallel_size": p.DataParallelSize},
		"kv_events_config": events,
	}
}

// mostAdapters is the number of LoRA adapters that metrics call the most; 0 is an engine without.
func (c *HTTPConfig) mostAdapters() int {
	if len(c.adapters) == 0 && c.AllowRuntimeLoRAUpdating {
		return 1
	}
	return len(c.adapters)
}

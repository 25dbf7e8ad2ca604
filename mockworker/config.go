package mockworker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/publish"
	"fleetdrill/mockworker/wire"
)

// Config is what a worker process is told; AddFlags documents each field and sets the defaults.
type Config struct {
	Host       string
	Port       int
	AdminHost  string
	AdminPort  int
	AdminToken string

	Model                string
	BlockSize            int
	NumGPUBlocksOverride int
	MaxNumSeqs           int
	MaxNumBatchedTokens  int
	MaxModelLen          int
	DataParallelSize     int
	EnablePrefixCaching  bool
	HashAlgo             string
	HashSeed             string
	KVEventsConfig       string
	IntBlockHashes       bool
	ReplayHWM            int
	Wire                 string
	Profile              string
	Seed                 uint64

	EnablePromptTokensDetails bool
	ChatMaxTokens             int
	MaxBodyBytes              int64

	EngineConfig
	FaultConfig
	GRPCConfig
	HTTPConfig
	LoadsConfig
	SGLangConfig

	Count         int
	IDs           []string
	ReadyFile     string
	ShutdownGrace time.Duration

	// Log may be nil.
	Log *slog.Logger
}

// AddFlags adds a flag for every field of c and sets the fields to the defaults. Names are vLLM's where
// vLLM has one.
func AddFlags(fs *pflag.FlagSet, c *Config) {
	fs.StringVar(&c.Host, "host", "127.0.0.1", "address that the API binds, and that * in an event endpoint means")
	fs.IntVar(&c.Port, "port", 8000, "API port; 0 picks a free one; with --count the first of consecutive ones")
	fs.StringVar(&c.AdminHost, "admin-host", "127.0.0.1", "address that the admin API binds; other than loopback needs --admin-token")
	fs.IntVar(&c.AdminPort, "admin-port", 0, "admin port, as --port")
	fs.StringVar(&c.AdminToken, "admin-token", "", "bearer token that every admin request must carry")

	fs.StringVar(&c.Model, "model", "mock-8b", "name of the one model served")
	fs.IntVar(&c.BlockSize, "block-size", 0, "tokens of one KV block; 0 = the profile's")
	fs.IntVar(&c.NumGPUBlocksOverride, "num-gpu-blocks-override", 0, "KV blocks of one rank, the null block included; 0 = the profile's")
	fs.IntVar(&c.MaxNumSeqs, "max-num-seqs", 0, "requests running at once in one rank; 0 = the profile's")
	fs.IntVar(&c.MaxNumBatchedTokens, "max-num-batched-tokens", 0, "tokens of one step; 0 = the profile's")
	fs.IntVar(&c.MaxModelLen, "max-model-len", 131_072, "prompt and output tokens of one request")
	fs.IntVar(&c.DataParallelSize, "data-parallel-size", 1, "ranks, each with its own engine, cache and event stream")
	fs.BoolVar(&c.EnablePrefixCaching, "enable-prefix-caching", true, "reuse cached prefixes, and announce them if events are on")
	fs.StringVar(&c.HashAlgo, "prefix-caching-hash-algo", "sha256", "block hash: sha256, sha256_cbor, xxhash or xxhash_cbor; with an SGLang wire always SGLang's")
	fs.StringVar(&c.HashSeed, "hash-seed", "vllm-none-hash", "seed of block hashes, PYTHONHASHSEED in the engine; "+RandomHashSeed+" draws another one for every rank")
	fs.StringVar(&c.KVEventsConfig, "kv-events-config", "", "KV event publisher, as vLLM's JSON; empty = no events")
	fs.BoolVar(&c.IntBlockHashes, "int-block-hashes", true, "hashes in events as 64-bit integers, VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES in the engine")
	fs.IntVar(&c.ReplayHWM, "replay-hwm", 0, "replay frames waiting for one peer before further ones are lost (real engines: 1000); 0 = none is lost")
	fs.StringVar(&c.Wire, "wire", "vllm-0.25", "engine version whose event and replay bytes are sent: "+strings.Join(wire.Names(), ", "))
	fs.StringVar(&c.Profile, "profile", "fast", "timing profile: a built-in name or a path")
	fs.Uint64Var(&c.Seed, "seed", 1, "seed of the output tokens")

	fs.BoolVar(&c.EnablePromptTokensDetails, "enable-prompt-tokens-details", true, "usage tells prompt_tokens_details.cached_tokens, 0 too (a real engine: off, and left out when 0)")
	fs.IntVar(&c.ChatMaxTokens, "chat-max-tokens", 256, "output tokens of a chat request that sets no maximum: mock engines never stop by themselves")
	fs.Int64Var(&c.MaxBodyBytes, "max-body-bytes", 8<<20, "longest request body")

	addEngineFlags(fs, &c.EngineConfig)
	addFaultFlags(fs, &c.FaultConfig)
	addHTTPFlags(fs, &c.HTTPConfig)
	addGRPCFlags(fs, &c.GRPCConfig)
	addLoadsFlags(fs, &c.LoadsConfig)
	addSGLangFlags(fs, c)

	fs.IntVar(&c.Count, "count", 1, "workers in this process")
	fs.StringSliceVar(&c.IDs, "id", nil, "id of a worker, once per worker; default w1, w2, ...")
	fs.StringVar(&c.ReadyFile, "ready-file", "", "file written with all ports once everything serves")
	fs.DurationVar(&c.ShutdownGrace, "shutdown-grace", 5*time.Second, "how long open requests may go on after a termination signal")
}

// Validate says what is wrong with c, naming the flag; nil when Run can begin to bind.
func Validate(c Config) error {
	_, err := c.plan()
	return err
}

// plan is a configuration with everything looked up that can be without opening a socket.
type plan struct {
	Config
	engine  engine.Config // Rank 0
	events  publish.Config
	ids     []string
	profile string // its name
	sglang  bool   // rather than vLLM
}

func (c Config) plan() (*plan, error) {
	p := &plan{Config: c}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	for _, check := range []func() error{p.checkNumbers, p.checkAdmin, p.checkIDs, p.lookUpEngine, p.lookUpCache, p.lookUpFamily, p.lookUpEvents, p.FaultConfig.check, p.checkLoads, p.checkHTTP} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *plan) checkNumbers() error {
	for _, f := range []struct {
		flag           string
		got, min, most int
	}{
		{"port", p.Port, 0, 65_535},
		{"admin-port", p.AdminPort, 0, 65_535},
		{"count", p.Count, 1, 1024},
		{"data-parallel-size", p.DataParallelSize, 1, 64},
		{"block-size", p.BlockSize, 0, 1 << 16},
		{"num-gpu-blocks-override", p.NumGPUBlocksOverride, 0, 1 << 24},
		{"max-num-seqs", p.MaxNumSeqs, 0, 1 << 20},
		{"max-num-batched-tokens", p.MaxNumBatchedTokens, 0, 1 << 24},
		{"max-model-len", p.MaxModelLen, 2, 1 << 24},
		{"chat-max-tokens", p.ChatMaxTokens, 1, 1 << 24},
		{"replay-hwm", p.ReplayHWM, 0, 1 << 30},
	} {
		if f.got < f.min || f.got > f.most {
			return fmt.Errorf("--%s is %d, must be from %d to %d", f.flag, f.got, f.min, f.most)
		}
	}
	if p.Port != 0 && p.Port+p.Count-1 > 65_535 {
		return fmt.Errorf("--port %d leaves no room for --count %d consecutive ports", p.Port, p.Count)
	}
	if p.AdminPort != 0 && p.AdminPort+p.Count-1 > 65_535 {
		return fmt.Errorf("--admin-port %d leaves no room for --count %d consecutive ports", p.AdminPort, p.Count)
	}
	if err := p.checkGRPC(p.Count); err != nil {
		return err
	}
	if p.MaxBodyBytes < 1 {
		return fmt.Errorf("--max-body-bytes is %d, must be at least 1", p.MaxBodyBytes)
	}
	if p.ShutdownGrace < 0 {
		return fmt.Errorf("--shutdown-grace is %s, must not be negative", p.ShutdownGrace)
	}
	return nil
}

func (p *plan) checkAdmin() error {
	if p.AdminToken == "" && !loopback(p.AdminHost) {
		return fmt.Errorf("--admin-host %s can be reached from other machines: give --admin-token, or bind a loopback address", p.AdminHost)
	}
	if p.Model == "" {
		return errors.New("--model is empty")
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (p *plan) checkIDs() error {
	p.ids = p.IDs
	if len(p.ids) == 0 {
		for i := range p.Count {
			p.ids = append(p.ids, "w"+strconv.Itoa(i+1))
		}
	}
	if len(p.ids) != p.Count {
		return fmt.Errorf("--id is given %d times for --count %d workers", len(p.ids), p.Count)
	}
	seen := map[string]bool{}
	for _, id := range p.ids {
		if id == "" || seen[id] {
			return fmt.Errorf("--id %q is empty or given twice", id)
		}
		seen[id] = true
	}
	return nil
}

// lookUpEngine fills what the flags leave to the profile.
func (p *plan) lookUpEngine() error {
	prof, err := engine.LoadProfile(p.Profile)
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	hasher, err := blockhash.New(p.HashAlgo, p.HashSeed)
	if err != nil {
		return fmt.Errorf("--prefix-caching-hash-algo: %w", err)
	}
	or := func(flag int, f engine.Figure) int {
		if flag != 0 {
			return flag
		}
		return f.Int()
	}
	p.profile = prof.Name
	p.engine = engine.Config{
		BlockSize: or(p.BlockSize, prof.BlockSize), NumBlocks: or(p.NumGPUBlocksOverride, prof.NumBlocks),
		MaxNumSeqs: or(p.MaxNumSeqs, prof.MaxNumSeqs), MaxNumBatchedTokens: or(p.MaxNumBatchedTokens, prof.MaxNumBatchedTokens),
		MaxModelLen: p.MaxModelLen, EnablePrefixCaching: p.EnablePrefixCaching,
		Hasher: hasher, Timing: prof.Timing(), Seed: p.Seed,
	}
	if p.engine.NumBlocks < 2 {
		return fmt.Errorf("--num-gpu-blocks-override is %d, must be at least 2", p.engine.NumBlocks)
	}
	return nil
}

func (p *plan) lookUpEvents() (err error) {
	if _, err := wire.New(p.Wire, wire.Options{IntHashes: p.IntBlockHashes}); err != nil {
		return fmt.Errorf("--wire, with --int-block-hashes=%t: %w", p.IntBlockHashes, err)
	}
	if p.events, err = publish.ParseConfig(p.KVEventsConfig); err != nil {
		return fmt.Errorf("--kv-events-config: %w", err)
	}
	p.readAsSGLang()
	if !p.events.Enabled() {
		return nil
	}
	for rank := range p.DataParallelSize {
		if err := p.checkEndpoints(rank); err != nil {
			return fmt.Errorf("--kv-events-config: %w", err)
		}
	}
	return nil
}

// checkEndpoints refuses what would only show as a failed bind, or as no events at all.
func (p *plan) checkEndpoints(rank int) error {
	events, err := publish.ResolveEvents(p.events.Endpoint, p.Host, rank, wire.IsSGLang(p.Wire))
	if err != nil {
		return err
	}
	targets := []publish.Target{events}
	if p.events.ReplayEndpoint != nil {
		replay, err := publish.ResolveReplay(*p.events.ReplayEndpoint, p.Host, rank)
		if err != nil {
			return err
		}
		targets = append(targets, replay)
	}
	for _, t := range targets {
		if p.Count > 1 && t.Bind && !t.AnyPort() {
			return fmt.Errorf("with --count %d the workers would share %s: use port 0 and read the ports from --ready-file", p.Count, t.Endpoint)
		}
	}
	return nil
}

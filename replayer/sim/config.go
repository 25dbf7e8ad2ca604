package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"fleetdrill/gateway/index/kinds"
	"fleetdrill/gateway/policy"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/late"
	"fleetdrill/replayer/plan"
)

// The load reports that workers can give.
const (
	// LoadVLLM has running, waiting, KV usage and steps, as vLLM's metrics do.
	LoadVLLM = "vllm"
	// LoadFull has the uncached tokens of the queue and the generation rate too.
	LoadFull = "full"
)

// HashChain64 names the chained 64-bit hash that stands in for an engine's own block hash.
const HashChain64 = "chain64"

// The defaults of a Config.
const (
	DefaultEventDelay  = time.Millisecond
	DefaultLinkDelay   = 150 * time.Microsecond
	DefaultLoadEvery   = time.Second
	DefaultLoadMaxAge  = 3 * time.Second
	DefaultMaxModelLen = 131_072 // tokens, the worker's own default
)

// Config is one simulated run.
type Config struct {
	// Plan is what is asked. It is only read.
	Plan *plan.Plan

	// Workers is how many there are, w1..wN of one rank each.
	Workers int
	// Policy is a name of gateway/policy. KVIndex is the gateway's index, empty for its default.
	Policy  string
	KVIndex string
	// Retries bounds the further attempts of a request that the fleet ended.
	Retries int

	// Profile sizes and times every engine; NumBlocks, BlockSize (tokens), MaxNumSeqs and
	// MaxNumBatchedTokens override it when not 0.
	Profile             engine.Profile
	NumBlocks           int
	BlockSize           int
	MaxNumSeqs          int
	MaxNumBatchedTokens int
	// ReserveFullISL admits a request only when all of its prompt fits.
	ReserveFullISL bool
	// Late holds back the removals that engines announce.
	Late late.Options
	// MaxModelLen bounds prompt and answer together, in tokens; 0 means DefaultMaxModelLen.
	MaxModelLen int
	// Hash is HashChain64, which empty means, or an algorithm of mockworker/blockhash.
	Hash string
	// Seed decides every draw: ties of the policy and output tokens.
	Seed uint64

	// EventDelay is from the end of a step to its batch at the gateway. LinkDelay is one way between the
	// gateway, where the client is, and a worker's request port. 0 means the default of either.
	EventDelay, LinkDelay time.Duration
	// LoadReport is LoadVLLM, which empty means, or LoadFull. Records are polled every LoadEvery, or with
	// LoadPush sent with every batch and at least each LoadEvery. One older than LoadMaxAge is not used. 0
	// means the default of either.
	LoadReport            string
	LoadPush              bool
	LoadEvery, LoadMaxAge time.Duration

	// Wire sends every batch through the engine's encoder and the gateway's decoder. It changes no figure
	// and costs time.
	Wire bool
	// Progress, if set, is called about once per second of virtual time with the requests ended so far.
	Progress func(ended int, virtualNs int64)
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (c Config) withDefaults() Config {
	c.KVIndex = orElse(c.KVIndex, kinds.Default)
	c.NumBlocks = orElse(c.NumBlocks, c.Profile.NumBlocks.Int())
	c.BlockSize = orElse(c.BlockSize, c.Profile.BlockSize.Int())
	c.MaxNumSeqs = orElse(c.MaxNumSeqs, c.Profile.MaxNumSeqs.Int())
	c.MaxNumBatchedTokens = orElse(c.MaxNumBatchedTokens, c.Profile.MaxNumBatchedTokens.Int())
	c.MaxModelLen = orElse(c.MaxModelLen, DefaultMaxModelLen)
	c.Hash = orElse(c.Hash, HashChain64)
	c.EventDelay = orElse(c.EventDelay, DefaultEventDelay)
	c.LinkDelay = orElse(c.LinkDelay, DefaultLinkDelay)
	c.LoadReport = orElse(c.LoadReport, LoadVLLM)
	c.LoadEvery = orElse(c.LoadEvery, DefaultLoadEvery)
	c.LoadMaxAge = orElse(c.LoadMaxAge, DefaultLoadMaxAge)
	return c
}

// maxWorkers bounds a fleet: the order of events has 16 bits for a worker.
const maxWorkers = 1 << 14

func (c Config) validate() error {
	switch {
	case c.Plan == nil || len(c.Plan.Requests) == 0:
		return errors.New("a simulation needs requests")
	case c.Workers < 1 || c.Workers > maxWorkers:
		return fmt.Errorf("workers %d: want 1 to %d", c.Workers, maxWorkers)
	case !slices.Contains(policy.Names, c.Policy):
		return fmt.Errorf("policy %q is not known", c.Policy)
	case c.LoadReport != LoadVLLM && c.LoadReport != LoadFull:
		return fmt.Errorf("load report %q: want %s or %s", c.LoadReport, LoadFull, LoadVLLM)
	case min(c.EventDelay, c.LinkDelay, c.LoadEvery, c.LoadMaxAge) < 0 || c.Retries < 0:
		return errors.New("delays, periods and retries must not be negative")
	}
	return c.Late.Validate()
}

// hasher is the engines' block hash.
func (c Config) hasher() (*blockhash.Hasher, error) {
	if c.Hash == HashChain64 {
		return blockhash.NewChain64(), nil
	}
	return blockhash.New(c.Hash, blockhash.DefaultSeed)
}

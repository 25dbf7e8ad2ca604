package sim

import (
	"time"

	"fleetdrill/mockworker/engine"
	"fleetdrill/replayer/trace"
)

// Request is one request to come.
type Request struct {
	// AtNs is when the client sends it, in ns of virtual time from 0; requests are given in this order.
	AtNs int64
	// Prompt appends the prompt's token ids. It must be pure: it is called on another goroutine, once.
	Prompt func(dst []uint32) []uint32
	// MaxTokens is the length of the answer, in tokens, at least 1.
	MaxTokens int
}

// FromRows makes requests of rows of a trace that come at the instants at, in ns; answers are cut to
// maxOutput tokens and have at least one.
func FromRows(rows []trace.Row, at []int64, maxOutput int) []Request {
	out := make([]Request, len(rows))
	for i := range rows {
		row := &rows[i]
		out[i] = Request{
			AtNs:      at[i],
			Prompt:    func(dst []uint32) []uint32 { return trace.Tokens(dst, row) },
			MaxTokens: max(1, min(row.Output, maxOutput)),
		}
	}
	return out
}

// The load reports that workers can give.
const (
	// LoadFull has every field.
	LoadFull = "full"
	// LoadVLLM has running, waiting, KV usage and steps, as vLLM's metrics do.
	LoadVLLM = "vllm"
)

// HashChain64 names the chained 64-bit hash that stands in for an engine's own block hash: ten times
// faster and as good at telling blocks apart.
const HashChain64 = "chain64"

// Config is one simulated run. A zero value of what says so means the default in its comment.
type Config struct {
	Requests []Request

	// Workers are w1..wN, with one rank each.
	Workers int
	// Policy is a name of gateway/policy, KVIndex one of gateway (default maptree).
	Policy  string
	KVIndex string
	// Profile sizes and times every engine; NumBlocks and BlockSize override it when not 0.
	Profile   engine.Profile
	NumBlocks int
	BlockSize int
	// MaxModelLen bounds prompt and answer, in tokens (default: no bound but the pool's).
	MaxModelLen int
	// Hash is HashChain64 (default) or an algorithm of mockworker/blockhash.
	Hash string
	// Seed decides every draw: ties of the policy, output tokens.
	Seed uint64

	// EventDelay is from the end of a step to its batch at the gateway (default 1 ms), LinkDelay one way
	// between client, gateway and worker's request port together (default 150 us).
	EventDelay, LinkDelay time.Duration
	// LoadReport is LoadFull (default) or LoadVLLM. Records are polled every LoadEvery (default 1 s), or
	// pushed with every batch and at least each LoadEvery. Older ones than LoadMaxAge (default 3 s) are not
	// used.
	LoadReport string
	LoadPush   bool
	LoadEvery  time.Duration
	LoadMaxAge time.Duration

	// Wire sends every batch through the engine's encoder and the gateway's decoder, which changes no
	// result and costs time.
	Wire bool
	// Progress, if set, is called now and then with the number of requests ended and the virtual time.
	Progress func(ended int, virtualNs int64)
}

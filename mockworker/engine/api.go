package engine

import (
	"errors"
	"fmt"

	"fleetdrill/mockworker/blockhash"
)

// Why Add refuses a request. Both are the client's fault (HTTP 400) and final.
var (
	// ErrTooLong: prompt and output together exceed MaxModelLen.
	ErrTooLong = errors.New("request is longer than the model's context")
	// ErrNeverFits: the request alone needs more blocks than the pool has, so no preemption could help.
	ErrNeverFits = errors.New("request can never fit into the KV cache")
	// ErrBadRequest: no prompt token, no output token asked for, or an id that is in use.
	ErrBadRequest = errors.New("bad engine request")
)

// Config is what an engine is made of. Lengths are in tokens, NumBlocks counts the null block.
type Config struct {
	// Rank is the data-parallel rank, for error messages.
	Rank      int
	BlockSize int
	NumBlocks int
	// MaxNumSeqs caps the running requests, MaxNumBatchedTokens the tokens of one step.
	MaxNumSeqs          int
	MaxNumBatchedTokens int
	MaxModelLen         int
	// SchedulingPolicy is PolicyFCFS, which empty is too, or PolicyPriority.
	SchedulingPolicy string
	// LongPrefillTokenThreshold bounds the tokens of one request in a step; 0 does not.
	LongPrefillTokenThreshold int
	// ReserveFullISL admits a request only when all of it fits into the free blocks, not only its first
	// chunk; it gets the blocks of the chunk.
	ReserveFullISL bool
	// Watermark is the share of blocks that an admission leaves free while others run, 0 to below 1.
	Watermark float64
	// Groups are the cache groups in order of their index; none is one group of full attention.
	Groups []Group
	// RetentionInterval is the distance in tokens of the positions where a window group keeps a tail for
	// hits, a multiple of every block size; 0 is the smallest possible.
	RetentionInterval int
	// HostBlocks is the size of the host tier, 0 is no tier. vLLM's takes what the device evicts and needs a
	// single group; package radix has SGLang's.
	HostBlocks int
	// HostDescribed lets the stores of the host tier tell tokens and parent; otherwise they are the
	// placeholders that vLLM sends, which name hashes only.
	HostDescribed bool
	// EnablePrefixCaching false hashes, caches and announces nothing.
	EnablePrefixCaching bool
	// Hasher is needed with prefix caching.
	Hasher *blockhash.Hasher
	Timing Timing
	// Seed decides the output tokens, together with request id and position.
	Seed uint64
}

func (c Config) validate() error {
	for _, f := range []struct {
		name string
		got  int
		min  int
	}{
		{"block size", c.BlockSize, 1},
		{"number of blocks", c.NumBlocks, 2},
		{"max_num_seqs", c.MaxNumSeqs, 1},
		{"max_num_batched_tokens", c.MaxNumBatchedTokens, 1},
		{"max_model_len", c.MaxModelLen, 2},
	} {
		if f.got < f.min {
			return fmt.Errorf("%s is %d, must be at least %d", f.name, f.got, f.min)
		}
	}
	if c.EnablePrefixCaching && c.Hasher == nil {
		return errors.New("prefix caching needs a hasher")
	}
	if err := errors.Join(c.validateScheduling(), c.validateCache()); err != nil {
		return err
	}
	return c.Timing.validate()
}

func (c Config) validateScheduling() error {
	switch c.SchedulingPolicy {
	case "", PolicyFCFS, PolicyPriority:
	default:
		return fmt.Errorf("scheduling policy %q is not known: have %s, %s", c.SchedulingPolicy, PolicyFCFS, PolicyPriority)
	}
	switch {
	case c.MaxNumSeqs > maxRefs:
		return fmt.Errorf("max_num_seqs is %d, must be at most %d", c.MaxNumSeqs, maxRefs)
	case c.LongPrefillTokenThreshold < 0:
		return fmt.Errorf("long_prefill_token_threshold is %d, must not be negative", c.LongPrefillTokenThreshold)
	case !(c.Watermark >= 0 && c.Watermark < 1):
		return fmt.Errorf("watermark is %v, must be from 0 to below 1", c.Watermark)
	}
	return nil
}

func (c Config) validateCache() error {
	if len(c.Groups) > groupMax {
		return fmt.Errorf("%d cache groups, at most %d", len(c.Groups), groupMax)
	}
	for i, g := range c.Groups {
		if err := g.validate(c.BlockSize); err != nil {
			return fmt.Errorf("cache group %d: %w", i, err)
		}
		if r := c.RetentionInterval; r < 0 || r%g.BlockSize != 0 {
			return fmt.Errorf("retention interval of %d tokens, must be a multiple of the %d tokens of a block of group %d", r, g.BlockSize, i)
		}
	}
	switch {
	case c.HostBlocks < 0:
		return fmt.Errorf("host tier of %d blocks", c.HostBlocks)
	case c.HostBlocks > 0 && len(c.Groups) > 1:
		return errors.New("a host tier needs a single cache group")
	case c.HostBlocks > 0 && len(c.Groups) == 1 && c.Groups[0].windowed():
		return errors.New("a host tier needs a cache group that holds the whole context")
	}
	return nil
}

// Request is one generation to do. Tokens are copied by Add.
type Request struct {
	ID     string
	Tokens []uint32
	// MaxTokens is the number of output tokens, at least 1. Requests end there and nowhere else, which
	// makes MinTokens and IgnoreEOS true of every request.
	MaxTokens int
	MinTokens int
	IgnoreEOS bool
	// LoRAName and CacheSalt separate prefix caches; LoRAID goes into events when LoRAName is set.
	LoRAName  string
	LoRAID    int
	CacheSalt string
	// Priority orders requests under PolicyPriority, the lowest first; otherwise it has no effect.
	Priority int
	// ReportFull announces the prefix found in the cache too, by one store when the request is first
	// scheduled (kv_cache_report_mode "full").
	ReportFull bool
	// Reuse bounds the tokens of its prefix that may be taken from the cache; nil is no bound. Who wants to know
	// what the model thought of a prompt must have it computed: vLLM then reads no cache at all (0), SGLang up to
	// where the question begins. vLLM's engine knows 0 and nil.
	Reuse *int
	// PrefillOnly ends a request with its prompt: the token that MaxTokens, 1, asks for is not counted, and its
	// reader drops it.
	PrefillOnly bool
	// Ref is the caller's own number for the request; its Outputs carry it.
	Ref int
	// Hashes, if set, are those of the prompt's full blocks as Config.Hasher makes them, worked out
	// beforehand. They are copied by Add.
	Hashes []blockhash.Digest
}

// StepResult is one scheduler step. Outputs and Events are valid until the next Step.
type StepResult struct {
	// Worked is false when there was nothing to do: the caller waits for Add or Abort.
	Worked bool
	// Until is when the outputs exist and the events may be published, in ns of the caller's clock. It
	// equals the step's beginning when no model pass ran (only aborted requests left).
	Until   int64
	Outputs []Output
	Events  []Event
}

// The values of Output.Finish that this engine produces.
const (
	FinishLength = "length"
	FinishAbort  = "abort"
)

// Output is one sampled token of one request, or its abort (no token, Index -1).
type Output struct {
	ID string
	// Ref is the request's.
	Ref   int
	Token uint32
	// Index counts output tokens from 0.
	Index int
	// Finish is empty while the request goes on; the last Output carries Stats too.
	Finish string
	// CachedTokens is the prefix found in the cache when the request was first scheduled.
	CachedTokens int
	Stats        *RequestStats
}

// RequestStats is the life of a finished request. Stamps are ns of the caller's clock, 0 for what never
// happened.
type RequestStats struct {
	Arrival, Scheduled, FirstToken, LastToken int64
	CachedTokens, Prompt, Output              int
	// Preemptions counts how often it was thrown out and recomputed.
	Preemptions int
	// Outcome is FinishLength or FinishAbort.
	Outcome string
}

// Load is a snapshot of how busy the engine is.
type Load struct {
	Running, Waiting int
	// MaxRunning is the most that may run at once.
	MaxRunning int
	// WaitingDeferred are those of Waiting that wait for something else than room. Nothing makes a request
	// of this engine do so.
	WaitingDeferred int
	// WaitingUncachedTokens sums, over the waiting, the tokens not found in the cache when each was queued.
	WaitingUncachedTokens int64
	// KVUsage is the share of blocks in use, 0 to 1; cached blocks nobody uses count as free.
	KVUsage float64
	// UsedTokens are the tokens of running requests that are computed or found, each request's counted though
	// they share blocks; MaxTokens is what the pool can hold and TokenUsage the one over the other, at most
	// 1. Idle cached blocks are not used.
	UsedTokens, MaxTokens int64
	TokenUsage            float64
	// GenRate is output tokens per second of the passes that decode, HitRate the share of prompt tokens found
	// in the cache; both are moving averages, with a weight of 0.3 for a pass and 0.2 for a request.
	GenRate, HitRate float64
	// Steps counts model passes.
	Steps int64
}

// Counters only grow.
type Counters struct {
	// PrefixQueries and PrefixHits are tokens looked up and found, once per request.
	PrefixQueries, PrefixHits int64
	// ExternalQueries and ExternalHits are the same for the host tier, asked for what the device has not.
	ExternalQueries, ExternalHits int64
	Preemptions                   int64
	// PromptTokens are counted with a request's first token, GenerationTokens one by one.
	PromptTokens, GenerationTokens int64
	FinishedLength, FinishedAbort  int64
}

// Block is one distinct engine hash in the prefix cache.
type Block struct {
	Hash blockhash.Digest
	// Parent is the event integer of the block before, meaningless at Position 0.
	Parent   uint64
	Position int
	// Content is the chain's content hash: namespace of adapter and salt mixed into position 0.
	Content uint64
	// Copies counts physical copies; InUse says that a running request refers to one.
	Copies int
	InUse  bool
	// Medium is the tier that holds it, as its events call it; Group and SpecKind are the cache group's,
	// NoGroup and empty in the host tier.
	Medium   string
	Group    int
	SpecKind string
}

package result

import "fleetdrill/replayer/load"

// Outcomes of a request, those of a load.
const (
	OK      = load.OutcomeOK
	Failed  = load.OutcomeFailed
	Aborted = load.OutcomeAborted
	Open    = load.OutcomeOpen
)

// Request is one request of a replay: one line of requests.jsonl. Its first keys are those of a Mooncake
// row, so that the record of a replay is a trace that can be replayed again.
type Request struct {
	TimestampMs float64  `json:"timestamp"`
	Input       int      `json:"input_length"`
	Output      int      `json:"output_length"`
	Session     string   `json:"session_id,omitempty"`
	IDs         []uint64 `json:"hash_ids"`

	// N numbers the requests of a replay in scheduled order from 0, Row is the row's number in its trace.
	// ID is the request's X-Request-Id.
	N   int    `json:"n"`
	Row int    `json:"row"`
	ID  string `json:"id"`
	// Warmup requests are sent and left out of every figure.
	Warmup bool `json:"warmup,omitempty"`

	// ScheduledNs is when the request was due, in ns after the start of the replay. All other times are ns
	// after that instant, so that a latency is never flattered by a late send. SendLagNs is when it left, -1 when it
	// never did.
	ScheduledNs int64 `json:"scheduled_ns"`
	SendLagNs   int64 `json:"send_lag_ns"`
	// PlacedNs is the placement instant, -1 when it is not known. In a simulation it is the gateway's own; live
	// it is the nearest instant that can be seen from outside, the request's arrival at its engine.
	PlacedNs int64 `json:"placed_ns"`
	// EngineNs is when the engine first scheduled the request, -1 when it is not known.
	EngineNs int64 `json:"engine_ns"`
	// TTFTNs is the first token, E2ENs the end of the answer; 0 for what never happened.
	TTFTNs int64 `json:"ttft_ns"`
	E2ENs  int64 `json:"e2e_ns"`
	// GapsNs are the pauses between successive tokens.
	GapsNs []int64 `json:"gaps_ns,omitempty"`

	// Worker served the request, empty when none did. Attempts counts the workers tried.
	Worker   string `json:"worker"`
	Attempts int    `json:"attempts"`
	// PromptTokens and MaxTokens were asked; Cached and OutputTokens are what the engine reported.
	PromptTokens int `json:"prompt_tokens"`
	MaxTokens    int `json:"max_tokens"`
	Cached       int `json:"cached"`
	OutputTokens int `json:"completion_tokens"`
	// Predicted are the cached tokens that the gateway promised, -1 when it promised nothing.
	Predicted int `json:"predicted"`

	// Best are the tokens that the best holder of the fleet had at the placement instant, Held those of the
	// chosen worker at that instant; -1 when the engines' truth is not known. Pooled and Unbounded are the
	// tokens that the model caches would have reused. All are capped as an engine caps (oracle.Tokens).
	Best      int `json:"best_tokens"`
	Held      int `json:"held_tokens"`
	Pooled    int `json:"pooled_tokens"`
	Unbounded int `json:"unbounded_tokens"`
	// StalenessNs is the age of the newest batch that the gateway had applied when it placed the request,
	// -1 when it is not known.
	StalenessNs int64 `json:"staleness_ns"`

	Preemptions int    `json:"preemptions,omitempty"`
	Outcome     string `json:"outcome"`
	Error       string `json:"error,omitempty"`
}

// TPOTNs is the time per output token after the first, 0 for answers of fewer than two tokens.
func (r *Request) TPOTNs() int64 {
	if r.OutputTokens < 2 || r.E2ENs == 0 || r.TTFTNs == 0 {
		return 0
	}
	return (r.E2ENs - r.TTFTNs) / int64(r.OutputTokens-1)
}

// MeanGapNs is the mean pause between tokens, 0 for answers of fewer than two.
func (r *Request) MeanGapNs() float64 {
	if len(r.GapsNs) == 0 {
		return 0
	}
	total := int64(0)
	for _, g := range r.GapsNs {
		total += g
	}
	return float64(total) / float64(len(r.GapsNs))
}

package load

// Outcomes of a request as the client saw it.
const (
	OutcomeOK      = "ok"
	OutcomeFailed  = "failed"  // an error status, a broken stream, a refused or reset connection, a timeout
	OutcomeAborted = "aborted" // the client hung up on purpose
	OutcomeOpen    = "open"    // still running when the record was cut
)

// Record is one request as the client saw it: one line of requests.jsonl. Instants are CLOCK_MONOTONIC
// nanoseconds, 0 for what never happened.
type Record struct {
	// N numbers the requests of one load in scheduled order, from 0; Load names the load.
	N    int    `json:"n"`
	Load string `json:"load"`
	ID   string `json:"id"`
	// ScheduledNs is when the request should have left, computed before the load began: latencies count
	// from here. SentNs is when it left.
	ScheduledNs int64 `json:"scheduled_ns"`
	SentNs      int64 `json:"sent_ns"`
	// HeadersNs is the response head, FirstNs the first token (of an answer that is not streamed: its
	// first byte), LastNs the last byte seen so far, EndNs the end whatever its outcome (0 while open).
	HeadersNs int64 `json:"headers_ns"`
	FirstNs   int64 `json:"first_ns"`
	LastNs    int64 `json:"last_ns"`
	EndNs     int64 `json:"end_ns"`
	// GapsNs are the pauses between successive token chunks, the first 4,096 of them; MaxGapNs is the
	// longest of all, its end at MaxGapEndNs. Chunks that arrived together are 0 apart.
	GapsNs      []int64 `json:"gaps_ns,omitempty"`
	MaxGapNs    int64   `json:"max_gap_ns"`
	MaxGapEndNs int64   `json:"max_gap_end_ns"`
	// Worker is x-routed-worker of the answer, Attempts x-attempts, Predicted x-predicted-cached-tokens
	// (-1 when the gateway did not say).
	Worker    string `json:"worker"`
	Attempts  int    `json:"attempts"`
	Predicted int    `json:"predicted"`
	// PromptTokens and MaxTokens are what was asked. Cached and Output are what usage reported at the end;
	// until it does, and for good when it never does, Output counts the token chunks seen.
	PromptTokens int    `json:"prompt_tokens"`
	MaxTokens    int    `json:"max_tokens"`
	Cached       int    `json:"cached"`
	Output       int    `json:"output"`
	NewPrefix    bool   `json:"new_prefix"`
	Head         int    `json:"head"` // -1 when the prompt has no shared head
	Status       int    `json:"status"`
	Outcome      string `json:"outcome"`
	Error        string `json:"error,omitempty"`
}

package api

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"fleetdrill/internal/badjson"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/engine"
)

// flavour is which of the two generation routes was called.
type flavour uint8

const (
	completion flavour = iota
	chat
)

// body is what is read of a generation request; keys not named here are accepted and have no effect, as
// in the engine.
type body struct {
	Model               string              `json:"model"`
	Prompt              prompt              `json:"prompt"`
	Messages            tokens.Conversation `json:"messages"`
	Stream              bool                `json:"stream"`
	StreamOptions       streamOptions       `json:"stream_options"`
	MaxTokens           *int                `json:"max_tokens"`
	MaxCompletionTokens *int                `json:"max_completion_tokens"`
	MinTokens           int                 `json:"min_tokens"`
	IgnoreEOS           bool                `json:"ignore_eos"`
	N                   *int                `json:"n"`
	Echo                bool                `json:"echo"`
	CacheSalt           *string             `json:"cache_salt"`
	Priority            int                 `json:"priority"`
	ReturnTokenIDs      bool                `json:"return_token_ids"`
	KVTransferParams    json.RawMessage     `json:"kv_transfer_params"`
	TruncatePrompt      *int                `json:"truncate_prompt_tokens"`
	Suffix              *string             `json:"suffix"`
	UseBeamSearch       bool                `json:"use_beam_search"`
	ResponseFormat      responseFormat      `json:"response_format"`
	tools
	knobs
	wants
	XArgs xargs `json:"vllm_xargs"`
}

// xargs are the engine's own extras that have an effect here.
type xargs struct {
	KVCacheReportMode string `json:"kv_cache_report_mode"`
}

type streamOptions struct {
	given                bool
	IncludeUsage         bool
	ContinuousUsageStats bool
}

// UnmarshalJSON reads stream options; null is none.
func (o *streamOptions) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	o.given = true
	var raw struct {
		IncludeUsage         *bool `json:"include_usage"`
		ContinuousUsageStats *bool `json:"continuous_usage_stats"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	o.IncludeUsage = raw.IncludeUsage != nil && *raw.IncludeUsage
	o.ContinuousUsageStats = raw.ContinuousUsageStats != nil && *raw.ContinuousUsageStats
	return nil
}

// job is a checked request, ready for an engine.
type job struct {
	flavour flavour
	id      string // told to the client
	model   string
	rank    int
	// reqs are the choices: n of the first prompt, then n of the second, and so on.
	reqs       []engine.Request
	n          int
	stream     bool
	usage      bool // a last chunk with usage
	everyUsage bool // usage in every chunk
	returnIDs  bool
	echo       bool
	// promptOnly tells the prompt and not the one token that is generated behind it.
	promptOnly bool
	logprobs   logprobs
	kvTransfer json.RawMessage // nil without

	one [1]engine.Request // room for the usual number
}

// maxRequestID bounds X-Request-Id, in bytes: ids are kept in the request log.
const maxRequestID = 256

// read takes a request apart. Its error is an *apiError.
func (s *Server) read(c *gin.Context, f flavour) (*job, *apiError) {
	b, _ := s.bodies.Get().(*body)
	if b == nil {
		b = new(body)
	}
	defer func() {
		*b = body{}
		s.bodies.Put(b)
	}()
	if err := s.decode(c, b); err != nil {
		return nil, err
	}
	adapter, err := s.resolve(b.Model)
	if err != nil {
		return nil, err
	}
	j := &job{flavour: f, model: s.o.Model, stream: b.Stream, returnIDs: b.ReturnTokenIDs, n: 1}
	if adapter != nil {
		j.model = adapter.name
	}
	if err := s.readOptions(j, b); err != nil {
		return nil, err
	}
	prompts, err := s.prompts(j, b)
	if err != nil {
		return nil, err
	}
	if err := s.truncate(prompts, b.TruncatePrompt); err != nil {
		return nil, err
	}
	if err := s.name(c, j); err != nil {
		return nil, err
	}
	return j, s.fill(j, b, prompts, adapter)
}

// fill makes the engine requests.
func (s *Server) fill(j *job, b *body, prompts [][]uint32, adapter *adapter) *apiError {
	j.reqs = j.one[:0]
	for _, ids := range prompts {
		out, err := s.outputLength(j, b, len(ids))
		if err != nil {
			return err
		}
		for range j.n {
			r := engine.Request{ID: j.id, Tokens: ids, MaxTokens: out, MinTokens: b.MinTokens, IgnoreEOS: b.IgnoreEOS, Priority: b.Priority,
				ReportFull: b.XArgs.KVCacheReportMode == "full"}
			if j.logprobs.prompt != none {
				r.Reuse = new(int) // what is looked at must be computed
			}
			if len(prompts)*j.n > 1 {
				r.ID += "-" + strconv.Itoa(len(j.reqs))
			}
			if b.CacheSalt != nil {
				r.CacheSalt = *b.CacheSalt
			}
			if adapter != nil {
				r.LoRAName, r.LoRAID = adapter.name, adapter.id
			}
			j.reqs = append(j.reqs, r)
		}
	}
	return nil
}

// decode reads the body as JSON into v.
func (s *Server) decode(c *gin.Context, v any) *apiError {
	raw, err := readBody(c, s.o.MaxBodyBytes)
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return &apiError{status: http.StatusRequestEntityTooLarge, kind: "BadRequestError",
			message: fmt.Sprintf("the request body is longer than %d bytes", tooLong.Limit)}
	}
	if err != nil {
		return invalid("", "the request body could not be read: %v", err)
	}
	if !saysJSON(c.Request) {
		return invalid("", "Unsupported Media Type: Only 'application/json' is allowed")
	}
	raw = bytes.TrimPrefix(raw, byteOrderMark)
	if !utf8.Valid(raw) { // compressed, for instance
		return invalid("", "There was an error parsing the body")
	}
	if err := json.Unmarshal(raw, v); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			for _, embedded := range []string{"knobs.", "tools.", "wants.", "sglangWants."} { // Go's names of what JSON has no name for
				wrong.Field = strings.Replace(wrong.Field, embedded, "", 1)
			}
		}
		return invalid(badjson.Field(err), "the request body is not valid: %v", badjson.Error(err))
	}
	return nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// saysJSON says whether the client calls its body JSON. Engines read no other; only /generate also reads what is
// called nothing.
func saysJSON(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	media, _, _ := strings.Cut(kind, ";")
	return strings.EqualFold(media, "application/json") || kind == "" && r.URL.Path == generatePath
}

// readBody reads the body to its end, which also lets net/http notice when the client goes.
func readBody(c *gin.Context, most int64) ([]byte, error) {
	r := http.MaxBytesReader(c.Writer, c.Request.Body, most)
	if n := c.Request.ContentLength; n > 0 && n <= most {
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		_, err := io.Copy(io.Discard, r)
		return b, err
	}
	return io.ReadAll(r)
}

// prompts are the token ids to continue, one list per prompt.
func (s *Server) prompts(j *job, b *body) ([][]uint32, *apiError) {
	switch {
	case j.flavour == completion && !b.Prompt.given:
		return nil, invalid("prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
	case j.flavour == chat && len(b.Messages) == 0:
		return nil, badRequest("messages", "messages must hold at least one message")
	case j.flavour == chat:
		return [][]uint32{tokens.EncodeChat(b.Messages)}, nil
	}
	if b.Prompt.emptyText {
		return nil, invalid("prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
	}
	for _, ids := range b.Prompt.prompts {
		if len(ids) == 0 {
			return nil, badRequest("prompt", "The decoder prompt cannot be empty")
		}
	}
	if choices := len(b.Prompt.prompts) * j.n; choices > maxChoices {
		return nil, badRequest("prompt", "%d prompts with n=%d are %d choices: one request gives at most %d", len(b.Prompt.prompts), j.n, choices, maxChoices)
	}
	return b.Prompt.prompts, nil
}

// truncate keeps the last tokens of each prompt; -1 is as many as the model takes.
func (s *Server) truncate(prompts [][]uint32, asked *int) *apiError {
	if asked == nil {
		return nil
	}
	keep := *asked
	if keep == -1 {
		keep = s.o.MaxModelLen
	}
	if keep > s.o.MaxModelLen {
		return badRequest("truncate_prompt_tokens", "truncate_prompt_tokens value (%d) is greater than max_model_len (%d). Please request a smaller truncation size.", keep, s.o.MaxModelLen)
	}
	for i, ids := range prompts {
		prompts[i] = ids[max(0, len(ids)-keep):]
		if len(prompts[i]) == 0 {
			return badRequest("prompt", "The decoder prompt cannot be empty")
		}
	}
	return nil
}

// completionMaxTokens is the length of a completion that sets no maximum.
const completionMaxTokens = 16

// outputLength is the number of tokens to generate for a prompt of n.
func (s *Server) outputLength(j *job, b *body, n int) (int, *apiError) {
	most := s.o.MaxModelLen
	if n >= most {
		return 0, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages.", most, n)
	}
	asked := b.MaxTokens
	if j.flavour == chat && b.MaxCompletionTokens != nil {
		asked = b.MaxCompletionTokens
	}
	out := min(completionMaxTokens, most-n)
	switch {
	case asked != nil:
		out = *asked
	case j.flavour == chat:
		out = min(s.o.ChatMaxTokens, most-n)
	}
	if j.promptOnly {
		out = 1
	}
	switch {
	case out < 1:
		return 0, badRequest("max_tokens", "max_tokens must be at least 1, got %d.", out)
	case out > most-n:
		return 0, badRequest("max_tokens", "'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length is %d tokens and your request has %d input tokens (%d > %d - %d).", out, most, n, out, most, n)
	case b.MinTokens < 0:
		return 0, badRequest("", "min_tokens must be greater than or equal to 0, got %d.", b.MinTokens)
	case b.MinTokens > out:
		return 0, badRequest("", "min_tokens must be less than or equal to max_tokens=%d, got %d.", out, b.MinTokens)
	}
	// The engine refuses these too, but only once the headers of a stream are gone. The last token needs
	// no slot, and block 0 is the null block.
	need, have := (n+out-1+s.o.BlockSize-1)/s.o.BlockSize, s.o.NumBlocks-1
	if need > have {
		return 0, badRequest("max_tokens", "%d input tokens and %d output tokens need %d KV blocks; the engine has %d.", n, out, need, have)
	}
	return out, nil
}

// maxChoices bounds the generations of one request.
const maxChoices = 128

func (s *Server) readOptions(j *job, b *body) *apiError {
	if b.N != nil {
		j.n = *b.N
	}
	j.usage = b.Stream && (b.StreamOptions.IncludeUsage || s.o.ForceIncludeUsage)
	j.everyUsage = j.usage && (b.StreamOptions.ContinuousUsageStats || s.o.ForceIncludeUsage)
	j.echo = b.Echo && j.flavour == completion
	j.promptOnly = j.echo && b.MaxTokens != nil && *b.MaxTokens == 0
	if raw := b.KVTransferParams; len(raw) > 0 && string(raw) != "null" {
		j.kvTransfer = raw
	}
	mode := b.XArgs.KVCacheReportMode
	switch {
	case b.StreamOptions.given && !b.Stream:
		return invalid("stream_options", "Stream options can only be defined when `stream=True`.")
	case b.CacheSalt != nil && *b.CacheSalt == "":
		return invalid("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
	case b.TruncatePrompt != nil && *b.TruncatePrompt < -1:
		return invalid("truncate_prompt_tokens", "truncate_prompt_tokens is %d, must be -1 or more", *b.TruncatePrompt)
	case mode != "" && mode != "incremental" && mode != "full":
		return invalid("vllm_xargs", "kv_cache_report_mode is %q, must be incremental or full", mode)
	case b.Suffix != nil && j.flavour == completion:
		return badRequest("", "suffix is not currently supported")
	case b.UseBeamSearch && b.Stream:
		return badRequest("", "Streaming is not currently supported with beam search")
	case j.n < 1:
		return badRequest("", "n must be at least 1, got %d.", j.n)
	case j.n > maxChoices:
		return badRequest("", "n must be at most %d, got %d.", maxChoices, j.n)
	case b.Priority != 0 && !s.o.Priority:
		return badRequest("priority", "Got priority %d but Priority scheduling is not enabled.", b.Priority)
	}
	if j.flavour == chat {
		if err := b.tools.check(); err != nil {
			return err
		}
	}
	var err *apiError
	if j.logprobs, err = b.wants.read(j.flavour, b.Stream, j.echo); err != nil {
		return err
	}
	return b.checkVLLM(j.n)
}

// name gives the request its id and its rank from the headers.
func (s *Server) name(c *gin.Context, j *job) *apiError {
	base := c.Request.Header.Get("X-Request-Id")
	switch {
	case len(base) > maxRequestID:
		return badRequest("", "X-Request-Id is longer than %d bytes", maxRequestID)
	case base == "":
		base = randomID()
	}
	if s.o.RequestIDHeaders {
		c.Writer.Header().Set("X-Request-Id", base)
	}
	j.id = "cmpl-" + base
	if j.flavour == chat {
		j.id = "chatcmpl-" + base
	}
	j.rank = s.pick()
	// As the engine: what is no number is ignored, a number out of range is an error.
	if given := c.Request.Header["X-Data-Parallel-Rank"]; len(given) > 0 {
		rank, err := strconv.Atoi(given[0])
		if err == nil && (rank < 0 || rank >= len(s.o.Ranks)) {
			return badRequest("", "X-data-parallel-rank %d is out of range: there are %d ranks", rank, len(s.o.Ranks))
		}
		if err == nil {
			j.rank = rank
		}
	}
	return nil
}

// randomID is 128 random bits in hex.
func randomID() string {
	var bits [16]byte
	binary.LittleEndian.PutUint64(bits[:], rand.Uint64())
	binary.LittleEndian.PutUint64(bits[8:], rand.Uint64())
	return hex.EncodeToString(bits[:])
}

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

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
	Model               string               `json:"model"`
	Prompt              prompt               `json:"prompt"`
	Messages            []tokens.ChatMessage `json:"messages"`
	Stream              bool                 `json:"stream"`
	StreamOptions       streamOptions        `json:"stream_options"`
	MaxTokens           *int                 `json:"max_tokens"`
	MaxCompletionTokens *int                 `json:"max_completion_tokens"`
	MinTokens           int                  `json:"min_tokens"`
	IgnoreEOS           bool                 `json:"ignore_eos"`
	N                   *int                 `json:"n"`
	CacheSalt           *string              `json:"cache_salt"`
	Priority            int                  `json:"priority"`
	ReturnTokenIDs      bool                 `json:"return_token_ids"`
}

type streamOptions struct {
	IncludeUsage         bool `json:"include_usage"`
	ContinuousUsageStats bool `json:"continuous_usage_stats"`
}

// prompt is a prompt in any of the forms the engine takes for one request: text, ids, or a list of one.
type prompt struct {
	given bool
	ids   []uint32
}

// UnmarshalJSON reads a prompt.
func (p *prompt) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	p.given = true
	if b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		p.ids = tokens.Encode(text)
		return nil
	}
	if b[0] != '[' {
		return errors.New("must be a string or a list of token ids")
	}
	inner := bytes.TrimLeft(b[1:], " \t\r\n")
	if inner[0] != '"' && inner[0] != '[' {
		return p.readIDs(inner)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if len(list) != 1 {
		return fmt.Errorf("a list of %d prompts: this engine takes one prompt per request", len(list))
	}
	return p.UnmarshalJSON(list[0])
}

// readIDs reads the ids of a list behind its bracket; b is valid JSON.
func (p *prompt) readIDs(b []byte) error {
	p.ids = make([]uint32, 0, len(b)/6+1) // five digits and a comma, mostly
	for i := 0; b[i] != ']'; {
		c := b[i]
		if c == ',' || c == ' ' || c == '\n' || c == '\t' || c == '\r' {
			i++
			continue
		}
		start := i
		for id := uint64(0); ; i++ {
			d := b[i] - '0'
			if d > 9 {
				if i == start || b[i] == '.' || b[i] == 'e' || b[i] == 'E' {
					return errors.New("a list of token ids must hold whole numbers from 0")
				}
				p.ids = append(p.ids, uint32(id))
				break
			}
			if id = id*10 + uint64(d); id >= tokens.Vocab {
				return fmt.Errorf("token id %s is out of vocabulary, which has %d", firstNumber(b[start:]), tokens.Vocab)
			}
		}
	}
	return nil
}

// firstNumber is the number at the start of b, for an error message.
func firstNumber(b []byte) []byte {
	end := bytes.IndexAny(b, ",] \t\r\n")
	return b[:min(end, 24)]
}

// job is a checked request, ready for an engine.
type job struct {
	flavour    flavour
	rank       int
	req        engine.Request
	stream     bool
	usage      bool // a last chunk with usage
	everyUsage bool // usage in every chunk
	returnIDs  bool
}

// maxRequestID bounds X-Request-Id, in bytes: ids are kept in the request log.
const maxRequestID = 256

// read takes a request apart. Its error is an *apiError.
func (s *Server) read(c *gin.Context, f flavour) (*job, *apiError) {
	var b body
	if err := s.decode(c, &b); err != nil {
		return nil, err
	}
	if err := s.checkModel(b.Model); err != nil {
		return nil, err
	}
	j := &job{flavour: f, stream: b.Stream, returnIDs: b.ReturnTokenIDs}
	j.usage = b.Stream && b.StreamOptions.IncludeUsage
	j.everyUsage = j.usage && b.StreamOptions.ContinuousUsageStats
	j.req = engine.Request{MinTokens: b.MinTokens, IgnoreEOS: b.IgnoreEOS, Priority: b.Priority}
	for _, step := range []func(*gin.Context, *job, *body) *apiError{s.setPrompt, s.setLengths, s.setOptions, s.setNames} {
		if err := step(c, j, &b); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// decode reads the body as JSON into v.
func (s *Server) decode(c *gin.Context, v any) *apiError {
	raw, err := readBody(c, s.o.MaxBodyBytes)
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return &apiError{status: http.StatusRequestEntityTooLarge, kind: "BadRequestError",
			message: fmt.Sprintf("the request body is longer than %d bytes", tooLong.Limit)}
	}
	if err != nil {
		return badRequest("", "the request body could not be read: %v", err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return badRequest("", "the request body is not valid: %v", err)
	}
	return nil
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

func (s *Server) checkModel(model string) *apiError {
	if model == "" || model == s.o.Model {
		return nil
	}
	return &apiError{status: http.StatusNotFound, kind: "NotFoundError", param: "model",
		message: fmt.Sprintf("The model `%s` does not exist.", model)}
}

func (s *Server) setPrompt(_ *gin.Context, j *job, b *body) *apiError {
	switch {
	case j.flavour == completion && !b.Prompt.given:
		return badRequest("prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
	case j.flavour == completion:
		j.req.Tokens = b.Prompt.ids
	case len(b.Messages) == 0:
		return badRequest("messages", "messages must hold at least one message")
	default:
		j.req.Tokens = tokens.EncodeChat(b.Messages)
	}
	if len(j.req.Tokens) == 0 {
		return badRequest("prompt", "The decoder prompt cannot be empty")
	}
	return nil
}

// completionMaxTokens is the length of a completion that sets no maximum.
const completionMaxTokens = 16

func (s *Server) setLengths(_ *gin.Context, j *job, b *body) *apiError {
	n, most := len(j.req.Tokens), s.o.MaxModelLen
	if n >= most {
		return badRequest("input_tokens", "This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages.", most, n)
	}
	asked := b.MaxTokens
	if j.flavour == chat && b.MaxCompletionTokens != nil {
		asked = b.MaxCompletionTokens
	}
	switch {
	case asked != nil:
		j.req.MaxTokens = *asked
	case j.flavour == chat:
		j.req.MaxTokens = min(s.o.ChatMaxTokens, most-n)
	default:
		j.req.MaxTokens = min(completionMaxTokens, most-n)
	}
	switch out := j.req.MaxTokens; {
	case out < 1:
		return badRequest("max_tokens", "max_tokens must be at least 1, got %d.", out)
	case out > most-n:
		return badRequest("max_tokens", "'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length is %d tokens and your request has %d input tokens (%d > %d - %d).", out, most, n, out, most, n)
	case b.MinTokens < 0 || b.MinTokens > out:
		return badRequest("min_tokens", "min_tokens must be from 0 to max_tokens=%d, got %d.", out, b.MinTokens)
	}
	// The engine refuses these too, but only once the headers of a stream are gone. The last token needs
	// no slot, and block 0 is the null block.
	need, have := (n+j.req.MaxTokens-1+s.o.BlockSize-1)/s.o.BlockSize, s.o.NumBlocks-1
	if need > have {
		return badRequest("max_tokens", "%d input tokens and %d output tokens need %d KV blocks; the engine has %d.", n, j.req.MaxTokens, need, have)
	}
	return nil
}

func (s *Server) setOptions(_ *gin.Context, j *job, b *body) *apiError {
	if b.N != nil && *b.N != 1 {
		return badRequest("n", "n is %d: this engine gives one choice per request", *b.N)
	}
	if b.CacheSalt != nil {
		if *b.CacheSalt == "" {
			return badRequest("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
		}
		j.req.CacheSalt = *b.CacheSalt
	}
	return nil
}

// setNames gives the request its id and its rank from the headers.
func (s *Server) setNames(c *gin.Context, j *job, _ *body) *apiError {
	base := c.Request.Header.Get("X-Request-Id")
	switch {
	case len(base) > maxRequestID:
		return badRequest("", "X-Request-Id is longer than %d bytes", maxRequestID)
	case base == "":
		base = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	}
	j.req.ID = "cmpl-" + base
	if j.flavour == chat {
		j.req.ID = "chatcmpl-" + base
	}
	j.rank = s.pick()
	// As the engine: what is no number is ignored, a number out of range is an error.
	if rank, err := strconv.Atoi(c.Request.Header.Get("X-Data-Parallel-Rank")); err == nil {
		if rank < 0 || rank >= len(s.o.Ranks) {
			return badRequest("", "X-data-parallel-rank %d is out of range: there are %d ranks", rank, len(s.o.Ranks))
		}
		j.rank = rank
	}
	return nil
}

package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/engine"
)

// sglangBody is what is read of a generation request of any route; other keys are accepted and have no
// effect.
type sglangBody struct {
	Model          string              `json:"model"`
	Text           json.RawMessage     `json:"text"`
	InputIDs       json.RawMessage     `json:"input_ids"`
	Prompt         prompt              `json:"prompt"`
	Messages       tokens.Conversation `json:"messages"`
	SamplingParams samplingParams      `json:"sampling_params"`

	MaxTokens           *int          `json:"max_tokens"`
	MaxCompletionTokens *int          `json:"max_completion_tokens"`
	N                   *int          `json:"n"`
	Stream              bool          `json:"stream"`
	StreamOptions       streamOptions `json:"stream_options"`

	RID              *string `json:"rid"`
	LoRAPath         *string `json:"lora_path"`
	CacheSalt        *string `json:"cache_salt"`
	DataParallelRank *int    `json:"data_parallel_rank"`
	RoutedDPRank     *int    `json:"routed_dp_rank"`
	knobs
	sglangWants
}

// sampling are the parameters of /generate that have an effect.
type sampling struct {
	MaxNewTokens *int `json:"max_new_tokens"`
	MinNewTokens int  `json:"min_new_tokens"`
	N            *int `json:"n"`
	knobs
}

// samplingParams are those of all prompts, or of each in a list of as many.
type samplingParams struct {
	all  sampling
	each []sampling // nil unless they were a list
}

// UnmarshalJSON reads an object, or a list of them.
func (p *samplingParams) UnmarshalJSON(b []byte) error {
	*p = samplingParams{}
	if b[0] == '[' {
		return json.Unmarshal(b, &p.each)
	}
	return json.Unmarshal(b, &p.all)
}

// of are the parameters of prompt i.
func (p *samplingParams) of(i int) sampling {
	if p.each != nil {
		return p.each[i]
	}
	return p.all
}

// sglangJob is a checked request, ready for an engine.
type sglangJob struct {
	flavour flavour
	id      string
	model   string // told to the client: what it asked for
	rank    int
	reqs    []engine.Request
	// logprobs are what each prompt of /generate asks for.
	logprobs []*sglangLogprobs
	// batch says that the prompt was a list, so that the answer is one, too.
	batch      bool
	stream     bool
	usage      bool // a last chunk with usage
	everyUsage bool // usage in every chunk
	started    time.Time
}

// sglangMaxNewTokens is the length of an output of /generate that sets no maximum.
const sglangMaxNewTokens = 128

// sglangRead takes a request apart.
func (s *Server) sglangRead(c *gin.Context, f flavour) (*sglangJob, *apiError) {
	var b sglangBody
	if err := s.decode(c, &b); err != nil {
		return nil, err
	}
	j := &sglangJob{flavour: f, model: cmp.Or(b.Model, s.o.Model), stream: b.Stream, started: time.Now()}
	j.usage = b.Stream && f != native && b.StreamOptions.IncludeUsage
	j.everyUsage = j.usage && b.StreamOptions.ContinuousUsageStats
	prompts, err := j.prompts(&b)
	if err != nil {
		return nil, err
	}
	if each := b.SamplingParams.each; f == native && each != nil && (!j.batch || len(each) != len(prompts)) {
		return nil, badRequest("sampling_params", "sampling_params is a list of %d, must be an object, or a list of one for each prompt of a list", len(each))
	}
	if f == native {
		if err := b.lists(j.batch, len(prompts)); err != nil {
			return nil, err
		}
	}
	for i := range prompts {
		if n := b.choices(f, i); n != 1 {
			return nil, badRequest("n", "n is %d: this engine gives one choice per prompt", n)
		}
	}
	adapter, err := s.sglangAdapter(&b)
	if err != nil {
		return nil, err
	}
	if err := s.sglangName(c, j, &b); err != nil {
		return nil, err
	}
	return j, s.sglangFill(j, &b, prompts, adapter)
}

// choices is how many answers prompt i is to have.
func (b *sglangBody) choices(f flavour, i int) int {
	n := b.N
	if f == native {
		n = b.SamplingParams.of(i).N
	}
	if n == nil {
		return 1
	}
	return *n
}

// prompts are the token ids to continue, one list per prompt.
func (j *sglangJob) prompts(b *sglangBody) ([][]uint32, *apiError) {
	var p prompt
	switch j.flavour {
	case chat:
		if len(b.Messages) == 0 {
			return nil, badRequest("messages", "Messages cannot be empty.")
		}
		return [][]uint32{tokens.EncodeChat(b.Messages)}, nil
	case completion:
		p = b.Prompt
	default:
		var err *apiError
		if p, j.batch, err = b.nativePrompt(); err != nil {
			return nil, err
		}
	}
	switch {
	case !p.given && j.flavour == native:
		return nil, badRequest("", "Either text, input_ids or input_embeds should be provided.")
	case !p.given || len(p.prompts) == 0:
		return nil, badRequest("prompt", "Prompt cannot be empty")
	case j.flavour == completion && len(p.prompts) > 1:
		return nil, badRequest("prompt", "%d prompts: this engine takes one per request on this route", len(p.prompts))
	}
	for _, ids := range p.prompts {
		if len(ids) == 0 {
			return nil, badRequest("", "The prompt has no tokens.")
		}
	}
	return p.prompts, nil
}

// nativePrompt reads text or input_ids; given both, a server uses the ids.
func (b *sglangBody) nativePrompt() (p prompt, batch bool, bad *apiError) {
	raw, name := b.InputIDs, "input_ids"
	if isNull(raw) {
		raw, name = b.Text, "text"
	}
	if isNull(raw) {
		return p, false, nil
	}
	compact := strings.Join(strings.Fields(string(raw[:min(len(raw), 64)])), "")
	isText := strings.HasPrefix(compact, `"`) || strings.HasPrefix(compact, `["`)
	batch = strings.HasPrefix(compact, `["`) || strings.HasPrefix(compact, `[[`)
	if compact == "[]" || isText != (name == "text") {
		return p, false, badRequest(name, "%s must be %s, or a list of them", name, map[bool]string{true: "a string", false: "a list of token ids"}[name == "text"])
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, false, badRequest(name, "%s: %v", name, err)
	}
	return p, batch, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// sglangAdapter finds the LoRA adapter that lora_path or the model's suffix names, as in base:adapter. Other
// names of a model are passed over: an SGLang server answers to any.
func (s *Server) sglangAdapter(b *sglangBody) (*adapter, *apiError) {
	name := ""
	if _, suffix, ok := strings.Cut(b.Model, ":"); ok {
		name = suffix
	}
	if b.LoRAPath != nil {
		name = *b.LoRAPath
	}
	if name == "" {
		return nil, nil
	}
	if a := s.adapters.find(name); a != nil {
		return a, nil
	}
	loaded := []string{}
	for _, a := range s.adapters.all() {
		loaded = append(loaded, "'"+a.name+"'")
	}
	slices.Sort(loaded)
	return nil, badRequest("lora_path", "Got LoRA adapter that has never been loaded: %s\nAll loaded adapters: [%s].", name, strings.Join(loaded, ", "))
}

// sglangName gives the request its id and its rank.
func (s *Server) sglangName(c *gin.Context, j *sglangJob, b *sglangBody) *apiError {
	j.id = c.GetHeader("X-Request-Id")
	if b.RID != nil {
		j.id = *b.RID
	}
	switch {
	case len(j.id) > maxRequestID:
		return badRequest("rid", "rid is longer than %d bytes", maxRequestID)
	case j.id == "":
		j.id = randomID()
	}
	asked := b.RoutedDPRank
	if asked == nil {
		asked = b.DataParallelRank
	}
	if rank, err := strconv.Atoi(c.GetHeader("X-Data-Parallel-Rank")); asked == nil && err == nil {
		asked = &rank
	}
	if asked == nil {
		j.rank = s.pick()
		return nil
	}
	if j.rank = *asked; j.rank < 0 || j.rank >= len(s.o.Ranks) {
		return badRequest("data_parallel_rank", "data_parallel_rank %d is out of bound [0, %d)", j.rank, len(s.o.Ranks))
	}
	return nil
}

// sglangFill makes the engine requests.
func (s *Server) sglangFill(j *sglangJob, b *sglangBody, prompts [][]uint32, adapter *adapter) *apiError {
	for i, ids := range prompts {
		out, err := s.sglangLength(j, b, i, len(ids))
		if err != nil {
			return err
		}
		r := engine.Request{ID: j.id, Tokens: ids, MaxTokens: max(out, 1), PrefillOnly: out == 0}
		if len(prompts) > 1 {
			r.ID += "-" + strconv.Itoa(i)
		}
		if b.CacheSalt != nil {
			r.CacheSalt = *b.CacheSalt
		}
		if adapter != nil {
			r.LoRAName, r.LoRAID = adapter.name, adapter.id
		}
		if j.flavour == native {
			l, err := b.sglangWants.of(i, len(ids))
			if err != nil {
				return err
			}
			if l != nil && l.start < len(ids) {
				r.Reuse = &l.start // what is asked about must be computed
			}
			j.logprobs = append(j.logprobs, l)
		}
		j.reqs = append(j.reqs, r)
	}
	return nil
}

// sglangLength is the number of tokens to generate for prompt i, of n tokens. Like a server it shortens an output
// for which the pool has no room, and refuses a prompt that leaves none.
func (s *Server) sglangLength(j *sglangJob, b *sglangBody, i, n int) (int, *apiError) {
	context, pool := s.o.MaxModelLen, (s.o.NumBlocks-1)*s.o.BlockSize
	var asked *int
	out := s.o.ChatMaxTokens
	switch j.flavour {
	case native:
		asked, out = b.SamplingParams.of(i).MaxNewTokens, sglangMaxNewTokens
	case completion:
		asked, out = b.MaxTokens, completionMaxTokens
	default:
		if asked = b.MaxCompletionTokens; asked == nil {
			asked = b.MaxTokens
		}
	}
	if asked != nil {
		out = *asked
	}
	least, k := 0, &b.knobs
	if j.flavour == native {
		own := b.SamplingParams.of(i)
		least, k = own.MinNewTokens, &own.knobs
	}
	if err := k.checkSGLang(least, out); err != nil {
		return 0, err
	}
	switch {
	case n >= context:
		return 0, badRequest("", "The input (%d tokens) is longer than the model's context length (%d tokens).", n, context)
	case asked != nil && (out >= context || out+n >= context):
		return 0, badRequest("", "Requested token count exceeds the model's maximum context length of %d tokens. You requested a total of %d tokens: %d tokens from the input messages and %d tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.", context, uint64(out)+uint64(n), n, out)
	case n > pool:
		return 0, badRequest("", "Input length (%d tokens) exceeds the maximum allowed length (%d tokens). Use a shorter input or enable --allow-auto-truncate.", n, pool)
	}
	// The last token needs no slot.
	return min(out, context-n, pool-n+1), nil
}

// sglangModels answers /v1/models: the base model, then the adapters.
func (s *Server) sglangModels(c *gin.Context) {
	type card struct {
		ID          string  `json:"id"`
		Object      string  `json:"object"`
		Created     int64   `json:"created"`
		OwnedBy     string  `json:"owned_by"`
		Root        string  `json:"root"`
		Parent      *string `json:"parent"`
		MaxModelLen *int    `json:"max_model_len"`
	}
	list := struct {
		Object string `json:"object"`
		Data   []card `json:"data"`
	}{Object: "list"}
	list.Data = append(list.Data, card{
		ID: s.o.Model, Object: "model", Created: s.created, OwnedBy: "sglang", Root: s.o.Model, MaxModelLen: &s.o.MaxModelLen,
	})
	for _, a := range s.adapters.all() {
		list.Data = append(list.Data, card{
			ID: a.name, Object: "model", Created: s.created, OwnedBy: "sglang", Root: a.path, Parent: &s.o.Model,
		})
	}
	s.reply(c, list)
}

// probeID names the requests of /health_generate.
func (s *Server) probeID() string { return fmt.Sprintf("HEALTH_CHECK_%d", s.turn.Add(1)) }

// healthGenerate has the engine say one token, and answers 503 when none comes in time.
func (s *Server) healthGenerate(c *gin.Context) {
	wait := s.o.SGLang.ProbeTimeout
	if wait == 0 {
		wait = probeTimeout
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	st := s.o.Ranks[s.pick()].Submit(engine.Request{ID: s.probeID(), Tokens: []uint32{0}, MaxTokens: 1}, true)
	select {
	case <-st.Ready():
		if _, state := st.Take(nil); state.Err == nil {
			c.Status(http.StatusOK)
			return
		}
	case <-timer.C:
		st.Abort()
	case <-c.Request.Context().Done():
		st.Abort()
		return
	}
	c.Status(http.StatusServiceUnavailable)
}

package enginegrpc

import (
	"fmt"
	"math/rand/v2"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fleetdrill/internal/protos/vllmengine"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/engine"
)

const (
	// maxRequestID bounds a request id, in bytes: ids are kept in the request log.
	maxRequestID = 256
	// maxChoices bounds n, the answers to one request.
	maxChoices = 128
)

// job is a checked request, ready for an engine.
type job struct {
	id      string
	rank    int
	stream  bool
	choices int
	req     engine.Request // without id
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// read checks a request. What it refuses the engine would refuse too.
func (s *Server) read(r *vllmengine.GenerateRequest) (*job, error) {
	p := r.GetSamplingParams()
	j := &job{stream: r.GetStream(), choices: max(1, int(p.GetN()))}
	if j.choices > maxChoices {
		return nil, invalid("n must be at most %d, got %d", maxChoices, p.GetN())
	}
	for _, step := range []func(*job, *vllmengine.GenerateRequest) error{s.readID, s.readPrompt, s.readLengths, s.readSampling, s.readRank} {
		if err := step(j, r); err != nil {
			return nil, err
		}
	}
	return j, nil
}

func (s *Server) readID(j *job, r *vllmengine.GenerateRequest) error {
	j.id = r.GetRequestId()
	if len(j.id) > maxRequestID {
		return invalid("request_id is %d bytes long, at most %d are taken", len(j.id), maxRequestID)
	}
	if j.id == "" {
		j.id = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	}
	return nil
}

func (s *Server) readPrompt(j *job, r *vllmengine.GenerateRequest) error {
	switch in := r.GetInput().(type) {
	case *vllmengine.GenerateRequest_Tokenized:
		j.req.Tokens = in.Tokenized.GetInputIds()
	case *vllmengine.GenerateRequest_Text:
		j.req.Tokens = tokens.Encode(in.Text)
	default:
		return invalid("the request has no input: set tokenized or text")
	}
	for _, id := range j.req.Tokens {
		if id >= tokens.Vocab {
			return invalid("Token id %d is out of vocabulary, which has %d", id, tokens.Vocab)
		}
	}
	if err := s.truncate(j, r.GetSamplingParams()); err != nil {
		return err
	}
	if len(j.req.Tokens) == 0 {
		return invalid("The decoder prompt cannot be empty")
	}
	return nil
}

// truncate keeps the last tokens of a prompt; -1 is as many as the model takes.
func (s *Server) truncate(j *job, p *vllmengine.SamplingParams) error {
	if p == nil || p.TruncatePromptTokens == nil {
		return nil
	}
	keep := int(p.GetTruncatePromptTokens())
	if keep == -1 {
		keep = s.o.MaxModelLen
	}
	if keep < 1 || keep > s.o.MaxModelLen {
		return invalid("truncate_prompt_tokens must be -1 or from 1 to max_model_len=%d, got %d", s.o.MaxModelLen, p.GetTruncatePromptTokens())
	}
	if n := len(j.req.Tokens); n > keep {
		j.req.Tokens = j.req.Tokens[n-keep:]
	}
	return nil
}

func (s *Server) readLengths(j *job, r *vllmengine.GenerateRequest) error {
	p, n, most := r.GetSamplingParams(), len(j.req.Tokens), s.o.MaxModelLen
	if n >= most {
		return invalid("The decoder prompt (length %d) is longer than the maximum model length of %d less one output token", n, most)
	}
	out := min(s.o.MaxTokens, most-n)
	if p != nil && p.MaxTokens != nil {
		out = int(p.GetMaxTokens())
	}
	switch least := int(p.GetMinTokens()); {
	case out < 1:
		return invalid("max_tokens must be at least 1, got %d.", out)
	case out > most-n:
		return invalid("max_tokens is too large: %d. This model's maximum context length is %d tokens and the request has %d input tokens (%d > %d - %d).", out, most, n, out, most, n)
	case least > out:
		return invalid("min_tokens must be less than or equal to max_tokens=%d, got %d.", out, least)
	}
	// The last token needs no slot, and block 0 is the null block.
	need, have := (n+out-1+s.o.BlockSize-1)/s.o.BlockSize, s.o.NumBlocks-1
	if need > have {
		return invalid("%d input tokens and %d output tokens need %d KV blocks; the engine has %d.", n, out, need, have)
	}
	j.req.MaxTokens, j.req.MinTokens, j.req.IgnoreEOS = out, int(p.GetMinTokens()), p.GetIgnoreEos()
	return nil
}

func (s *Server) readRank(j *job, r *vllmengine.GenerateRequest) error {
	if r.DataParallelRank == nil {
		j.rank = s.pick()
		return nil
	}
	if j.rank = int(r.GetDataParallelRank()); j.rank < 0 || j.rank >= len(s.o.Ranks) {
		return invalid("data_parallel_rank %d is out of range [0, %d)", j.rank, len(s.o.Ranks))
	}
	return nil
}

// nameOf is the engine's name of a choice: with several, each is a request of its own there.
func (j *job) nameOf(choice int) string {
	if j.choices == 1 {
		return j.id
	}
	return fmt.Sprintf("%d_%s", choice, j.id)
}

package enginegrpc

import (
	"math"
	"strconv"
	"strings"

	"fleetdrill/internal/protos/vllmengine"
	"fleetdrill/internal/tokens"
)

// maxLogprobs is vLLM's --max-logprobs by default, greedyBelow the temperature below which it takes the likeliest
// token.
const (
	maxLogprobs = 20
	greedyBelow = 1e-5
)

// readSampling refuses what vLLM refuses of sampling parameters, which have no other effect here. A field without
// presence that is 0 is not set.
func (s *Server) readSampling(j *job, r *vllmengine.GenerateRequest) error {
	p := r.GetSamplingParams()
	if p == nil {
		return nil
	}
	if err := checkFigures(p, j.choices); err != nil {
		return err
	}
	if err := checkLogprobs(p); err != nil {
		return err
	}
	for _, text := range p.Stop {
		if text == "" {
			return invalid("stop cannot contain an empty string.")
		}
	}
	for _, id := range p.StopTokenIds {
		if id >= tokens.Vocab {
			return invalid("token_id(s) [%d] in stop_token_ids contain out-of-vocab token ids. Vocabulary size: %d", id, tokens.Vocab)
		}
	}
	for id := range p.LogitBias {
		if id < 0 || id >= tokens.Vocab {
			return invalid("token_id(s) [%d] in logit_bias contain out-of-vocab token ids. Vocabulary size: %d", id, tokens.Vocab)
		}
	}
	return nil
}

func checkFigures(p *vllmengine.SamplingParams, choices int) error {
	switch {
	case outside(p.PresencePenalty, -2, 2):
		return invalid("presence_penalty must be in [-2, 2], got %s.", figure(p.PresencePenalty))
	case outside(p.FrequencyPenalty, -2, 2):
		return invalid("frequency_penalty must be in [-2, 2], got %s.", figure(p.FrequencyPenalty))
	case outside(p.RepetitionPenalty, 0, math.MaxFloat32):
		return invalid("repetition_penalty must be greater than zero, got %s.", figure(p.RepetitionPenalty))
	case outside(p.GetTemperature(), 0, math.MaxFloat32):
		return invalid("temperature must be non-negative, got %s.", figure(p.GetTemperature()))
	case outside(p.TopP, 0, 1):
		return invalid("top_p must be in (0, 1], got %s.", figure(p.TopP))
	case outside(p.MinP, 0, 1):
		return invalid("min_p must be in [0, 1], got %s.", figure(p.MinP))
	case p.Temperature != nil && p.GetTemperature() < greedyBelow && choices > 1:
		return invalid("n must be 1 when using greedy sampling, got %d.", choices)
	}
	return nil
}

// outside says that a figure is not from least to most; one that is no number is not.
func outside(v float32, least, most float32) bool { return !(v >= least && v <= most) }

// figure is a number as Python prints it: 2.0 rather than 2.
func figure(v float32) string {
	s := strconv.FormatFloat(float64(v), 'g', -1, 32)
	if !strings.ContainsAny(s, ".eN") {
		s += ".0"
	}
	return s
}

func checkLogprobs(p *vllmengine.SamplingParams) error {
	for _, x := range []struct {
		name, kind string
		n          *int32
	}{{"logprobs", "sample", p.Logprobs}, {"prompt_logprobs", "prompt", p.PromptLogprobs}} {
		if x.n == nil {
			continue
		}
		n := *x.n
		if n < -1 {
			return invalid("%s must be non-negative or -1, got %d.", x.name, n)
		}
		if n == -1 {
			n = tokens.Vocab
		}
		if n > maxLogprobs {
			return invalid("Requested %s logprobs of %d, which is greater than max allowed: %d", x.kind, n, maxLogprobs)
		}
	}
	return nil
}

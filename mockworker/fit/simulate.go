package fit

import (
	"fmt"
	"strconv"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
)

// Sizes are an engine's.
type Sizes struct {
	NumBlocks           int `json:"num_blocks"`
	BlockSize           int `json:"block_size"`
	MaxNumSeqs          int `json:"max_num_seqs"`
	MaxNumBatchedTokens int `json:"max_num_batched_tokens"`
}

// Simulator replays a run's arrivals through the engine core. It is not safe for concurrent use.
type Simulator struct {
	run      *Run
	config   engine.Config
	requests []engine.Request
}

// NewSimulator prepares the run's requests. Prompts share nothing, as the recorded ones do.
func NewSimulator(run *Run, s Sizes) (*Simulator, error) {
	m := &Simulator{run: run, config: engine.Config{
		BlockSize: s.BlockSize, NumBlocks: s.NumBlocks, MaxNumSeqs: s.MaxNumSeqs, MaxNumBatchedTokens: s.MaxNumBatchedTokens,
		MaxModelLen: 2 * maxTokens, ReserveFullISL: run.ReserveFull,
		EnablePrefixCaching: !run.NoPrefixCaching && !roomForAll(run, s), Hasher: blockhash.NewChain64(),
	}}
	for i, q := range run.Requests {
		tokens := make([]uint32, q.Input)
		for j := range tokens {
			tokens[j] = uint32(i*maxTokens+j) * 0x9e3779b1 % vocabulary
		}
		if len(tokens) > 1 {
			tokens[0], tokens[1] = uint32(i), uint32(i/vocabulary) // no two begin alike
		}
		m.requests = append(m.requests, engine.Request{ID: strconv.Itoa(i), Ref: i, Tokens: tokens, MaxTokens: q.Output})
	}
	// What the engine refuses it refuses whatever its timing.
	e, err := engine.New(m.config)
	if err != nil {
		return nil, err
	}
	for i := range m.requests {
		if err := e.Add(0, m.requests[i]); err != nil {
			return nil, fmt.Errorf("request %s cannot be simulated: %w", run.Requests[i].ID, err)
		}
	}
	return m, nil
}

const vocabulary = 151_936

// roomForAll says that the pool never evicts, so that caching changes nothing: nobody is preempted, and
// prompts share nothing.
func roomForAll(run *Run, s Sizes) bool {
	need := 0
	for _, q := range run.Requests {
		need += (q.Input + q.Output + s.BlockSize - 1) / s.BlockSize
	}
	return need < s.NumBlocks
}

// Run simulates all requests of the run.
func (m *Simulator) Run(t engine.Timing) ([]Times, error) {
	c := m.config
	c.Timing = t
	e, err := engine.New(c)
	if err != nil {
		return nil, err
	}
	out := make([]Times, len(m.requests))
	next, ended := 0, 0
	for now := int64(0); ended < len(out); {
		for ; next < len(out) && m.run.Requests[next].Queued <= now; next++ {
			if err := e.Add(m.run.Requests[next].Queued, m.requests[next]); err != nil {
				return nil, fmt.Errorf("request %s cannot be simulated: %w", m.run.Requests[next].ID, err)
			}
		}
		step := e.Step(now)
		if !step.Worked {
			if next == len(out) {
				return nil, fmt.Errorf("the engine stands still with %d of %d requests done", ended, len(out))
			}
			now = m.run.Requests[next].Queued
			continue
		}
		for i := range step.Outputs {
			if s := step.Outputs[i].Stats; s != nil {
				out[step.Outputs[i].Ref] = Times{TTFT: s.FirstToken - s.Arrival, Latency: s.LastToken - s.Arrival, Output: s.Output}
				ended++
			}
		}
		now = step.Until
	}
	return out, nil
}

package fit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
)

// The bounds of a recorded run, each in the error that names it.
const (
	maxRequests  = 100_000
	maxTokens    = 1 << 20 // of one prompt or answer
	maxMetaBytes = 4 << 20
	maxLineBytes = 1 << 20
	maxSpanS     = 7 * 24 * 3600
)

// Run is a recorded run of one engine. Sizes that were not recorded are 0.
type Run struct {
	Model, Version string
	Requests       []Request

	NumBlocks, BlockSize            int
	MaxNumSeqs, MaxNumBatchedTokens int
	MaxModelLen                     int
	NoPrefixCaching                 bool
	// ReserveFull says that a prompt was admitted only when all of it fitted.
	ReserveFull bool
}

// Request is one request of a run. Times are ns after the first request was queued.
type Request struct {
	ID            string
	Input, Output int // tokens
	Queued        int64
	First, Last   int64 // when its first and last token existed
}

// Read reads a run from its folder: meta.json says what the engine was, requests.jsonl has a line for each
// request in the order they were queued. timeseries.csv is not needed.
func Read(dir fs.FS) (*Run, error) {
	r := &Run{}
	if err := r.readMeta(dir); err != nil {
		return nil, err
	}
	f, err := dir.Open("requests.jsonl")
	if err != nil {
		return nil, fmt.Errorf("opening the requests of a run: %w", err)
	}
	defer f.Close()
	if err := r.readRequests(f); err != nil {
		return nil, fmt.Errorf("reading requests.jsonl: %w", err)
	}
	return r, nil
}

// meta is what of meta.json matters. Newer recordings have the engine's resolved configuration too.
type meta struct {
	Model   string `json:"model"`
	Version string `json:"vllm_version"`
	Args    struct {
		MaxNumSeqs          int  `json:"max_num_seqs"`
		MaxNumBatchedTokens int  `json:"max_num_batched_tokens"`
		MaxModelLen         *int `json:"max_model_len"`
	} `json:"engine_kwargs"`
	NumRequests int `json:"num_requests"`
	Cache       struct {
		NumBlocks int   `json:"num_gpu_blocks"`
		BlockSize int   `json:"block_size"`
		Prefix    *bool `json:"enable_prefix_caching"`
	} `json:"kv_cache"`
	Resolved struct {
		Scheduler struct {
			ReserveFull *bool `json:"scheduler_reserve_full_isl"`
		} `json:"scheduler_config"`
	} `json:"resolved_config"`
}

func (r *Run) readMeta(dir fs.FS) error {
	f, err := dir.Open("meta.json")
	if err != nil {
		return fmt.Errorf("opening what a run's engine was: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMetaBytes+1))
	if err != nil {
		return fmt.Errorf("reading meta.json: %w", err)
	}
	if len(data) > maxMetaBytes {
		return fmt.Errorf("reading meta.json: more than %d bytes", maxMetaBytes)
	}
	var m meta
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("reading meta.json: %w", err)
	}
	return r.take(m)
}

func (r *Run) take(m meta) error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"engine_kwargs.max_num_seqs", m.Args.MaxNumSeqs}, {"engine_kwargs.max_num_batched_tokens", m.Args.MaxNumBatchedTokens},
		{"kv_cache.num_gpu_blocks", m.Cache.NumBlocks}, {"kv_cache.block_size", m.Cache.BlockSize},
	} {
		if f.value < 0 || f.value > 1<<30 {
			return fmt.Errorf("reading meta.json: %s is %d, want 1 to %d, or leave it out when it is not known", f.name, f.value, 1<<30)
		}
	}
	r.Model, r.Version = m.Model, m.Version
	r.MaxNumSeqs, r.MaxNumBatchedTokens = m.Args.MaxNumSeqs, m.Args.MaxNumBatchedTokens
	r.NumBlocks, r.BlockSize = m.Cache.NumBlocks, m.Cache.BlockSize
	if m.Args.MaxModelLen != nil {
		r.MaxModelLen = *m.Args.MaxModelLen
	}
	r.NoPrefixCaching = m.Cache.Prefix != nil && !*m.Cache.Prefix
	// vLLM's default since it has the switch.
	r.ReserveFull = m.Resolved.Scheduler.ReserveFull == nil || *m.Resolved.Scheduler.ReserveFull
	return nil
}

// line is one line of requests.jsonl; pointers tell what is missing from what is 0. Unknown keys are other
// tools' business.
type line struct {
	ID     string   `json:"request_id"`
	Input  *int     `json:"input_toks"`
	Output *int     `json:"output_toks"`
	Queued *float64 `json:"queued_ts"`
	First  *float64 `json:"first_token_ts"`
	Last   *float64 `json:"last_token_ts"`
}

func (r *Run) readRequests(f io.Reader) error {
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 64<<10), maxLineBytes)
	origin := 0.0
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if len(r.Requests) == maxRequests {
			return fmt.Errorf("line %d: more than %d requests", n, maxRequests)
		}
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := l.check(); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if len(r.Requests) == 0 {
			origin = *l.Queued
		}
		if err := r.add(l, origin); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if len(r.Requests) == 0 {
		return errors.New("no request")
	}
	return nil
}

func (l *line) check() error {
	for _, f := range []struct {
		name  string
		value *int
	}{{"input_toks", l.Input}, {"output_toks", l.Output}} {
		if f.value == nil {
			return fmt.Errorf("%s is missing", f.name)
		}
		if *f.value < 1 || *f.value > maxTokens {
			return fmt.Errorf("%s is %d, want 1 to %d", f.name, *f.value, maxTokens)
		}
	}
	for _, f := range []struct {
		name  string
		value *float64
	}{{"queued_ts", l.Queued}, {"first_token_ts", l.First}, {"last_token_ts", l.Last}} {
		switch {
		case f.value == nil:
			return fmt.Errorf("%s is missing: a request that did not finish has no place here", f.name)
		case *f.value < 0 || math.IsInf(*f.value, 0):
			return fmt.Errorf("%s is %v s, must not be negative", f.name, *f.value)
		}
	}
	if *l.First <= *l.Queued || *l.Last < *l.First {
		return fmt.Errorf("times run backwards: queued %v, first token %v, last token %v", *l.Queued, *l.First, *l.Last)
	}
	return nil
}

func (r *Run) add(l line, origin float64) error {
	ns := func(s float64) int64 { return int64(math.Round((s - origin) * 1e9)) }
	if *l.Last-origin > maxSpanS || *l.Queued < origin {
		return fmt.Errorf("queued %v, last token %v: want both within %d s after the first request was queued, %v", *l.Queued, *l.Last, maxSpanS, origin)
	}
	q := Request{ID: l.ID, Input: *l.Input, Output: *l.Output, Queued: ns(*l.Queued), First: ns(*l.First), Last: ns(*l.Last)}
	if n := len(r.Requests); n > 0 && q.Queued < r.Requests[n-1].Queued {
		return errors.New("queued before the line above: requests must be in the order they were queued")
	}
	r.Requests = append(r.Requests, q)
	return nil
}

package plan

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"fleetdrill/replayer/trace"
)

// Ways of arriving.
const (
	// Spread places rows that share a stamp uniformly in their slot.
	Spread = "spread"
	// Raw keeps the stamps.
	Raw = "raw"
)

// DefaultMaxOutput bounds an answer, in tokens, as published replays do.
const DefaultMaxOutput = 512

// Options say how rows become requests.
type Options struct {
	// Speed divides the trace's time; 0 means 1.
	Speed float64
	// Arrivals is Spread or Raw; empty means Spread.
	Arrivals string
	// Seed decides spread arrivals and which rows get a hot prefix.
	Seed uint64
	// MaxInput leaves out rows with longer prompts, in tokens; 0 keeps all.
	MaxInput int
	// MaxOutput clamps answers, in tokens; 0 means DefaultMaxOutput.
	MaxOutput int
	// WholeBlocks lengthens every prompt to whole blocks of trace.BlockTokens.
	WholeBlocks bool
	// ModelLimit is how many tokens prompt and answer may have together; rows beyond are left out. 0 is no
	// limit.
	ModelLimit int
	// Warmup is how many of the first requests are left out of the figures.
	Warmup int
	// Hot gives rows a head in common; the zero value gives none.
	Hot HotPrefix
}

// Request is one request of a replay.
type Request struct {
	// Row is the trace's row, its ids as they are asked (a hot prefix has replaced some).
	Row trace.Row
	// OffsetNs is when it is due, in ns after the start. Offsets never decrease.
	OffsetNs int64
	// PromptTokens and MaxTokens are asked.
	PromptTokens int
	MaxTokens    int
	Warmup       bool
	// ID is unique in the replay and names the row.
	ID string
}

// Tokens appends the prompt's token ids to dst.
func (r *Request) Tokens(dst []uint32) []uint32 {
	row := r.Row
	row.Input = r.PromptTokens
	return trace.Tokens(dst, &row)
}

// Skipped counts the rows that were read and are not asked.
type Skipped struct {
	// Bad could not be read; LongInput were beyond MaxInput; OverLimit beyond the model's limit.
	Bad       int `json:"bad"`
	LongInput int `json:"max_input"`
	OverLimit int `json:"model_limit"`
}

// Plan is the requests of a replay in the order they are due.
type Plan struct {
	// Trace is the name of the trace; Rows counts its rows that were read, those left out included.
	Trace    string
	Rows     int
	Requests []Request
	Skipped  Skipped
}

// Read plans the rows that r gives.
func Read(r *trace.Reader, o Options) (*Plan, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	p := &Plan{Trace: r.Name()}
	for {
		var row trace.Row
		err := r.Next(&row)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		p.add(row, o)
	}
	p.Skipped.Bad = r.Skipped().Count
	p.Rows += p.Skipped.Bad
	if len(p.Requests) == 0 {
		return nil, fmt.Errorf("%s: no row is left of %d: %d above the input bound, %d above the model's limit",
			p.Trace, p.Rows, p.Skipped.LongInput, p.Skipped.OverLimit)
	}
	p.schedule(o)
	return p, nil
}

func (o Options) check() error {
	switch {
	case o.Speed < 0 || math.IsNaN(o.Speed) || math.IsInf(o.Speed, 0):
		return fmt.Errorf("speed %v: want a number above zero", o.Speed)
	case o.Arrivals != "" && o.Arrivals != Spread && o.Arrivals != Raw:
		return fmt.Errorf("arrivals %q: want %s or %s", o.Arrivals, Spread, Raw)
	case o.MaxInput < 0 || o.MaxOutput < 0 || o.ModelLimit < 0 || o.Warmup < 0:
		return errors.New("bounds of tokens and the warm-up must not be negative")
	}
	return o.Hot.check()
}

func (o Options) withDefaults() Options {
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = DefaultMaxOutput
	}
	return o
}

// add plans one row, or counts why it is left out.
func (p *Plan) add(row trace.Row, o Options) {
	p.Rows++
	q := Request{Row: row, PromptTokens: row.Input, ID: "row-" + strconv.Itoa(row.N)}
	if o.WholeBlocks {
		q.PromptTokens = len(row.IDs) * trace.BlockTokens
	}
	// An engine is never asked for nothing: an answer that the trace does not have is one of one token.
	q.MaxTokens = max(1, min(row.Output, o.MaxOutput))
	switch {
	case o.MaxInput > 0 && q.PromptTokens > o.MaxInput:
		p.Skipped.LongInput++
		return
	case o.ModelLimit > 0 && q.PromptTokens+q.MaxTokens > o.ModelLimit:
		p.Skipped.OverLimit++
		return
	}
	q.Warmup = len(p.Requests) < o.Warmup
	o.Hot.apply(q.Row.IDs, o.Seed)
	p.Requests = append(p.Requests, q)
}

// schedule gives every request its offset.
func (p *Plan) schedule(o Options) {
	stamps := make([]int64, len(p.Requests))
	for i := range p.Requests {
		stamps[i] = p.Requests[i].Row.StampNs
	}
	offsets := trace.Raw(stamps)
	if o.Arrivals != Raw {
		offsets = trace.Spread(stamps, o.Seed)
	}
	for i, at := range offsets {
		// Rounded, in explicit float64, so that no machine fuses it into another value.
		p.Requests[i].OffsetNs = int64(math.Round(float64(at) / o.Speed))
	}
}

// WindowNs is from the start of the replay to the last request.
func (p *Plan) WindowNs() int64 { return p.Requests[len(p.Requests)-1].OffsetNs }

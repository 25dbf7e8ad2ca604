package trace

import (
	"errors"
	"io"
	"slices"

	"fleetdrill/internal/tokens"
	"fleetdrill/oracle"
)

const (
	// statWorkers is how many workers the figures with an 8 in their names have.
	statWorkers = 8
	// nsPerSecond turns stamps into seconds.
	nsPerSecond = 1e9
)

var (
	// headDepths are the prefix lengths, in blocks, at which common heads are counted.
	headDepths = [...]int{1, 2, 4, 8}
	// poolTokens are the pools whose reuse is shown, in tokens: 8 engines of 128 Ki tokens each, doubled
	// until a day's trace fits.
	poolTokens = [...]int{1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20}
)

// Stat is what Measure finds; its JSON keys are those of `trace stat --json`. Reuse figures are shares of
// all input tokens (but block_reuse), on a model fleet whose caches never evict unless a pool is named, and
// that has a prompt the moment it arrives. A prompt reuses its leading blocks that were seen with the same
// prefix before, min(blocks x 512, input_length) tokens of them.
type Stat struct {
	Trace string `json:"trace"`
	Rows  int    `json:"rows"`
	// Skipped counts rows that could not be read; Problems says what was wrong with the first of them.
	Skipped  int      `json:"skipped"`
	Problems []string `json:"problems,omitempty"`

	// SpanS is from the first stamp to the last, in seconds; rates are over it, 0 without a span.
	SpanS        float64 `json:"span_s"`
	RowsRate     float64 `json:"rows_per_s"`
	InputRate    float64 `json:"input_tokens_per_s"`
	OutputRate   float64 `json:"output_tokens_per_s"`
	MeanInput    float64 `json:"mean_input"`
	MeanOutput   float64 `json:"mean_output"`
	Input        Lengths `json:"input"`
	Output       Lengths `json:"output"`
	UniqueBlocks int     `json:"unique_blocks"`

	// BlockReuse and TokenReuse are of one unbounded cache that all rows share: the share of prompt blocks
	// and of prompt tokens.
	BlockReuse float64 `json:"block_reuse"`
	TokenReuse float64 `json:"token_reuse"`
	// RoundRobin8 is the reuse when row i of the selection goes to worker i mod 8.
	RoundRobin8 float64 `json:"round_robin_8"`
	// LongestMatch8 is the reuse when a row goes to the worker with the longest match.
	LongestMatch8 Placement `json:"longest_match_8"`
	// Pools are the reuse figures of one shared LRU cache of a given size.
	Pools []Pool `json:"pools"`

	Heads []Head `json:"heads"`
	Slots Slots  `json:"slots"`
}

// Lengths are percentiles in tokens; percentile p is the sorted element at round((n-1) p).
type Lengths struct {
	Min int `json:"min"`
	P50 int `json:"p50"`
	P90 int `json:"p90"`
	P99 int `json:"p99"`
	Max int `json:"max"`
}

// Placement is the reuse under a placement and how evenly it spreads requests: those of the busiest worker
// over the mean of all workers, from 1 to the number of workers.
type Placement struct {
	Reuse   float64 `json:"reuse"`
	Balance float64 `json:"balance"`
}

// Pool is the reuse of one LRU cache of Tokens tokens.
type Pool struct {
	Tokens     int     `json:"tokens"`
	TokenReuse float64 `json:"token_reuse"`
}

// Head says how many different prefixes of Blocks blocks there are and how many rows begin with the
// commonest. Shorter prompts are not counted.
type Head struct {
	Blocks   int `json:"blocks"`
	Distinct int `json:"distinct"`
	TopRows  int `json:"top_rows"`
}

// Slots are the rows that share a stamp. StepS is the median distance of neighbouring stamps, in seconds.
type Slots struct {
	Count   int     `json:"count"`
	StepS   float64 `json:"step_s"`
	RowsP50 int     `json:"rows_p50"`
	RowsP99 int     `json:"rows_p99"`
	RowsMax int     `json:"rows_max"`
}

// Measure reads r to its end. Its memory grows with the blocks and rows of the trace, by some tens of
// bytes each; no token is made.
func Measure(r *Reader) (Stat, error) {
	m := newMeter()
	var row Row
	for {
		err := r.Next(&row)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Stat{}, err
		}
		m.add(&row)
	}
	s := m.stat()
	s.Trace = r.Name()
	skipped := r.Skipped()
	s.Skipped = skipped.Count
	for _, bad := range skipped.First {
		s.Problems = append(s.Problems, bad.Error())
	}
	return s, nil
}

// meter adds up rows.
type meter struct {
	inputs, outputs []int
	blocks          int // of all prompts
	matched         int // of them, by the shared cache

	shared     oracle.Unbounded
	found      int // tokens, by the shared cache
	roundRobin placement
	longest    placement
	pools      [len(poolTokens)]pool
	heads      [len(headDepths)]map[uint64]int
	stamps     []int64 // distinct
	slots      []int   // rows at each
}

// pool is an LRU cache and the tokens found in it.
type pool struct {
	cache *oracle.Pooled
	found int
}

// placement is a model fleet: a cache and the load of each worker.
type placement struct {
	workers [statWorkers]struct {
		cache  oracle.Unbounded
		rows   int
		tokens int
	}
	found int
}

func newMeter() *meter {
	m := &meter{}
	for i, size := range poolTokens {
		m.pools[i].cache = oracle.NewPooled(size / BlockTokens)
	}
	for i := range m.heads {
		m.heads[i] = make(map[uint64]int)
	}
	return m
}

func (m *meter) add(row *Row) {
	// The number of rows so far chooses the worker of round robin, so the lengths come first.
	m.inputs = append(m.inputs, row.Input)
	m.outputs = append(m.outputs, row.Output)
	m.blocks += len(row.IDs)
	match := m.shared.Serve(row.IDs)
	m.matched += match
	m.found += matchTokens(match, row)
	m.roundRobin.serve((len(m.inputs)-1)%statWorkers, row)
	m.longest.serve(m.longest.longestMatch(row), row)
	for i := range m.pools {
		m.pools[i].found += matchTokens(m.pools[i].cache.Serve(row.IDs), row)
	}
	m.addHeads(row)
	m.addStamp(row.StampNs)
}

// matchTokens is how many tokens a match of so many blocks reuses: the last block may be partial.
func matchTokens(match int, row *Row) int { return min(match*BlockTokens, row.Input) }

// serve places a row on a worker, whose cache has all of its prompt from then on.
func (p *placement) serve(worker int, row *Row) {
	w := &p.workers[worker]
	p.found += matchTokens(w.cache.Serve(row.IDs), row)
	w.rows++
	w.tokens += row.Input
}

// longestMatch is the worker that holds most of the row's leading blocks; among equals the one that was
// given the fewest input tokens so far, then the first.
func (p *placement) longestMatch(row *Row) int {
	best, bestMatch := 0, -1
	for i := range p.workers {
		match := p.workers[i].cache.Match(row.IDs)
		if match > bestMatch || match == bestMatch && p.workers[i].tokens < p.workers[best].tokens {
			best, bestMatch = i, match
		}
	}
	return best
}

// balance counts idle workers in the mean: sending all to one of eight is 8, not 1.
func (p *placement) balance() float64 {
	most, all := 0, 0
	for _, w := range p.workers {
		most = max(most, w.rows)
		all += w.rows
	}
	return ratio(most*statWorkers, all)
}

// addHeads counts the row's prefixes of the depths shown, each under the hash of its whole prefix.
func (m *meter) addHeads(row *Row) {
	prefix := uint64(0)
	next := 0
	for i, id := range row.IDs {
		if next == len(headDepths) {
			return
		}
		prefix = tokens.PrefixNext(prefix, id)
		if i+1 == headDepths[next] {
			m.heads[next][prefix]++
			next++
		}
	}
}

// addStamp relies on stamps that do not decrease, as a Reader gives them.
func (m *meter) addStamp(stamp int64) {
	if n := len(m.stamps); n == 0 || m.stamps[n-1] != stamp {
		m.stamps = append(m.stamps, stamp)
		m.slots = append(m.slots, 0)
	}
	m.slots[len(m.slots)-1]++
}

func (m *meter) stat() Stat {
	rows, input, output := len(m.inputs), sum(m.inputs), sum(m.outputs)
	s := Stat{
		Rows:         rows,
		MeanInput:    ratio(input, rows),
		MeanOutput:   ratio(output, rows),
		Input:        lengths(m.inputs),
		Output:       lengths(m.outputs),
		UniqueBlocks: m.shared.Blocks(),

		BlockReuse:    ratio(m.matched, m.blocks),
		TokenReuse:    ratio(m.found, input),
		RoundRobin8:   ratio(m.roundRobin.found, input),
		LongestMatch8: Placement{ratio(m.longest.found, input), m.longest.balance()},
		Slots:         m.slotStat(),
	}
	if n := len(m.stamps); n > 1 {
		s.SpanS = float64(m.stamps[n-1]-m.stamps[0]) / nsPerSecond
		s.RowsRate, s.InputRate, s.OutputRate = float64(rows)/s.SpanS, float64(input)/s.SpanS, float64(output)/s.SpanS
	}
	for i, size := range poolTokens {
		s.Pools = append(s.Pools, Pool{size, ratio(m.pools[i].found, input)})
	}
	for i, depth := range headDepths {
		h := Head{Blocks: depth, Distinct: len(m.heads[i])}
		for _, rows := range m.heads[i] {
			h.TopRows = max(h.TopRows, rows)
		}
		s.Heads = append(s.Heads, h)
	}
	return s
}

func (m *meter) slotStat() Slots {
	var steps []int64
	for i := 1; i < len(m.stamps); i++ {
		steps = append(steps, m.stamps[i]-m.stamps[i-1])
	}
	slices.Sort(steps)
	slices.Sort(m.slots)
	s := Slots{Count: len(m.slots), RowsP50: at(m.slots, 50), RowsP99: at(m.slots, 99), RowsMax: at(m.slots, 100)}
	if len(steps) > 0 {
		s.StepS = float64(at(steps, 50)) / nsPerSecond
	}
	return s
}

// lengths sorts values in place.
func lengths(values []int) Lengths {
	slices.Sort(values)
	return Lengths{at(values, 0), at(values, 50), at(values, 90), at(values, 99), at(values, 100)}
}

// at is the percentile of sorted values: the element at round((n-1) percent/100), 0 without any.
func at[T int | int64](sorted []T, percent int) T {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[((len(sorted)-1)*percent+50)/100]
}

func sum(values []int) (total int) {
	for _, v := range values {
		total += v
	}
	return total
}

// ratio is part over whole, 0 of nothing.
func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

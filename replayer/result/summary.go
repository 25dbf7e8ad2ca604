package result

import (
	"fleetdrill/replayer/load"
	"fleetdrill/replayer/plan"
)

// Modes of a replay.
const (
	Live = "live"
	Sim  = "sim"
)

// Info is what a replay was and what of it no request record tells.
type Info struct {
	Trace string `json:"trace"`
	// RowRange is the selection as it was asked for, empty for every row; Rows counts the rows read.
	RowRange string       `json:"row_range"`
	Rows     int          `json:"rows"`
	Skipped  plan.Skipped `json:"skipped"`
	Mode     string       `json:"mode"`
	Policy   string       `json:"policy"`
	Workers  int          `json:"workers"`
	// WorkerIDs are all workers, idle ones too: balance is over them.
	WorkerIDs []string `json:"-"`
	Speed     float64  `json:"speed"`
	Arrivals  string   `json:"arrivals"`
	Seed      uint64   `json:"seed"`
	SLO       SLO      `json:"slo"`
	Profile   string   `json:"profile"`
	KVIndex   string   `json:"kv_index"`
	KVBlocks  int      `json:"kv_blocks"`
	BlockSize int      `json:"block_size"`
	// Hash is what the engines hash blocks with.
	Hash string `json:"hash"`
	// Preemptions are the engines' own count over the whole replay.
	Preemptions int `json:"preemptions"`
	// VirtualS is how long the replay took in the time of the fleet, WallS in ours; live they are one.
	VirtualS float64 `json:"virtual_s"`
	WallS    float64 `json:"wall_s"`
	// Notes say what of the record is missing and why, for people.
	Notes []string `json:"notes"`
	// Reasons say why the figures mean nothing; none is a valid replay. Partial marks one that ended before
	// its rows did.
	Reasons []string `json:"reasons"`
	Partial bool     `json:"partial"`
}

// Credit sorts requests by what the gateway promised beside what the engine had; a request that was never
// promised anything, or never served, counts 0 on that side. The classes are disjoint and sum to the
// requests.
type Credit struct {
	Equal int `json:"equal"`
	// WithinBlock differ by less than one block.
	WithinBlock int `json:"within_block"`
	// Over were promised more than they got, Under less.
	Over  int `json:"over"`
	Under int `json:"under"`
}

// Residue sorts the requests that are over or under by why: LateStore and LateEvict were promised what the
// chosen worker had at the placement instant, and blocks came or went before the engine scheduled them. View
// is the rest: the gateway's index was not what the engine had announced.
type Residue struct {
	LateStore int `json:"late_store"`
	LateEvict int `json:"late_evict"`
	View      int `json:"view"`
}

// Summary is what a replay came to; its JSON keys are those of `replay --json`.
type Summary struct {
	Info
	// Requests were offered, without those of the warm-up; Errors of them failed or were still open at the
	// end. OK finished.
	Requests int            `json:"requests"`
	OK       int            `json:"ok"`
	Errors   int            `json:"errors"`
	Aborted  int            `json:"aborted"`
	ByError  map[string]int `json:"by_error"`
	Valid    bool           `json:"valid"`

	TTFT    load.Quantiles `json:"ttft_ms"`     // of every request that had a first token
	TPOT    load.Quantiles `json:"tpot_ms"`     // per request, of ok requests of two tokens or more
	Gap     load.Quantiles `json:"gap_ms"`      // between tokens, pooled
	E2E     load.Quantiles `json:"e2e_ms"`      // of ok requests
	SendLag load.Quantiles `json:"send_lag_ms"` // of every request
	// Staleness is the age of the newest applied batch at the placement instants, where it is known.
	Staleness load.Quantiles `json:"staleness_ms"`

	// Goodput are the requests per second of the scheduled window, WindowS, that finished and kept every
	// stated bound. WithinSLO is their share of the requests, WithinSLOOK of the ok ones; Strict holds the
	// 99th percentile of a request's gaps to the bound.
	WindowS      float64 `json:"window_s"`
	Goodput      float64 `json:"goodput_rps"`
	WithinSLO    float64 `json:"within_slo"`
	WithinSLOOK  float64 `json:"within_slo_ok"`
	WithinStrict float64 `json:"within_slo_strict"`

	// Tokens of the ok requests: cached by the engines, and asked. Reuse is their ratio; the ratios beside it
	// are what one pool as large as the fleet's and one that never evicts would have reused.
	Cached         int64   `json:"cached_tokens"`
	Prompt         int64   `json:"prompt_tokens"`
	Reuse          float64 `json:"reuse"`
	PooledReuse    float64 `json:"pooled_reuse"`
	UnboundedReuse float64 `json:"unbounded_reuse"`
	// HitOverBest is what the engines had cached over what the best holder of each request had at its
	// placement instant, null when the engines' truth is not known. OracleKnown counts the ok requests it is
	// over.
	HitOverBest   *float64 `json:"hit_over_best_holder"`
	OracleKnown   int      `json:"oracle_known"`
	HitOverPooled float64  `json:"hit_over_pooled"`
	// LateHits are blocks that an engine had beyond the best holder's, stored after the placement.
	LateHits int     `json:"late_hits"`
	Balance  float64 `json:"balance"`
	// PerWorker are the requests that each worker served, in the order of WorkerIDs.
	PerWorker []int   `json:"per_worker"`
	Credit    Credit  `json:"credit"`
	Residue   Residue `json:"residue"`
	Digest    string  `json:"digest"`
	// Published are the figures by a public replayer's conventions, when they were asked for.
	Published *Published `json:"published,omitempty"`
}

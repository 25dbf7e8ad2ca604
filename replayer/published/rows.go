package published

import "fleetdrill/gateway/policy"

// Figures are the six of a published row.
type Figures struct {
	Goodput float64 `json:"goodput_rps"`
	// Within is the share of ok requests within TTFT 500 ms and a mean gap of 50 ms.
	Within float64 `json:"within_slo"`
	P50    float64 `json:"ttft_p50_ms"`
	P90    float64 `json:"ttft_p90_ms"`
	P99    float64 `json:"ttft_p99_ms"`
	Reuse  float64 `json:"reuse"`
}

// list is the figures in the order of the table.
func (f Figures) list() [6]float64 {
	return [6]float64{f.Goodput, f.Within, f.P50, f.P90, f.P99, f.Reuse}
}

// names of the six.
var names = [6]string{"goodput/s", "in SLO", "TTFT p50", "p90", "p99", "reuse"}

// Scenario is one published row.
type Scenario struct {
	// Pool is "full" or "small". Blocks are those of one engine.
	Pool   string `json:"pool"`
	Blocks int    `json:"blocks"`
	Policy string `json:"policy"`
	// Hardware was measured, Mock is what the published mock said of it.
	Hardware Figures `json:"hardware"`
	Mock     Figures `json:"published_mock"`
}

const (
	// Workers, FullBlocks, SmallBlocks and Seqs size the published fleet.
	Workers     = 4
	FullBlocks  = 42_258 // 676,128 tokens
	SmallBlocks = 12_000
	Seqs        = 128
	// Rate is how many requests a second it answered: the published goodput over its share within the SLO is
	// 16.5 to 16.7 in every row that kept up, where the text says 16.
	Rate = 16.6
	// ModelLen is the longest prompt and answer it took, in tokens.
	ModelLen = 40_960
)

// scenarios are the published rows, those that are fitted first.
var scenarios = []Scenario{
	{"full", FullBlocks, policy.CacheAware, Figures{15.31, 0.925, 156, 440, 864, 0.388}, Figures{14.32, 0.868, 175, 506, 1075, 0.420}},
	{"full", FullBlocks, policy.RoundRobin, Figures{14.29, 0.857, 197, 444, 973, 0.39}, Figures{13.81, 0.830, 199, 408, 702, 0.39}},
	{"small", SmallBlocks, policy.RoundRobin, Figures{11.88, 0.715, 245, 1838, 4787, 0.363}, Figures{13.80, 0.829, 200, 407, 710, 0.370}},
	{"small", SmallBlocks, policy.CacheAware, Figures{7.04, 0.478, 821, 13217, 24479, 0.366}, Figures{12.73, 0.774, 212, 1342, 5970, 0.379}},
}

// fitted is how many of the scenarios a fit sees.
const fitted = 2

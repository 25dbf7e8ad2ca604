package drive

import (
	"math"
	"slices"
)

// Latency is the distribution of a duration, in us, by nearest rank.
type Latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
	N    int     `json:"n"`
}

// Distribution sorts durations in ns and takes their ranks; the zero value for none.
func Distribution(ns []uint32) Latency {
	if len(ns) == 0 {
		return Latency{}
	}
	slices.Sort(ns)
	at := func(share float64) float64 { return float64(ns[rank(share, len(ns))]) / 1e3 }
	return Latency{P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: at(1), N: len(ns)}
}

// rank is the index of the nearest rank of a share of n sorted values: the smallest that at least that share
// does not exceed.
func rank(share float64, n int) int {
	return min(max(int(math.Ceil(share*float64(n)))-1, 0), n-1)
}

// ns32 is a duration that fits 32 bits, which is four seconds; a longer one becomes that.
func ns32(ns int64) uint32 { return uint32(min(max(ns, 0), math.MaxUint32)) }

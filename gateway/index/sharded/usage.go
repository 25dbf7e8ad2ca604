package sharded

import "fleetdrill/gateway/index"

var _ index.Accountant = (*Index)(nil)

// Usage implements index.Accountant: the sum over those shards that count themselves.
func (x *Index) Usage() (sum index.Usage) {
	for _, shard := range x.shards {
		if a, ok := shard.(index.Accountant); ok {
			u := a.Usage()
			sum.Runs += u.Runs
			sum.Blocks += u.Blocks
			sum.Bytes += u.Bytes
			sum.FreeBytes += u.FreeBytes
		}
	}
	return sum
}

// Walked implements index.Accountant: a lookup asks every shard.
func (x *Index) Walked(chain []uint64) (runs int) {
	for _, shard := range x.shards {
		if a, ok := shard.(index.Accountant); ok {
			runs += a.Walked(chain)
		}
	}
	return runs
}

// Package sharded spreads holders over several indexes, so that as many writers work side by side.
//
// It holds the spreading and the union of answers, no index of its own. It costs what the shards do not
// share: a prefix that holders of three shards have is stored three times, and looked up three times.
//
// The one idea to know: holders are disjoint, so a union of exact answers is exact. Each shard answers for
// one moment, but not all for the same.
package sharded

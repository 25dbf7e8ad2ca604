package sharded

import (
	"sync/atomic"

	"fleetdrill/gateway/index"
)

// Index is a union of indexes. Make it with New.
type Index struct {
	shards []index.Index
	// length is the highest holder id known + 1.
	length atomic.Int64
	// refused counts blocks of holders that cannot be.
	refused atomic.Int64
}

var _ index.Index = (*Index)(nil)

// New spreads holders over n > 0 indexes made by make.
func New(n int, make func() index.Index) *Index {
	x := &Index{}
	for range n {
		x.shards = append(x.shards, make())
	}
	return x
}

// of is the shard of h and the id of h there: ids stay dense in every shard.
func (x *Index) of(h index.Holder) (index.Index, index.Holder) {
	n := index.Holder(len(x.shards))
	return x.shards[h%n], h / n
}

// Store implements index.Index.
func (x *Index) Store(h index.Holder, parent uint64, hasParent bool, hashes, contents []uint64) index.StoreResult {
	if h >= index.MaxHolders {
		x.refused.Add(int64(len(hashes)))
		return index.StoreResult{Refused: len(hashes)}
	}
	for n := x.length.Load(); n <= int64(h) && !x.length.CompareAndSwap(n, int64(h)+1); n = x.length.Load() {
	}
	shard, local := x.of(h)
	return shard.Store(local, parent, hasParent, hashes, contents)
}

// Remove implements index.Index.
func (x *Index) Remove(h index.Holder, hashes []uint64) (removed, unknown int) {
	shard, local := x.of(h)
	return shard.Remove(local, hashes)
}

// Clear implements index.Index.
func (x *Index) Clear(h index.Holder) {
	shard, local := x.of(h)
	shard.Clear(local)
}

// Drop implements index.Index.
func (x *Index) Drop(h index.Holder) {
	shard, local := x.of(h)
	shard.Drop(local)
}

// Lookup implements index.Index. Shards answer into the room behind the result, so that nothing is
// allocated once dst has grown to it.
func (x *Index) Lookup(chain []uint64, dst index.Scores) index.Scores {
	length, n := int(x.length.Load()), len(x.shards)
	if room := length + (length+n-1)/n; cap(dst) < room {
		dst = make(index.Scores, room)
	}
	dst = dst[:length]
	clear(dst)
	for i, shard := range x.shards {
		for local, score := range shard.Lookup(chain, dst[length:]) {
			if h := local*n + i; h < length {
				dst[h] = score
			}
		}
	}
	return dst
}

// Holds implements index.Index.
func (x *Index) Holds(h index.Holder, hash uint64) bool {
	shard, local := x.of(h)
	return shard.Holds(local, hash)
}

// Count implements index.Index.
func (x *Index) Count(h index.Holder) int {
	shard, local := x.of(h)
	return shard.Count(local)
}

// Stats implements index.Index. A place that several shards have counts in each.
func (x *Index) Stats() (sum index.Stats) {
	sum.Refused = x.refused.Load()
	for _, shard := range x.shards {
		s := shard.Stats()
		sum.Holders += s.Holders
		sum.Memberships += s.Memberships
		sum.Nodes += s.Nodes
		sum.Refused += s.Refused
		sum.Shed += s.Shed
	}
	return sum
}

// Each implements index.Index.
func (x *Index) Each(h index.Holder, fn func(index.Membership) bool) {
	shard, local := x.of(h)
	shard.Each(local, fn)
}

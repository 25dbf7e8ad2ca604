package proxy

import (
	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/index"
	"fleetdrill/internal/tokens"
)

// scores is what the index says about one prompt, per block size of the fleet (nearly always one).
type scores struct {
	sizes  []int
	bySize []index.Scores
}

// lookup hashes the prompt's blocks and asks the index. Nil when there is nothing to ask.
func (p *Proxy) lookup(in prompt) *scores {
	if p.opts.Index == nil || len(in.ids) == 0 {
		return nil
	}
	ns := tokens.Namespace("", "", in.salt)
	s := &scores{sizes: p.opts.Fleet.BlockSizes()}
	for _, size := range s.sizes {
		chain := tokens.AppendChain(make([]uint64, 0, len(in.ids)/size), in.ids, size, ns)
		s.bySize = append(s.bySize, p.opts.Index.Lookup(chain, nil))
	}
	p.lookups.Add(1)
	return s
}

// of is the worker's best rank and the leading tokens that it caches.
func (s *scores) of(w *fleet.Worker) (rank, overlap int) {
	for i, size := range s.sizes {
		if size != w.Spec.KVBlockSize {
			continue
		}
		for r, h := range w.Holders {
			if int(h) < len(s.bySize[i]) && int(s.bySize[i][h])*size > overlap {
				rank, overlap = r, int(s.bySize[i][h])*size
			}
		}
	}
	return rank, overlap
}

// predicted is how many of n prompt tokens an engine that caches overlap of them will report as cached:
// whole blocks, and never the whole prompt, because the last token is always computed.
func predicted(overlap, n, blockSize int) int {
	if n == 0 {
		return 0
	}
	return min(overlap, (n-1)/blockSize*blockSize)
}

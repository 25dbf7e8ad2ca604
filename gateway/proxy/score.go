package proxy

import (
	"math"

	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/index"
	"fleetdrill/internal/tokens"
)

// Scores is what the index says about one prompt, per block size of the fleet (nearly always one). The zero
// value says nothing.
type Scores struct {
	sizes  []int
	bySize []index.Scores
}

// Look asks the index for a prompt's chain at a block size, in tokens.
func (s *Scores) Look(ix index.Index, size int, chain []uint64) {
	s.sizes = append(s.sizes, size)
	s.bySize = append(s.bySize, ix.Lookup(chain, s.spare(len(s.sizes)-1)))
}

// spare is the memory of an earlier answer at this place, if Reset left one.
func (s *Scores) spare(i int) index.Scores {
	if i < cap(s.bySize) {
		return s.bySize[:i+1][i]
	}
	return nil
}

// Reset forgets the prompt and keeps the memory.
func (s *Scores) Reset() { s.sizes, s.bySize = s.sizes[:0], s.bySize[:0] }

// lookup hashes the prompt's blocks and asks the index. Nil when there is nothing to ask.
func (p *Proxy) lookup(in prompt) *Scores {
	if p.opts.Index == nil || len(in.ids) == 0 {
		return nil
	}
	ns := tokens.Namespace("", "", in.salt)
	s := new(Scores)
	for _, size := range p.opts.Fleet.BlockSizes() {
		s.Look(p.opts.Index, size, tokens.AppendChain(make([]uint64, 0, len(in.ids)/size), in.ids, size, ns))
	}
	p.lookups.Add(1)
	return s
}

// Of is the worker's best rank and the leading tokens that it caches.
func (s *Scores) Of(w *fleet.Worker) (rank, overlap int) {
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

// Deepest is the greatest overlap below a bound, in tokens, and the holders that cache so much, appended to
// dst; 0 when there is none.
func (s *Scores) Deepest(below int, dst []index.Holder) (tokens int, holders []index.Holder) {
	for i, size := range s.sizes {
		most := uint32(min((below-1)/size, math.MaxUint32))
		for _, n := range s.bySize[i] {
			if n <= most && int(n)*size > tokens {
				tokens = int(n) * size
			}
		}
	}
	if tokens == 0 {
		return 0, dst
	}
	for i, size := range s.sizes {
		if tokens%size != 0 {
			continue
		}
		want := uint32(tokens / size)
		for h, n := range s.bySize[i] {
			if n == want {
				dst = append(dst, index.Holder(h))
			}
		}
	}
	return tokens, dst
}

// Predicted is how many of n prompt tokens an engine that caches overlap of them will report as cached:
// whole blocks, and never the whole prompt, because the last token is always computed.
func Predicted(overlap, n, blockSize int) int {
	if n == 0 {
		return 0
	}
	return min(overlap, (n-1)/blockSize*blockSize)
}

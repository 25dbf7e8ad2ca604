package proxy

import (
	"math"

	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/index"
	"fleetdrill/internal/tokens"
)

// Scores is what the index says about one prompt, per view of the fleet (nearly always one). The zero
// value says nothing.
type Scores struct {
	named  fleet.Named
	views  []fleet.View
	byView []index.Scores
}

// Look asks the index for a prompt's chain as a view of the fleet has it.
func (s *Scores) Look(ix index.Index, v fleet.View, chain []uint64) {
	s.views = append(s.views, v)
	s.byView = append(s.byView, ix.Lookup(chain, s.spare(len(s.views)-1)))
}

// spare is the memory of an earlier answer at this place, if Reset left one.
func (s *Scores) spare(i int) index.Scores {
	if i < cap(s.byView) {
		return s.byView[:i+1][i]
	}
	return nil
}

// Reset forgets the prompt and keeps the memory.
func (s *Scores) Reset() { s.views, s.byView = s.views[:0], s.byView[:0] }

// lookup hashes the prompt's blocks and asks the index. Nil when there is nothing to ask.
func (p *Proxy) lookup(in prompt) *Scores {
	if p.opts.Index == nil || len(in.ids) == 0 {
		return nil
	}
	s := &Scores{named: fleet.Named{Model: in.model}}
	for _, v := range p.opts.Fleet.Views(in.model) {
		// The gateway's base model has no name of its own here: events do not tell it either.
		ns := tokens.Namespace("", v.Adapter, in.salt)
		s.Look(p.opts.Index, v, tokens.AppendChain(make([]uint64, 0, len(in.ids)/v.BlockSize), in.ids, v.BlockSize, ns))
	}
	p.lookups.Add(1)
	return s
}

// Of is the worker's best rank and the leading tokens that it caches.
func (s *Scores) Of(w *fleet.Worker) (rank, overlap int) {
	view := s.named.At(w)
	for i, v := range s.views {
		if v != view {
			continue
		}
		for r, h := range w.Holders {
			if int(h) < len(s.byView[i]) && int(s.byView[i][h])*v.BlockSize > overlap {
				rank, overlap = r, int(s.byView[i][h])*v.BlockSize
			}
		}
	}
	return rank, overlap
}

// oneAdapter reports that the model means the same to every worker. Else a holder may cache the prompt under
// a meaning that is not its own, which is of no use there.
func (s *Scores) oneAdapter() bool {
	for _, v := range s.views {
		if v.Adapter != s.views[0].Adapter {
			return false
		}
	}
	return true
}

// Deepest is the greatest overlap below a bound, in tokens, and the holders that cache so much, appended to
// dst; 0 when there is none. It is right only where the model means the same to all: see oneAdapter.
func (s *Scores) Deepest(below int, dst []index.Holder) (tokens int, holders []index.Holder) {
	for i, v := range s.views {
		size := v.BlockSize
		most := uint32(min((below-1)/size, math.MaxUint32))
		for _, n := range s.byView[i] {
			if n <= most && int(n)*size > tokens {
				tokens = int(n) * size
			}
		}
	}
	if tokens == 0 {
		return 0, dst
	}
	for i, v := range s.views {
		size := v.BlockSize
		if tokens%size != 0 {
			continue
		}
		want := uint32(tokens / size)
		for h, n := range s.byView[i] {
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

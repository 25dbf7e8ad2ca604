package engine

// Sum is the number and digest (tokens.Digest) of the distinct hashes in one tier and group.
type Sum struct {
	Medium   string
	Group    int
	SpecKind string
	Blocks   int
	Digest   uint64
}

// Summer is a Core that knows how much it holds without counting. Whoever compares that with what was announced
// needs to look at the blocks only when it differs.
type Summer interface {
	// Sums are of every tier and group, now or as the last step found them. They are valid until the next
	// Step.
	Sums(before bool) []Sum
}

var _ Summer = (*Engine)(nil)

// Sums implements Summer.
func (e *Engine) Sums(before bool) []Sum {
	if before {
		return e.before
	}
	return e.appendSums(nil)
}

func (e *Engine) appendSums(dst []Sum) []Sum {
	for i, s := range e.pool.sums {
		dst = append(dst, Sum{Medium: MediumGPU, Group: i, SpecKind: e.groups[i].Kind, Blocks: s.blocks, Digest: s.digest})
	}
	if e.host != nil {
		s := e.host.pool.sums[0]
		dst = append(dst, Sum{Medium: MediumCPU, Group: NoGroup, Blocks: s.blocks, Digest: s.digest})
	}
	return dst
}

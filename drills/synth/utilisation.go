package synth

// Timing holds an engine profile's coefficients of a step's duration beyond its fixed cost, in
// nanoseconds: B per prefill token, C per decoding sequence, D per token of context of a decoding
// sequence, E per prefill token and token of context, a chunk's own tokens counting half.
type Timing struct{ B, C, D, E float64 }

// Utilisation is the share of a worker's time that the load keeps it computing, 1 being all of it: the
// prefill, C and D time of a second's requests, spread evenly over the workers, without the fixed cost
// of steps. Heads count as cached and prefills as one chunk. A closed loop counts as full, because it
// sends whatever the fleet can take.
func Utilisation(s Spec, t Timing, workers int) float64 {
	s = s.expanded()
	if s.Concurrency > 0 || workers <= 0 {
		return 1
	}
	return s.Rate * (s.prefillNs(t) + s.decodeNs(t)) / 1e9 / float64(workers)
}

// prefillNs is the mean prefill time of a request.
func (s Spec) prefillNs(t Timing) float64 {
	if s.HitsOnly {
		// A cached prompt still computes its last block.
		n := float64(s.BlockSize)
		return t.B*n + t.E*n*(float64(s.HeadTokens)+s.Input.mean()-n/2)
	}
	h, mean, square := float64(s.HeadTokens), s.Input.mean(), s.Input.meanSquare()
	fresh := s.freshShare()
	tokens := mean + fresh*h
	// Behind a cached head: x tokens at a context of h + x/2. With a fresh prefix: h + x at half of that.
	behind := h*mean + square/2
	own := (h*h + 2*h*mean + square) / 2
	return t.B*tokens + t.E*(fresh*own+(1-fresh)*behind)
}

// decodeNs is the mean decode time of a request: the prefill yields the first token, every other one is
// a step at a context that grows by one.
func (s Spec) decodeNs(t Timing) float64 {
	mean, square := s.Output.mean(), s.Output.meanSquare()
	prompt := float64(s.HeadTokens) + s.Input.mean()
	context := prompt*(mean-1) + (square-mean)/2
	return t.C*(mean-1) + t.D*context
}

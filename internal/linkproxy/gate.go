package linkproxy

import "sync/atomic"

// gate is what a hold closes: everything that wants to move bytes passes it first.
type gate struct {
	// opens is closed by the release; nil while the gate is open, which costs the passer one load.
	opens atomic.Pointer[chan struct{}]
	// waiting counts the bytes that pumps have in hand in front of the closed gate.
	waiting atomic.Int64
}

func (g *gate) hold() {
	opens := make(chan struct{})
	g.opens.CompareAndSwap(nil, &opens)
}

func (g *gate) release() {
	if opens := g.opens.Swap(nil); opens != nil {
		close(*opens)
	}
}

func (g *gate) held() bool { return g.opens.Load() != nil }

// pass returns true when the gate is open, false when done is closed first. bytes is what the caller has
// in hand.
func (g *gate) pass(bytes int, done <-chan struct{}) bool {
	opens := g.opens.Load()
	if opens == nil {
		return true
	}
	g.waiting.Add(int64(bytes))
	defer g.waiting.Add(int64(-bytes))
	// A new hold may have begun before this goroutine ran again.
	for ; opens != nil; opens = g.opens.Load() {
		select {
		case <-*opens:
		case <-done:
			return false
		}
	}
	return true
}

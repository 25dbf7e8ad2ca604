package drills

import (
	"context"
	"sync"

	"fleetdrill/drills/judge"
)

// Leg is a series of runs of one drill, and how to run it.
type Leg struct {
	Series *Series
	// Run runs the drill once with a seed; its error is one of the lab, not of the drill.
	Run func(ctx context.Context, seed uint64) (judge.Drill, error)
	// Done is called when no more runs of the leg are to come, with what they came to.
	Done func(Repeated)
}

// RunLegs runs the legs, up to jobs runs side by side, the legs in their order as far as that goes. It
// returns when every leg is done or, with ctx over, when the runs that were out have ended. Done is
// called for every leg that had a run.
func RunLegs(ctx context.Context, legs []*Leg, jobs int) {
	p := &pool{ctx: ctx, legs: legs, done: make([]bool, len(legs))}
	p.idle = sync.NewCond(&p.mu)
	var workers sync.WaitGroup
	for range max(1, jobs) {
		workers.Go(p.work)
	}
	workers.Wait()
	for i, l := range legs {
		if !p.done[i] && len(l.Series.results) > 0 {
			l.Done(l.Series.Result())
		}
	}
}

// pool hands the runs of the legs to its workers.
type pool struct {
	ctx  context.Context
	legs []*Leg

	mu   sync.Mutex // guards every series and done
	idle *sync.Cond // signalled when a run has ended
	done []bool     // legs whose Done was called
}

func (p *pool) work() {
	for {
		leg, seed, ok := p.next()
		if !ok {
			return
		}
		d, err := leg.Run(p.ctx, seed)
		if err != nil && d.Verdict != Interrupted {
			// Whatever the drill was judged to be: that is not why it is an error.
			d.Verdict, d.Reason = judge.Error, err.Error()
		}
		p.add(leg, d)
	}
}

// next waits for a run to start; false when none will come any more. A run that is out may end invalid
// and have to be replaced, so the wait is for that.
func (p *pool) next() (*Leg, uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.ctx.Err() == nil {
		out := false
		for _, l := range p.legs {
			if seed, ok := l.Series.Next(); ok {
				return l, seed, true
			}
			out = out || !l.Series.Done()
		}
		if !out {
			return nil, 0, false
		}
		p.idle.Wait()
	}
	return nil, 0, false
}

func (p *pool) add(leg *Leg, d judge.Drill) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.idle.Broadcast()
	leg.Series.Add(d)
	if !leg.Series.Done() {
		return
	}
	for i, l := range p.legs {
		if l == leg {
			p.done[i] = true
		}
	}
	leg.Done(leg.Series.Result())
}

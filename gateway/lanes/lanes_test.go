package lanes

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// However many ranks there are, no more than the lanes apply at once, each rank's batches are in order, and
// every one is applied.
func TestOrderAndWidth(t *testing.T) {
	const size, ranks, batches = 3, 40, 200
	p := New(size)
	var running, most atomic.Int64
	var wg sync.WaitGroup
	got := make([][]int, ranks)
	for r := range ranks {
		wg.Go(func() {
			for b := range batches {
				p.Turn(t.Context(), func() {
					n := running.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					got[r] = append(got[r], b)
					running.Add(-1)
				})
			}
		})
	}
	wg.Wait()
	for r, list := range got {
		if len(list) != batches {
			t.Fatalf("rank %d applied %d of %d", r, len(list), batches)
		}
		for b := range list {
			if list[b] != b {
				t.Fatalf("rank %d: batch %d came at %d", r, list[b], b)
			}
		}
	}
	if s := p.Stats(); most.Load() > size || s.Turns != ranks*batches || s.Waiting != 0 || s.Lanes != size {
		t.Errorf("%d at once; %+v", most.Load(), s)
	}
}

// Lanes go to whoever has waited longest: a rank with a storm of batches gets one turn in between.
func TestTurnsAreFair(t *testing.T) {
	p := New(1)
	enter, leave := make(chan struct{}), make(chan struct{})
	var order []string
	var wg sync.WaitGroup
	wg.Go(func() { p.Turn(t.Context(), func() { close(enter); <-leave }) })
	<-enter
	ask := func(name string, times int) {
		before := p.Stats().Waiting
		wg.Go(func() {
			for range times {
				p.Turn(t.Context(), func() { order = append(order, name) })
			}
		})
		for p.Stats().Waiting == before {
		}
	}
	ask("storm", 100)
	ask("quiet", 1)
	close(leave)
	wg.Wait()
	if order[0] != "storm" || order[1] != "quiet" && order[2] != "quiet" {
		t.Errorf("order %v", order[:5])
	}
	if s := p.Stats(); s.MaxWaiting != 2 || s.Waits < 2 || s.Wait <= 0 {
		t.Errorf("%+v", s)
	}
}

// A rank that stops while it waits applies nothing and keeps no lane.
func TestStopWhileWaiting(t *testing.T) {
	p := New(1)
	enter, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { p.Turn(t.Context(), func() { close(enter); <-leave }) })
	<-enter
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		if p.Turn(ctx, func() { t.Error("applied after the stop") }) {
			t.Error("a stopped rank had its turn")
		}
	})
	for p.Stats().Waiting == 0 {
	}
	cancel()
	for p.Stats().Waiting == 1 {
	}
	close(leave)
	wg.Wait()
	if !p.Turn(t.Context(), func() {}) || p.Stats().Turns != 2 {
		t.Errorf("%+v", p.Stats())
	}
}

// A panic in apply, which its owner may recover from, gives the lane back.
func TestPanicGivesTheLaneBack(t *testing.T) {
	p := New(1)
	func() {
		defer func() { _ = recover() }()
		p.Turn(t.Context(), func() { panic("apply") })
	}()
	if !p.Turn(t.Context(), func() {}) {
		t.Error("the lane is gone")
	}
}

func TestNoPool(t *testing.T) {
	var p *Pool
	ran := false
	if !p.Turn(t.Context(), func() { ran = true }) || !ran || p.Stats() != (Stats{}) {
		t.Error("a nil pool must run everything at once")
	}
}

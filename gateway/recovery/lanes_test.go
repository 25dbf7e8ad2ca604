package recovery

import (
	"context"
	"sync"
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/chain"
	"fleetdrill/gateway/lanes"
	"fleetdrill/internal/contract"
)

// With no lane free, arrivals wait in a bounded queue that the state shows, the socket behind it is not read,
// and nothing is lost: when a lane comes free the index becomes what was announced.
func TestNoLaneIsBackPressure(t *testing.T) {
	e := startEngine(t, anyPort, anyPort, 5000)
	defer e.stop()
	pool := lanes.New(1)
	s := follow(t, e, Deps{Lanes: pool})
	e.publish(1, false)
	e.equal(s)
	release := occupy(t, pool)
	e.publish(queueLength+50, false)
	until(t, s, "full queue behind a rank that waits", func(r contract.RoutingRank) bool {
		return pool.Stats().Waiting == 1 && r.Queued == queueLength && r.Counters.QueueFull > 0
	})
	release()
	if r := e.equal(s); r.Quality != contract.QualityExact || r.Counters.Unrecovered != 0 {
		t.Errorf("%+v", r)
	}
	if l := pool.Stats(); l.Waits == 0 || l.Turns < queueLength {
		t.Errorf("%+v", l)
	}
}

// A subscription that waits for a lane can be closed.
func TestCloseWhileWaitingForALane(t *testing.T) {
	e := startEngine(t, anyPort, anyPort, 6000)
	defer e.stop()
	pool := lanes.New(1)
	s := follow(t, e, Deps{Lanes: pool})
	e.publish(1, false)
	e.equal(s) // connected, so that what comes now arrives
	release := occupy(t, pool)
	defer release()
	e.publish(2*queueLength, false)
	until(t, s, "a wait for the lane", func(contract.RoutingRank) bool { return pool.Stats().Waiting == 1 })
	s.Close()
	if n := s.deps.Residency.Index().Count(0); n != 0 {
		t.Errorf("%d blocks of a closed subscription", n)
	}
}

// occupy takes a lane until release is called.
func occupy(t *testing.T, pool *lanes.Pool) (release func()) {
	t.Helper()
	taken, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { pool.Turn(context.Background(), func() { close(taken); <-leave }) })
	<-taken
	return sync.OnceFunc(func() { close(leave); wg.Wait() })
}

// What the index gives up at its bound is counted on the rank that lost it; the digest is that of the rest.
func TestShedIsCountedOnTheRank(t *testing.T) {
	x := chain.New()
	x.SetMaxBytes(20_000)
	e := startEngine(t, anyPort, anyPort, 7000)
	defer e.stop()
	s := follow(t, e, Deps{Residency: index.NewResidency(x)})
	e.publish(2000, false)
	r := until(t, s, "every batch applied", func(r contract.RoutingRank) bool { return r.NextSeq == 2000 })
	if r.Counters.Shed == 0 || x.Bytes() > 20_000 || r.Counters.Shed != x.Stats().Shed {
		t.Errorf("%+v; %d bytes, %+v", r, x.Bytes(), x.Stats())
	}
	// What is stored under a block that was given up has no place, and is counted as any such store is.
	if want := e.truth.Count(0); r.Blocks >= want || r.Blocks+int(r.Counters.Shed+r.Counters.Orphans) < want {
		t.Errorf("%d blocks, %d shed and %d orphans of %d", r.Blocks, r.Counters.Shed, r.Counters.Orphans, want)
	}
}

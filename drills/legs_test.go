package drills

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/predicate"
	"fleetdrill/drills/record"
	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// fakeDrill ends each of its runs when told to, so that a test sees which are out.
type fakeDrill struct {
	started chan uint64
	verdict chan judge.Verdict
}

func newFakeDrill() *fakeDrill { return &fakeDrill{make(chan uint64), make(chan judge.Verdict)} }

func (f *fakeDrill) run(ctx context.Context, seed uint64) (judge.Drill, error) {
	select {
	case f.started <- seed:
	case <-ctx.Done():
		return judge.Drill{Verdict: Interrupted, Seed: seed}, ErrInterrupted
	}
	select {
	case v := <-f.verdict:
		return judge.Drill{Name: "x", Verdict: v, Seed: seed}, nil
	case <-ctx.Done():
		return judge.Drill{Verdict: Interrupted, Seed: seed}, ErrInterrupted
	}
}

func TestRunLegsSideBySide(t *testing.T) {
	f := newFakeDrill()
	var got []Repeated
	leg := &Leg{Series: NewSeries(3, 7), Run: f.run, Done: func(r Repeated) { got = append(got, r) }}
	done := make(chan struct{})
	go func() {
		RunLegs(t.Context(), []*Leg{leg}, 2)
		close(done)
	}()
	seeds := []uint64{<-f.started, <-f.started}
	select {
	case <-f.started:
		t.Fatal("three runs are out with two jobs")
	case f.verdict <- judge.Invalid: // one ends: two more are to come, of which one may start
	}
	seeds = append(seeds, <-f.started)
	f.verdict <- judge.Pass
	seeds = append(seeds, <-f.started)
	f.verdict <- judge.Pass
	f.verdict <- judge.Fail
	<-done
	if slices.Sort(seeds); len(slices.Compact(seeds)) != 4 {
		t.Errorf("seeds %v are not of four different runs", seeds)
	}
	if len(got) != 1 || got[0].Runs != 3 || got[0].Passed != 2 || got[0].Invalid != 1 || !got[0].Flaky || got[0].Verdict != judge.Fail {
		t.Errorf("result %+v", got)
	}
}

func TestRunLegsEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f, never := newFakeDrill(), newFakeDrill()
	var got []Repeated
	keep := func(r Repeated) { got = append(got, r) }
	done := make(chan struct{})
	go func() {
		RunLegs(ctx, []*Leg{{Series: NewSeries(3, 7), Run: f.run, Done: keep}, {Series: OneRun(1, 0), Run: never.run, Done: keep}}, 1)
		close(done)
	}()
	<-f.started
	cancel()
	<-done
	if len(got) != 1 || got[0].Verdict != Interrupted {
		t.Errorf("results %+v, want the one leg that had a run, interrupted", got)
	}
}

func TestRunLegsTurnsTheLabsErrorIntoAVerdict(t *testing.T) {
	for _, d := range []judge.Drill{
		{},
		{Verdict: judge.Pass},
		{Verdict: judge.Fail, Reason: "too late"},
		{Verdict: judge.Invalid, Reason: "sent late"},
		{Verdict: judge.Error, Reason: "no"},
	} {
		var got Repeated
		RunLegs(t.Context(), []*Leg{{Series: NewSeries(2, 7), Done: func(r Repeated) { got = r },
			Run: func(context.Context, uint64) (judge.Drill, error) { return d, errors.New("no fleet") }}}, 1)
		if got.Verdict != judge.Error || got.Reason != "no fleet" {
			t.Errorf("%+v: verdict %s, %q", d, got.Verdict, got.Reason)
		}
	}
}

func TestMarksCanBeWaitedFor(t *testing.T) {
	m := &marks{}
	mark := predicate.Mark{Name: "cut.healed", Offsets: []predicate.Offset{{Lo: time.Second, Hi: time.Second}}}
	_, fresh := m.await(mark)
	if fresh == nil {
		t.Fatal("a mark that has not come is there")
	}
	var waiters sync.WaitGroup
	for range 3 {
		waiters.Go(func() {
			for {
				at, fresh := m.await(mark)
				if fresh == nil {
					if at != (record.Interval{Lo: 1e9 + 5, Hi: 1e9 + 7}) {
						t.Errorf("mark at %+v", at)
					}
					return
				}
				<-fresh
			}
		})
	}
	m.instant("other", 1)
	m.set("cut.healed", record.Interval{Lo: 5, Hi: 7})
	m.set("cut.healed", record.Interval{Lo: 50, Hi: 70}) // the first value stays
	waiters.Wait()
	if len(m.list()) != 2 {
		t.Errorf("marks %v", m.list())
	}
}

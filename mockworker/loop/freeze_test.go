package loop

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
)

// freezable is a loop, its faults, and what it is frozen by.
type freezable struct {
	*Loop
	t   *testing.T
	set *faults.Set
}

func startFreezable(t *testing.T) freezable {
	set := faults.New()
	l, _ := startLoop(t, 10_000_000, func(o *Options) { o.Faults = set })
	return freezable{l, t, set}
}

// freeze arms a fault and waits until it acts.
func (f freezable) freeze(sp faults.Spec) (id string) {
	f.t.Helper()
	id = f.arm(sp)
	f.await(id, contract.FaultActing)
	return id
}

func (f freezable) arm(sp faults.Spec) (id string) {
	f.t.Helper()
	id, err := f.set.Arm(clock.MonoNs(), sp)
	if err != nil {
		f.t.Fatal(err)
	}
	f.Wake()
	return id
}

func (f freezable) heal(id string) {
	f.set.Heal(clock.MonoNs(), id)
	f.Wake()
}

func (f freezable) await(id, state string) (v contract.TruthFault) {
	f.t.Helper()
	f.eventually(func() bool {
		all := f.set.List(clock.MonoNs())
		i := slices.IndexFunc(all, func(v contract.TruthFault) bool { return v.ID == id })
		v = all[i]
		return v.State == state
	})
	return v
}

func (f freezable) eventually(ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("waited %s in vain: %+v", patience, f.set.List(clock.MonoNs()))
		}
	}
}

// A frozen engine answers questions and steps no further; what a pause takes in waits, what a wedge does
// not take in is unread. Healed, everything is served, the stream that was open too.
func TestFrozenEngineAnswersAndResumes(t *testing.T) {
	for kind, c := range map[string]struct{ waiting, unread int }{
		contract.FaultPause: {2, 0},
		contract.FaultWedge: {0, 2},
	} {
		t.Run(kind, func(t *testing.T) {
			f := startFreezable(t)
			open := f.Submit(request("open", 200), false)
			<-open.Ready()
			id := f.freeze(faults.Spec{Kind: kind})
			steps := f.Snapshot().Steps
			late := []*Stream{f.Submit(request("b", 3), false), f.Submit(request("c", 3), true)}
			for range 20 {
				var load engine.Load
				if err := f.Ask(context.Background(), func(e engine.Core) { load = e.Load() }); err != nil {
					t.Fatal(err)
				}
				if load.Steps != steps || load.Running != 1 || load.Waiting != c.waiting || f.Unread() != c.unread {
					t.Fatalf("frozen after step %d: %+v, %d unread", steps, load, f.Unread())
				}
			}
			if got := f.await(id, contract.FaultActing).Evidence; len(got) != 1 || got[0] != "request open" {
				t.Errorf("evidence %v", got)
			}
			f.heal(id)
			if ids, state := await(t, open); len(ids) != 200 || state.Err != nil {
				t.Errorf("the open stream: %d tokens, %+v", len(ids), state)
			}
			for _, s := range late {
				if ids, _ := await(t, s); len(ids) != 3 {
					t.Errorf("a late one: %d tokens", len(ids))
				}
			}
		})
	}
}

// A pause with a time of its own ends without anybody's doing, also on an engine with nothing to do.
func TestPauseEndsByItself(t *testing.T) {
	f := startFreezable(t)
	id := f.arm(faults.Spec{Kind: contract.FaultPause, For: 30 * time.Millisecond})
	f.eventually(func() bool { return f.set.List(clock.MonoNs())[0].State != contract.FaultArmed }) // perhaps over already
	if ids, _ := await(t, f.Submit(request("a", 5), false)); len(ids) != 5 {
		t.Errorf("%d tokens", len(ids))
	}
	v := f.await(id, contract.FaultDone)
	if first := f.Snapshot().LastStepMonoNs; first < v.FirstActedMonoNs+30e6 {
		t.Errorf("a step ended %d ns after the pause began", first-v.FirstActedMonoNs)
	}
}

// A client that goes away while the engine is frozen leaves with the first step after it.
func TestAbortOfAFrozenRequest(t *testing.T) {
	f := startFreezable(t)
	s := f.Submit(request("a", 200), false)
	<-s.Ready()
	id := f.freeze(faults.Spec{Kind: contract.FaultWedge})
	s.Abort()
	f.heal(id)
	if _, state := await(t, s); state.Finish != engine.FinishAbort {
		t.Errorf("%+v", state)
	}
}

// Close ends a frozen loop at once, with everybody it kept waiting.
func TestCloseWhileFrozen(t *testing.T) {
	f := startFreezable(t)
	open := f.Submit(request("a", 200), false)
	<-open.Ready()
	f.freeze(faults.Spec{Kind: contract.FaultWedge})
	f.freeze(faults.Spec{Kind: contract.FaultPause, For: time.Hour})
	late := f.Submit(request("b", 1), false)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Stream{open, late} {
		if _, state := await(t, s); !errors.Is(state.Err, ErrClosed) {
			t.Errorf("%+v", state)
		}
	}
	if f.Open() != 0 {
		t.Errorf("%d open", f.Open())
	}
}

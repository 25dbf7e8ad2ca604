package publish

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
)

// follow is a follower that joined from a number on.
func (p *pair) follow(from int64) *Follower {
	p.t.Helper()
	f, err := p.pub.Follow(p.ctx, from)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(f.Close)
	return f
}

// recv takes n batches.
func (p *pair) recv(f *Follower, n int) (got []Followed) {
	p.t.Helper()
	for len(got) < n {
		more, err := f.Recv(p.ctx, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		got = append(got, more...)
	}
	return got
}

func seqs(bs []Followed) (out []int64) {
	for _, b := range bs {
		out = append(out, b.Seq)
	}
	return out
}

// A follower gets what a ZMQ subscriber gets, byte for byte, behind the history it asked for.
func TestFollowerHearsWhatSubscribersHear(t *testing.T) {
	p := start(t, nil)
	base := int64(p.base)
	p.publish(3)
	for range 3 {
		p.next()
	}
	f := p.follow(base + 1)
	if f.Oldest != 0 || f.Next != base+3 || len(f.History) != 2 || f.History[0].Seq != base+1 {
		t.Errorf("oldest %d, next %d, history %v; base %d", f.Oldest, f.Next, seqs(f.History), base)
	}
	p.publish(2)
	for i, b := range p.recv(f, 2) {
		m := p.next()
		if b.Seq != base+3+int64(i) || binary.BigEndian.Uint64(m[1]) != uint64(b.Seq) || !bytes.Equal(b.Payload, m[2]) {
			t.Errorf("batch %d: follower has %d, subscriber %x", i, b.Seq, m[1])
		}
	}
}

// What a fault drops is in no follower's stream; what the replay keeps of it is in the history.
func TestFollowerMissesWhatAFaultDrops(t *testing.T) {
	set := faults.New()
	p := start(t, func(o *Options) { o.Faults = set })
	base := int64(p.base)
	f := p.follow(base)
	if _, err := set.Arm(clock.MonoNs(), faults.Spec{Kind: contract.FaultDropBatches, Count: 2}); err != nil {
		t.Fatal(err)
	}
	p.publish(3)
	if got := p.recv(f, 1); len(got) != 1 || got[0].Seq != base+2 {
		t.Errorf("heard %v, want %d only", seqs(got), base+2)
	}
	if got := p.follow(base).History; len(got) != 3 {
		t.Errorf("history %v", seqs(got))
	}
}

// A follower that does not read costs a bounded queue and no time: the oldest go.
func TestSlowFollowerLosesTheOldest(t *testing.T) {
	p := start(t, nil)
	base, slow, quick := int64(p.base), p.follow(0), p.follow(0)
	const n = followDepth + 50
	for range n / 64 {
		p.publish(64)
		p.recv(quick, 64)
	}
	p.publish(n % 64)
	p.recv(quick, n%64)
	got := p.recv(slow, followDepth)
	if len(got) != followDepth || got[0].Seq != base+50 || slow.Lost() != 50 || quick.Lost() != 0 {
		t.Errorf("%d batches from %d, lost %d and %d", len(got), got[0].Seq, slow.Lost(), quick.Lost())
	}
}

func TestFollowerAndRestarts(t *testing.T) {
	p := start(t, nil)
	f := p.follow(0)
	if _, err := p.pub.Restart(p.ctx, Restart{}); err != nil {
		t.Fatal(err)
	}
	p.publish(1)
	if got := p.recv(f, 1); got[0].Seq != 0 {
		t.Errorf("sockets kept: heard %v", seqs(got))
	}
	p.publish(1)
	if err := p.pub.Flush(p.ctx); err != nil {
		t.Fatal(err)
	}
	ahead := Restart{Rebind: true, Ahead: 1, Batch: func(i int) []engine.Event { return store(t, i) }}
	if _, err := p.pub.Restart(p.ctx, ahead); err != nil {
		t.Fatal(err)
	}
	if got := p.recv(f, 1); got[0].Seq != 1 {
		t.Errorf("what came before the end: %v", seqs(got))
	}
	if _, err := f.Recv(p.ctx, nil); !errors.Is(err, ErrRestarted) {
		t.Errorf("sockets rebound: %v", err)
	}
	if again := p.follow(0); again.Next != 1 || len(again.History) != 1 {
		t.Errorf("joined again: next %d, history %v", again.Next, seqs(again.History))
	}
}

func TestFollowerOfAClosedPublisher(t *testing.T) {
	p := start(t, nil)
	f := p.follow(0)
	if err := p.pub.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Recv(p.ctx, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("open one: %v", err)
	}
	if _, err := p.pub.Follow(p.ctx, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("late one: %v", err)
	}
}

// A join that was given up does not happen later.
func TestFollowGivenUp(t *testing.T) {
	p := start(t, nil)
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	for range 50 {
		if f, err := p.pub.Follow(ctx, 0); err == nil { // it was quicker than its end
			f.Close()
		}
	}
	if err := p.pub.Flush(p.ctx); err != nil {
		t.Fatal(err)
	}
	p.pub.followers.mu.Lock()
	defer p.pub.followers.mu.Unlock()
	if n := len(p.pub.followers.all); n != 0 {
		t.Errorf("%d followers", n)
	}
}

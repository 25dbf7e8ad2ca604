package publish

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"fleetdrill/mockworker/ring"
)

// ErrRestarted ends a follower when the publisher closes its sockets to begin a new incarnation, as it ends
// the connections of ZMQ subscribers.
var ErrRestarted = errors.New("the publisher restarted")

// ErrClosed ends a follower when its publisher ends.
var ErrClosed = errClosed

// followDepth bounds what waits for one follower, in batches: as many as the published relay's channel
// holds. What comes on top pushes out the oldest; the follower sees a gap in the numbers.
const followDepth = 4096

// Followed is one batch as it left: the very bytes that ZMQ subscribers got. They must not be written.
type Followed struct {
	Seq     int64
	Payload []byte
}

// Follower hears what subscribers of the event socket hear, in the same order and with every fault that
// acts on it, without a socket in between. It never makes the publisher wait.
type Follower struct {
	// Oldest and Next were, when it joined, the oldest sequence number in the replay buffer and the next
	// one to be given; equal when the buffer was empty.
	Oldest, Next int64
	// History is what the replay buffer held from the asked number on. What Recv returns comes behind it.
	History []Followed

	of    *followers
	gone  bool          // under of.mu: closed, perhaps before it could join
	ready chan struct{} // at most one token: "look again"

	mu   sync.Mutex // guards what follows
	wait *ring.Ring[Followed]
	lost int64
	err  error
}

// followers are the open followers of one publisher. The zero value has none.
type followers struct {
	mu  sync.Mutex // guards all
	all map[*Follower]struct{}
}

// Follow joins between two batches. It fails when ctx ends first or the publisher is closed. The follower
// must be closed.
func (p *Publisher) Follow(ctx context.Context, from int64) (*Follower, error) {
	f := &Follower{of: &p.followers, ready: make(chan struct{}, 1), wait: ring.New[Followed](followDepth)}
	if err := p.do(ctx, func(context.Context) { p.join(f, from) }); err != nil {
		f.Close() // it may have joined, or still will
		return nil, fmt.Errorf("following the event batches: %w", err)
	}
	return f, nil
}

// join runs on the publisher goroutine, so no batch can fall between history and queue.
func (p *Publisher) join(f *Follower, from int64) {
	f.Next = p.seq.Load()
	f.Oldest = f.Next
	for i := range p.buffer.Len() {
		b := p.buffer.At(i)
		n := int64(binary.BigEndian.Uint64(b.seq))
		if i == 0 {
			f.Oldest = n
		}
		if n >= from {
			f.History = append(f.History, Followed{Seq: n, Payload: b.payload})
		}
	}
	f.of.add(f)
}

// deliver lets a batch out to everybody who listens. A follower has no frames that could be corrupt.
func (p *Publisher) deliver(m *message) {
	p.sockets.pub.Send(m.topic, m.seq, m.payload)
	p.followers.push(Followed{Seq: m.n, Payload: m.payload})
}

// Recv appends what came to dst[:0], waiting for at least one batch. It fails when ctx ends, and, when all
// that came before is taken, with ErrRestarted or ErrClosed.
func (f *Follower) Recv(ctx context.Context, dst []Followed) ([]Followed, error) {
	dst = dst[:0]
	for {
		var err error
		if dst, err = f.take(dst); len(dst) > 0 || err != nil {
			return dst, err
		}
		select {
		case <-f.ready:
		case <-ctx.Done():
			return dst, ctx.Err()
		}
	}
}

func (f *Follower) take(dst []Followed) ([]Followed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.wait.Len() > 0 {
		dst = append(dst, f.wait.Pop())
	}
	if len(dst) > 0 {
		return dst, nil
	}
	return dst, f.err
}

// Lost counts the batches that this follower was too slow for.
func (f *Follower) Lost() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// Close leaves. It may be called more than once.
func (f *Follower) Close() { f.of.remove(f) }

func (f *Follower) push(b Followed) {
	f.mu.Lock()
	if f.wait.Full() {
		f.lost++
	}
	f.wait.Push(b)
	f.mu.Unlock()
	signal(f.ready)
}

func (f *Follower) end(err error) {
	f.mu.Lock()
	f.err = err
	f.mu.Unlock()
	signal(f.ready)
}

func (s *followers) add(f *Follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.gone {
		return
	}
	if s.all == nil {
		s.all = map[*Follower]struct{}{}
	}
	s.all[f] = struct{}{}
}

func (s *followers) remove(f *Follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.gone = true
	delete(s.all, f)
}

func (s *followers) push(b Followed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.all {
		f.push(b)
	}
}

// end ends every follower that there is now.
func (s *followers) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.all {
		f.end(err)
	}
	clear(s.all)
}

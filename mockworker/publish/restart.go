package publish

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/ring"
)

// Restart is how a publisher begins a new incarnation while its engine lives on.
type Restart struct {
	// Rebind closes both sockets and opens them again at the same endpoints; otherwise their peers stay
	// connected and see nothing but numbers that start over.
	Rebind bool
	// Ahead batches, of the events that Batch gives for 0, 1 and so on, go out before the sockets open
	// again: nobody receives them live, the replay buffer has them. They need Rebind.
	Ahead int
	Batch func(i int) []engine.Event
}

// Restarted is what a restart did.
type Restarted struct {
	// OldEpoch ended before sequence number OldNext.
	OldEpoch, OldNext int64
	NewEpoch          int64
	// Lost batches were queued or delayed, and died with the old incarnation as they do in an engine.
	Lost int
}

// Restart makes the publisher a new incarnation: sequence numbers from 0, nothing in the replay buffer,
// nothing announced. Like Publish it is for the step loop. The error says that the sockets did not open
// again; the publisher then goes on unheard.
func (p *Publisher) Restart(ctx context.Context, r Restart) (Restarted, error) {
	ahead := p.makeAhead(r)
	var did Restarted
	var reopened error
	err := p.do(ctx, func(ctx context.Context) { did, reopened = p.restart(ctx, r.Rebind, ahead) })
	if err != nil {
		return did, fmt.Errorf("restarting the publisher of rank %d: %w", p.o.Rank, err)
	}
	return did, reopened
}

// makeAhead encodes the batches that go out before the sockets open. Not on the publisher goroutine: they
// may be many, and the old incarnation is still sending.
func (p *Publisher) makeAhead(r Restart) [][]byte {
	p.encoding.Lock()
	defer p.encoding.Unlock()
	ahead := make([][]byte, r.Ahead)
	for i := range ahead {
		ahead[i] = p.encode(r.Batch(i))
	}
	return ahead
}

// restart runs on the publisher goroutine.
func (p *Publisher) restart(ctx context.Context, rebind bool, ahead [][]byte) (did Restarted, err error) {
	p.dropLate()
	head := p.o.Fold.Head()
	did = Restarted{OldEpoch: head.Epoch, OldNext: head.Seq + 1, NewEpoch: clock.MonoNs(), Lost: p.queue.empty()}
	if rebind {
		if err := p.closeSockets(); err != nil {
			p.o.Log.Warn("sockets of a publisher that restarts", "rank", p.o.Rank, "err", err)
		}
	}
	p.o.Fold.Restart(did.NewEpoch)
	p.overtaken = nil // as what is queued: it was the old incarnation's
	p.buffer = ring.New[sent](p.o.Config.BufferSteps)
	p.seq.Store(0)
	for _, payload := range ahead {
		p.announce(clock.MonoNs(), payload)
	}
	if rebind {
		err = p.openAgain(ctx)
	}
	return did, err
}

// encode, with encoding held, makes the payload of a batch that is collected now, a copy of the exact size: the replay buffer
// keeps thousands.
func (p *Publisher) encode(events []engine.Event) []byte {
	ts := float64(time.Now().UnixNano()) / 1e9
	p.scratch = p.o.Encoder.AppendBatch(p.scratch[:0], ts, events)
	return bytes.Clone(p.scratch)
}

package drills

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/lab"
	"fleetdrill/internal/zsock"
)

// batch is one published batch as the lab saw it. Print is a fingerprint of its payload: the same
// sequence number with another print comes from another publisher incarnation.
type batch struct {
	seq    int64
	print  uint64
	monoNs int64
	// badSeq says that its number was none, and seq is the one it should have had.
	badSeq bool
	topic  string
	// late is the time from the publisher's own time stamp to the arrival, of a batch that was received.
	late time.Duration
	wire wireBatch
	err  error // of reading the payload
}

// newBatch reads the three frames of a message. before is the number of the batch before it.
func newBatch(frames [][]byte, before, monoNs int64) batch {
	b := batch{topic: string(frames[0]), print: xxh3.Hash(frames[2]), monoNs: monoNs}
	if b.badSeq = len(frames[1]) != 8; b.badSeq {
		b.seq = before + 1
	} else {
		b.seq = int64(binary.BigEndian.Uint64(frames[1]))
	}
	b.wire, b.err = readBatch(frames[2])
	return b
}

// tap is the lab's own subscription to an engine's own event port, past its link proxy.
type tap struct {
	sub    *zsock.Sub
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex // guards all below
	up      bool
	batches []batch // since it came up, in arrival order
	fresh   chan struct{}
}

func newTap(w *lab.Worker) (*tap, error) {
	// Short back-off: after a rebind the first batches are what matters.
	sub, err := zsock.DialSub(w.Ready.Ranks[0].Events, zsock.SubOptions{BackoffMax: 50 * time.Millisecond})
	if err != nil {
		return nil, fmt.Errorf("subscribing to %s: %w", w.ID, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &tap{sub: sub, cancel: cancel, done: make(chan struct{}), fresh: make(chan struct{})}
	go t.run(ctx)
	return t, nil
}

func (t *tap) close() {
	t.cancel()
	<-t.done
	_ = t.sub.Close()
}

func (t *tap) run(ctx context.Context) {
	defer close(t.done)
	last := int64(-1)
	for {
		e, err := t.sub.Recv(ctx)
		if err != nil {
			return
		}
		var b batch
		if e.Kind == zsock.SubMessage && len(e.Frames) == 3 {
			b = newBatch(e.Frames, last, e.MonoNs)
			arrived := time.Now().Add(time.Duration(e.MonoNs - clock.MonoNs()))
			b.late = time.Duration(float64(arrived.UnixNano()) - b.wire.ts*1e9)
			last = b.seq
		}
		t.mu.Lock()
		switch {
		case e.Kind == zsock.SubUp:
			t.up = true
		case e.Kind == zsock.SubMessage && len(e.Frames) == 3:
			t.batches = append(t.batches, b)
		}
		close(t.fresh)
		t.fresh = make(chan struct{})
		t.mu.Unlock()
	}
}

// await calls look with every batch so far, again at each change, until it says done or ctx ends.
func (t *tap) await(ctx context.Context, what string, look func(up bool, seen []batch) (bool, error)) error {
	for {
		t.mu.Lock()
		up, batches, fresh := t.up, t.batches[:len(t.batches):len(t.batches)], t.fresh
		t.mu.Unlock()
		if done, err := look(up, batches); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-fresh:
		case <-t.done:
			return errors.New(what + ": the subscription has ended")
		}
	}
}

// ready waits until the publisher has the subscription: a batch sent before would be missed.
func (t *tap) ready(ctx context.Context) error {
	return t.await(ctx, "the lab's own subscription is not up", func(up bool, _ []batch) (bool, error) { return up, nil })
}

// closeIf closes a tap that may never have been made.
func (t *tap) closeIf() {
	if t != nil {
		t.close()
	}
}

// silent wants nothing to arrive for so long beside the first n batches.
func (t *tap) silent(ctx context.Context, n int, length time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	err := t.await(ctx, "silence", func(_ bool, seen []batch) (bool, error) { return len(seen) > n, nil })
	if err == nil {
		return errors.New("the lab's own subscription goes on receiving")
	}
	return nil
}

// all are the batches so far.
func (t *tap) all() []batch {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.batches[:len(t.batches):len(t.batches)]
}

// count is how many batches have been seen: what comes later has that index or a higher one.
func (t *tap) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.batches)
}

// replayQuiet bounds the wait for the next batch of a replay: a publisher may lose its end marker.
const replayQuiet = 2 * time.Second

// errQuiet says that a replay stopped before its end marker.
var errQuiet = errors.New("it is silent")

// replay asks an engine's own replay port, past its link proxy, for every batch it still has from a
// sequence number on.
func replay(ctx context.Context, w *lab.Worker, from int64) ([]batch, error) {
	out, err := replayWithin(ctx, w, from, replayQuiet)
	if err != nil {
		return out, fmt.Errorf("reading the replay of %s after %d batches: %w", w.ID, len(out), err)
	}
	return out, nil
}

// replayWithin is replay for an answer that may end early: with errQuiet when nothing comes for so long.
func replayWithin(ctx context.Context, w *lab.Worker, from int64, quiet time.Duration) ([]batch, error) {
	d, err := zsock.DialDealer(ctx, w.Ready.Ranks[0].Replay, zsock.DealerOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking %s for a replay: %w", w.ID, err)
	}
	defer d.Close()
	if err := d.Send([]byte{}, binary.BigEndian.AppendUint64(nil, uint64(from))); err != nil {
		return nil, fmt.Errorf("asking %s for a replay: %w", w.ID, err)
	}
	var out []batch
	for {
		next, cancel := context.WithTimeoutCause(ctx, quiet, errQuiet)
		frames, err := d.Recv(next)
		cause := context.Cause(next)
		cancel()
		if err != nil {
			if errors.Is(cause, errQuiet) {
				return out, errQuiet
			}
			return out, err
		}
		b, end, err := replayed(frames)
		if end || err != nil {
			return out, err
		}
		b.monoNs = clock.MonoNs()
		out = append(out, b)
	}
}

// replayed reads the frames of either shape: "", seq, payload, or "", topic, seq, payload. The end
// marker has sequence number -1.
func replayed(frames [][]byte) (b batch, end bool, err error) {
	if len(frames) < 3 || len(frames) > 4 || len(frames[len(frames)-2]) != 8 {
		return batch{}, false, fmt.Errorf("a replay answer has %d frames of an unknown shape", len(frames))
	}
	seq, payload := int64(binary.BigEndian.Uint64(frames[len(frames)-2])), frames[len(frames)-1]
	b = batch{seq: seq, print: xxh3.Hash(payload)}
	if seq != -1 {
		b.wire, b.err = readBatch(payload)
	}
	return b, seq == -1, nil
}

package publish

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/zsock"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
)

// What waits for a delay when the incarnation ends is lost with it, and the counters go on.
func TestRestartLosesWhatWaits(t *testing.T) {
	set := faults.New()
	p := start(t, func(o *Options) { o.Faults = set })
	before := p.pub.Stats()
	if _, err := set.Arm(clock.MonoNs(), faults.Spec{Kind: "delay_publisher", By: time.Hour}); err != nil {
		t.Fatal(err)
	}
	p.publish(4)
	did, err := p.pub.Restart(p.ctx, Restart{Rebind: true, Ahead: 2, Batch: func(i int) []engine.Event { return store(t, 50+i) }})
	if err != nil || did.Lost != 4 || did.OldNext != int64(p.base) || did.NewEpoch <= did.OldEpoch {
		t.Fatalf("%+v, %v", did, err)
	}
	if h := p.fold.Head(); h.Epoch != did.NewEpoch || h.Seq != 1 || h.Blocks != 2 {
		t.Errorf("head %+v", h)
	}
	set.Heal(clock.MonoNs(), "f1")
	s := p.pub.Stats()
	if s.NextSeq != 2 || s.Batches != before.Batches+2 || s.Sent < before.Sent {
		t.Errorf("stats %+v, before %+v", s, before)
	}
	if got := p.replay(p.dealer(), 0); len(got) != 3 {
		t.Errorf("%d replies", len(got))
	}
	// The same endpoint serves subscribers again, the one that was there before included.
	for {
		ev, err := p.sub.Recv(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == zsock.SubUp {
			break
		}
	}
	p.publish(1)
	if n := binary.BigEndian.Uint64(p.next()[1]); n != 2 {
		t.Errorf("the first live batch is %d", n)
	}
}

// A publisher whose port was taken meanwhile says so and goes on, unheard.
func TestRestartWithoutAPort(t *testing.T) {
	p := start(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p.pub.at.events.Endpoint = "tcp://" + ln.Addr().String()
	if _, err := p.pub.Restart(p.ctx, Restart{Rebind: true}); err == nil || !strings.Contains(err.Error(), "opening the event socket of rank 0") {
		t.Errorf("error %v", err)
	}
	p.publish(3)
	if err := p.pub.Flush(p.ctx); err != nil || p.fold.Head().Seq != 2 {
		t.Errorf("head %+v, %v", p.fold.Head(), err)
	}
}

// A port that is free again before long is found.
func TestReopenTriesAgain(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Config: DefaultConfig(), Log: slog.New(slog.DiscardHandler)}
	pl := place{events: Target{Endpoint: "tcp://" + ln.Addr().String(), Bind: true}}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if s, err := reopen(gone, o, pl); err == nil {
		s.close()
		t.Fatal("opened a port in use")
	}
	freed := make(chan error, 1)
	time.AfterFunc(3*reopenPause, func() { freed <- ln.Close() })
	s, err := reopen(context.Background(), o, pl)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-freed; err != nil {
		t.Error(err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// The end of a publisher is not delayed: what waits goes out. A publisher that has ended says so.
func TestCloseDoesNotWaitForADelay(t *testing.T) {
	set := faults.New()
	p := start(t, func(o *Options) { o.Faults = set })
	if _, err := set.Arm(clock.MonoNs(), faults.Spec{Kind: "delay_publisher", By: time.Hour}); err != nil {
		t.Fatal(err)
	}
	p.publish(2)
	if err := p.pub.Close(); err != nil {
		t.Fatal(err)
	}
	if h := p.fold.Head(); h.Seq != int64(p.base)+1 {
		t.Errorf("head %+v, want two batches from %d", h, p.base)
	}
	if err := p.pub.Flush(p.ctx); err == nil {
		t.Error("a closed publisher flushes")
	}
	if err := p.pub.Publish(p.ctx, store(t, 1)); err == nil {
		t.Error("a closed publisher publishes")
	}
	if _, err := p.pub.Restart(p.ctx, Restart{}); err == nil {
		t.Error("a closed publisher restarts")
	}
}

package logsink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// gate is a writer that blocks every Write until it is opened.
type gate struct {
	entered chan struct{} // receives one token per Write that began
	open    chan struct{}

	mu  sync.Mutex
	buf bytes.Buffer
}

func newGate() *gate { return &gate{entered: make(chan struct{}, 100), open: make(chan struct{})} }

func (g *gate) Write(p []byte) (int, error) {
	g.entered <- struct{}{}
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.buf.Write(p)
}

// entries are the JSON lines written so far.
func (g *gate) entries(t *testing.T) []map[string]any {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	return parse(t, g.buf.String())
}

func parse(t *testing.T, text string) (entries []map[string]any) {
	t.Helper()
	for l := range strings.Lines(text) {
		var e map[string]any
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatalf("line %q: %v", l, err)
		}
		entries = append(entries, e)
	}
	return entries
}

func TestCloseWritesEverythingInOrder(t *testing.T) {
	var out bytes.Buffer
	log, sink := New(&out, Options{JSON: true})
	for i := range 1000 {
		log.Info("step", "i", i)
	}
	log.Debug("below the level")
	if err := sink.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	entries := parse(t, out.String())
	if len(entries) != 1000 {
		t.Fatalf("%d lines, want 1000", len(entries))
	}
	for i, e := range entries {
		if e["i"] != float64(i) {
			t.Fatalf("line %d says %v", i, e["i"])
		}
	}
	if sink.Dropped() != 0 {
		t.Errorf("dropped %d", sink.Dropped())
	}
}

func TestTextAndLevel(t *testing.T) {
	var out bytes.Buffer
	log, sink := New(&out, Options{Level: slog.LevelError})
	log.Warn("quiet")
	log.With("worker", "w3").Error("vetoed", "reason", "dead")
	if err := sink.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=ERROR msg=vetoed worker=w3 reason=dead`) {
		t.Errorf("got %q", got)
	}
}

// The writer never returns while 10,000 lines are logged: that the loop ends at all is the proof that
// callers do not wait for it. The holes are then told exactly.
func TestBlockedWriterDelaysNobody(t *testing.T) {
	g := newGate()
	log, sink := New(g, Options{Queue: 10, JSON: true, Level: slog.LevelError})
	log.Error("first")
	<-g.entered // the writer holds "first", the queue is empty
	for i := range 10_000 {
		log.Error("more", "i", i)
	}
	if got := sink.Dropped(); got != 9990 {
		t.Errorf("dropped %d lines, want 9,990", got)
	}
	close(g.open)
	<-g.entered // the queue was taken over, so there is room again
	log.Error("after")
	if err := sink.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	entries := g.entries(t)
	if len(entries) != 13 {
		t.Fatalf("%d lines, want first, 10 more, a notice, after: %v", len(entries), entries)
	}
	if notice := entries[11]; notice["lines"] != float64(9990) || notice["level"] != "WARN" {
		t.Errorf("notice %v", notice)
	}
	if entries[12]["msg"] != "after" {
		t.Errorf("last line %v", entries[12])
	}
}

func TestCloseGivesUpAtTheDeadline(t *testing.T) {
	g := newGate()
	log, sink := New(g, Options{})
	log.Info("stuck")
	<-g.entered
	log.Info("never written")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("five seconds are over"))
	err := sink.Close(ctx)
	if err == nil || err.Error() != "flushing the log: five seconds are over" {
		t.Errorf("Close: %v", err)
	}
	close(g.open)
	<-sink.done
	g.mu.Lock()
	defer g.mu.Unlock()
	if got := g.buf.String(); strings.Contains(got, "never") || !strings.Contains(got, "stuck") {
		t.Errorf("written: %q", got)
	}
}

// Lines dropped at the very end have no next line to announce them.
func TestCloseReportsTheLastHole(t *testing.T) {
	g := newGate()
	log, sink := New(g, Options{Queue: 1, JSON: true})
	log.Info("first")
	<-g.entered
	for range 5 {
		log.Info("more")
	}
	close(g.open)
	if err := sink.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	log.Info("too late")
	entries := g.entries(t)
	if last := entries[len(entries)-1]; last["lines"] != float64(4) {
		t.Errorf("last line %v", last)
	}
	if got := sink.Dropped(); got != 5 {
		t.Errorf("dropped %d, want 4 in the queue and 1 after the close", got)
	}
}

// fussy refuses every second write.
type fussy struct {
	calls int
	buf   bytes.Buffer
}

func (f *fussy) Write(p []byte) (int, error) {
	if f.calls++; f.calls%2 == 0 {
		return 0, errors.New("broken pipe")
	}
	return f.buf.Write(p)
}

// Whatever the interleaving, every line is either written or counted, and the notices add up to what was
// counted.
func TestNothingIsLostSilently(t *testing.T) {
	var w fussy
	log, sink := New(&w, Options{Queue: 7, JSON: true})
	const callers, lines = 8, 500
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range lines {
				log.Info("line")
			}
		})
	}
	wg.Wait()
	if err := sink.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	written := 0
	for _, e := range parse(t, w.buf.String()) {
		if e["msg"] == "line" {
			written++
		}
	}
	if got := written + int(sink.Dropped()); got != callers*lines {
		t.Errorf("%d written, %d dropped, %d logged", written, sink.Dropped(), callers*lines)
	}
}

func BenchmarkLog(b *testing.B) {
	log, sink := New(&bytes.Buffer{}, Options{JSON: true})
	defer sink.Close(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		log.Info("request", "worker", "w3", "status", 200, "ttft_ms", 12.5)
	}
}

package loop

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"

	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
)

// A pause leaves new requests at the gate, whatever becomes of those in the engine.
func TestPauseModes(t *testing.T) {
	for mode, finish := range map[PauseMode]string{PauseAbort: engine.FinishAbort, PauseWait: engine.FinishLength, PauseKeep: engine.FinishLength} {
		t.Run(string(mode), func(t *testing.T) {
			l, _ := startLoop(t, 20_000_000, nil) // a second for what is to be under way when the pause comes
			old := l.Submit(request("old", 50), false)
			<-old.Ready()
			if err := l.Pause(context.Background(), mode); err != nil {
				t.Fatal(err)
			}
			if load := l.Snapshot(); (load.Running > 0) != (mode == PauseKeep) {
				t.Errorf("%d running in a paused engine", load.Running)
			}
			late := l.Submit(request("late", 1), true)
			steps := l.Snapshot().Steps
			if err := l.Ask(context.Background(), func(engine.Core) {}); err != nil || !l.Paused() {
				t.Fatal(err)
			}
			if l.Unread() != 1 || l.Snapshot().Steps != steps {
				t.Errorf("%d at the gate, %d steps since the pause", l.Unread(), l.Snapshot().Steps-steps)
			}
			l.Resume()
			if _, state := await(t, old); state.Finish != finish {
				t.Errorf("the request before the pause: %+v", state)
			}
			if ids, _ := await(t, late); len(ids) != 1 || l.Open() != 0 {
				t.Errorf("the request at the gate: %d tokens, %d open", len(ids), l.Open())
			}
		})
	}
}

// A client that gives up at the gate was never in the engine, and counts nowhere.
func TestAbortAtTheGate(t *testing.T) {
	l, rec := startLoop(t, 0, nil)
	if err := l.Pause(context.Background(), PauseWait); err != nil {
		t.Fatal(err)
	}
	s := l.Submit(request("a", 5), false)
	s.Abort()
	if _, state := await(t, s); state.Finish != engine.FinishAbort || l.Open() != 0 || l.Unread() != 0 {
		t.Errorf("%+v, %d open", state, l.Open())
	}
	if err := l.Ask(context.Background(), func(engine.Core) {
		if len(rec.ended) != 0 {
			t.Errorf("ended %+v", rec.ended)
		}
	}); err != nil {
		t.Error(err)
	}
}

// board is a sink that keeps everything, of n requests that go through the engine together.
type board struct {
	n     int
	mu    sync.Mutex
	ids   map[int][]uint32
	order []int
	ended chan int
	told  chan struct{} // one for each News
	steps int           // belonging to the loop goroutine
}

func newBoard(n int) *board {
	return &board{n: n, ids: map[int][]uint32{}, ended: make(chan int, n), told: make(chan struct{}, 2*n)}
}

// publish lets no step give out its tokens before all those of the step before are told: otherwise a late
// delivery finds the tokens of two steps at once, and tells of a stream that has nothing more.
func (b *board) publish(ctx context.Context, _ []engine.Event) error {
	if b.steps++; b.steps == 1 {
		return nil
	}
	for range b.n {
		select {
		case <-b.told:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// submit has a loop take the requests in together, each for out tokens. The loop must have begun to read the
// question that holds it up: otherwise it may take the first requests along with it.
func (b *board) submit(t *testing.T, l *Loop, out int) {
	t.Helper()
	held, hold := make(chan struct{}), make(chan struct{})
	if _, ok := l.Leave(func(engine.Core) { close(held); <-hold }); !ok {
		t.Fatal("closed")
	}
	<-held
	for i := range b.n {
		l.SubmitTo(request(strconv.Itoa(i), out), b, i)
	}
	close(hold)
}

func (b *board) News(s *Stream, scratch []byte) (grown []byte, later bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.told <- struct{}{} }()
	ids, state := s.Take(nil)
	b.ids[s.Choice()] = append(b.ids[s.Choice()], ids...)
	b.order = append(b.order, s.Choice())
	if state.Done {
		b.ended <- s.Choice()
	}
	return scratch, state.Done
}

func (b *board) Later() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.order = append(b.order, later)
}

// later stands in a board's order for a call of Later.
const later = -1

// Sinks hear of every token, step by step in the order of the batch.
func TestSinksAreToldInOrder(t *testing.T) {
	b := newBoard(3)
	l, _ := startLoop(t, 0, func(o *Options) { o.Publish = b.publish })
	b.submit(t, l, 10)
	for range 3 {
		<-b.ended
	}
	b.mu.Lock()
	for i := range 3 {
		if len(b.ids[i]) != 10 {
			t.Errorf("choice %d has %d tokens", i, len(b.ids[i]))
		}
	}
	if !slices.Equal(b.order[:6], []int{0, 1, 2, 0, 1, 2}) {
		t.Errorf("told in the order %v", b.order)
	}
	b.mu.Unlock()
	l.SubmitTo(request("never", 1_000_000), b, 7)
	if got := <-b.ended; got != 7 || l.Snapshot().Refused != 1 {
		t.Errorf("refused: choice %d, counted %d", got, l.Snapshot().Refused)
	}
}

// Later comes when everybody in the step has been told, however many pieces the step leaves in.
func TestLaterIsAfterTheStep(t *testing.T) {
	const n = 3*sendEvery + 1
	hasher, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{
		BlockSize: 4, NumBlocks: 4 * n, MaxNumSeqs: n, MaxNumBatchedTokens: 100 * n, MaxModelLen: 1 << 10, Hasher: hasher,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := newBoard(n)
	l, _ := startLoop(t, 0, func(o *Options) { o.Engine, o.Publish = e, b.publish })
	b.submit(t, l, 2)
	for range n {
		<-b.ended
	}
	if err := l.Close(); err != nil { // everything is told
		t.Fatal(err)
	}
	var want []int
	for range 2 {
		for i := range n {
			want = append(want, i)
		}
	}
	if want = append(want, slices.Repeat([]int{later}, n)...); !slices.Equal(b.order, want) {
		t.Errorf("told in the order %v", b.order)
	}
}

func TestAdaptersAreCounted(t *testing.T) {
	l, _ := startLoop(t, 20_000_000, nil)
	r := request("a", 40)
	r.LoRAName, r.LoRAID = "sql", 1
	s := l.Submit(r, false)
	<-s.Ready()
	if snap := l.Snapshot(); snap.RunningAdapters != "sql" && snap.WaitingAdapters != "sql" {
		t.Errorf("running %q, waiting %q", snap.RunningAdapters, snap.WaitingAdapters)
	}
	await(t, s)
	if snap := l.Snapshot(); snap.RunningAdapters != "" || snap.WaitingAdapters != "" {
		t.Errorf("at rest: running %q, waiting %q", snap.RunningAdapters, snap.WaitingAdapters)
	}
}

// A report lies about gauges alone, and a frozen one is that of the first look.
func TestReportLies(t *testing.T) {
	set := faults.New()
	l, _ := startLoop(t, 0, func(o *Options) { o.Faults = set })
	await(t, l.Submit(request("a", 3), true))
	arm := func(mode string) (heal func()) {
		id, err := set.Arm(0, faults.Spec{Kind: contract.FaultStaleLoad, HTTP: faults.HTTP{Mode: mode}})
		if err != nil {
			t.Fatal(err)
		}
		return func() { set.Heal(0, id) }
	}
	heal := arm(faults.ModeFreeze)
	before := l.Report()
	await(t, l.Submit(request("b", 3), true))
	if s := l.Report(); s.LoadAbsent || s.Steps != before.Steps || s.FinishedLength != 2 {
		t.Errorf("frozen: %+v", s)
	}
	heal()
	heal = arm(faults.ModeZero)
	if s := l.Report(); s.LoadAbsent || s.Steps != 0 || s.FinishedLength != 2 {
		t.Errorf("zero: %+v", s)
	}
	heal()
	heal = arm(faults.ModeAbsent)
	if s := l.Report(); !s.LoadAbsent || s.Steps != 0 {
		t.Error("absent load is told")
	}
	heal()
	if s := l.Report(); s.LoadAbsent || s.Steps <= before.Steps {
		t.Errorf("healed: %+v", s)
	}
}

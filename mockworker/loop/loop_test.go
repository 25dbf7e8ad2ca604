package loop

import (
	"context"
	"errors"
	"testing"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/leaks"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/radix"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// recorder keeps what an Observer is told; it is read at step boundaries only.
type recorder struct {
	tokens []int
	ended  []engine.RequestStats
}

func (r *recorder) Token(index int, sinceNs int64) { r.tokens = append(r.tokens, index) }
func (r *recorder) Ended(_ string, _ int, s engine.RequestStats) {
	r.ended = append(r.ended, s)
}
func (r *recorder) Step(int) {}

// startLoop runs a small engine with steps of stepNs.
func startLoop(t testing.TB, stepNs float64, change func(*Options)) (*Loop, *recorder) {
	t.Helper()
	hasher, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(config(stepNs, hasher))
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{}
	o := Options{Engine: e, Observer: rec}
	if change != nil {
		change(&o)
	}
	l, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, rec
}

func config(stepNs float64, h *blockhash.Hasher) engine.Config {
	return engine.Config{
		BlockSize: 4, NumBlocks: 65, MaxNumSeqs: 8, MaxNumBatchedTokens: 512, MaxModelLen: 1 << 20,
		EnablePrefixCaching: true, Hasher: h, Seed: 1, Timing: engine.Timing{A: stepNs},
	}
}

func request(id string, out int) engine.Request {
	return engine.Request{ID: id, Tokens: []uint32{300, 301, 302, 303, 304}, MaxTokens: out}
}

// patience bounds every wait for something that must happen.
const patience = time.Minute

// await waits until the stream has ended and returns everything it said.
func await(t testing.TB, s *Stream) (ids []uint32, state State) {
	t.Helper()
	for end := time.After(patience); !state.Done; {
		select {
		case <-s.Ready():
		case <-end:
			t.Fatal("the stream does not end")
		}
		var more []uint32
		more, state = s.Take(nil)
		ids = append(ids, more...)
	}
	return ids, state
}

func TestStreamGivesEveryTokenOnce(t *testing.T) {
	l, rec := startLoop(t, 0, nil)
	ids, state := await(t, l.Submit(request("a", 20), false))
	if len(ids) != 20 || state.Finish != engine.FinishLength || state.Err != nil {
		t.Fatalf("%d tokens, %+v", len(ids), state)
	}
	again, state := await(t, l.Submit(request("a", 20), true))
	if state.Cached != 4 || len(again) != 20 || again[0] != ids[0] {
		t.Errorf("the same request again: %d tokens, %+v", len(again), state)
	}
	err := l.Ask(context.Background(), func(engine.Core) {
		if len(rec.tokens) != 40 || rec.tokens[19] != 19 || len(rec.ended) != 2 || rec.ended[1].CachedTokens != 4 {
			t.Errorf("observed %v, %+v", rec.tokens, rec.ended)
		}
	})
	if err != nil || l.Open() != 0 {
		t.Errorf("open %d, %v", l.Open(), err)
	}
}

// A whole reader is woken only at the end: a wake-up per token is what costs.
func TestWholeIsWokenOnce(t *testing.T) {
	l, _ := startLoop(t, 1000, nil)
	s := l.Submit(request("a", 50), true)
	<-s.Ready()
	if ids, state := s.Take(nil); len(ids) != 50 || !state.Done {
		t.Errorf("woken with %d tokens, %+v", len(ids), state)
	}
}

// endings looks at its loop whenever a request ends, before the reader can know.
type endings struct {
	recorder
	loop  *Loop
	loads []Snapshot
}

func (e *endings) Ended(string, int, engine.RequestStats) { e.loads = append(e.loads, e.loop.Report()) }

// Whoever has a last token finds the request counted, and in no load any more, whichever engine it is.
func TestLastTokenIsBehindTheLoad(t *testing.T) {
	sglang, err := radix.New(radix.Config{Config: config(20_000, blockhash.NewSGLang())})
	if err != nil {
		t.Fatal(err)
	}
	for name, core := range map[string]engine.Core{"vllm": nil, "sglang": sglang} {
		seen := &endings{}
		seen.loop, _ = startLoop(t, 20_000, func(o *Options) {
			o.Observer = seen
			if core != nil {
				o.Engine = core
			}
		})
		for n := range 3 {
			r := request("a", 2)
			r.LoRAName, r.LoRAID = "sql", 1
			await(t, seen.loop.Submit(r, false))
			s := seen.loads[n]
			if s.Running+s.Waiting != 0 || s.UsedTokens != 0 || s.FinishedLength != int64(n+1) || s.RunningAdapters+s.WaitingAdapters != "" {
				t.Errorf("%s, when request %d ends: %+v", name, n, s)
			}
		}
	}
}

// What a question does to the engine is in the load when it is answered.
func TestAnswerIsBehindTheLoad(t *testing.T) {
	l, _ := startLoop(t, 20_000, nil)
	s := l.Submit(request("a", 200), false)
	<-s.Ready()
	held, hold := make(chan struct{}), make(chan struct{})
	leave := func(fn func(engine.Core)) (asked <-chan struct{}) {
		asked, ok := l.Leave(fn)
		if !ok {
			t.Fatal("closed")
		}
		return asked
	}
	leave(func(engine.Core) { close(held); <-hold })
	<-held
	leave(func(e engine.Core) { e.ResetPrefixCache(true) })
	// Read along with the one before, so that the loop did nothing in between but answer that.
	seen := leave(func(engine.Core) {
		if got := l.Snapshot(); got.Running != 0 || got.Waiting != 1 || got.Preemptions != 1 {
			t.Errorf("behind a reset: %+v", got)
		}
	})
	close(hold)
	<-seen
	if ids, _ := await(t, s); len(ids) != 200 {
		t.Errorf("%d tokens", len(ids))
	}
}

// lasting is an engine whose second step lasts an hour.
type lasting struct {
	engine.Core
	steps int
}

func (c *lasting) Step(now int64) engine.StepResult {
	res := c.Core.Step(now)
	if c.steps++; c.steps == 2 {
		res.Until += 3600e9
	}
	return res
}

// A request is in the load until its end is told, also for who looks within the step that ends it.
func TestStandingWithinTheLastStep(t *testing.T) {
	hasher, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(config(0, hasher))
	if err != nil {
		t.Fatal(err)
	}
	l, _ := startLoop(t, 0, func(o *Options) { o.Engine = &lasting{Core: e} })
	s := l.Submit(request("a", 2), false)
	<-s.Ready()
	for ended := false; !ended; {
		err := l.Peek(context.Background(), func(e engine.Core, pending []engine.Event) {
			ended = e.Load().Running == 0
			if got := l.Standing(); got.Running != 1 || got.KVUsage == 0 || len(pending) != 0 {
				t.Errorf("ended within the step: %v; told: %+v, %d events", ended, got, len(pending))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRefusedRequest(t *testing.T) {
	l, _ := startLoop(t, 0, nil)
	if _, state := await(t, l.Submit(request("a", 10_000), false)); !errors.Is(state.Err, engine.ErrNeverFits) || l.Open() != 0 {
		t.Errorf("%+v, %d open", state, l.Open())
	}
}

// While the publisher does not take a batch, no step runs and no token comes, as in a real engine.
func TestBlockedPublisherStopsTheSteps(t *testing.T) {
	release := make(chan struct{})
	blocked := make(chan int, 100)
	l, _ := startLoop(t, 0, func(o *Options) {
		o.Publish = func(ctx context.Context, events []engine.Event) error {
			blocked <- len(events)
			<-release
			return nil
		}
	})
	s := l.Submit(request("a", 4), false)
	if n := <-blocked; n != 1 {
		t.Fatalf("%d events of the first step, want one store", n)
	}
	select {
	case <-s.Ready():
		t.Fatal("a token came while its step's events were not taken")
	case <-time.After(10 * time.Millisecond):
	}
	close(release)
	if ids, _ := await(t, s); len(ids) != 4 {
		t.Errorf("%d tokens", len(ids))
	}
}

// An abort that comes late must not hit the next request of the same id.
func TestLateAbortHitsNobodyElse(t *testing.T) {
	l, _ := startLoop(t, 0, nil)
	old := l.Submit(request("a", 1), false)
	await(t, old)
	next := l.Submit(request("a", 30), false)
	old.Abort()
	if ids, state := await(t, next); len(ids) != 30 || state.Finish != engine.FinishLength {
		t.Errorf("%d tokens, %+v", len(ids), state)
	}
}

func TestAbortEndsTheStream(t *testing.T) {
	l, _ := startLoop(t, 50_000_000, nil)
	s := l.Submit(request("a", 200), false)
	<-s.Ready()
	s.Abort()
	ids, state := await(t, s)
	if state.Finish != engine.FinishAbort || len(ids) >= 200 {
		t.Errorf("%d tokens, %+v", len(ids), state)
	}
	if load := l.Snapshot(); load.FinishedAbort != 1 {
		t.Errorf("snapshot %+v", load)
	}
}

// Close ends a loop in the middle of a long step.
func TestCloseDuringAStep(t *testing.T) {
	l, _ := startLoop(t, 3600e9, nil)
	s := l.Submit(request("a", 5), false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, state := await(t, s); !errors.Is(state.Err, ErrClosed) {
		t.Errorf("%+v", state)
	}
	if _, state := await(t, l.Submit(request("b", 5), false)); !errors.Is(state.Err, ErrClosed) {
		t.Errorf("after Close: %+v", state)
	}
	if err := l.Ask(context.Background(), func(engine.Core) {}); !errors.Is(err, ErrClosed) {
		t.Errorf("ask after Close: %v", err)
	}
	if l.Open() != 0 {
		t.Errorf("%d open", l.Open())
	}
}

// Steps follow one another without the time that a wake-up takes, unless a letter or a long stop came
// between.
func TestBeginOfAStep(t *testing.T) {
	now := clock.MonoNs()
	for _, c := range []struct {
		name                string
		lastUntil, lastMono int64
		exact               int64 // 0: about now
	}{
		{"a late wake-up", now - 100_000, now - 200_000, now - 100_000},
		{"a letter since", now - 100_000, now - 50_000, now - 50_000},
		{"a long stop", now - 5_000_000_000, now - 5_000_000_000, 0},
	} {
		l := &Loop{lastUntil: c.lastUntil, lastMono: c.lastMono}
		got := l.begin()
		if c.exact != 0 && got != c.exact || c.exact == 0 && got < now {
			t.Errorf("%s: begins %d ns before now", c.name, now-got)
		}
	}
}

// The alarm may ring late, never early.
func TestAlarmIsNotEarly(t *testing.T) {
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, wait := range []int64{0, 50_000, 2_300_000} {
		at := clock.MonoNs() + wait
		if err := a.set(at); err != nil {
			t.Fatal(err)
		}
		<-a.rung
		if early := at - clock.MonoNs(); early > 0 {
			t.Errorf("a wait of %d ns ended %d ns early", wait, early)
		}
	}
}

func BenchmarkAlarmLateness(b *testing.B) {
	a, err := newAlarm()
	if err != nil {
		b.Fatal(err)
	}
	defer a.close()
	var late int64
	for range b.N {
		at := clock.MonoNs() + 5_000_000
		if err := a.set(at); err != nil {
			b.Fatal(err)
		}
		<-a.rung
		late += clock.MonoNs() - at
	}
	b.ReportMetric(float64(late)/float64(b.N)/1e3, "us-late")
}

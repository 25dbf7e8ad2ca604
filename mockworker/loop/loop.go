package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"fleetdrill/internal/clock"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
)

// ErrClosed ends the streams of a loop that was closed.
var ErrClosed = errors.New("the engine is shutting down")

// Observer learns what happened, on the loop goroutine: it must be quick and must not block.
type Observer interface {
	// Token is one output token: its index, and ns since the request arrived (index 0) or since its
	// token before.
	Token(index int, sinceNs int64)
	// Ended is one request that left the engine, with the number of tokens it had asked for.
	Ended(id string, maxTokens int, s engine.RequestStats)
	// Step is one model pass with the number of tokens it yielded: output tokens, and those of the prompts
	// that it ended.
	Step(tokens int)
}

// Options make a loop. Engine and Observer are needed.
type Options struct {
	Engine   engine.Core
	Observer Observer
	// Publish takes the events of each step, often none, before its tokens go out; nil throws them away. It
	// may block, and then the steps wait, as a real engine's do. ctx ends when the loop is closed.
	Publish func(ctx context.Context, events []engine.Event) error
	// Faults may freeze the steps of Rank; nil never does.
	Faults *faults.Set
	Rank   int
	// Arrives, if set, sees each request before the engine does.
	Arrives func(engine.Request)
	// Log may be nil.
	Log *slog.Logger
}

// Snapshot is the engine as it was at the last step boundary.
type Snapshot struct {
	engine.Load
	engine.Counters
	LastStepMonoNs int64
	// LoadAbsent says that the worker is to tell nothing about its load, which is zero here.
	LoadAbsent bool
	// Throughput is GenRate as an SGLang scheduler tells it; only reports have it.
	Throughput float64
	// PromptTokensCached are the cached ones among PromptTokens.
	PromptTokensCached int64
	// Refused are the requests that the engine did not take.
	Refused int64
	// SleepLevel is 0 for an engine that is awake.
	SleepLevel int
	// RunningAdapters and WaitingAdapters are the LoRA adapters that requests have, sorted and joined by
	// commas; a request waits until its first token.
	RunningAdapters, WaitingAdapters string
}

// Loop runs one engine. Its methods are safe for concurrent use.
type Loop struct {
	o      Options
	alarm  *alarm
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   chan struct{}

	mailMu sync.Mutex // guards mail and closed
	mail   []letter
	closed bool
	posted chan struct{} // at most one token: "look into the mailbox"

	snapMu sync.Mutex // guards snap
	snap   Snapshot
	open   atomic.Int64

	out   outbox
	peeks peeks
	pause pause
	lie   lens

	// Belonging to the loop goroutine.
	streams   map[string]*Stream
	letters   []letter // the mail being read, swapped with mail
	repeat    int64    // makes engine names of request ids that are in use
	lastMono  int64    // latest time the engine was told
	lastUntil int64
	lastStep  int64
	idlers    []chan struct{} // closed when no request is left in the engine
	cached    int64           // prompt tokens found in the cache, counted with the first token
	yielded   int64           // prompt and output tokens that were observed
	refused   int64           // requests that the engine did not take
	adapters  adapters
	pace      engine.Pace // as it was last set
}

type letterKind uint8

const (
	addLetter letterKind = iota
	abortLetter
	askLetter
	abortAllLetter
	idleLetter
)

// letter is one thing left for the loop goroutine.
type letter struct {
	kind   letterKind
	at     int64 // CLOCK_MONOTONIC ns
	stream *Stream
	req    engine.Request
	ask    func(engine.Core)
	asked  chan struct{}
}

// Start runs a loop until Close.
func Start(o Options) (*Loop, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a, err := newAlarm()
	if err != nil {
		return nil, fmt.Errorf("starting a step loop: %w", err)
	}
	l := &Loop{o: o, alarm: a, done: make(chan struct{}), posted: make(chan struct{}, 1), streams: map[string]*Stream{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.out.posted, l.peeks.came = make(chan struct{}, 1), make(chan struct{}, 1)
	l.snapshot()
	go l.run()
	return l, nil
}

// Submit queues a request, which arrives now. Whole asks to be woken only once, at the end. What the
// engine has against the request is told by the stream.
func (l *Loop) Submit(r engine.Request, whole bool) *Stream {
	s := &Stream{loop: l, whole: whole, ready: make(chan struct{}, 1), maxTokens: r.MaxTokens, adapter: r.LoRAName}
	l.submit(s, r)
	return s
}

// SubmitTo queues a request whose news go to a sink in place of Ready. The sink may be told of the stream
// before SubmitTo returns. choice is the caller's own number for it.
func (l *Loop) SubmitTo(r engine.Request, sink Sink, choice int) *Stream {
	s := &Stream{loop: l, sink: sink, choice: choice, maxTokens: r.MaxTokens, adapter: r.LoRAName}
	l.submit(s, r)
	return s
}

func (l *Loop) submit(s *Stream, r engine.Request) {
	l.open.Add(1)
	if !l.post(letter{kind: addLetter, stream: s, req: r}) {
		l.open.Add(-1)
		s.endClosed()
	}
}

// finishError is the finish of a request that failed.
const finishError = "error"

// Open is the number of requests submitted and not ended: the engine's and those in the mailbox.
func (l *Loop) Open() int64 { return l.open.Load() }

// Snapshot is the engine at the last step boundary.
func (l *Loop) Snapshot() Snapshot {
	l.snapMu.Lock()
	defer l.snapMu.Unlock()
	s := l.snap
	s.SleepLevel = int(l.pause.sleep.Load())
	return s
}

// Leave leaves a question: fn runs with the engine between two steps, when everything the engine did is
// given to the publisher and to the streams. A frozen engine is between two steps. asked is closed when fn
// has run; ok is false when the loop is closed, and fn may never run when it is closed later.
func (l *Loop) Leave(fn func(engine.Core)) (asked <-chan struct{}, ok bool) {
	done := make(chan struct{})
	return done, l.post(letter{kind: askLetter, ask: fn, asked: done})
}

// Ask leaves a question and waits. It fails when ctx ends first or the loop is closed; fn may still run
// then.
func (l *Loop) Ask(ctx context.Context, fn func(engine.Core)) error {
	asked, ok := l.Leave(fn)
	if !ok {
		return ErrClosed
	}
	select {
	case <-asked:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of the engine's step: %w", ctx.Err())
	case <-l.done:
		return ErrClosed
	}
}

// Wake makes a loop look again whether it is frozen: after a fault was armed or healed.
func (l *Loop) Wake() {
	select {
	case l.posted <- struct{}{}:
	default:
	}
}

// Unread is the number of requests that the engine has not taken in yet. It stays above 0 only while the
// engine is wedged or busy with a step.
func (l *Loop) Unread() (n int) {
	l.mailMu.Lock()
	defer l.mailMu.Unlock()
	for i := range l.mail {
		if l.mail[i].kind == addLetter {
			n++
		}
	}
	return n
}

// Close ends the loop: open streams end with ErrClosed. It returns when the goroutines are gone.
func (l *Loop) Close() error {
	l.mailMu.Lock()
	already := l.closed
	l.closed = true
	l.mailMu.Unlock()
	l.cancel()
	<-l.done
	if already {
		return nil
	}
	return l.alarm.close()
}

// post leaves a letter, stamped now. It returns false when the loop is closed.
func (l *Loop) post(m letter) bool {
	l.mailMu.Lock()
	if l.closed {
		l.mailMu.Unlock()
		return false
	}
	m.at = clock.MonoNs() // under the lock, so that letters lie in the order of their stamps
	l.mail = append(l.mail, m)
	l.mailMu.Unlock()
	l.Wake()
	return true
}

func (l *Loop) run() {
	defer close(l.done)
	defer l.out.stop()
	defer l.endAll()
	for l.ctx.Err() == nil {
		freeze := l.o.Faults.Frozen(clock.MonoNs(), l.o.Rank, maps.Keys(l.streams))
		l.takeMail(freeze.Deaf)
		l.readMail()
		l.answerPeeks()
		if freeze.On || l.pause.held.Load() {
			l.snapshot() // a pause takes requests in, and they wait
			if !l.waitFrozen(freeze.Until) {
				return
			}
			continue
		}
		l.keepPace()
		res := l.o.Engine.Step(l.begin())
		if !res.Worked {
			l.snapshot()
			l.tellIdlers()
			l.waitForMail()
			continue
		}
		l.peeks.pending, l.peeks.outputs = res.Events, res.Outputs
		if !l.sleepUntil(res.Until) {
			return
		}
		l.peeks.pending, l.peeks.outputs = nil, nil
		l.finishStep(&res)
	}
}

// keepPace slows the engine down while a fault says so, and lets it go on as before afterwards.
func (l *Loop) keepPace() {
	factor, jitter := l.o.Faults.Pace(clock.MonoNs(), l.o.Rank, maps.Keys(l.streams))
	if p := (engine.Pace{Factor: factor, Jitter: jitter}); p != l.pace {
		l.o.Engine.SetPace(p)
		l.pace = p
	}
}

// maxCatchUp bounds how far steps may begin in the past. A late wake-up, or the milliseconds that a
// thousand streams take to be woken, must not add up over the steps; but a process that was stopped must
// not run all the steps it missed at once.
const maxCatchUp = 10_000_000 // 10 ms

// begin is when the next step begins: where the one before ended, unless that is long ago or a letter came
// since.
func (l *Loop) begin() int64 {
	now := clock.MonoNs()
	if now-l.lastUntil < maxCatchUp {
		now = l.lastUntil
	}
	l.lastMono = max(l.lastMono, now)
	return l.lastMono
}

// waitForMail blocks an idle loop, at no cost.
func (l *Loop) waitForMail() {
	select {
	case <-l.posted:
	case <-l.ctx.Done():
	}
}

// waitFrozen blocks a frozen loop until somebody wants something or until comes, 0 being never. It returns
// false when the loop is closed or cannot tell the time.
func (l *Loop) waitFrozen(until int64) bool {
	if until > 0 {
		if err := l.alarm.set(until); err != nil {
			l.o.Log.Error("frozen step loop stops", "err", err)
			return false
		}
	}
	select {
	case <-l.posted:
	case <-l.alarm.rung: // perhaps that of an earlier step: whoever asks again knows
	case <-l.ctx.Done():
		return false
	}
	return true
}

// spinNs is a wait too short for the alarm, which takes about as long to set.
const spinNs = 10_000

// sleepUntil returns at the instant until, or false when the loop is closed before.
func (l *Loop) sleepUntil(until int64) bool {
	l.lastUntil = until
	left := until - clock.MonoNs()
	if left > spinNs {
		if err := l.alarm.set(until); err != nil {
			l.o.Log.Error("step loop stops", "err", err)
			return false
		}
	}
	for ; left > 0; left = until - clock.MonoNs() {
		if left <= spinNs {
			runtime.Gosched()
			continue
		}
		select {
		case <-l.alarm.rung:
		case <-l.peeks.came:
			l.answerPeeks()
		case <-l.ctx.Done():
			return false
		}
	}
	return true
}

// sendEvery is how many ends of requests are booked before the tokens so far leave: booking a thousand takes
// milliseconds, which nobody should wait for. Other tokens are booked so quickly that to send them in pieces
// only costs CPU: two cores then work on the same streams.
const sendEvery = 64

// finishStep gives out what a step produced. Events go first: who sees the last token of a request finds
// its blocks announced.
func (l *Loop) finishStep(res *engine.StepResult) {
	l.lastStep = res.Until
	if l.o.Publish != nil {
		if err := l.o.Publish(l.ctx, res.Events); err != nil {
			l.o.Log.Warn("an event batch was not published", "err", err)
		}
	}
	// Counters before tokens: who has its last token finds itself counted.
	l.count(res.Outputs)
	l.snapshot()
	l.observeStep()
	ended := 0
	for i := range res.Outputs {
		l.deliver(&res.Outputs[i], res.Until)
		if res.Outputs[i].Finish == "" {
			continue
		}
		if ended++; ended%sendEvery == 0 {
			l.out.send(false)
		}
	}
	l.out.send(true)
}

// observeStep tells how many tokens a pass yielded: those of prompts with the first token behind them.
func (l *Loop) observeStep() {
	n := l.snap.PromptTokens + l.snap.GenerationTokens // which only this goroutine writes
	l.o.Observer.Step(int(n - l.yielded))
	l.yielded = n
}

// count counts what the loop itself counts of the outputs.
func (l *Loop) count(outputs []engine.Output) {
	for i := range outputs {
		out := &outputs[i]
		if out.Index != 0 && out.Finish == "" {
			continue
		}
		s := l.streams[out.ID]
		if s == nil {
			continue // cannot be: every request was submitted
		}
		if out.Index == 0 {
			l.cached += int64(out.CachedTokens)
			l.adapters.start(s)
		}
		if out.Finish != "" {
			l.adapters.drop(s)
		}
	}
}

func (l *Loop) deliver(out *engine.Output, now int64) {
	s := l.streams[out.ID]
	if s == nil {
		return
	}
	// What is counted is counted before the reader can know: it may ask for the count next.
	if out.Finish != "" {
		l.o.Observer.Ended(out.ID, s.maxTokens, *out.Stats)
		l.drop(s)
	}
	if out.Index < 0 {
		s.end(out.Finish, nil)
		return
	}
	l.o.Observer.Token(out.Index, now-s.lastMonoNs)
	s.lastMonoNs = now
	s.push(out.Token, out.CachedTokens, out.Finish)
}

func (l *Loop) drop(s *Stream) {
	delete(l.streams, s.id)
	l.open.Add(-1)
}

// takeMail takes the letters out of the mailbox. A deaf engine leaves all but the questions there, which
// are not for the engine but about it; a closed gate leaves the new requests.
func (l *Loop) takeMail(deaf bool) {
	shut := l.pause.shut.Load()
	l.mailMu.Lock()
	defer l.mailMu.Unlock()
	if !deaf && !shut {
		l.letters, l.mail = l.mail, l.letters[:0]
		return
	}
	l.letters = l.letters[:0]
	l.mail = slices.DeleteFunc(l.mail, func(m letter) bool {
		take := m.kind == askLetter || !deaf && m.kind != addLetter
		if take {
			l.letters = append(l.letters, m)
		}
		return take
	})
}

// readMail does what the taken letters ask, in order.
func (l *Loop) readMail() {
	for i := range l.letters {
		m := &l.letters[i]
		l.lastMono = max(l.lastMono, m.at)
		switch m.kind {
		case addLetter:
			l.add(m)
		case abortLetter:
			// Only its own request: the id may be another one's by now.
			if l.streams[m.stream.id] == m.stream {
				l.o.Engine.Abort(l.lastMono, m.stream.id)
			} else if !m.stream.added {
				l.takeBack(m.stream)
			}
		case abortAllLetter:
			for id := range l.streams {
				l.o.Engine.Abort(l.lastMono, id)
			}
		case idleLetter:
			l.idlers = append(l.idlers, m.asked)
		case askLetter:
			m.ask(l.o.Engine)
			l.snapshot() // it may have changed the engine, and whoever asked may look at the load next
			close(m.asked)
		}
		*m = letter{} // lets go of prompts
	}
}

func (l *Loop) add(m *letter) {
	s := m.stream
	if l.streams[m.req.ID] != nil { // clients may repeat a request id; the engine may not see that
		l.repeat++
		m.req.ID += "-" + strconv.FormatInt(l.repeat, 10)
	}
	s.id, s.lastMonoNs, s.added = m.req.ID, m.at, true
	if l.o.Arrives != nil {
		l.o.Arrives(m.req)
	}
	if err := l.o.Engine.Add(m.at, m.req); err != nil {
		l.open.Add(-1)
		l.refused++
		l.snapshot() // who is refused finds itself counted
		s.end(finishError, err)
		l.out.send(true)
		return
	}
	l.streams[s.id] = s
	l.adapters.add(s)
}

// endAll ends every stream, and the letters of those who came too late.
func (l *Loop) endAll() {
	for _, s := range l.streams {
		l.drop(s)
		s.end(finishError, ErrClosed)
	}
	l.mailMu.Lock()
	defer l.mailMu.Unlock()
	l.closed = true
	for _, m := range l.mail {
		if m.kind == addLetter {
			l.open.Add(-1)
			m.stream.end(finishError, ErrClosed)
		}
	}
	l.mail = nil
	l.out.send(true)
}

func (l *Loop) snapshot() {
	s := Snapshot{
		Load: l.o.Engine.Load(), Counters: l.o.Engine.Counters(), LastStepMonoNs: l.lastStep,
		PromptTokensCached: l.cached, Refused: l.refused,
		RunningAdapters: l.adapters.running, WaitingAdapters: l.adapters.waiting,
	}
	l.snapMu.Lock()
	l.snap = s
	l.snapMu.Unlock()
}

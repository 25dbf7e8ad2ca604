package sim

import (
	"fmt"
	"slices"
	"time"

	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/index"
	"fleetdrill/gateway/policy"
	"fleetdrill/gateway/proxy"
	"fleetdrill/gateway/recovery"
	"fleetdrill/internal/contract"
)

const (
	// tickEvery and lookEvery are the live fleet's: the grain of its bounds, and how many ticks pass
	// between two looks at the event streams.
	tickEvery = 25 * time.Millisecond
	lookEvery = 20
)

// gate is the gateway: the live one's parts, and this shell around them in place of its goroutines.
type gate struct {
	s         *sim
	core      *fleet.Core
	picker    *policy.Picker
	index     index.Index
	residency *index.Residency
	members   []*member // in the order of the fleet
	scores    proxy.Scores
	ticks     int

	// newest is when the newest applied batch was collected, 0 before the first.
	newest      int64
	transitions []contract.RoutingEvent
	counters    contract.RoutingCounters
	ending      []ending
	settling    bool
}

// member is a registered worker as the gateway sees it.
type member struct {
	worker   *worker
	fleet    *fleet.Worker
	rank     *recovery.Core
	inFlight int
	armed    int64 // instant of the next look of the cursor at the time; 0 without one
}

// ending is an attempt that the fleet wants ended.
type ending struct {
	ref   int
	cause error
}

func newGate(s *sim, r *index.Residency, p *policy.Picker) *gate {
	t := fleet.DefaultTiming()
	t.Load, t.LoadMaxAge = s.c.LoadEvery, s.c.LoadMaxAge
	return &gate{s: s, core: fleet.NewCore(t), picker: p, index: r.Index(), residency: r}
}

// add registers a worker. The addresses are never dialled.
func (g *gate) add(w *worker) error {
	spec := contract.WorkerSpec{
		ID: w.id, URL: fmt.Sprintf("http://%06d.sim", w.n+1), KVBlockSize: g.s.c.BlockSize,
		KVEvents: &contract.KVEventsSpec{Endpoint: "sim", ReplayEndpoint: "sim", Ranks: 1},
	}
	holder := index.Holder(w.n)
	fw, err := g.core.Add(g.s.now, spec, []index.Holder{holder})
	if err != nil {
		return err
	}
	rank := recovery.NewCore(recovery.Source{
		Worker: w.id, Replay: spec.KVEvents.ReplayEndpoint, Holder: holder, BlockSize: g.s.c.BlockSize,
	}, g.residency)
	rank.OnContact = func(now int64) {
		if fw.HeardBatch(now) {
			g.core.Heed(now, fw)
		}
	}
	rank.OnAsk = func(_, id, from int64) {
		w.asks.push(ask{id: id, from: from})
		g.s.after(g.s.c.LinkDelay, replayAsked, w)
	}
	g.members = append(g.members, &member{worker: w, fleet: fw, rank: rank})
	return nil
}

// start subscribes to every worker and begins to tick.
func (g *gate) start() {
	for _, m := range g.members {
		m.rank.Up(g.s.now)
		g.arm(m)
	}
	g.s.queue.push(g.s.now, fleetTicks, 0)
}

// tick judges the fleet, as the live one does 40 times a second.
func (g *gate) tick() {
	if g.ticks%lookEvery == 0 {
		g.look()
	}
	g.core.Tick(g.s.now)
	g.settle()
	if g.ticks++; g.s.c.Progress != nil && g.ticks%int(time.Second/tickEvery) == 0 {
		g.s.c.Progress(g.s.ended, max(g.s.now-origin, 0))
	}
	g.s.queue.push(g.s.now+int64(tickEvery), fleetTicks, 0)
}

// look notes whose event stream is live and how much the index holds for each.
func (g *gate) look() {
	for _, m := range g.members {
		m.fleet.SetEventsLive(m.rank.LiveStream())
	}
	g.core.Weigh(g.s.now, func(w *fleet.Worker) (int, bool) {
		blocks, _ := g.residency.Sums(w.Holders[0], index.Device)
		return blocks, true
	})
}

// settle carries out what the fleet decided, until it wants nothing more.
func (g *gate) settle() {
	if g.settling {
		return // the loop below sees to it
	}
	g.settling = true
	defer func() { g.settling = false }()
	for {
		actions := g.core.Take()
		for i := range actions {
			g.act(&actions[i])
		}
		if len(g.ending) == 0 {
			if len(actions) == 0 {
				return
			}
			continue
		}
		ending := slices.Clone(g.ending)
		g.ending = g.ending[:0]
		for _, e := range ending {
			g.s.move(e.ref, e.cause)
		}
	}
}

// act carries out one decision. Nothing breaks here, so connections need not be dropped nor streams woken.
func (g *gate) act(a *fleet.Action) {
	switch a.Kind {
	case fleet.Ping:
		w := g.workerOf(a.Worker)
		w.pings.push(g.s.now)
		g.s.after(2*g.s.c.LinkDelay, pingAnswers, w)
	case fleet.Poll:
		w := g.workerOf(a.Worker)
		w.asked = g.s.now
		g.s.after(g.s.c.LinkDelay, pollAsked, w)
	case fleet.EndRequest:
		a.Request.Stop(a.Cause)
	case fleet.Changed:
		g.transitions = append(g.transitions, a.Transition)
	}
}

// workerOf is the worker behind a fleet's. Holders are numbered as workers are.
func (g *gate) workerOf(w *fleet.Worker) *worker { return g.s.workers[w.Holders[0]] }

func (g *gate) pinged(w *worker) {
	g.core.PingDone(g.s.now, w.pings.pop(), g.members[w.n].fleet, fleet.PingOK, 200)
	g.settle()
}

// polled takes the answer of a poll; a worker that pushes its records answers without one.
func (g *gate) polled(w *worker) {
	record := &w.polled
	if g.s.c.LoadPush {
		record = nil
	}
	g.core.PollDone(g.s.now, w.asked, g.members[w.n].fleet, true, record)
	g.settle()
}

// batchArrives takes a batch, and the load record that came with it.
func (s *sim) batchArrives(w *worker) {
	g, m := s.gate, s.gate.members[w.n]
	p := w.batches.pop()
	if !p.alone {
		m.rank.Live(s.now, p.batch)
		g.newest = max(g.newest, p.at)
		if next := m.rank.Next(); next > p.batch.Seq {
			w.applied(next)
			w.batcher.done(p.memory)
		}
		g.arm(m)
	}
	if s.c.LoadPush {
		g.core.PollDone(s.now, p.at, m.fleet, true, &p.record)
	}
	g.settle()
}

// replayAnswers takes a whole replay, up to its end marker.
func (s *sim) replayAnswers(w *worker) {
	m, a := s.gate.members[w.n], w.answers.pop()
	for _, b := range slices.Clone(w.kept) {
		if b.Seq >= a.from && b.Seq < a.upTo {
			m.rank.Replayed(s.now, a.id, b)
		}
	}
	m.rank.ReplayEnd(s.now, a.id)
	s.gate.arm(m)
	s.gate.settle()
}

// arm sees to it that the cursor looks at the time when it wants to. A deadline that moves away is found
// out when the old one comes, which spares an entry per batch.
func (g *gate) arm(m *member) {
	at := m.rank.Deadline()
	if at == 0 || m.armed > 0 && m.armed <= at {
		return
	}
	m.armed = max(at, g.s.now+1)
	g.s.queue.push(m.armed, streamTicks, m.worker.n)
}

func (g *gate) streamTick(w *worker) {
	m := g.members[w.n]
	if m.armed != g.s.now {
		return // an earlier look was wanted, and came
	}
	m.armed = 0
	if at := m.rank.Deadline(); at > 0 && at <= g.s.now {
		m.rank.Tick(g.s.now, m.inFlight > 0)
		g.settle()
	}
	g.arm(m)
}

// place takes a guard for a request, the ref-th attempt of the run.
func (g *gate) place(f *flight, p *prompt, ref int) (*fleet.Request, error) {
	g.scores.Reset()
	g.scores.Look(g.index, fleet.View{BlockSize: g.s.c.BlockSize}, p.chain)
	first := f.rec.Attempts == 0
	if first {
		g.counters.Requests++
	}
	g.counters.Lookups++
	guard, err := g.core.Place(g.s.now, fleet.Ask{
		Tokens: len(p.tokens), Streamed: true, Tried: f.tried, Score: g.scores.Of, Deepest: g.scores.Deepest,
		End: func(cause error) { g.ending = append(g.ending, ending{ref, cause}) },
	}, g.picker)
	if err == nil {
		g.members[guard.Worker.Holders[0]].inFlight++
		if first && guard.Overlap > 0 {
			g.counters.Hits++
		} else if first {
			g.counters.Misses++
		}
	}
	g.settle()
	return guard, err
}

// sent says that a request is wholly with its worker.
func (g *gate) sent(a *attempt) {
	if !a.over {
		g.core.Sent(g.s.now, a.guard)
		g.settle()
	}
}

// heard notes a further byte of an answer.
func (g *gate) heard(a *attempt) {
	if a.guard.Worker.HeardByte(g.s.now) {
		g.core.Heed(g.s.now, a.guard.Worker)
	}
}

// staleness is the age of the newest applied batch, -1 before the first.
func (g *gate) staleness() int64 {
	if g.newest == 0 {
		return -1
	}
	return g.s.now - g.newest
}

package sim

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/kinds"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/rng"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/late"
	"fleetdrill/replayer/result"
)

const (
	second = int64(time.Second)
	// fleetStart is when the gateway starts, in ns of virtual time; 0 means never to its parts.
	fleetStart = second
	// origin is the start of the replay: the fleet has been pinged and polled by then, as a live one has.
	origin = 3 * second
)

// sim is a run: the queue and everybody in it.
type sim struct {
	c       Config
	queue   queue
	now     int64
	workers []*worker
	gate    *gate
	maker   maker
	prompts *prompts

	flights  []flight
	attempts []attempt
	arrived  int
	ended    int
	batches  int64
	lastEnd  int64
}

// Run replays c.Plan in simulated time. It ends early, with the error of ctx, only when ctx ends; a request
// that fails is a record, not an error. Equal configurations give equal results.
func Run(ctx context.Context, c Config) (Result, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return Result{}, fmt.Errorf("simulating a replay: %w", err)
	}
	s, err := newSim(c)
	if err != nil {
		return Result{}, fmt.Errorf("simulating a replay: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s.prompts = startPrompts(ctx, s.maker, c.Plan, c.Workers*(c.NumBlocks-1))
	err = s.run(ctx)
	cancel()
	s.prompts.wait()
	if err != nil {
		return Result{}, fmt.Errorf("simulating a replay: %w", err)
	}
	return s.result(), nil
}

func newSim(c Config) (*sim, error) {
	hasher, err := c.hasher()
	if err != nil {
		return nil, err
	}
	s := &sim{c: c, now: fleetStart, maker: maker{hasher, c.BlockSize}, flights: make([]flight, len(c.Plan.Requests))}
	seed := rng.Stream(c.Seed, "policy").Uint64()
	picker, err := policy.New(c.Policy, seed)
	if err != nil {
		return nil, err
	}
	blocks, err := kinds.New(c.KVIndex)
	if err != nil {
		return nil, err
	}
	s.gate = newGate(s, index.NewResidency(blocks), picker)
	for n := range c.Workers {
		w, err := s.newWorker(n)
		if err != nil {
			return nil, err
		}
		s.workers = append(s.workers, w)
		if err := s.gate.add(w); err != nil {
			return nil, err
		}
	}
	for i := range s.flights {
		q := &c.Plan.Requests[i]
		s.flights[i] = flight{q: q, rec: newRecord(i, q)}
	}
	return s, nil
}

func (s *sim) newWorker(n int) (*worker, error) {
	c := s.c
	w := &worker{n: n, id: "w" + strconv.Itoa(n+1), full: c.LoadReport == LoadFull, late: late.New(c.Late)}
	var err error
	w.eng, err = engine.New(engine.Config{
		BlockSize: c.BlockSize, NumBlocks: c.NumBlocks, MaxNumSeqs: c.MaxNumSeqs,
		MaxNumBatchedTokens: c.MaxNumBatchedTokens, ReserveFullISL: c.ReserveFullISL, MaxModelLen: c.MaxModelLen, EnablePrefixCaching: true,
		Hasher: s.maker.hasher, Timing: c.Profile.Timing(), Seed: c.Seed,
	})
	if err != nil {
		return nil, err
	}
	if w.batcher, err = newBatcher(n, c.Wire); err != nil {
		return nil, err
	}
	w.record.Pool = c.NumBlocks
	w.look(0, 0)
	return w, nil
}

// run takes events until every request has ended.
func (s *sim) run(ctx context.Context) error {
	s.gate.start()
	if s.c.LoadPush {
		for _, w := range s.workers {
			s.queue.push(fleetStart+int64(s.c.LoadEvery), beats, w.n)
		}
	}
	s.queue.push(s.dueAt(0), arrives, 0)
	for s.ended < len(s.flights) {
		e := s.queue.pop()
		s.now = e.at
		if e.kind() == fleetTicks {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		s.take(e.kind(), s.workers[e.worker()])
	}
	return nil
}

// dueAt is when request i comes, in virtual time.
func (s *sim) dueAt(i int) int64 { return origin + s.c.Plan.Requests[i].OffsetNs }

// take lets one event happen.
func (s *sim) take(k kind, w *worker) {
	switch k {
	case stepEnds:
		s.stepEnds(w)
	case removalsDue:
		s.removalsDue(w)
	case batchArrives:
		s.batchArrives(w)
	case tokensArrive:
		s.tokensArrive(w)
	case replayAnswers:
		s.replayAnswers(w)
	case pingAnswers:
		s.gate.pinged(w)
	case pollAnswers:
		s.gate.polled(w)
	case streamTicks:
		s.gate.streamTick(w)
	case fleetTicks:
		s.gate.tick()
	case replayAsked:
		a := w.asks.pop()
		a.upTo = w.batcher.next
		w.answers.push(a)
		s.after(s.c.LinkDelay, replayAnswers, w)
	case pollAsked:
		w.polled = w.record
		s.after(s.c.LinkDelay, pollAnswers, w)
	case submitted:
		s.submitted(w)
	case beats:
		s.publish(w, published{alone: true, record: w.record, at: s.now})
		s.after(s.c.LoadEvery, beats, w)
	case arrives:
		s.arrives()
	}
}

// after puts an event of w into the queue.
func (s *sim) after(d time.Duration, k kind, w *worker) { s.queue.push(s.now+int64(d), k, w.n) }

// arrives takes the next request in, and waits for the one behind it.
func (s *sim) arrives() {
	f := &s.flights[s.arrived]
	s.arrived++
	if s.arrived < len(s.flights) {
		s.queue.push(s.dueAt(s.arrived), arrives, 0)
	}
	p := s.prompts.next()
	f.rec.Pooled, f.rec.Unbounded = p.pooled, p.unbounded
	s.place(f, p)
}

// result collects what a run came to.
func (s *sim) result() Result {
	r := Result{
		Requests: make([]result.Request, len(s.flights)), KVBlocks: s.c.NumBlocks, BlockSize: s.c.BlockSize,
		Hash: s.c.Hash, Batches: s.batches, VirtualNs: s.lastEnd - origin, Transitions: s.gate.transitions,
		Counters: s.gate.counters,
	}
	for i := range s.flights {
		r.Requests[i] = s.flights[i].rec
	}
	for _, w := range s.workers {
		r.WorkerIDs = append(r.WorkerIDs, w.id)
		r.Preemptions += w.eng.Counters().Preemptions
		r.Steps += w.eng.Load().Steps
		r.Ranks = append(r.Ranks, s.gate.members[w.n].rank.State())
	}
	for i := range r.Transitions {
		r.Transitions[i].MonoNs -= origin
	}
	return r
}

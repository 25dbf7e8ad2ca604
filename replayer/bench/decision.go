package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/index"
	"fleetdrill/gateway/policy"
	"fleetdrill/gateway/proxy"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/rng"
	"fleetdrill/internal/tokens"
	"fleetdrill/replayer/bench/drive"
)

// DecisionSpec is a fleet whose engines are full, and requests to be placed on it at a fixed rate.
type DecisionSpec struct {
	Index   string `json:"index"`
	Policy  string `json:"policy"`
	Workers int    `json:"workers"`
	// Blocks is the pool of a worker in blocks of BlockSize tokens; Sessions are per worker.
	Blocks    int `json:"blocks"`
	BlockSize int `json:"block_size"`
	Sessions  int `json:"sessions"`
	Requests  int `json:"requests"`
	// Rate is in decisions per second; the first Warmup of Length is not counted. AloneNs is how long
	// lookups and hashing are measured each.
	Rate     int    `json:"rate"`
	LengthNs int64  `json:"length_ns"`
	WarmupNs int64  `json:"warmup_ns"`
	AloneNs  int64  `json:"alone_ns"`
	Seed     uint64 `json:"seed"`
}

// DefaultDecision is the published definition; quick measures for a third of the time.
func DefaultDecision(name, policyName string, workers int, quick bool) DecisionSpec {
	s := DecisionSpec{Index: name, Policy: policyName, Workers: workers, Blocks: 8192, BlockSize: 16, Sessions: 48, Requests: 8192, Rate: 10_000,
		LengthNs: int64(12 * time.Second), WarmupNs: int64(2 * time.Second), AloneNs: int64(4 * time.Second), Seed: 1}
	if quick {
		s.LengthNs, s.WarmupNs, s.AloneNs = int64(4*time.Second), int64(time.Second), int64(time.Second)
	}
	return s
}

// DecisionRow is what a decision costs.
type DecisionRow struct {
	Workers int    `json:"workers"`
	Index   string `json:"index"`
	Policy  string `json:"policy"`
	// DecisionsPerS is the rate that was kept.
	DecisionsPerS float64 `json:"decisions_per_s"`
	// Us is lookup and policy on a ready chain; Lookup and Hash are each measured alone, the latter over the
	// prompt's tokens.
	Us     drive.Latency `json:"us"`
	Lookup drive.Latency `json:"lookup_us"`
	Hash   drive.Latency `json:"hash_us"`
	// MeanBlocks is the mean length of a request's chain, Branches how decisions came out.
	MeanBlocks  float64        `json:"mean_blocks"`
	Branches    map[string]int `json:"branches"`
	Memberships int64          `json:"memberships"`
	Late        int            `json:"late"` // times the schedule was resumed because it was a tick behind
	GC          drive.GC       `json:"gc"`
	Foreign     drive.Foreign  `json:"foreign"`
	LoadAvg     float64        `json:"load_avg"`
}

// Decide measures in this process.
func Decide(s DecisionSpec) (*DecisionRow, error) {
	if !bounded([3]int{s.Workers, 1, 4096}, [3]int{s.Blocks, 600, 1 << 20}, [3]int{s.BlockSize, 1, 1024}, [3]int{s.Sessions, 1, 4096}, [3]int{s.Requests, 1, 1 << 20},
		[3]int{s.Rate, 1, 10_000_000}) || s.LengthNs <= s.WarmupNs || s.WarmupNs < 0 || s.AloneNs < 0 {
		return nil, fmt.Errorf("deciding with %+v: a figure is out of its bounds", s)
	}
	ix, err := drive.Make(s.Index)
	if err != nil {
		return nil, err
	}
	picker, err := policy.New(s.Policy, s.Seed)
	if err != nil {
		return nil, err
	}
	w := newWarehouse(s, ix)
	d := &decider{spec: s, index: ix, picker: picker, core: fleet.NewCore(fleet.DefaultTiming()), branches: map[string]int{}}
	if err := d.register(); err != nil {
		return nil, err
	}
	requests := w.requests()
	row := &DecisionRow{Workers: s.Workers, Index: s.Index, Policy: s.Policy, Branches: d.branches, Memberships: ix.Stats().Memberships}
	for i := range requests {
		row.MeanBlocks += float64(len(requests[i])) / float64(len(requests))
	}
	foreign, gc := drive.Watch(), drive.WatchGC()
	if err := d.pace(requests, row); err != nil {
		return nil, err
	}
	row.GC = gc()
	row.Lookup = d.lookups(requests)
	row.Hash = hashing(s, requests)
	row.Foreign, row.LoadAvg = foreign(), drive.LoadAverage()
	return row, nil
}

// warehouse fills the engines and draws requests for what they hold.
type warehouse struct {
	spec     DecisionSpec
	draw     *rand.Rand
	index    index.Index
	room     []int
	heads    []chain
	sessions []chain // those that some worker has
}

// storeStep is the most blocks that an engine announces at once here, as one with short passes does.
const storeStep = 16

func newWarehouse(s DecisionSpec, ix index.Index) *warehouse {
	w := &warehouse{spec: s, draw: rng.Stream(s.Seed, "bench/decision"), index: ix, room: make([]int, s.Workers)}
	for i := range w.room {
		w.room[i] = s.Blocks
	}
	w.heads = make([]chain, 8)
	for i := range w.heads {
		w.heads[i].extend(w.draw, logUniform(w.draw, 16, 64))
	}
	for range s.Sessions * s.Workers {
		w.session()
	}
	for h, room := range w.room {
		for room > 0 {
			var c chain
			c.extend(w.draw, min(room, logUniform(w.draw, 8, 256)))
			c.store(ix, index.Holder(h), 0, storeStep)
			room -= len(c.hashes)
		}
	}
	return w
}

// session gives one session to one to four workers that have room for it.
func (w *warehouse) session() {
	var c chain
	if w.draw.Float64() < 0.6 {
		head := &w.heads[w.draw.IntN(len(w.heads))]
		c = head.cut(len(head.hashes))
	}
	c.extend(w.draw, logUniform(w.draw, 8, 512))
	held := false
	for range 1 + w.draw.IntN(4) {
		h := w.draw.IntN(w.spec.Workers)
		if w.room[h] < len(c.hashes) {
			continue
		}
		c.store(w.index, index.Holder(h), 0, storeStep)
		w.room[h] = w.spec.Blocks - w.index.Count(index.Holder(h)) // heads are there once
		held = true
	}
	if held {
		w.sessions = append(w.sessions, c)
	}
}

// requests are chains to be placed: 70 % go on with a session, 20 % are the beginning of one, 10 % begin with
// a shared head and are new behind it.
func (w *warehouse) requests() [][]uint64 {
	out := make([][]uint64, w.spec.Requests)
	for i := range out {
		session := &w.sessions[w.draw.IntN(len(w.sessions))]
		var c chain
		switch kind := w.draw.IntN(10); {
		case kind < 7:
			c = session.cut(len(session.hashes))
			c.extend(w.draw, 1+w.draw.IntN(16))
		case kind < 9:
			c = session.cut(1 + w.draw.IntN(len(session.hashes)))
		default:
			head := &w.heads[w.draw.IntN(len(w.heads))]
			c = head.cut(len(head.hashes))
			c.extend(w.draw, logUniform(w.draw, 4, 256))
		}
		out[i] = slices.Clone(c.contents)
	}
	return out
}

// decider is the gateway's decision: its index, its fleet, its policy.
type decider struct {
	spec     DecisionSpec
	index    index.Index
	core     *fleet.Core
	picker   *policy.Picker
	workers  []*fleet.Worker
	scores   proxy.Scores
	branches map[string]int
	// open are the requests placed and not ended, oldest first.
	open []*fleet.Request
}

// perWorker is how many requests a worker has in flight once the bench runs.
const perWorker = 4

// register makes every worker ready, with a load record.
func (d *decider) register() error {
	for i := range d.spec.Workers {
		w, err := d.core.Add(1, contract.WorkerSpec{ID: fmt.Sprintf("w%d", i+1), URL: fmt.Sprintf("http://w%d.bench", i+1), KVBlockSize: d.spec.BlockSize,
			KVEvents: &contract.KVEventsSpec{Endpoint: "bench", Ranks: 1}}, []index.Holder{index.Holder(i)})
		if err != nil {
			return err
		}
		d.core.PingDone(1, 1, w, fleet.PingOK, 200)
		d.workers = append(d.workers, w)
	}
	d.report(1)
	return nil
}

// report gives every worker a fresh load record, of as many shapes as a fleet has.
func (d *decider) report(now int64) {
	for i, w := range d.workers {
		d.core.PollDone(now, now, w, true, &fleet.Record{Running: int64(i % 7), Waiting: int64(i % 3), Usage: float64(i%10) / 20, Steps: now, HasSteps: true})
	}
	d.core.Take()
}

// reportEvery is the period of load records, that of the gateway's polls.
const reportEvery = time.Second

// pace decides at the given rate, spinning between decisions. What is more than a tick late starts a new
// schedule, so that one pause of the machine is one late decision and not many.
func (d *decider) pace(requests [][]uint64, row *DecisionRow) error {
	tick := time.Second / time.Duration(d.spec.Rate)
	length, warmup := time.Duration(d.spec.LengthNs), time.Duration(d.spec.WarmupNs)
	ns := make([]uint32, 0, int((length-warmup)/tick)+1)
	d.open = make([]*fleet.Request, 0, d.spec.Workers*perWorker+1)
	start := time.Now()
	due, reported := time.Duration(0), time.Duration(0)
	for i := 0; ; i++ {
		now := time.Since(start)
		for now < due {
			now = time.Since(start)
		}
		if now >= length {
			break
		}
		if now > due+tick {
			due = now
			row.Late++
		}
		due += tick
		took, branch, err := d.decide(now.Nanoseconds()+2, requests[i%len(requests)])
		if err != nil {
			return fmt.Errorf("placing request %d: %w", i, err)
		}
		if now >= warmup {
			ns = append(ns, uint32(min(took.Nanoseconds(), 1<<31)))
			d.branches[branch]++
		}
		d.settle(now.Nanoseconds() + 2)
		if now-reported > reportEvery {
			d.report(now.Nanoseconds() + 2)
			reported = now
		}
	}
	row.DecisionsPerS = float64(len(ns)) / (length - warmup).Seconds()
	row.Us = drive.Distribution(ns)
	return nil
}

// decide places one request: lookup, candidates, policy, guard.
func (d *decider) decide(now int64, chain []uint64) (time.Duration, string, error) {
	began := time.Now()
	d.scores.Reset()
	d.scores.Look(d.index, fleet.View{BlockSize: d.spec.BlockSize}, chain)
	guard, err := d.core.Place(now, fleet.Ask{Tokens: len(chain) * d.spec.BlockSize, Streamed: true, Score: d.scores.Of, Deepest: d.scores.Deepest, End: func(error) {}}, d.picker)
	took := time.Since(began)
	if err != nil {
		return took, "", err
	}
	d.open = append(d.open, guard)
	return took, guard.Branch, nil
}

// settle ends the oldest requests beyond what a busy fleet has in flight.
func (d *decider) settle(now int64) {
	for len(d.open) > d.spec.Workers*perWorker {
		d.core.End(now, d.open[0], fleet.Done)
		d.open = append(d.open[:0], d.open[1:]...)
	}
	d.core.Take()
}

// lookups times the lookup alone.
func (d *decider) lookups(requests [][]uint64) drive.Latency {
	var ns []uint32
	var scores index.Scores
	for start, i := time.Now(), 0; time.Since(start) < time.Duration(d.spec.AloneNs); i++ {
		began := time.Now()
		scores = d.index.Lookup(requests[i%len(requests)], scores)
		ns = append(ns, uint32(min(time.Since(began).Nanoseconds(), 1<<31)))
	}
	return drive.Distribution(ns)
}

// hashing times the hashing of prompts as long as the requests.
func hashing(s DecisionSpec, requests [][]uint64) drive.Latency {
	longest := 0
	for i := range requests {
		longest = max(longest, len(requests[i]))
	}
	draw := rng.Stream(s.Seed, "bench/decision/tokens")
	ids := make([]uint32, 2*longest*s.BlockSize) // prompts begin at different places of it
	for i := range ids {
		ids[i] = uint32(draw.IntN(100_000))
	}
	chain := make([]uint64, 0, longest)
	var ns []uint32
	for start, i := time.Now(), 0; time.Since(start) < time.Duration(s.AloneNs); i++ {
		n := len(requests[i%len(requests)]) * s.BlockSize
		from := draw.IntN(len(ids) - n + 1)
		began := time.Now()
		chain = tokens.AppendChain(chain[:0], ids[from:from+n], s.BlockSize, 0)
		ns = append(ns, uint32(min(time.Since(began).Nanoseconds(), 1<<31)))
	}
	return drive.Distribution(ns)
}

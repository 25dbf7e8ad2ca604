package drive

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fleetdrill/gateway/index"
	"fleetdrill/replayer/bench/corpus"
)

const (
	// warmUp is how many lookups are made before a trial.
	warmUp = 128
	// startAhead is the time from the last preparation to the first deadline.
	startAhead = 20 * time.Millisecond
	// spin is the last part of a wait, which the issuer does not sleep through.
	spin = 100 * time.Microsecond
	// nap is how long a lane without work sleeps after it has looked naps times.
	nap      = 20 * time.Microsecond
	napAfter = 256
	// issueSlack is how much longer than the window issuing may take; keepSlack the same of everything.
	issueSlack = 1.01
	keepSlack  = 1.10
	// enough is the share of the offered rate that a sustained trial achieves.
	enough = 0.99
)

// GC is what the garbage collector did during a trial.
type GC struct {
	Cycles  int64   `json:"cycles"`
	PauseUs float64 `json:"pause_us"`
	MaxUs   float64 `json:"max_us"`
}

// Result is one trial.
type Result struct {
	Index    string  `json:"index"`
	Lanes    int     `json:"lanes"`
	Workers  int     `json:"workers"`
	WindowMs float64 `json:"window_ms"`
	BlockOps uint64  `json:"block_ops"`
	// Offered and Achieved are block ops per second; Achieved counts the draining.
	Offered  float64 `json:"offered"`
	Achieved float64 `json:"achieved"`
	// GeneratorValid says that everything was issued within 1.01 windows, Sustained that it also achieved
	// 99 % of the offered rate, KeptUp that it was done within 1.10 windows. Complete is false when the
	// trial was given up.
	GeneratorValid bool    `json:"generator_valid"`
	Sustained      bool    `json:"sustained"`
	KeptUp         bool    `json:"kept_up"`
	Complete       bool    `json:"complete"`
	Lookup         Latency `json:"lookup_us"`
	// IssueLag is by how much operations were issued behind their deadlines.
	IssueLag Latency `json:"issue_lag_us"`
	// Unknown counts stores under unknown parents and removals of unknown hashes: 0 in a sound corpus,
	// unless the trial was given up.
	Unknown uint64  `json:"unknown"`
	GC      GC      `json:"gc"`
	LoadAvg float64 `json:"load_avg"`
	Foreign Foreign `json:"foreign"`
	// HeapBytes is by how much the index made the heap grow, SlabBytes what it says itself (0 = it does
	// not), Memberships what it holds at the end.
	HeapBytes          int64   `json:"heap_bytes"`
	SlabBytes          int64   `json:"slab_bytes"`
	Memberships        int64   `json:"memberships"`
	BytesPerMembership float64 `json:"bytes_per_membership"`
	Cores              int     `json:"cores"`
}

// Trial runs one trial in this process, which should have done nothing else before.
func Trial(s Spec) (*Result, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	c, err := corpus.Open(s.Corpus) // the check reads every page of it
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return Replay(c, s)
}

// Replay is Trial on a corpus that is open already.
func Replay(c *corpus.Corpus, s Spec) (*Result, error) {
	p, err := plan(c, s)
	if err != nil {
		return nil, err
	}
	// Threads beyond the cores are the kernel's to share out, not the scheduler's of Go, which takes a
	// processor from a busy goroutine every 10 ms only.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(runtime.NumCPU(), s.Lanes+1)))
	r := newRun(c, p, s)
	before := SettledHeap()
	if r.index, err = Make(s.Index); err != nil {
		return nil, err
	}
	debug.FreeOSMemory()
	time.Sleep(time.Duration(s.QuietNs))
	r.warm()
	res := r.measured()
	r.remember(res, before)
	return res, nil
}

// run is a trial under way.
type run struct {
	spec   Spec
	corpus *corpus.Corpus
	plan   *schedule
	index  index.Index
	lanes  []*lane
	start  time.Time
	stop   atomic.Bool

	scores     index.Scores
	lookups    []uint32
	lags       []uint32
	issued     time.Duration
	queryDone  time.Duration
	queried    uint64
	overbooked bool
}

// lane applies the events of its holders in order.
type lane struct {
	// published is how many of list may be applied.
	published atomic.Int64
	_         [56]byte // the issuer writes published all the time
	list      []uint32 // issues
	done      int
	finished  time.Duration
	blockOps  uint64
	unknown   uint64
	hashes    []uint64
	contents  []uint64
}

func newRun(c *corpus.Corpus, p *schedule, s Spec) *run {
	r := &run{spec: s, corpus: c, plan: p, lookups: make([]uint32, 0, p.queries), lags: make([]uint32, 0, len(p.ops)),
		scores: make(index.Scores, 0, 1024), overbooked: s.Lanes >= runtime.NumCPU()}
	longest := 0
	for i := range c.Ops {
		longest = max(longest, int(c.Ops[i].Length))
	}
	for _, n := range p.perLane {
		r.lanes = append(r.lanes, &lane{list: make([]uint32, 0, n), hashes: make([]uint64, longest), contents: make([]uint64, longest)})
	}
	for i, l := range p.lane {
		if l >= 0 {
			r.lanes[l].list = append(r.lanes[l].list, uint32(i))
		}
	}
	return r
}

// SettledHeap is the live heap after a collection, in bytes.
func SettledHeap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers held goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// warm makes the first lookups, which find nothing.
func (r *run) warm() {
	made := 0
	for i := range r.corpus.Ops {
		if op := &r.corpus.Ops[i]; op.Kind == corpus.Query && made < warmUp {
			r.scores = r.index.Lookup(r.corpus.Chain(op), r.scores)
			made++
		}
	}
}

// measured runs the trial.
func (r *run) measured() *Result {
	gc, foreign := WatchGC(), Watch()
	r.start = time.Now().Add(startAhead)
	giveUp := time.AfterFunc(startAhead+time.Duration(r.plan.windowNs+r.spec.PatienceNs), func() { r.stop.Store(true) })
	defer giveUp.Stop()
	var lanes sync.WaitGroup
	for _, l := range r.lanes {
		lanes.Go(func() { r.apply(l) })
	}
	var issuer sync.WaitGroup
	issuer.Go(r.issue) // not here: the caller's stack has grown, and a lookup needs some
	issuer.Wait()
	lanes.Wait()
	others, cycles := foreign(), gc()
	res := r.result()
	res.Foreign, res.GC = others, cycles
	return res
}

// WatchGC begins to watch the garbage collector; the function it returns says what happened since.
func WatchGC() func() GC {
	var before debug.GCStats
	debug.ReadGCStats(&before)
	return func() GC {
		var after debug.GCStats
		debug.ReadGCStats(&after)
		return collections(&before, &after)
	}
}

// collections is what the garbage collector did between two readings.
func collections(before, after *debug.GCStats) GC {
	g := GC{Cycles: after.NumGC - before.NumGC, PauseUs: float64((after.PauseTotal - before.PauseTotal).Nanoseconds()) / 1e3}
	for i := 0; i < int(g.Cycles) && i < len(after.Pause); i++ {
		g.MaxUs = max(g.MaxUs, float64(after.Pause[i].Nanoseconds())/1e3)
	}
	return g
}

// issue is the issuer: it looks up and hands out, each operation at its deadline.
func (r *run) issue() {
	runtime.LockOSThread() // it sleeps in the kernel, and should not be moved
	defer runtime.UnlockOSThread()
	handed := make([]int64, len(r.lanes))
	for i, at := range r.plan.at {
		now := r.wait(time.Duration(at))
		if r.stop.Load() {
			return
		}
		r.lags = append(r.lags, ns32(int64(now)-at))
		if l := r.plan.lane[i]; l >= 0 {
			handed[l]++
			r.lanes[l].published.Store(handed[l])
		} else {
			op := &r.corpus.Ops[r.plan.ops[i]]
			began := time.Since(r.start)
			r.scores = r.index.Lookup(r.corpus.Chain(op), r.scores)
			r.queryDone = time.Since(r.start)
			r.lookups = append(r.lookups, ns32(int64(r.queryDone-began)))
			r.queried += uint64(op.Length)
		}
	}
	r.issued = time.Since(r.start)
}

// wait returns the time of the trial once it is at. The last part of a wait is spun through, unless lanes
// need the core.
func (r *run) wait(at time.Duration) time.Duration {
	for {
		now := time.Since(r.start)
		left := at - now
		switch {
		case left <= 0:
			return now
		case r.overbooked:
			pause(left)
		case left > spin:
			pause(left - spin)
		}
	}
}

// pause sleeps in the kernel: Go's own timers round to a millisecond. A signal may end it early.
func pause(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil)
}

// apply is a lane: it applies what was handed out, and naps when that is nothing.
func (r *run) apply(l *lane) {
	for idle := 0; l.done < len(l.list) && !r.stop.Load(); {
		ready := int(l.published.Load())
		if ready == l.done {
			if idle++; idle > napAfter || r.overbooked {
				pause(nap)
			}
			continue
		}
		idle = 0
		for ; l.done < ready && !r.stop.Load(); l.done++ {
			r.event(l, l.list[l.done])
		}
	}
	l.finished = time.Since(r.start)
}

// event applies one event. Its words are copied out of the corpus first, as a lane that owns decoded events
// has them.
func (r *run) event(l *lane, issue uint32) {
	op, h := &r.corpus.Ops[r.plan.ops[issue]], r.plan.holders[issue]
	switch op.Kind {
	case corpus.Stored:
		hashes, contents := r.corpus.Blocks(op)
		n := copy(l.hashes, hashes)
		copy(l.contents, contents)
		if r.index.Store(h, op.Parent, op.HasParent == 1, l.hashes[:n], l.contents[:n]).UnknownParent {
			l.unknown++
		}
	case corpus.Removed:
		n := copy(l.hashes, r.corpus.Gone(op))
		_, unknown := r.index.Remove(h, l.hashes[:n])
		l.unknown += uint64(unknown)
	case corpus.Cleared:
		r.index.Clear(h)
	}
	l.blockOps += uint64(op.Length)
}

// result judges what happened.
func (r *run) result() *Result {
	window := time.Duration(r.plan.windowNs)
	last, done, complete := r.queryDone, r.queried, r.issued > 0
	var unknown uint64
	for _, l := range r.lanes {
		last = max(last, l.finished)
		done += l.blockOps
		unknown += l.unknown
		complete = complete && l.done == len(l.list)
	}
	res := &Result{Index: r.spec.Index, Lanes: r.spec.Lanes, Workers: r.spec.Workers, Cores: runtime.NumCPU(),
		WindowMs: window.Seconds() * 1e3, BlockOps: r.plan.blockOps, Complete: complete, Unknown: unknown, LoadAvg: LoadAverage()}
	res.Lookup, res.IssueLag = Distribution(r.lookups), Distribution(r.lags)
	judge(res, window, r.issued, last, done)
	return res
}

// judge is the definition of the bench: rates, and what counts as valid, kept up and sustained. issued is
// when the last operation was issued, last when the last one was complete, done the block ops completed.
func judge(res *Result, window, issued, last time.Duration, done uint64) {
	res.Offered = float64(res.BlockOps) / window.Seconds()
	if last > 0 {
		res.Achieved = float64(done) / last.Seconds()
	}
	res.GeneratorValid = res.Complete && issued.Seconds() <= issueSlack*window.Seconds()
	res.KeptUp = res.GeneratorValid && last.Seconds() <= keepSlack*window.Seconds()
	res.Sustained = res.GeneratorValid && res.Achieved >= enough*res.Offered
}

// remember measures what the index has taken, after the trial.
func (r *run) remember(res *Result, before uint64) {
	res.Memberships = r.index.Stats().Memberships
	if a, ok := r.index.(index.Accountant); ok {
		res.SlabBytes = a.Usage().Bytes
	}
	res.HeapBytes = int64(SettledHeap()) - int64(before)
	runtime.KeepAlive(r.index)
	if res.Memberships > 0 {
		res.BytesPerMembership = float64(res.HeapBytes) / float64(res.Memberships)
	}
}

// Validate says what makes a result useless whatever it measured.
func (r *Result) Validate() error {
	if r.Complete && r.Unknown > 0 {
		return fmt.Errorf("replaying into %s: %d events named unknown blocks", r.Index, r.Unknown)
	}
	if r.Index == "" {
		return errors.New("a trial gave no result")
	}
	return nil
}

package fleet

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
)

// Timing holds the core's periods and bounds; the comments give the usual values.
type Timing struct {
	Ping         time.Duration // 1 s: period of pings
	PingVetoed   time.Duration // 200 ms: period while vetoed or starting
	PingSuspect  time.Duration // 100 ms: period while suspect
	Dead         time.Duration // 500 ms: suspect for this long = dead
	Stall        time.Duration // 2 s: no answer for this long = partitioned
	Wedge        time.Duration // 3 s: no progress for this long = wedged; 0 = never
	WedgeCap     time.Duration // 120 s: bound of the wedge time stretched by owed prefill
	VetoedStream time.Duration // 10 s: what open streams of a wedged worker are given
	Load         time.Duration // 1 s: period of load polls
	LoadMaxAge   time.Duration // 3 s: an older record is not used
}

// DefaultTiming is the documented one.
func DefaultTiming() Timing {
	return Timing{
		Ping: time.Second, PingVetoed: 200 * time.Millisecond, PingSuspect: 100 * time.Millisecond,
		Dead: 500 * time.Millisecond, Stall: 2 * time.Second, Wedge: 3 * time.Second,
		WedgeCap: 120 * time.Second, VetoedStream: 10 * time.Second, Load: time.Second, LoadMaxAge: 3 * time.Second,
	}
}

// maxTickGap is the pause between two ticks above which the gateway itself was stopped or starved.
const maxTickGap = 500 * time.Millisecond

// ActionKind says what the shell has to do.
type ActionKind uint8

// The kinds of action.
const (
	Ping       ActionKind = iota // GET /health on a fresh connection, then PingDone
	Poll                         // GET /metrics, then PollDone
	EndRequest                   // end Request's upstream exchange with Cause
	Died                         // tell the worker's event streams, drop pooled connections
	Cut                          // partitioned: drop pooled connections
	Contacted                    // contact again: end the back-off of the worker's event streams
	Changed                      // Transition is news
)

// Action is one decision of the core.
type Action struct {
	Kind       ActionKind
	Worker     *Worker
	Request    *Request
	Cause      error
	Transition contract.RoutingEvent
}

// Worker is one registered worker. Its fields belong to the core, but for the atomics, which the data
// path stores without the core's lock.
type Worker struct {
	// ID, URL, Spec and Holders (one per rank, in rank order) are fixed at registration.
	ID      string
	URL     string
	Spec    contract.WorkerSpec
	Holders []index.Holder

	lastByte   atomic.Int64           // mono ns of the last byte of any of our requests
	lastEvent  atomic.Int64           // mono ns of the last new live event batch
	eventsLive atomic.Bool            // some rank's event stream is live
	conns      atomic.Int64           // open connections of ours for requests
	held       atomic.Int64           // guards taken and not given back
	alert      atomic.Bool            // a veto stands: bytes and batches must reach the core at once
	models     atomic.Pointer[models] // what it serves, nil before it said so

	removed                 bool
	phase                   string
	dead, partitioned, hung int64 // when the veto was set, 0 = not vetoed
	lastContact             int64
	lastRefusal             int64
	suspect                 int64 // since when pings or streams are refused or reset, 0 = not
	refusedPings            int   // refused since suspect
	shownVeto, shownBreaker string
	nextPing, nextPoll      int64
	polling                 bool
	seenByte, seenEvent     int64
	progress                progress
	breaker                 breaker
	load                    load
	warmth                  warmth
	requests                []*Request
	probe                   *Request
	glance                  uint64 // the last glance that found it
	dispatches, failures    int64
}

// Core decides. It is not safe for concurrent use: the shell holds one lock around it.
type Core struct {
	timing      Timing
	livenessOff bool
	hairTrigger bool
	loadAgeOff  bool
	workers     []*Worker
	byID        map[string]*Worker
	actions     []Action
	lastTick    int64
	warmup      policy.Warmup
	herd        herd
	// owners says whose a holder is. wedged and warming are few, and save a decision the look at all: all
	// that are wedged, and all that are thin or young, are among them. glances counts glances.
	owners          []*Worker
	wedged, warming []*Worker
	glances         uint64
	// Scratch, reused.
	cands   []policy.Candidate
	refs    []*Worker
	ranks   []int
	sample  policy.Sample
	deepest []index.Holder
	sizes   []int
	fills   []float64
}

// NewCore makes an empty fleet.
func NewCore(t Timing) *Core { return &Core{timing: t, byID: map[string]*Worker{}} }

// SetLivenessOff switches the handicap: while on, nothing makes a worker unroutable but never having
// been ready, and standing vetoes are lifted.
func (c *Core) SetLivenessOff(now int64, on bool) {
	c.livenessOff = on
	if !on {
		return
	}
	for _, w := range c.workers {
		if w.dead > 0 || w.phase == contract.PhaseDraining {
			c.setPhase(now, w, contract.PhaseReady)
		}
		w.dead, w.partitioned, w.hung, w.suspect = 0, 0, 0, 0
		w.breaker = breaker{}
		c.show(now, w)
	}
}

// Add registers a worker. holders has one entry per rank. The error names a taken id.
func (c *Core) Add(now int64, spec contract.WorkerSpec, holders []index.Holder) (*Worker, error) {
	if c.byID[spec.ID] != nil {
		return nil, fmt.Errorf("worker %q is registered already", spec.ID)
	}
	w := &Worker{ID: spec.ID, URL: spec.URL, Spec: spec, Holders: holders, phase: contract.PhaseStarting, lastContact: now}
	c.admit(now, w)
	w.nextPing = now
	// Polls of a fleet registered in one go are spread over the period (37 is prime to it).
	w.nextPoll = now + int64(len(c.workers))*37*int64(time.Millisecond)%int64(c.timing.Load)
	c.workers, c.byID[w.ID] = append(c.workers, w), w
	c.own(holders, w)
	c.changed(now, w, contract.EventRegistry, "", "added")
	return w, nil
}

// Remove takes a worker out of the registry; its running requests go on. Nil when the id is unknown.
func (c *Core) Remove(now int64, id string) *Worker {
	w := c.byID[id]
	if w == nil {
		return nil
	}
	w.removed = true
	delete(c.byID, id)
	c.own(w.Holders, nil)
	c.workers = slices.DeleteFunc(c.workers, func(o *Worker) bool { return o == w })
	c.changed(now, w, contract.EventRegistry, "added", "")
	return w
}

// Tick folds in what the data path stored, judges every worker and schedules pings and polls. It wants
// to be called every 25 ms or so: that is the grain of every bound.
func (c *Core) Tick(now int64) {
	if gap := now - c.lastTick; c.lastTick > 0 && gap > int64(maxTickGap) {
		c.forgive(gap)
	}
	c.lastTick = now
	for _, w := range c.workers {
		c.fold(now, w)
		if !c.livenessOff {
			c.judgeSuspect(now, w)
			c.judgeSilent(now, w)
			c.judgeWedge(now, w)
		}
		c.show(now, w)
		c.schedule(now, w)
	}
}

// forgive moves every clock by a pause of the gateway's own: while it did not run it could hear nobody,
// so the silence says nothing about the workers.
func (c *Core) forgive(gap int64) {
	for _, w := range c.workers {
		w.lastContact += gap
		w.progress.forgive(gap)
		if w.suspect > 0 {
			w.suspect += gap
		}
	}
}

// Take returns the actions decided since the last call, in order.
func (c *Core) Take() []Action {
	out := c.actions
	c.actions = nil
	return out
}

// schedule asks for the next ping and poll when they are due.
func (c *Core) schedule(now int64, w *Worker) {
	if now >= w.nextPing {
		w.nextPing = now + int64(c.pingPeriod(w))
		c.actions = append(c.actions, Action{Kind: Ping, Worker: w})
	}
	if now >= w.nextPoll && !w.polling {
		w.polling = true
		w.nextPoll = now + int64(c.timing.Load)
		c.actions = append(c.actions, Action{Kind: Poll, Worker: w})
	}
}

func (c *Core) pingPeriod(w *Worker) time.Duration {
	switch {
	case w.dead == 0 && w.suspect > 0:
		return c.timing.PingSuspect
	case w.veto() != "" || w.phase == contract.PhaseStarting:
		return c.timing.PingVetoed
	default:
		return c.timing.Ping
	}
}

// veto is the standing veto that says most: a dead worker is also silent, a silent one makes no progress.
func (w *Worker) veto() string {
	switch {
	case w.dead > 0:
		return contract.VetoDead
	case w.partitioned > 0:
		return contract.VetoPartitioned
	case w.hung > 0:
		return contract.VetoWedged
	}
	return ""
}

func (w *Worker) vetoSince() int64 {
	switch w.veto() {
	case contract.VetoDead:
		return w.dead
	case contract.VetoPartitioned:
		return w.partitioned
	}
	return w.hung
}

// routable says whether a request may be placed now.
func (c *Core) routable(now int64, w *Worker) bool {
	return w.phase == contract.PhaseReady && w.veto() == "" && (c.livenessOff || w.breaker.allows(now))
}

func (c *Core) setPhase(now int64, w *Worker, phase string) {
	if w.phase != phase {
		c.changed(now, w, contract.EventPhase, w.phase, phase)
		w.phase = phase
	}
}

// show reports a change of the visible veto and breaker state.
func (c *Core) show(now int64, w *Worker) {
	veto := w.veto()
	w.alert.Store(veto != "")
	if veto != w.shownVeto {
		c.changed(now, w, contract.EventVeto, w.shownVeto, veto)
		w.shownVeto = veto
	}
	if state := w.breaker.name(); state != w.shownBreaker {
		if w.shownBreaker != "" {
			c.changed(now, w, contract.EventBreaker, w.shownBreaker, state)
		}
		w.shownBreaker = state
	}
}

func (c *Core) changed(now int64, w *Worker, kind, from, to string) {
	c.actions = append(c.actions, Action{Kind: Changed, Worker: w,
		Transition: contract.RoutingEvent{MonoNs: now, Worker: w.ID, Kind: kind, From: from, To: to}})
}

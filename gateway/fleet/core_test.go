package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
)

// engine is what a script says about one worker's machine.
type engine struct {
	health string // ok, 503, refuse, silent
	poll   string // ok, none, silent
	steps  int64
	moving bool // the step counter moves between polls
	wait   int64
	pool   int  // blocks; 0 = the load record does not tell
	blocks int  // that the index holds
	events bool // there is an event stream, so that blocks means something
}

// story runs the core against scripted engines: `run` ticks it every 25 ms, answers its pings and polls as
// the engines are set, and prints what it decides.
type story struct {
	t        *testing.T
	core     *Core
	picker   *policy.Picker
	start    int64
	now      int64
	engines  map[*Worker]*engine
	requests map[string]*Request
	names    map[*Request]string
	late     []func() // silent pings, reported two seconds later
	out      strings.Builder
}

func TestCore(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{t: t, start: int64(1000 * time.Second), engines: map[*Worker]*engine{},
			requests: map[string]*Request{}, names: map[*Request]string{}}
		s.now = s.start
		s.core = NewCore(DefaultTiming())
		s.picker, _ = policy.New(policy.RoundRobin, 1)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.command(d)
			s.report()
			if s.out.Len() == 0 {
				return "ok\n"
			}
			return s.out.String()
		})
	})
}

func (s *story) command(d *datadriven.TestData) {
	arg := func(i int) string {
		if i >= len(d.CmdArgs) {
			s.t.Fatalf("%s: %s needs more arguments", d.Pos, d.Cmd)
		}
		return d.CmdArgs[i].Key
	}
	switch d.Cmd {
	case "add": // add w1 w2
		for i := range d.CmdArgs {
			w, err := s.core.Add(s.now, contract.WorkerSpec{ID: arg(i), KVBlockSize: 16}, make([]index.Holder, 1))
			if err != nil {
				fmt.Fprintln(&s.out, "error:", err)
				continue
			}
			s.engines[w] = &engine{health: "ok", poll: "ok"}
		}
	case "remove":
		s.core.Remove(s.now, arg(0))
	case "engine": // engine w1 health=refuse poll=none steps=moving waiting=3
		e := s.engines[s.worker(arg(0))]
		for _, a := range d.CmdArgs[1:] {
			switch a.Key {
			case "health":
				e.health = a.Vals[0]
			case "poll":
				e.poll = a.Vals[0]
			case "steps": // moving, still, or once: one more since the last poll, then still
				e.moving = a.Vals[0] == "moving"
				if a.Vals[0] == "once" {
					e.steps++
				}
			case "waiting":
				fmt.Sscan(a.Vals[0], &e.wait)
			case "pool":
				fmt.Sscan(a.Vals[0], &e.pool)
			}
		}
	case "conns": // conns w1 2: open connections of ours
		var n int64
		fmt.Sscan(arg(1), &n)
		s.worker(arg(0)).conns.Store(n)
	case "events": // events w1 live|batch
		w := s.worker(arg(0))
		w.eventsLive.Store(true)
		if arg(1) == "batch" {
			w.lastEvent.Store(s.now)
		}
	case "run": // run 2s
		dur, err := time.ParseDuration(arg(0))
		if err != nil {
			s.t.Fatal(err)
		}
		s.run(dur)
	case "sleep": // sleep 3s: the gateway itself does not run
		dur, _ := time.ParseDuration(arg(0))
		s.now += int64(dur)
	case "index": // index w1=2000 w2=2000 w3=none: blocks held; none = no event stream
		for _, a := range d.CmdArgs {
			e := s.engines[s.worker(a.Key)]
			_, err := fmt.Sscan(a.Vals[0], &e.blocks)
			e.events = err == nil
		}
		s.weigh()
	case "policy": // policy cache_aware
		s.picker, _ = policy.New(arg(0), 1)
	case "send": // send 8 tokens=1024 [held=512 by=(w1,w2)]: that many requests, each done before the next
		s.send(d)
	case "stream": // stream 300 on=w1 tokens=16 first=10ms: that many, one after the other, first bytes so late
		s.stream(d)
	case "place": // place r1 [on=w1] [tokens=1000] [whole] [tried=(w1,w2)]
		s.place(d)
	case "sent":
		s.core.Sent(s.now, s.requests[arg(0)])
	case "first":
		s.core.FirstByte(s.now, s.requests[arg(0)])
	case "byte":
		s.requests[arg(0)].Worker.lastByte.Store(s.now)
	case "blocked":
		s.requests[arg(0)].SetBlocked(arg(1) == "yes")
	case "end": // end r1 done|declined|failed|refused
		o := Outcome(slices.Index([]string{"done", "declined", "failed", "refused"}, arg(1)))
		if !s.core.End(s.now, s.requests[arg(0)], o) {
			fmt.Fprintln(&s.out, "already ended")
		}
	case "no-thin-slice":
		s.core.SetNoThinSlice(arg(0) == "on")
	case "load-age-off":
		s.core.SetLoadAgeOff(arg(0) == "on")
	case "hair-trigger":
		s.core.SetHairTrigger(arg(0) == "on")
	case "handicap":
		s.core.SetLivenessOff(s.now, arg(0) == "on")
	case "state":
		for _, w := range s.core.workers {
			st := s.core.state(s.now, w)
			veto := "-"
			if st.Veto != nil {
				veto = st.Veto.Reason
			}
			fmt.Fprintf(&s.out, "%s routable=%v phase=%s veto=%s breaker=%s inflight=%d dispatches=%d failures=%d",
				st.ID, st.Routable, st.Phase, veto, st.Breaker, st.Inflight, st.Dispatches, st.Failures)
			if st.Thin || st.Diverted > 0 {
				fmt.Fprintf(&s.out, " thin=%v diverted=%d", st.Thin, st.Diverted)
			}
			s.out.WriteByte('\n')
		}
	default:
		s.t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
}

func (s *story) place(d *datadriven.TestData) {
	ask := Ask{Tokens: 1000, Streamed: !d.HasArg("whole")}
	if d.HasArg("tokens") {
		d.ScanArgs(s.t, "tokens", &ask.Tokens)
	}
	var on string
	d.MaybeScanArgs(s.t, "on", &on)
	for _, w := range s.core.workers {
		if on != "" && w.ID != on {
			ask.Tried = append(ask.Tried, w)
		}
	}
	r, err := s.core.Place(s.now, ask, s.picker)
	if err != nil {
		fmt.Fprintln(&s.out, "error:", err)
		return
	}
	name := d.CmdArgs[0].Key
	s.requests[name], s.names[r] = r, name
	fmt.Fprintf(&s.out, "%s placed on %s (%s)\n", name, r.Worker.ID, r.Branch)
}

// send places requests one after the other and prints where they went, by branch.
func (s *story) send(d *datadriven.TestData) {
	var n, held int
	fmt.Sscan(d.CmdArgs[0].Key, &n)
	ask := Ask{Streamed: true}
	var by []string
	d.ScanArgs(s.t, "tokens", &ask.Tokens)
	d.MaybeScanArgs(s.t, "held", &held)
	if a, ok := d.Arg("by"); ok {
		by = a.Vals
	}
	ask.Score = func(w *Worker) (rank, tokens int) {
		if slices.Contains(by, w.ID) {
			return 0, held
		}
		return 0, 0
	}
	went := map[string]int{}
	for range n {
		r, err := s.core.Place(s.now, ask, s.picker)
		if err != nil {
			fmt.Fprintln(&s.out, "error:", err)
			return
		}
		went[r.Worker.ID+" "+r.Branch]++
		s.core.End(s.now, r, Done)
	}
	for _, key := range slices.Sorted(maps.Keys(went)) {
		fmt.Fprintf(&s.out, "%3d to %s\n", went[key], key)
	}
}

func (s *story) stream(d *datadriven.TestData) {
	var n int
	fmt.Sscan(d.CmdArgs[0].Key, &n)
	var text string
	d.ScanArgs(s.t, "first", &text)
	first, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	for range n {
		s.out.Reset()
		s.place(d)
		r := s.requests[d.CmdArgs[0].Key]
		s.core.Sent(s.now, r)
		s.run(first)
		s.core.FirstByte(s.now, r)
		s.core.End(s.now, r, Done)
	}
	s.out.Reset()
}

func (s *story) weigh() {
	s.core.Weigh(s.now, func(w *Worker) (int, bool) { return s.engines[w].blocks, s.engines[w].events })
}

func (s *story) worker(id string) *Worker {
	w := s.core.byID[id]
	if w == nil {
		s.t.Fatalf("no worker %s", id)
	}
	return w
}

func (s *story) run(d time.Duration) {
	for end := s.now + int64(d); s.now < end; {
		s.now += int64(tickEvery)
		for _, fn := range slices.Clone(s.late) {
			fn()
		}
		if s.now/int64(tickEvery)%streamsEvery == 0 {
			s.weigh()
		}
		s.core.Tick(s.now)
		s.report()
	}
}

// report prints and carries out what the core decided.
func (s *story) report() {
	for actions := s.core.Take(); len(actions) > 0; actions = s.core.Take() {
		for _, a := range actions {
			s.act(a)
		}
	}
}

func (s *story) act(a Action) {
	say := func(format string, args ...any) {
		at := time.Duration(s.now - s.start).Seconds()
		fmt.Fprintf(&s.out, "%7.3f %s %s\n", at, a.Worker.ID, fmt.Sprintf(format, args...))
	}
	e := s.engines[a.Worker]
	switch a.Kind {
	case Ping:
		s.ping(a.Worker, e)
	case Poll:
		s.poll(a.Worker, e)
	case EndRequest:
		say("end %s: %v", s.names[a.Request], a.Cause)
	case Died:
		say("died")
	case Changed:
		say("%s %q -> %q", a.Transition.Kind, a.Transition.From, a.Transition.To)
	}
}

func (s *story) ping(w *Worker, e *engine) {
	sent := s.now
	switch e.health {
	case "ok":
		s.core.PingDone(s.now, sent, w, PingOK, 200)
	case "503":
		s.core.PingDone(s.now, sent, w, PingStatus, 503)
	case "refuse":
		s.core.PingDone(s.now, sent, w, PingRefused, 0)
	default:
		s.after(sent+int64(probeTimeout), func() { s.core.PingDone(s.now, sent, w, PingSilent, 0) })
	}
}

func (s *story) after(at int64, fn func()) {
	done := false
	s.late = append(s.late, func() {
		if !done && s.now >= at {
			done = true
			fn()
		}
	})
}

func (s *story) poll(w *Worker, e *engine) {
	asked := s.now
	switch {
	case e.poll == "silent" || e.health == "silent" || e.health == "refuse":
		s.after(asked+int64(probeTimeout), func() { s.core.PollDone(s.now, asked, w, false, nil) })
	case e.poll == "none":
		s.core.PollDone(s.now, asked, w, true, nil)
	default:
		if e.moving {
			e.steps++
		}
		s.core.PollDone(s.now, asked, w, true, &Record{Waiting: e.wait, Steps: e.steps, HasSteps: true, Pool: e.pool})
	}
}

package workerbench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"
)

// Options say what to measure and how long. The zero value of everything but Exe is the full bench.
type Options struct {
	// Exe is this binary, whose worker is the subject.
	Exe string
	// Only names the parts to run; empty is all of Parts.
	Only []string
	// Quick is fewer and shorter measurements: to see that it works, not to publish.
	Quick bool
	// WorkerArgs are added to the command line of every worker.
	WorkerArgs []string
	Peer       Peer
	// Progress is told what is being measured; it may be nil.
	Progress func(string)
	Log      *slog.Logger
}

// Peer is another simulator that runs already; the zero value is none. What needs its process or its
// events is not measured without them.
type Peer struct {
	// Name is what the table calls it.
	Name string
	// Addr is host:port of its OpenAI API, Model the model to ask for.
	Addr, Model string
	// PID gives its memory and CPU time.
	PID int
	// Events is its ZMQ publisher, such as tcp://127.0.0.1:5557.
	Events string
}

// Result is one run of the bench.
type Result struct {
	Subject    string  `json:"subject"`
	Peer       string  `json:"peer,omitempty"`
	CPUs       int     `json:"cpus"`
	LoadBefore float64 `json:"load_before"`
	LoadAfter  float64 `json:"load_after"`
	Rows       []Row   `json:"rows"`
	// Skipped says what was not measured, and why.
	Skipped []string `json:"skipped"`
}

// part is one group of figures. run measures the subject, peer the other one in the same way.
type part struct {
	name string
	run  func(*bench, context.Context) ([]Row, error)
	peer func(*bench, context.Context, target) ([]Row, error) // nil where a peer cannot be measured
	need func(Peer) string                                    // what the peer lacks for it, "" for nothing
}

func parts() []part {
	return []part{
		{name: "start", run: (*bench).start},
		{name: "idle", run: (*bench).idle, peer: (*bench).idleOf, need: needPID},
		{name: "tiny", run: (*bench).tiny, peer: (*bench).tinyOf},
		{name: "streams", run: (*bench).streams, peer: (*bench).streamsOf},
		{name: "events", run: (*bench).events, peer: (*bench).eventsOf, need: needEvents},
		{name: "disconnect", run: (*bench).disconnect},
		{name: "overload", run: (*bench).overload, peer: (*bench).overloadOf},
	}
}

// Parts are the names that Options.Only may hold, in the order they run.
func Parts() (names []string) {
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

func needPID(p Peer) string {
	if p.PID == 0 {
		return "its memory and CPU need --peer-pid"
	}
	return ""
}

func needEvents(p Peer) string {
	if p.Events == "" {
		return "its events need --peer-events"
	}
	return ""
}

// bench is one run.
type bench struct {
	o  Options
	st *starter
}

// Run measures. It ends early, with an error, when ctx does.
func Run(ctx context.Context, o Options) (res Result, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	for _, name := range o.Only {
		if !slices.Contains(Parts(), name) {
			return res, fmt.Errorf("part %q is not known", name)
		}
	}
	st, err := newStarter(o.Exe, o.Log)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	b := &bench{o: o, st: st}
	res = Result{Subject: "fleetdrill worker", Peer: o.Peer.Name, CPUs: runtime.NumCPU(), Rows: []Row{}, Skipped: []string{}}
	if res.LoadBefore, err = loadAverage(); err != nil {
		return res, err
	}
	for _, p := range parts() {
		if len(o.Only) > 0 && !slices.Contains(o.Only, p.name) {
			continue
		}
		rows, err := b.both(ctx, p, &res)
		if err != nil {
			return res, fmt.Errorf("measuring %s: %w", p.name, err)
		}
		res.Rows = append(res.Rows, rows...)
	}
	res.LoadAfter, err = loadAverage()
	return res, err
}

// both measures the subject and, where that is possible, the peer right after it.
func (b *bench) both(ctx context.Context, p part, res *Result) ([]Row, error) {
	b.o.Progress(p.name)
	rows, err := p.run(b, ctx)
	if err != nil || b.o.Peer.Addr == "" {
		return rows, err
	}
	if p.peer == nil {
		res.Skipped = append(res.Skipped, p.name+" of the peer: a process that runs already cannot be measured so")
		return rows, nil
	}
	if p.need != nil {
		if lacks := p.need(b.o.Peer); lacks != "" {
			res.Skipped = append(res.Skipped, p.name+" of the peer: "+lacks)
			return rows, nil
		}
	}
	b.o.Progress(p.name + " of the peer")
	peer, err := p.peer(b, ctx, target{addr: b.o.Peer.Addr, model: b.o.Peer.Model, pid: b.o.Peer.PID, events: b.o.Peer.Events})
	if err != nil {
		return rows, fmt.Errorf("the peer: %w", err)
	}
	beside(rows, peer)
	return rows, nil
}

// pick is the full measurement's or the quick one's number.
func (b *bench) pick(full, quick int) int {
	if b.o.Quick {
		return quick
	}
	return full
}

// with starts a worker, measures and ends it.
func (b *bench) with(ctx context.Context, args []string, measure func(target) error) error {
	t, _, err := b.st.worker(ctx, append(args, b.o.WorkerArgs...)...)
	if err != nil {
		return err
	}
	return errors.Join(measure(t), t.stop())
}

// wait is a pause that ends with ctx: what is measured is a process that is left alone for so long.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rowsOf folds measurements into rows, leaving out what was not measured.
func rowsOf(figures []figure, values map[string][]float64) (rows []Row) {
	for _, f := range figures {
		if r, ok := f.row(values[f.name]); ok {
			rows = append(rows, r)
		}
	}
	return rows
}

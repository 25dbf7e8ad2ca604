package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
	"fleetdrill/replayer/load"
	"fleetdrill/replayer/result"
)

// Outcome is what a replay came to, whole or in part (Info.Partial).
type Outcome struct {
	Info     result.Info
	Requests []result.Request
}

// Run replays the plan. With an error there may be an outcome too: what there was of the replay when its
// gateway ended or ctx did.
func Run(ctx context.Context, o Options) (*Outcome, error) {
	if o.Drain == 0 {
		o.Drain = DefaultDrain
	}
	began := time.Now()
	f, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	out, err := o.replay(ctx, f)
	if out != nil {
		out.Info.WallS = time.Since(began).Seconds()
	}
	return out, errors.Join(err, f.close())
}

// target is where a replay goes.
type target struct {
	url     string
	gateway *lab.API // nil when its admin port is not known
	workers []contract.ReadyWorker
	client  *http.Client
	// gone is closed when the gateway has ended.
	gone  <-chan struct{}
	close func() error
}

// open starts the fleet, or finds the one that runs.
func open(ctx context.Context, o Options) (*target, error) {
	if o.URL == "" {
		return start(ctx, o)
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("gateway %q: want a base URL, such as http://127.0.0.1:8080", o.URL)
	}
	client := lab.NewHTTPClient()
	watch, stop := context.WithCancel(ctx)
	gone, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if watchPort(watch, u.Host) {
			close(gone)
		}
	}()
	return &target{url: o.URL, workers: o.Workers, client: client, gone: gone, close: func() error {
		stop()
		<-ended
		client.CloseIdleConnections()
		return nil
	}}, nil
}

// Three refused connections, a second apart, are a gateway that has ended; one may be a restart.
const (
	watchEvery   = time.Second
	watchRefused = 3
)

// watchPort returns true when nobody listens any more, false when ctx ends first.
func watchPort(ctx context.Context, addr string) bool {
	d := net.Dialer{Timeout: watchEvery}
	for refused := 0; refused < watchRefused; {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(watchEvery):
		}
		c, err := d.DialContext(ctx, "tcp", addr)
		switch {
		case err == nil:
			c.Close()
			refused = 0
		case ctx.Err() == nil:
			refused++
		}
	}
	return true
}

// start boots workers and gateway, and waits until every worker may be placed on.
func start(ctx context.Context, o Options) (t *target, err error) {
	l, err := lab.New(lab.Options{Exe: o.Exe, Dir: o.Dir})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	boot, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("the fleet did not start within %v", bootTimeout))
	defer cancel()
	fleet, err := l.StartFleet(boot, o.Fleet)
	if err != nil {
		return nil, err
	}
	gw, err := l.StartGateway(boot, fleet, o.GatewayArgs...)
	if err != nil {
		return nil, err
	}
	if err := gw.AwaitRoutable(boot, len(fleet.Workers)); err != nil {
		return nil, err
	}
	t = &target{url: gw.URL, gateway: &gw.Admin, client: gw.Admin.HTTP, gone: gw.Child.Done(), close: l.Close}
	for _, w := range fleet.Workers {
		t.workers = append(t.workers, w.Ready)
	}
	return t, nil
}

// replay puts the load on the target and joins what came of it.
func (o Options) replay(ctx context.Context, f *target) (*Outcome, error) {
	t, err := newTruth(ctx, f.workers, f.client)
	if err != nil {
		return nil, err
	}
	info := o.Info
	info.Mode = result.Live
	if err := describe(ctx, &info, f, t); err != nil {
		return nil, err
	}
	src, err := newSource(o.Plan, o.Fleet.Model)
	if err != nil {
		return nil, err
	}
	t.follow(ctx)
	run := load.Start(ctx, load.Options{URL: f.url, Load: "replay", StartNs: clock.MonoNs() + int64(lead), Requests: src, DrainTimeout: o.Drain})
	ended := o.await(ctx, f, run)
	seen := run.Wait()
	info.VirtualS = float64(clock.MonoNs()-run.StartNs()) / 1e9
	// What there is is worth reading even when the user has had enough.
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	info.Preemptions = t.finish(reading)
	if t.lost != nil {
		info.Notes = append(info.Notes, "no best holder: "+t.lost.Error())
	}
	o.judge(&info, seen)
	return &Outcome{info, o.results(info, t, run.StartNs(), seen)}, ended
}

// finishTimeout bounds reading the engines' truth when the load is over.
const finishTimeout = 30 * time.Second

// describe asks the fleet what it is.
func describe(ctx context.Context, info *result.Info, f *target, t *truth) error {
	for _, e := range t.workers {
		info.WorkerIDs = append(info.WorkerIDs, e.id)
	}
	if len(t.workers) > 0 {
		s := &t.workers[0].state
		info.Profile, info.BlockSize, info.KVBlocks, info.Hash = s.Profile, s.BlockSize, s.NumBlocks, s.HashAlgo
		info.Workers = len(t.workers)
	} else {
		info.Notes = append(info.Notes, "no best holder: the engines behind the gateway are not known")
	}
	if f.gateway == nil {
		return nil
	}
	s, err := f.gateway.RoutingState(ctx)
	if err != nil {
		return err
	}
	info.Policy, info.KVIndex = s.Policy, s.KVIndex
	return nil
}

// await follows the load to its end and tells progress. The error says what ended it early.
func (o Options) await(ctx context.Context, f *target, run *load.Run) error {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	m := newMeter(len(o.Plan.Requests))
	tell := func() {
		if o.Progress != nil {
			changed, next := run.Since(m.next)
			o.Progress(m.read(changed, next, time.Duration(clock.MonoNs()-run.StartNs())))
		}
	}
	for {
		select {
		case <-run.Done():
			tell()
			return ctx.Err()
		case <-f.gone:
			run.Cancel()
			<-run.Done()
			tell()
			return fmt.Errorf("the gateway ended during the replay; what came before is kept")
		case <-tick.C:
			tell()
		}
	}
}

// judge says whether the figures mean anything.
func (o Options) judge(info *result.Info, seen []load.Record) {
	window := o.Plan.WindowNs()
	if info.Partial = len(seen) < len(o.Plan.Requests); info.Partial {
		window = 0
		info.Reasons = append(info.Reasons, fmt.Sprintf("it ended after %d of %d requests", len(seen), len(o.Plan.Requests)))
	}
	info.Reasons = append(info.Reasons, load.Summarize(seen, window).Reasons...)
}

// results are the records with all that is known about them.
func (o Options) results(info result.Info, t *truth, startNs int64, seen []load.Record) []result.Request {
	log := serveLog{}
	var holders []string
	for _, e := range t.workers {
		log.add(e.id, e.requests)
		for range e.ranks {
			holders = append(holders, e.id)
		}
	}
	out := join(o.Plan, startNs, seen, log)
	if len(t.workers) == 0 {
		return out
	}
	modelCaches(o.Plan, out, info.BlockSize, t.fleetBlocks())
	if t.lost == nil {
		bestHolders(o.Plan, startNs, out, t.timeline, holders, info.BlockSize)
	}
	return out
}

// fleetBlocks is the memory of the whole fleet, in blocks.
func (t *truth) fleetBlocks() (n int) {
	for _, e := range t.workers {
		n += (e.state.NumBlocks - 1) * len(e.ranks) // block 0 holds nothing (vLLM)
	}
	return n
}

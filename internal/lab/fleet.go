package lab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/linkproxy"
	"fleetdrill/internal/supervise"
)

// FleetSpec says what engines to start. Zero values are the worker's own defaults.
type FleetSpec struct {
	Workers   int
	Profile   string
	KVBlocks  int
	BlockSize int
	Wire      string
	// Wires are the wires of the workers, in turn, in place of Wire.
	Wires []string
	Model string
	// Seed makes the engines' tokens reproducible; worker i gets Seed + i.
	Seed uint64
	// Direct leaves out the link proxies, for fleets on which nothing is broken on the way.
	Direct bool
	// Args are further worker flags.
	Args []string
}

// Worker is one mock worker process and the ports that lead to it.
type Worker struct {
	ID    string
	Child *supervise.Child
	// Ready has the engine's own ports: the lab's way to it, and what the admin traffic uses.
	Ready contract.ReadyWorker
	// HTTP, Events and Replay stand in front of the engine's ports; nil in a direct fleet.
	HTTP, Events, Replay *linkproxy.Proxy
	// Admin is the truth API.
	Admin API
}

// Fleet is a set of running mock workers, w1..wN.
type Fleet struct {
	Workers   []*Worker
	BlockSize int
}

// ByID finds a worker; nil when there is none.
func (f *Fleet) ByID(id string) *Worker {
	for _, w := range f.Workers {
		if w.ID == id {
			return w
		}
	}
	return nil
}

// IDs are the workers' ids in order.
func (f *Fleet) IDs() []string {
	ids := make([]string, len(f.Workers))
	for i, w := range f.Workers {
		ids[i] = w.ID
	}
	return ids
}

// bootParallel bounds how many workers start at once: more than the cores there are only delays each.
const bootParallel = 4

// StartFleet starts the workers, one process each, and returns when all serve.
func (l *Lab) StartFleet(ctx context.Context, s FleetSpec) (*Fleet, error) {
	f := &Fleet{Workers: make([]*Worker, s.Workers), BlockSize: s.BlockSize}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(bootParallel)
	for i := range f.Workers {
		g.Go(func() error {
			w, err := l.startWorker(ctx, s, i)
			f.Workers[i] = w
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return f, nil
}

func (l *Lab) startWorker(ctx context.Context, s FleetSpec, i int) (*Worker, error) {
	id := "w" + strconv.Itoa(i+1)
	child, ready, err := l.start(ctx, id, s.workerArgs(id, i)...)
	if err != nil {
		return nil, err
	}
	if len(ready.Workers) != 1 {
		return nil, fmt.Errorf("starting %s: its ready file names %d workers, want 1", id, len(ready.Workers))
	}
	w := &Worker{ID: id, Child: child, Ready: ready.Workers[0]}
	w.Admin = API{Base: w.Ready.Admin, HTTP: l.http}
	if s.Direct {
		return w, nil
	}
	return w, l.link(w)
}

// workerArgs are the flags of one worker. Every port is picked by the worker, so labs can run side by
// side.
func (s FleetSpec) workerArgs(id string, i int) []string {
	args := []string{"worker", "--id", id, "--port", "0", "--admin-port", "0",
		"--seed", strconv.FormatUint(s.Seed+uint64(i), 10),
		"--kv-events-config", `{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}`}
	for _, f := range []struct{ name, value string }{
		{"--profile", s.Profile}, {"--wire", s.wire(i)}, {"--model", s.Model},
		{"--num-gpu-blocks-override", positive(s.KVBlocks)}, {"--block-size", positive(s.BlockSize)},
	} {
		if f.value != "" {
			args = append(args, f.name, f.value)
		}
	}
	return append(args, s.Args...)
}

func (s FleetSpec) wire(i int) string {
	if len(s.Wires) > 0 {
		return s.Wires[i%len(s.Wires)]
	}
	return s.Wire
}

func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// link puts a proxy in front of each engine port that a gateway uses. The admin port has none: the lab's
// own traffic never passes what it breaks.
func (l *Lab) link(w *Worker) error {
	rank := w.Ready.Ranks[0]
	for _, p := range []struct {
		dst  **linkproxy.Proxy
		url  string
		http bool
	}{{&w.HTTP, w.Ready.HTTP, true}, {&w.Events, rank.Events, false}, {&w.Replay, rank.Replay, false}} {
		upstream, err := HostPort(p.url)
		if err != nil {
			return fmt.Errorf("linking %s: %w", w.ID, err)
		}
		proxy := linkproxy.New(linkproxy.Options{Upstream: upstream, Listen: "127.0.0.1:0", HTTP: p.http, Log: l.o.Log})
		if err := proxy.Start(); err != nil {
			return fmt.Errorf("linking %s: %w", w.ID, err)
		}
		l.onClose(proxy.Close)
		*p.dst = proxy
	}
	return nil
}

// Spec is the worker as a gateway registers it: through its link proxies where it has them.
func (w *Worker) Spec(blockSize int) contract.WorkerSpec {
	rank := w.Ready.Ranks[0]
	spec := contract.WorkerSpec{ID: w.ID, URL: w.Ready.HTTP, KVBlockSize: blockSize,
		KVEvents: &contract.KVEventsSpec{Endpoint: rank.Events, ReplayEndpoint: rank.Replay, Ranks: len(w.Ready.Ranks)}}
	if w.HTTP != nil {
		spec.URL = "http://" + w.HTTP.Addr()
		spec.KVEvents.Endpoint = "tcp://" + w.Events.Addr()
		spec.KVEvents.ReplayEndpoint = "tcp://" + w.Replay.Addr()
	}
	return spec
}

// Gateway is a running gateway process.
type Gateway struct {
	Child *supervise.Child
	URL   string
	Admin API
}

// StartGateway starts the gateway in front of the fleet and returns when it serves; its workers may not
// be routable yet.
func (l *Lab) StartGateway(ctx context.Context, f *Fleet, args ...string) (*Gateway, error) {
	all := []string{"gateway", "--port", "0", "--admin-port", "0"}
	for _, w := range f.Workers {
		s := w.Spec(f.BlockSize)
		flag := fmt.Sprintf("id=%s,url=%s,events=%s,replay=%s,ranks=%d", s.ID, s.URL, s.KVEvents.Endpoint, s.KVEvents.ReplayEndpoint, s.KVEvents.Ranks)
		if s.KVBlockSize > 0 {
			flag += ",block_size=" + strconv.Itoa(s.KVBlockSize)
		}
		all = append(all, "--worker", flag)
	}
	child, ready, err := l.start(ctx, "gateway", append(all, args...)...)
	if err != nil {
		return nil, err
	}
	if ready.Gateway == nil {
		return nil, fmt.Errorf("starting the gateway: its ready file names no gateway")
	}
	return &Gateway{Child: child, URL: ready.Gateway.HTTP, Admin: API{Base: ready.Gateway.Admin, HTTP: l.http}}, nil
}

// AwaitRoutable waits until the gateway may place requests on n workers.
func (g *Gateway) AwaitRoutable(ctx context.Context, n int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := g.Admin.RoutingState(ctx)
		routable := 0
		for _, w := range s.Workers {
			if w.Routable {
				routable++
			}
		}
		if err == nil && routable == n {
			return nil
		}
		select {
		case <-g.Child.Done():
			return errors.New("the gateway ended while its fleet was starting")
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d routable workers, %d are: %w", n, routable, errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}

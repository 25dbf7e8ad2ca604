package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/kinds"
	"fleetdrill/gateway/lanes"
	"fleetdrill/gateway/policy"
	"fleetdrill/gateway/proxy"
	"fleetdrill/gateway/recovery"
	"fleetdrill/gateway/state"
	"fleetdrill/internal/contract"
)

// Limits of both ports' servers. There is no write timeout: a stream may last as long as it moves, and
// the proxy bounds each write.
const (
	headerTimeout = 60 * time.Second // also ends connections opened ahead of need and never used
	idleTimeout   = 120 * time.Second
	maxHeader     = 64 << 10 // bytes
)

// Run serves until ctx ends, then stops accepting, lets admitted requests finish for at most
// c.DrainTimeout, and returns nil when everything has stopped.
func Run(ctx context.Context, c Config) error {
	for i := range c.Workers {
		if err := NormalizeWorker(&c.Workers[i]); err != nil {
			return fmt.Errorf("starting the gateway: %w", err)
		}
	}
	if err := c.Validate(); err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	g, err := assemble(c)
	if err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	defer g.fleet.Close()
	return g.serve(ctx)
}

// gateway is the parts of one Run.
type gateway struct {
	config Config
	fleet  *fleet.Fleet
	proxy  http.Handler
	admin  http.Handler
	gate   gate
}

// assemble makes the parts, without opening a port. On success the fleet runs.
func assemble(c Config) (*gateway, error) {
	picker, err := policy.New(c.Policy, c.Seed)
	if err != nil {
		return nil, err
	}
	ix, err := kinds.New(c.KVIndex)
	if err != nil {
		return nil, err
	}
	if err := kinds.Bound(ix, c.IndexMaxBytes); err != nil {
		return nil, err
	}
	pool := lanes.New(c.EventLanes)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f := fleet.New(fleet.Options{Timing: timing(c), Picker: picker, Subscribe: subscriber(ix, pool, c.Log), Models: true, Log: c.Log})
	registry.MustRegister(&fleetCollector{f}, &indexCollector{ix, pool})
	p := proxy.New(proxy.Options{Fleet: f, Index: ix, Retries: c.Retries, TTFTTimeout: c.TTFTTimeout,
		StreamStallTimeout: c.StreamStallTimeout, MaxBody: c.MaxBody, Registry: registry, Log: c.Log})
	s, err := state.New(state.Options{Fleet: f, Counters: p.Counters, Policy: c.Policy, KVIndex: c.KVIndex,
		Normalize: NormalizeWorker, ApplyHandicaps: func(on []string) { f.SetHandicaps(on); p.SetHandicaps(on) }, Token: c.AdminToken, Log: c.Log}, c.Handicaps)
	if err != nil {
		f.Close()
		return nil, err
	}
	g := &gateway{config: c, fleet: f}
	g.proxy, g.admin = g.gate.guard(p.Handler()), g.gate.guard(s.Handler())
	return g, nil
}

func timing(c Config) fleet.Timing {
	t := fleet.DefaultTiming()
	t.Stall, t.Wedge = c.WorkerStall, c.WorkerWedge
	t.VetoedStream = c.VetoedStreamTimeout
	t.Load, t.LoadMaxAge = c.LoadInterval, c.LoadMaxAge
	return t
}

// subscriber starts the event stream of a rank, if its worker has one.
func subscriber(ix index.Index, pool *lanes.Pool, log *slog.Logger) func(contract.WorkerSpec, int, index.Holder, fleet.Hooks) fleet.Stream {
	residency := index.NewResidency(ix)
	return func(spec contract.WorkerSpec, rank int, h index.Holder, hooks fleet.Hooks) fleet.Stream {
		e := spec.KVEvents
		if e == nil || e.Endpoint == "" {
			return nil
		}
		src := recovery.Source{Worker: spec.ID, Rank: rank, Holder: h, BlockSize: spec.KVBlockSize}
		var err error
		if src.Events, err = RankEndpoint(e.Endpoint, rank); err == nil && e.ReplayEndpoint != "" {
			src.Replay, err = RankEndpoint(e.ReplayEndpoint, rank)
		}
		if err != nil {
			// Cannot happen after NormalizeWorker; a worker without events is still a worker.
			log.Error("event stream not started", "worker", spec.ID, "rank", rank, "err", err)
			return nil
		}
		return recovery.Start(src, recovery.Deps{Residency: residency, Lanes: pool, Log: log, OnBatch: hooks.OnBatch, Busy: hooks.Busy})
	}
}

// serve opens the ports, registers the workers, writes the ready file and waits for ctx.
func (g *gateway) serve(ctx context.Context) error {
	c := g.config
	proxyLn, err := net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		return fmt.Errorf("opening the proxy port: %w", err)
	}
	defer proxyLn.Close()
	adminLn, err := net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.AdminPort)))
	if err != nil {
		return fmt.Errorf("opening the admin port: %w", err)
	}
	defer adminLn.Close()
	for _, w := range c.Workers {
		if err := g.fleet.Add(w); err != nil {
			return err
		}
	}
	proxySrv, adminSrv := newServer(g.proxy, c.Log), newServer(g.admin, c.Log)
	ended := make(chan error, 2)
	go func() { ended <- proxySrv.Serve(proxyLn) }()
	go func() { ended <- adminSrv.Serve(adminLn) }()
	waiting := 2
	if err = writeReady(c.ReadyFile, proxyLn.Addr(), adminLn.Addr()); err == nil {
		c.Log.Info("gateway serves", "http", proxyLn.Addr().String(), "admin", adminLn.Addr().String(), "workers", len(c.Workers), "policy", c.Policy)
		select {
		case <-ctx.Done():
		case err = <-ended:
			waiting--
		}
	}
	err = errors.Join(err, g.shutdown(proxySrv, adminSrv))
	for ; waiting > 0; waiting-- {
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func newServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
}

// shutdown drains the proxy port first: until the last stream has ended, the admin port still tells what
// is going on.
func (g *gateway) shutdown(proxySrv, adminSrv *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), g.config.DrainTimeout)
	defer cancel()
	if err := proxySrv.Shutdown(ctx); err != nil {
		g.config.Log.Warn("drain timeout: cutting the remaining requests", "timeout", g.config.DrainTimeout)
		_ = proxySrv.Close()
	}
	// Watchers of the event stream would hold a graceful shutdown for ever.
	err := adminSrv.Close()
	// Cut connections end their handlers soon, but no server waits for that.
	g.gate.close()
	return err
}

package mockworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/admin"
	"fleetdrill/mockworker/api"
	"fleetdrill/mockworker/disrupt"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/enginegrpc"
	"fleetdrill/mockworker/faults"
	"fleetdrill/mockworker/loop"
	"fleetdrill/mockworker/metrics"
	"fleetdrill/mockworker/publish"
	"fleetdrill/mockworker/truth"
	"fleetdrill/mockworker/wire"
)

// worker is one mock worker: its ranks, and the servers in front of them.
type worker struct {
	log      *slog.Logger
	ready    contract.ReadyWorker
	ranks    []admin.Rank
	requests *truth.Requests
	faults   *faults.Set
	exit     func(code int)
	keeper   *disrupt.Keeper
	servers  []*http.Server     // API, admin
	grpc     *enginegrpc.Server // nil without a gRPC port
	failed   chan<- error       // takes what ended a server by itself
	wg       sync.WaitGroup
}

// newWorker opens and starts worker number i of the plan. When it returns, every socket answers. failed must
// have room for three errors.
func newWorker(p *plan, i int, failed chan<- error) (*worker, error) {
	w := &worker{
		log:      p.Log.With("worker", p.ids[i]),
		ready:    contract.ReadyWorker{ID: p.ids[i]},
		requests: truth.NewRequests(),
		faults:   faults.New(),
		exit:     os.Exit,
		failed:   failed,
	}
	if err := w.start(p, i); err != nil {
		return nil, errors.Join(fmt.Errorf("starting worker %s: %w", p.ids[i], err), w.close())
	}
	return w, nil
}

func (w *worker) start(p *plan, i int) error {
	set := p.newMetrics()
	var loops []*loop.Loop
	for rank := range p.DataParallelSize {
		if err := w.startRank(p, rank, set); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		loops = append(loops, w.ranks[rank].Loop)
	}
	o := p.apiOptions()
	o.Ranks, o.Metrics, o.Faults, o.Log = loops, set.Handler(), w.faults, w.log
	o.SGLang = p.sglangAPI(w.ready.Ranks)
	front := disrupt.NewHandler(disrupt.Options{
		Faults: w.faults, Seed: p.Seed, BootUntil: p.bootUntil(),
		Body: func(path string, status int, message string) []byte {
			return api.ErrorBody(p.sglang, path, status, message)
		},
	}, api.New(o))
	var err error
	if w.ready.HTTP, err = w.serveAPI(p, portOf(p.Port, i), front); err != nil {
		return fmt.Errorf("API port: %w", err)
	}
	control := admin.New(admin.Options{
		Worker: w.ready.ID, Profile: p.profile, Wire: p.Wire, HashAlgo: p.HashAlgo, BlockSize: p.engine.BlockSize,
		NumBlocks: p.engine.NumBlocks, Ranks: w.ranks, Requests: w.requests, Faults: w.faults,
		Wake: w.keeper.Apply, Token: p.AdminToken, Log: w.log,
	})
	if w.ready.Admin, err = w.serve(p.AdminHost, portOf(p.AdminPort, i), control); err != nil {
		return fmt.Errorf("admin port: %w", err)
	}
	return w.serveGRPC(p, i)
}

// sglangVersion is the release that both SGLang profiles stand for; it may have been on either side of the
// change from array to map events.
const sglangVersion = "0.5.21"

// engineVersion is the release that a wire profile stands for: vllm-0.25 is 0.25.0.
func engineVersion(profile string) string {
	if wire.IsSGLang(profile) {
		return sglangVersion
	}
	return strings.TrimPrefix(profile, "vllm-") + ".0"
}

// portOf is the port of worker i when the first one's is base; 0 stays "any".
func portOf(base, i int) int {
	if base == 0 {
		return 0
	}
	return base + i
}

func (w *worker) startRank(p *plan, rank int, set metrics.Family) error {
	r := admin.Rank{Fold: truth.NewFold(p.engine.BlockSize)}
	row := contract.ReadyRank{Rank: rank}
	var err error
	if r.Hasher, err = p.newHasher(); err != nil {
		return err
	}
	eng, err := p.newCore(rank, r.Hasher)
	if err != nil {
		return err
	}
	var publishEvents func(context.Context, []engine.Event) error
	if p.events.Enabled() {
		if r.Publisher, err = w.newPublisher(p, rank, r.Fold); err != nil {
			return err
		}
		row.Events, row.Replay = r.Publisher.Endpoints()
		publishEvents = r.Publisher.Publish
	}
	r.Loop, err = loop.Start(loop.Options{
		Engine: eng, Publish: publishEvents, Faults: w.faults, Rank: rank, Log: w.log,
		Observer: &observer{Observer: set.For(rank), rank: rank, w: w}, Arrives: func(r engine.Request) { w.arrives(rank, r) },
	})
	if err != nil {
		return errors.Join(err, closePublisher(r.Publisher))
	}
	set.Watch(rank, r.Loop.Report)
	w.ranks = append(w.ranks, r)
	w.ready.Ranks = append(w.ready.Ranks, row)
	return nil
}

func (w *worker) newPublisher(p *plan, rank int, fold *truth.Fold) (*publish.Publisher, error) {
	enc, err := wire.New(p.Wire, wire.Options{Rank: rank, IntHashes: p.IntBlockHashes})
	if err != nil {
		return nil, err
	}
	return publish.New(publish.Options{
		Config: p.events, Host: p.Host, BindAnyAddress: wire.IsSGLang(p.Wire), Rank: rank, Encoder: enc, Fold: fold, Faults: w.faults,
		ReplayHWM: p.ReplayHWM, Late: p.LateRemovals, Log: w.log,
	})
}

func closePublisher(p *publish.Publisher) error {
	if p == nil {
		return nil
	}
	return p.Close()
}

// observer sends what the loop tells to the metrics and, at a request's end, to the request log.
type observer struct {
	loop.Observer
	rank int
	w    *worker
}

// Token implements loop.Observer. A process that exits on its own does so here, in place of the token.
func (o *observer) Token(index int, sinceNs int64) {
	if code, exit := o.w.faults.Token(clock.MonoNs(), o.rank); exit {
		o.w.exitNow(code)
	}
	o.Observer.Token(index, sinceNs)
}

// arrives ends the process if it is to die of such a request.
func (w *worker) arrives(rank int, r engine.Request) {
	if !r.ReportFull {
		return
	}
	if code, exit := w.faults.FullReport(clock.MonoNs(), rank, r.ID); exit {
		w.exitNow(code)
	}
}

// Ended implements loop.Observer.
func (o *observer) Ended(id string, maxTokens int, s engine.RequestStats) {
	o.Observer.Ended(id, maxTokens, s)
	o.w.faults.Leak(clock.MonoNs(), o.rank, id)
	o.w.requests.Add(contract.TruthRequest{
		ID: id, Rank: o.rank, ArrivalMonoNs: s.Arrival, PromptTokens: s.Prompt, CachedTokens: s.CachedTokens,
		OutputTokens: s.Output, ScheduledMonoNs: s.Scheduled, FirstTokenMonoNs: s.FirstToken, LastTokenMonoNs: s.LastToken,
		Outcome: s.Outcome,
	})
}

// Limits of both servers. Writes have no server-wide limit: a stream may last for hours.
const (
	// readHeaderTimeout also ends connections that were never used. Clients open such ahead of need, and engines
	// leave them open for ever.
	readHeaderTimeout = 60 * time.Second
	idleTimeout       = 60 * time.Second // of the admin port
	maxHeaderBytes    = 64 << 10
)

// serveAPI is serve for the port that faults can be in.
func (w *worker) serveAPI(p *plan, port int, h http.Handler) (string, error) {
	ln, err := disrupt.Listen(net.JoinHostPort(p.Host, strconv.Itoa(port)), w.faults, w.log)
	if err != nil {
		return "", err
	}
	w.keeper = disrupt.NewKeeper(w.faults, ln, w.exitNow)
	srv := w.newServer(h)
	srv.IdleTimeout = p.TimeoutKeepAlive
	srv.ConnContext, srv.ConnState = api.ConnContext, ln.ConnState
	return w.serveOn(srv, ln), nil
}

func (w *worker) exitNow(code int) {
	w.log.Warn("the process exits, as it was told to", "code", code)
	w.exit(code)
}

// serve binds and serves; the base URL is what a local client dials.
func (w *worker) serve(host string, port int, h http.Handler) (string, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return "", fmt.Errorf("binding: %w", err)
	}
	return w.serveOn(w.newServer(h), ln), nil
}

func (w *worker) newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(w.log.Handler(), slog.LevelDebug), // clients that misbehave are not our errors
	}
}

func (w *worker) serveOn(srv *http.Server, ln net.Listener) string {
	w.servers = append(w.servers, srv)
	w.wg.Go(func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			w.failed <- fmt.Errorf("serving %s: %w", ln.Addr(), err)
		}
	})
	return "http://" + dialable(ln.Addr().(*net.TCPAddr))
}

// dialable is where a client on this machine reaches a bound address: any interface means loopback too.
func dialable(a *net.TCPAddr) string {
	host := a.IP.String()
	if a.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(a.Port))
}

// drain takes no new connections and lets open requests end, until ctx does.
func (w *worker) drain(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { w.drainGRPC(ctx) })
	defer wg.Wait()
	for _, srv := range w.servers {
		if err := srv.Shutdown(ctx); err != nil {
			w.log.Warn("requests are still open at the end of the grace", "err", err)
		}
	}
}

// close ends everything at once and waits for it. Engines go first: their streams then break off, and no
// handler waits for a token that will not come.
func (w *worker) close() (err error) {
	if w.keeper != nil {
		w.keeper.Close()
	}
	for _, r := range w.ranks {
		err = errors.Join(err, r.Loop.Close(), closePublisher(r.Publisher))
	}
	for _, srv := range w.servers {
		err = errors.Join(err, srv.Close())
	}
	w.closeGRPC()
	w.wg.Wait()
	return err
}

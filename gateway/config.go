package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"fleetdrill/gateway/index/kinds"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
)

// Config is everything a gateway is started with. DefaultConfig fills it with the documented defaults;
// durations of zero mean what their comment says.
type Config struct {
	// Host is bound by both ports. Port and AdminPort 0 let the system choose; the ready file tells.
	Host      string
	Port      int
	AdminPort int
	// AdminToken is asked for as a bearer token on the admin port; required when Host is not loopback.
	AdminToken string
	// Workers are registered at start; more come by POST /workers.
	Workers []contract.WorkerSpec
	Policy  string
	// KVIndex names the index of cached blocks: one of kinds.Help.
	KVIndex string
	// IndexMaxBytes bounds the index; 0 does not. EventLanes is how many event streams are applied at once.
	IndexMaxBytes int64
	EventLanes    int
	// Retries bounds the further attempts of one request, each on another worker.
	Retries int
	// WorkerStall is the silence after which a worker counts as partitioned, WorkerWedge the time
	// without progress after which it counts as wedged (0 = never).
	WorkerStall time.Duration
	WorkerWedge time.Duration
	// VetoedStreamTimeout is what open streams of a wedged worker are given.
	VetoedStreamTimeout time.Duration
	// StreamStallTimeout bounds the silence within a stream, TTFTTimeout the wait for the first byte
	// (0 = no bound for either).
	StreamStallTimeout time.Duration
	TTFTTimeout        time.Duration
	// DrainTimeout is what admitted requests are given after the context of Run ends.
	DrainTimeout time.Duration
	// LoadInterval is the period of load polls; a record older than LoadMaxAge is not used.
	LoadInterval time.Duration
	LoadMaxAge   time.Duration
	// MaxBody bounds a request body, bytes.
	MaxBody int64
	// Handicaps are switched on at start (contract.Handicaps).
	Handicaps []string
	// Seed drives every random draw of a policy.
	Seed uint64
	// ReadyFile is written when both ports serve; empty = none.
	ReadyFile string
	// Log takes the gateway's log; nil discards it.
	Log *slog.Logger
}

// DefaultConfig is a gateway on loopback with system-chosen ports and the documented defaults.
func DefaultConfig() Config {
	return Config{
		Host:                "127.0.0.1",
		Policy:              policy.CacheAware,
		KVIndex:             kinds.Default,
		EventLanes:          runtime.GOMAXPROCS(0),
		Retries:             2,
		WorkerStall:         2 * time.Second,
		WorkerWedge:         3 * time.Second,
		VetoedStreamTimeout: 10 * time.Second,
		StreamStallTimeout:  30 * time.Second,
		DrainTimeout:        30 * time.Second,
		LoadInterval:        time.Second,
		LoadMaxAge:          3 * time.Second,
		MaxBody:             32 << 20,
		Seed:                1,
	}
}

// Validate reports every wrong value at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !slices.Contains(policy.Names, c.Policy) {
		bad("policy %q is not one of %s", c.Policy, strings.Join(policy.Names, ", "))
	}
	if ix, err := kinds.New(c.KVIndex); err != nil {
		errs = append(errs, err)
	} else if err := kinds.Bound(ix, c.IndexMaxBytes); err != nil {
		bad("kv index %q: %w", c.KVIndex, err)
	}
	if c.EventLanes < 1 {
		bad("event lanes %d must be above zero", c.EventLanes)
	}
	if c.Retries < 0 {
		bad("retries %d is negative", c.Retries)
	}
	if c.WorkerStall <= 0 || c.LoadInterval <= 0 || c.LoadMaxAge <= 0 {
		bad("worker stall, load interval and load max age must be above zero")
	}
	if c.MaxBody <= 0 {
		bad("max body %d bytes must be above zero", c.MaxBody)
	}
	for _, h := range c.Handicaps {
		if !slices.Contains(contract.Handicaps, h) {
			bad("handicap %q is not one of %s", h, strings.Join(contract.Handicaps, ", "))
		}
	}
	if !isLoopback(c.Host) && c.AdminToken == "" {
		bad("host %q is not loopback: the admin port needs --admin-token", c.Host)
	}
	seen := map[string]bool{}
	for _, w := range c.Workers {
		if seen[w.ID] {
			bad("worker id %q is given twice", w.ID)
		}
		seen[w.ID] = true
	}
	return errors.Join(errs...)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// ParseWorkerFlag reads one --worker value:
//
//	id=w1,url=http://127.0.0.1:8000,events=tcp://127.0.0.1:5557,replay=tcp://127.0.0.1:5558,ranks=1,block_size=16
//
// url is required; id defaults to the url's host:port, ranks to 1, block_size to 16. Without events the
// worker is placed on, but nothing is known about its cache.
func ParseWorkerFlag(s string) (contract.WorkerSpec, error) {
	spec := contract.WorkerSpec{}
	events := contract.KVEventsSpec{}
	for _, field := range strings.Split(s, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(field), "=")
		if !ok || value == "" {
			return spec, fmt.Errorf("reading worker %q: %q is not key=value", s, field)
		}
		if err := setWorkerKey(&spec, &events, key, value); err != nil {
			return spec, fmt.Errorf("reading worker %q: %w", s, err)
		}
	}
	if events != (contract.KVEventsSpec{}) {
		spec.KVEvents = &events
	}
	if err := NormalizeWorker(&spec); err != nil {
		return spec, fmt.Errorf("reading worker %q: %w", s, err)
	}
	return spec, nil
}

func setWorkerKey(spec *contract.WorkerSpec, events *contract.KVEventsSpec, key, value string) (err error) {
	switch key {
	case "id":
		spec.ID = value
	case "url":
		spec.URL = value
	case "events":
		events.Endpoint = value
	case "replay":
		events.ReplayEndpoint = value
	case "ranks":
		events.Ranks, err = positive(key, value)
	case "block_size":
		spec.KVBlockSize, err = positive(key, value)
	default:
		err = fmt.Errorf("unknown key %q (known: id, url, events, replay, ranks, block_size)", key)
	}
	return err
}

func positive(key, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%s is not a whole number above zero", key, value)
	}
	return n, nil
}

// Bounds of a worker's numbers: what an operator could mean, so that a typing error is told at once.
const (
	maxRanks     = 64
	maxBlockSize = 4096
)

// NormalizeWorker checks a worker and fills its defaults, whichever way it came.
func NormalizeWorker(spec *contract.WorkerSpec) error {
	u, err := url.Parse(spec.URL)
	if err != nil || u.Scheme != "http" || u.Port() == "" {
		return fmt.Errorf("url %q is not http://host:port", spec.URL)
	}
	spec.URL = strings.TrimRight(spec.URL, "/")
	if spec.ID == "" {
		spec.ID = u.Host
	}
	if spec.Runtime != "" && spec.Runtime != "http" {
		return fmt.Errorf("runtime %q is not http", spec.Runtime)
	}
	if spec.KVBlockSize == 0 {
		spec.KVBlockSize = 16
	}
	if spec.KVBlockSize < 1 || spec.KVBlockSize > maxBlockSize {
		return fmt.Errorf("block size %d is not in 1..%d", spec.KVBlockSize, maxBlockSize)
	}
	if spec.KVEvents == nil {
		return nil
	}
	return normalizeEvents(spec.KVEvents)
}

func normalizeEvents(e *contract.KVEventsSpec) error {
	if e.Ranks == 0 {
		e.Ranks = 1
	}
	if e.Ranks < 1 || e.Ranks > maxRanks {
		return fmt.Errorf("ranks %d is not in 1..%d", e.Ranks, maxRanks)
	}
	if e.Endpoint == "" && e.ReplayEndpoint != "" {
		return errors.New("replay without events: a replay source needs a live stream to fill")
	}
	for _, endpoint := range []string{e.Endpoint, e.ReplayEndpoint} {
		if endpoint == "" {
			continue
		}
		if _, err := RankEndpoint(endpoint, e.Ranks-1); err != nil {
			return err
		}
	}
	return nil
}

// RankEndpoint is the endpoint of a rank: rank r adds r to the port of rank 0, as the engines do.
func RankEndpoint(endpoint string, rank int) (string, error) {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil || !strings.HasPrefix(endpoint, "tcp://") || host == "" {
		return "", fmt.Errorf("endpoint %q is not tcp://host:port", endpoint)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n+rank > 65535 {
		return "", fmt.Errorf("endpoint %q: port %s plus rank %d is not a port", endpoint, port, rank)
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(n+rank)), nil
}

package load

import (
	"net/http"
	"time"

	"fleetdrill/internal/rng"
)

// Defaults of Options.
const (
	// DefaultMaxOpen leaves room for both ends of every connection under a limit of 20,000 descriptors.
	DefaultMaxOpen = 8192
	// DefaultDrainTimeout is how long requests that are open when the load ends may take to finish.
	DefaultDrainTimeout = 30 * time.Second
)

// Options say what to send, where, from when on, and how a load ends.
type Options struct {
	// URL is the base URL of the gateway or engine, without a trailing slash.
	URL string
	// Load names the load in its records.
	Load string
	// StartNs is the CLOCK_MONOTONIC instant of offset 0; 0 means now. An instant in the past makes the
	// first requests late and their send lag says so.
	StartNs int64
	// Requests are the planned requests.
	Requests Source
	// Client sends them; nil means NewClient(MaxOpen), owned and closed by the run.
	Client *http.Client
	// Abort says which requests the client hangs up on; the zero value means none.
	Abort Abort
	// Timeout fails a request that has not ended so long after it was sent; 0 means never.
	Timeout time.Duration
	// DrainTimeout bounds how long open requests may take to finish after the last one was sent or after
	// Stop; then they are cut and their records stay open. 0 means DefaultDrainTimeout.
	DrainTimeout time.Duration
	// MaxOpen bounds the requests open at once; 0 means DefaultMaxOpen. A request beyond it is not sent:
	// its record has failed, and Run.Refused counts it. It protects the machine and is no concurrency cap:
	// a valid load never meets it.
	MaxOpen int
	// Concurrency above 0 asks for a closed loop by name: offsets are ignored, so many requests are kept
	// open, and a request's scheduled instant is when its slot became free.
	Concurrency int
	// ReadPause makes every client a slow reader that pauses so long before each read of an answer.
	ReadPause time.Duration
}

func (o Options) withDefaults() Options {
	if o.MaxOpen == 0 {
		o.MaxOpen = DefaultMaxOpen
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = DefaultDrainTimeout
	}
	return o
}

// Abort is a policy of hanging up on purpose. Which requests it takes depends on Seed and the request's
// number alone, so two runs with one seed abort the same requests.
type Abort struct {
	// Share of the requests to hang up on, 0 to 1.
	Share float64
	// A client hangs up a uniformly drawn time in [Min, Max] after it sent its request, unless the answer
	// was complete by then. Max below Min counts as Min.
	Min, Max time.Duration
	Seed     uint64
}

// draw is how long after sending request n the client hangs up, if at all.
func (a Abort) draw(n int) (time.Duration, bool) {
	if a.Share <= 0 {
		return 0, false
	}
	r := rng.Stream(rng.RunSeed(a.Seed, n), "abort")
	if r.Float64() >= a.Share {
		return 0, false
	}
	return a.Min + time.Duration(r.Float64()*float64(max(0, a.Max-a.Min))), true
}

package linkproxy

import "sync"

// ledgerSize is how many requests are kept: at 100 requests a second, 40 minutes. The older half goes
// when it is reached.
const ledgerSize = 1 << 18

// RequestLog is one request that passed the proxy.
type RequestLog struct {
	// N numbers the requests of this proxy from 0, in the order in which they began.
	N int `json:"n"`
	// StartMonoNs is when the request line had come, EndMonoNs when the last byte of the response had
	// been forwarded or the connection had ended; 0 while the request is open. CLOCK_MONOTONIC, ns.
	StartMonoNs int64  `json:"start_mono_ns"`
	EndMonoNs   int64  `json:"end_mono_ns"`
	Method      string `json:"method"`
	// Path is the request target as sent, with its query.
	Path    string  `json:"path"`
	Outcome Outcome `json:"outcome"`
	// Status is the response's, 0 if none came.
	Status int `json:"status,omitempty"`
}

// Probe reports whether the request is a probe (GET); any other method is an attempt.
func (r RequestLog) Probe() bool { return r.Method == "GET" }

// ledger is the log of a proxy's requests.
type ledger struct {
	mu               sync.Mutex // guards all below
	first            int        // N of requests[0]
	requests         []RequestLog
	attempts, probes int
	open             int // attempts that have not ended
}

// begin notes a new request and returns its N.
func (l *ledger) begin(c change) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.requests) == ledgerSize {
		l.requests = append(make([]RequestLog, 0, ledgerSize), l.requests[ledgerSize/2:]...)
		l.first += ledgerSize / 2
	}
	r := RequestLog{
		N: l.first + len(l.requests), StartMonoNs: c.now,
		Method: c.method, Path: c.path, Outcome: OutcomeOpen,
	}
	l.requests = append(l.requests, r)
	if r.Probe() {
		l.probes++
	} else {
		l.attempts++
		l.open++
	}
	return r.N
}

// end notes the end of request n, which was a probe or not.
func (l *ledger) end(n int, probe bool, c change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !probe {
		l.open--
	}
	if n < l.first {
		return
	}
	r := &l.requests[n-l.first]
	r.EndMonoNs, r.Outcome, r.Status = c.now, c.outcome, c.status
}

// since copies the requests from number n on.
func (l *ledger) since(n int) []RequestLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(max(n-l.first, 0), len(l.requests))
	return append([]RequestLog(nil), l.requests[n:]...)
}

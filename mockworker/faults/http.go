package faults

import (
	"slices"
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
)

// The values of the words in HTTP.
const (
	ModeDelay, ModeError, ModeFlap          = "delay", "error", "flap"
	ModeClosed, ModeBlackhole, ModeReset    = "closed", "blackhole", "reset"
	ModeFreeze, ModeZero, ModeAbsent        = "freeze", "zero", "absent"
	ExistingKeep, ExistingClose             = "keep", "close"
	HowFIN, HowRST, HowSilence, HowCleanEnd = "fin", "rst", "silence", "clean_end"
)

// HTTP are the parameters of the faults of the HTTP port.
type HTTP struct {
	// Mode is how a health, listener or stale_load fault lies.
	Mode string
	// Existing is what a listener fault does to the connections that are open.
	Existing string
	// How a stream is cut.
	How string
	// Status is that of an errors fault.
	Status int
	// Share of the requests or streams is hit, above 0 and up to 1, drawn from the worker's seed. Every
	// hits each that many-th instead.
	Share float64
	Every int
	// At is when a process exits, counted from the arming.
	At time.Duration
}

// Health is what becomes of one request to a health path.
type Health struct {
	Fail  bool
	Delay time.Duration
}

// Health is asked for each request to a health path. A flapping engine fails for as long as By and is well
// for as long, from the first request on.
func (s *Set) Health(now int64, path string) (h Health) {
	if s.none() {
		return h
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(now, 0, contract.FaultHealth)
	if f == nil {
		return h
	}
	f.begin(now)
	switch f.spec.Mode {
	case ModeDelay:
		h.Delay = f.spec.By
	case ModeError:
		h.Fail = true
	case ModeFlap:
		h.Fail = (now-f.first)/int64(f.spec.By)%2 == 0
	}
	if h.Fail || h.Delay > 0 {
		f.actOn(now, "GET "+path)
	}
	return h
}

// Refuse is asked for each generation request before its first byte; a status other than 0 is its answer.
// Draws are by seed and by the number of requests that the fault has seen.
func (s *Set) Refuse(now int64, seed uint64, request string) (status int) {
	if s.none() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(now, 0, contract.FaultErrors)
	if f == nil || !f.hits(seed) {
		return 0
	}
	s.actUpTo(f, now, "request "+request)
	return f.spec.Status
}

// Cut is the end that a stream was drawn for.
type Cut struct {
	fault string
	// After is the number of tokens that still go out.
	After int
	How   string
}

// DrawCut is asked at the beginning of each stream; nil lets it run to its end. A count of streams is one
// of those drawn: they are few, and most of them are cut.
func (s *Set) DrawCut(now int64, seed uint64) *Cut {
	if s.none() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(now, 0, contract.FaultCutStream)
	if f == nil || !f.hits(seed) {
		return nil
	}
	return &Cut{fault: f.id, After: f.spec.AfterTokens, How: f.spec.How}
}

// Cut is asked when a stream has reached the end that it was drawn for; false lets it go on, because the
// fault is over.
func (s *Set) Cut(now int64, c *Cut, request string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	f := s.byID(c.fault)
	if f == nil || !f.live() {
		return false
	}
	s.actUpTo(f, now, "request "+request)
	return true
}

// StaleLoad is asked whenever a load figure is told: how it lies, "" for not at all, and the fault's id.
func (s *Set) StaleLoad(now int64) (id, mode string) {
	if s.none() {
		return "", ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(now, 0, contract.FaultStaleLoad)
	if f == nil {
		return "", ""
	}
	f.begin(now)
	f.acted++
	if f.acted == 1 {
		f.evidence.text(f.spec.Mode + " since the first report of load")
	}
	return f.id, f.spec.Mode
}

// Listening is how a port takes connections. The zero value is as it should.
type Listening struct {
	ID            string
	Mode          string
	CloseExisting bool
	// Until is when to ask again at the latest, 0 for not before something changes.
	Until int64
}

// Listening is asked whenever a fault was armed or healed, and at Until. The fault acts with the answer.
func (s *Set) Listening(now int64) Listening {
	if s.none() {
		return Listening{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(now, 0, contract.FaultListener)
	if f == nil {
		return Listening{}
	}
	f.begin(now)
	return Listening{ID: f.id, Mode: f.spec.Mode, CloseExisting: f.spec.Existing == ExistingClose, Until: f.over()}
}

// Note adds to what a live fault did.
func (s *Set) Note(id, did string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.byID(id); f != nil && f.live() {
		f.acted++
		f.evidence.text(did)
	}
}

// ExitAt is when a process is to exit although nobody waits for a token: the earliest at of the armed
// exits. ok is false while there is none.
func (s *Set) ExitAt(now int64) (at int64, ok bool) {
	if s.none() {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if f.live() && f.spec.Kind == contract.FaultExit && f.spec.At > 0 && (!ok || f.armedAt+int64(f.spec.At) < at) {
			at, ok = f.armedAt+int64(f.spec.At), true
		}
	}
	return at, ok
}

// Exit is asked at the instant that ExitAt told.
func (s *Set) Exit(now int64) (code int, exit bool) {
	if s.none() {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if f.live() && f.spec.Kind == contract.FaultExit && f.spec.At > 0 && f.armedAt+int64(f.spec.At) <= now {
			f.begin(now)
			f.acted = 1
			s.end(f, contract.FaultDone)
			return f.spec.Code, true
		}
	}
	return 0, false
}

// hits says whether the fault is for the next request that asks.
func (f *fault) hits(seed uint64) bool {
	f.asked++
	if f.spec.Every > 0 {
		return f.asked%int64(f.spec.Every) == 0
	}
	const range53 = 1 << 53
	u := float64(tokens.DigestTerm(seed+uint64(f.asked)*0x9e3779b97f4a7c15)>>11) / range53
	return u < f.spec.Share
}

func (f *fault) actOn(now int64, what string) {
	f.begin(now)
	f.acted++
	f.evidence.text(what)
}

// actUpTo acts, for the last time when the fault's count is reached.
func (s *Set) actUpTo(f *fault, now int64, what string) {
	f.actOn(now, what)
	if f.acted == f.spec.Count {
		s.end(f, contract.FaultDone)
	}
}

// text notes a line of its own, the first ones only; the same line again is only counted.
func (e *evidence) text(line string) {
	if slices.Contains(e.texts, line) {
		return
	}
	if len(e.texts) >= maxEvidence {
		e.more++
		return
	}
	e.texts = append(e.texts, line)
}

// Live says whether any fault may still act.
func (s *Set) Live() bool { return !s.none() }

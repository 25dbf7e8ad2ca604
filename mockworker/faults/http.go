package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// httpKinds are the kinds of the HTTP port. They act on the worker, whatever its ranks.
var httpKinds = []string{
	contract.FaultHealth, contract.FaultListener, contract.FaultCutStream, contract.FaultErrors, contract.FaultStaleLoad,
}

// httpParams are the parameters of an HTTP kind, bound to s; nil for another kind.
func httpParams(s *Spec) []param {
	lasts := duration("for", &s.For, maxFor)
	switch s.Kind {
	case contract.FaultHealth:
		return []param{oneOf("mode", &s.Mode, ModeDelay, ModeError, ModeFlap), duration("by", &s.By, maxBy), lasts}
	case contract.FaultListener:
		return []param{oneOf("mode", &s.Mode, ModeClosed, ModeBlackhole, ModeReset),
			oneOf("existing", &s.Existing, ExistingKeep, ExistingClose), lasts}
	case contract.FaultCutStream:
		return []param{oneOf("how", &s.How, HowFIN, HowRST, HowSilence, HowCleanEnd), whole("after_tokens", &s.AfterTokens, 0, 1<<30),
			share("share", &s.Share), optional("count", &s.Count, maxCount), lasts}
	case contract.FaultErrors:
		return []param{whole("status", &s.Status, 400, 599), share("share", &s.Share), optional("first", &s.Count, maxCount),
			optional("every", &s.Every, maxCount), lasts}
	case contract.FaultStaleLoad:
		return []param{oneOf("mode", &s.Mode, ModeFreeze, ModeZero, ModeAbsent), lasts}
	}
	return nil
}

// setHTTPDefaults fills in what a body may leave out.
func (s *Spec) setHTTPDefaults() {
	switch s.Kind {
	case contract.FaultHealth:
		s.Mode = ModeError
	case contract.FaultListener:
		s.Mode, s.Existing = ModeClosed, ExistingKeep
	case contract.FaultCutStream:
		s.How, s.AfterTokens, s.Share = HowFIN, 1, 1
	case contract.FaultErrors:
		s.Status, s.Share = 500, 1
	case contract.FaultStaleLoad:
		s.Mode = ModeFreeze
	}
}

// checkHTTP is what no single parameter tells.
func (s *Spec) checkHTTP() error {
	switch {
	case s.Kind == contract.FaultHealth && s.Mode != ModeError && s.By == 0:
		return fmt.Errorf("parameter by is missing: how long a %s of the health paths takes", s.Mode)
	case s.Kind == contract.FaultHealth && s.Mode == ModeError && s.By != 0:
		return errors.New("parameter by needs mode delay or flap")
	case s.Kind == contract.FaultErrors && s.Every > 0 && s.Share != 1:
		return errors.New("parameters share and every are both given: one of them says which requests fail")
	case s.Kind == contract.FaultExit && s.At > 0 && s.AfterTokens > 0:
		return errors.New("parameters at and after_tokens are both given: one of them says when the process exits")
	}
	return nil
}

// share is a parameter above 0 and up to 1.
func share(name string, v *float64) param {
	return param{name, func(raw json.RawMessage) error {
		f, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || !(f > 0 && f <= 1) {
			return fmt.Errorf("is %s, must be a number above 0 and up to 1", raw)
		}
		*v = f
		return nil
	}, func() any { return *v }}
}

// optional is a whole number from 1, 0 standing for not given.
func optional[T int | int64](name string, v *T, most T) param {
	p := whole(name, v, 1, most)
	p.show = func() any {
		if *v == 0 {
			return nil
		}
		return *v
	}
	return p
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

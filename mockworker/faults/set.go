package faults

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"fleetdrill/internal/contract"
)

// ErrConflict is why Arm refuses a fault: a rank has at most one live fault of a kind. Two drops would
// leave open whose batch the next one is; whoever wants another one heals the first.
var ErrConflict = errors.New("a fault of this kind is live on this rank")

// maxKept bounds the faults remembered; the oldest that are over are forgotten first.
const maxKept = 256

// Set is the faults of one worker, live and over. It is safe for concurrent use, and a nil Set is a worker
// without faults. Every method takes now as CLOCK_MONOTONIC ns; faults whose time is over end as soon as
// anybody asks.
type Set struct {
	// live counts the faults that are armed or acting, so that asking costs nothing while there are none, and
	// those that are trailing.
	live atomic.Int32

	mu     sync.Mutex // guards everything below
	faults []*fault   // in order of arming
	next   int
}

// fault is one of them. first is when it acted first, meaningless while it is armed.
type fault struct {
	id       string
	spec     Spec
	state    string
	first    int64
	acted    int64
	tokens   int // handed out since an exit was armed
	armedAt  int64
	asked    int64 // requests that might have been hit
	evidence evidence
	// trailing says that a delay is over while batches that it held are still to leave: those collected before
	// until. The one that leaves next is late by it.
	trailing, next bool
	until          int64
	// leaked is the memory that requests left behind.
	leaked      [][]byte
	leakedBytes int64
}

// New makes a set without faults.
func New() *Set { return &Set{} }

// Arm adds a fault and returns its id. It fails with ErrConflict.
func (s *Set) Arm(now int64, sp Spec) (id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.find(now, sp.Rank, sp.Kind); f != nil {
		return "", fmt.Errorf("%w: heal %s (%s, rank %d) first", ErrConflict, f.id, sp.Kind, sp.Rank)
	}
	s.next++
	f := &fault{id: "f" + strconv.Itoa(s.next), spec: sp, state: contract.FaultArmed, armedAt: now}
	s.faults = append(s.faults, f)
	s.live.Add(1)
	if len(s.faults) > maxKept {
		s.forgetOne()
	}
	return f.id, nil
}

func (s *Set) forgetOne() {
	i := slices.IndexFunc(s.faults, func(f *fault) bool { return !f.live() })
	if i >= 0 {
		s.arrived(s.faults[i])
		s.faults = slices.Delete(s.faults, i, i+1)
	}
}

// Heal ends a fault; one that is over stays as it is. It returns false for an id that is not known.
func (s *Set) Heal(now int64, id string) (contract.TruthFault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	f := s.byID(id)
	if f == nil {
		return contract.TruthFault{}, false
	}
	s.endAt(f, contract.FaultHealed, now)
	return f.view(), true
}

// List is every fault remembered, oldest first.
func (s *Set) List(now int64) []contract.TruthFault {
	out := []contract.TruthFault{}
	if s == nil {
		return out
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	for _, f := range s.faults {
		out = append(out, f.view())
	}
	return out
}

// Freeze is whether an engine may step.
type Freeze struct {
	On bool
	// Deaf is a wedge: requests and aborts are not even taken in.
	Deaf bool
	// Until is when to ask again at the latest, 0 for not before something changes.
	Until int64
}

// Frozen is asked by the step loop of a rank before a step. open yields the ids of its requests.
func (s *Set) Frozen(now int64, rank int, open iter.Seq[string]) (fz Freeze) {
	if s.none() {
		return fz
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range []string{contract.FaultPause, contract.FaultWedge} {
		f := s.find(now, rank, kind)
		if f == nil {
			continue
		}
		if f.begin(now) {
			f.acted = 1
			f.evidence.requests(open)
		}
		fz.On, fz.Deaf = true, fz.Deaf || kind == contract.FaultWedge
		if end := f.over(); end > 0 && (fz.Until == 0 || end < fz.Until) {
			fz.Until = end
		}
	}
	return fz
}

// Due is asked by the publisher of a rank about its oldest batch: when may it leave that was collected
// then? An instant up to now means now.
func (s *Set) Due(now int64, rank int, collected int64) int64 {
	if s.none() {
		return collected
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(now, rank, contract.FaultDelayPublisher)
	if f == nil {
		s.trail(rank, collected)
		return collected
	}
	due := collected + int64(f.spec.By)
	if due > now {
		f.begin(now)
	}
	if end := f.over(); end > 0 {
		due = min(due, end)
	}
	return due
}

// Fate is what becomes of a batch.
type Fate uint8

// The fates of a batch.
const (
	// Send: as if nothing were broken.
	Send Fate = iota
	// Hide: its sequence number is used up and the replay buffer has it, but nobody is sent it.
	Hide
	// Lose: its sequence number is used up and it is nowhere.
	Lose
	// Mute: it never was; the next batch gets its number.
	Mute
)

// Batch is asked by the publisher of a rank as a batch is about to get sequence number seq. A muted batch
// is none that could be dropped.
func (s *Set) Batch(now int64, rank int, seq int64) Fate {
	if s.none() {
		return Send
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.find(now, rank, contract.FaultMutePublisher); f != nil {
		f.act(now, "before seq", seq)
		return Mute
	}
	if f := s.find(now, rank, contract.FaultDelayPublisher); f != nil && f.state == contract.FaultActing {
		f.act(now, "seq", seq)
	}
	for _, f := range s.faults {
		if f.next && f.spec.Rank == rank {
			f.next = false
			f.act(now, "seq", seq)
		}
	}
	f := s.find(now, rank, contract.FaultDropBatches)
	if f == nil {
		return Send
	}
	f.act(now, "seq", seq)
	if f.acted == f.spec.Count {
		s.end(f, contract.FaultDone)
	}
	if f.spec.Replay == Lost {
		return Lose
	}
	return Hide
}

// Token is asked as a rank is about to hand out an output token: is it now that the process exits?
func (s *Set) Token(now int64, rank int) (code int, exit bool) {
	if s.none() {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(now, rank, contract.FaultExit)
	if f == nil || f.spec.At > 0 || f.spec.On != OnToken {
		return 0, false
	}
	if f.tokens < f.spec.AfterTokens {
		f.tokens++
		return 0, false
	}
	f.begin(now)
	f.acted = 1
	s.end(f, contract.FaultDone)
	return f.spec.Code, true
}

// FullReport is asked as a request whose reused prefix is to be announced reaches the engine of a rank: is it
// that of which the process dies?
func (s *Set) FullReport(now int64, rank int, request string) (code int, exit bool) {
	if s.none() {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(now, rank, contract.FaultExit)
	if f == nil || f.spec.On != OnFullReport {
		return 0, false
	}
	f.actOn(now, "request "+request)
	s.end(f, contract.FaultDone)
	return f.spec.Code, true
}

// Begin says that a fault which acts once does so now; false when it was healed before.
func (s *Set) Begin(now int64, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byID(id)
	return f != nil && f.live() && f.begin(now)
}

// Finish ends a fault that Begin began, with what it did.
func (s *Set) Finish(id string, did ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.byID(id); f != nil {
		f.acted = 1
		f.evidence.texts = append(f.evidence.texts, did...)
		s.end(f, contract.FaultDone)
	}
}

func (s *Set) none() bool { return s == nil || s.live.Load() == 0 }

func (s *Set) byID(id string) *fault {
	for _, f := range s.faults {
		if f.id == id {
			return f
		}
	}
	return nil
}

// find is the live fault of a kind on a rank, or nil.
func (s *Set) find(now int64, rank int, kind string) *fault {
	s.expire(now)
	for _, f := range s.faults {
		if f.live() && f.spec.Rank == rank && f.spec.Kind == kind {
			return f
		}
	}
	return nil
}

// expire ends the faults whose time is over.
func (s *Set) expire(now int64) {
	for _, f := range s.faults {
		if end := f.over(); f.live() && end > 0 && now >= end {
			s.endAt(f, contract.FaultDone, end)
		}
	}
}

// endAt is end for a fault that may leave something behind: a delay, whose batches are as late as they are
// although it is over.
func (s *Set) endAt(f *fault, state string, at int64) {
	if f.state == contract.FaultActing && f.spec.Kind == contract.FaultDelayPublisher {
		f.trailing, f.until = true, at
		s.live.Add(1)
	}
	s.end(f, state)
}

// trail is asked about the oldest batch of a rank without a delay: was it held by one that is over?
func (s *Set) trail(rank int, collected int64) {
	for _, f := range s.faults {
		if !f.trailing || f.spec.Rank != rank {
			continue
		}
		if f.next = collected < f.until; !f.next {
			s.arrived(f)
		}
	}
}

// arrived says that nothing is left of what a fault held.
func (s *Set) arrived(f *fault) {
	if f.trailing {
		f.trailing = false
		s.live.Add(-1)
	}
}

// end takes a live fault to how it ended.
func (s *Set) end(f *fault, state string) {
	if f.live() {
		f.state = state
		f.leaked = nil
		s.live.Add(-1)
	}
}

func (f *fault) live() bool { return f.state == contract.FaultArmed || f.state == contract.FaultActing }

// begin notes the first time that a fault acts, and says whether this is it.
func (f *fault) begin(now int64) bool {
	if f.state != contract.FaultArmed {
		return false
	}
	f.state, f.first = contract.FaultActing, now
	return true
}

func (f *fault) act(now int64, what string, seq int64) {
	f.begin(now)
	f.acted++
	f.evidence.seq(what, seq)
}

// over is when a fault is over by its For, 0 while nobody can say.
func (f *fault) over() int64 {
	if f.spec.For == 0 || f.state == contract.FaultArmed {
		return 0
	}
	return f.first + int64(f.spec.For)
}

func (f *fault) view() contract.TruthFault {
	v := contract.TruthFault{
		ID: f.id, Kind: f.spec.Kind, Params: f.spec.params(), State: f.state,
		FirstActedMonoNs: f.first, Acted: f.acted, Evidence: f.evidence.lines(),
	}
	if f.leakedBytes > 0 {
		v.Evidence = append([]string{fmt.Sprintf("%d bytes", f.leakedBytes)}, v.Evidence...)
	}
	return v
}

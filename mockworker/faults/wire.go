package faults

import (
	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/late"
	"fleetdrill/mockworker/truth"
)

// The values of the words in Wire.
const (
	OfBatch, OfStore, OfHash            = "batch", "store", "hash"
	FieldPayload, FieldSeq, FieldTopic  = "payload", "seq", "topic"
	FieldHash, FieldParent, FieldTokens = "hash", "parent", "tokens"
	InEvent, InBatch                    = "event", "batch"
	MaskPart, MaskAll                   = "part", "all"
	TierAll, TierDevice, TierHost       = "all", "device", "host"
)

// Wire are the parameters of the faults of the event stream and its replay.
type Wire struct {
	// Of is what is there twice: the batch on the wire, a stored event in it or a block in that.
	Of string
	// Field is what of a batch is corrupt.
	Field string
	// In is what has a field too many, each event or the batch.
	In string
	// Mask is how much of a store its hashes leave out.
	Mask string
	// Tier is the tier whose events are muted.
	Tier string
	// End says whether a truncated replay still has its end marker (Keep or Lost), After how many batches
	// come before.
	End   string
	After int
	// Steps is by how many steps removals are late; or else Spec.By.
	Steps int
}

// batchKinds are the kinds that act on a batch as it is sent, in the order in which they do when several
// are live: what needs whole events comes first, what breaks the payload last.
var batchKinds = []string{
	contract.FaultStaleStore, contract.FaultMaskedStore, contract.FaultUnknownParent, contract.FaultDuplicate, contract.FaultUnknownEvent,
	contract.FaultUnknownField, contract.FaultCorrupt, contract.FaultTruncate, contract.FaultReorder,
}

// Twist is one thing to do to the batch that is about to be sent.
type Twist struct {
	fault               string
	Kind                string
	Of, Field, In, Mask string
}

// Twists are what the live faults of a rank do to its next batch, in their order. One that finds nothing
// to do in a batch waits for the next; Twisted says which did.
func (s *Set) Twists(now int64, rank int) (twists []Twist) {
	if s.none() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range batchKinds {
		if f := s.find(now, rank, kind); f != nil {
			twists = append(twists, Twist{f.id, kind, f.spec.Of, f.spec.Field, f.spec.In, f.spec.Mask})
		}
	}
	return twists
}

// Twisted notes that a twist was done to batch seq, the last one when its fault's count is reached.
func (s *Set) Twisted(now int64, t Twist, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byID(t.fault)
	if f == nil || !f.live() {
		return
	}
	f.act(now, "seq", seq)
	if f.acted == f.spec.Count {
		s.end(f, contract.FaultDone)
	}
}

// Reorders says whether the batch that a publisher holds back still waits for another one to overtake it.
func (s *Set) Reorders(now int64, rank int) bool {
	if s.none() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(now, rank, contract.FaultReorder) != nil
}

// Muting leaves events out of a batch: those of one kind, of one tier or of all.
type Muting struct {
	fault    string
	Removals bool // rather than stores
	Tier     string
}

// Takes says whether events of a medium are left out. What has no medium is the device's.
func (m Muting) Takes(medium string) bool { return m.Tier == TierAll || m.Tier == truth.TierOf(medium) }

// Mutes is asked by the publisher of a rank about its next batch: what of it is to be left out?
func (s *Set) Mutes(now int64, rank int) (mutes []Muting) {
	if s.none() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range []string{contract.FaultMuteStores, contract.FaultMuteRemovals} {
		if f := s.find(now, rank, kind); f != nil {
			mutes = append(mutes, Muting{f.id, kind == contract.FaultMuteRemovals, f.spec.Tier})
		}
	}
	return mutes
}

// Muted notes that so many blocks were left out of what would have been batch seq.
func (s *Set) Muted(now int64, m Muting, seq int64, blocks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byID(m.fault)
	if f == nil || !f.live() || blocks == 0 {
		return
	}
	what := "stores of seq"
	if m.Removals {
		what = "removals of seq"
	}
	f.act(now, what, seq)
	f.acted += int64(blocks) - 1
}

// Lateness is how late the removals of a rank are now: what a fault says, or else usual.
type Lateness struct {
	late.Options
	// Faulty says that a fault says so, until Until if that is above 0.
	Faulty bool
	Until  int64
}

// Lateness is asked by the publisher of a rank before it holds removals or lets them go.
func (s *Set) Lateness(now int64, rank int, usual late.Options) Lateness {
	if s.none() {
		return Lateness{Options: usual}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(now, rank, contract.FaultLateRemovals)
	if f == nil {
		return Lateness{Options: usual}
	}
	return Lateness{Options: late.Options{Steps: f.spec.Steps, By: f.spec.By}, Faulty: true, Until: f.over()}
}

// HeldRemovals notes that so many removals, which would have left in batch seq, are held.
func (s *Set) HeldRemovals(now int64, rank int, seq int64, removals int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.find(now, rank, contract.FaultLateRemovals); f != nil && removals > 0 {
		f.act(now, "removals of seq", seq)
		f.acted += removals - 1
	}
}

// Replay is what becomes of one replay request. The zero value answers it.
type Replay struct {
	// Hang gives no answer at all.
	Hang bool
	// Cut ends the answer after After batches, without its end marker if NoEnd.
	Cut   bool
	After int
	NoEnd bool
}

// Replay is asked by the publisher of a rank for each right request, which begins at start. The worst of
// the live faults decides.
func (s *Set) Replay(now int64, rank int, start uint64) (r Replay) {
	if s.none() {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range []string{contract.FaultReplayHang, contract.FaultReplayEmpty, contract.FaultReplayTruncate} {
		f := s.find(now, rank, kind)
		if f == nil {
			continue
		}
		f.act(now, "request from seq", int64(start))
		switch kind {
		case contract.FaultReplayHang:
			r.Hang = true
		case contract.FaultReplayEmpty:
			r.Cut = true
		case contract.FaultReplayTruncate:
			r.Cut, r.After, r.NoEnd = true, f.spec.After, f.spec.End == Lost
		}
		return r
	}
	return r
}

package truth

import (
	"maps"
	"sync"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/ring"
)

// Sizes of the rings, in items.
const (
	// DigestRing and JournalRing are batches.
	DigestRing  = 20_000
	JournalRing = 20_000
	// JournalChanges bounds the block changes a journal holds over all its batches, so that a few
	// thousand very large batches cannot take hundreds of megabytes: about 16 MB.
	JournalChanges = 1 << 19
	// RequestRing is requests.
	RequestRing = 100_000
)

const mediumGPU = "GPU"

// Entry is one announced block. Parent means nothing at Position 0.
type Entry struct {
	Parent   uint64
	Content  uint64
	Position int32
	// Copies is stores minus removals: engines announce each physical copy.
	Copies uint32
}

// Head says where a fold stands.
type Head struct {
	// Epoch names the publisher incarnation: CLOCK_MONOTONIC ns of its beginning, 0 without one.
	Epoch int64
	// Seq is the last sequence number folded, -1 before the first.
	Seq    int64
	Blocks int
	Digest uint64
}

// Skips count events that were sent and do not change the announced set of the main tier and group.
type Skips struct {
	Undecodable int64 // payloads that could not be read; they count as empty batches
	Orphans     int64 // stored events whose parent was not announced
	Unknown     int64 // removals of hashes that were not announced
	Other       int64 // other event types, tiers, groups and block sizes
}

// Fold is the announced set of one rank. It is safe for concurrent use.
type Fold struct {
	blockSize int

	mu        sync.Mutex // guards everything below
	dec       decoder
	announced map[uint64]Entry
	head      Head
	skips     Skips
	digests   *ring.Ring[contract.TruthDigest]
	journal   *ring.Ring[record]
	changes   int // block changes held by journal
}

// NewFold makes a fold for blocks of blockSize tokens, of a publisher that has sent nothing.
func NewFold(blockSize int) *Fold {
	f := &Fold{blockSize: blockSize}
	f.Restart(0)
	return f
}

// Apply folds the payload that goes out under seq at now (monotonic ns). Sequence numbers only rise. A
// payload that cannot be read changes nothing, as for a subscriber, and its error is returned.
func (f *Fold) Apply(seq, now int64, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, err := f.dec.batch(payload)
	if err != nil {
		f.skips.Undecodable++
		events = nil
	}
	f.fold(seq, now, events)
	return err
}

// Lost uses up a sequence number whose batch nobody can have: it was not sent and is in no replay. It
// changes nothing, because announced is what a subscriber must hold that got everything there was to get.
func (f *Fold) Lost(seq, now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fold(seq, now, nil)
}

// Restart begins the fold of a new publisher incarnation: nothing is announced, and the past is gone with
// the sequence numbers that named it.
func (f *Fold) Restart(epoch int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.announced, f.head = map[uint64]Entry{}, Head{Epoch: epoch, Seq: -1}
	f.digests, f.journal, f.changes = ring.New[contract.TruthDigest](DigestRing), ring.New[record](JournalRing), 0
}

func (f *Fold) fold(seq, now int64, events []event) {
	rec := record{seq: seq, monoNs: now}
	for i := range events {
		f.event(&rec, &events[i])
	}
	f.head.Seq, f.head.Blocks = seq, len(f.announced)
	f.digests.Push(contract.TruthDigest{Seq: seq, MonoNs: now, Blocks: f.head.Blocks, Digest: contract.U64(f.head.Digest)})
	f.keep(rec)
}

// keep adds a record and drops the oldest ones beyond the budget of changes.
func (f *Fold) keep(rec record) {
	if f.journal.Full() {
		f.changes -= f.journal.Pop().changes
	}
	f.journal.Push(rec)
	for f.changes += rec.changes; f.changes > JournalChanges && f.journal.Len() > 1; {
		f.changes -= f.journal.Pop().changes
	}
}

func (f *Fold) event(rec *record, e *event) {
	switch e.kind {
	case kindStored:
		if !f.folds(e) || e.blockSize != f.blockSize || len(e.tokens) != len(e.hashes)*e.blockSize {
			f.skips.Other++
			return
		}
		f.store(rec, e)
	case kindRemoved:
		if !f.folds(e) {
			f.skips.Other++
			return
		}
		for _, h := range e.hashes {
			f.remove(rec, h)
		}
	case kindCleared:
		rec.clear(f.announced)
		f.announced, f.head.Digest = map[uint64]Entry{}, 0
	default:
		f.skips.Other++
	}
}

// folds says whether an event belongs to the device tier and the main group.
func (f *Fold) folds(e *event) bool {
	if e.medium != "" && e.medium != mediumGPU {
		return false
	}
	switch e.spec {
	case "", "full_attention", "mla_attention", "sink_full_attention":
		return true
	}
	return false
}

func (f *Fold) store(rec *record, e *event) {
	var pos int32
	if e.hasParent {
		p, ok := f.announced[e.parent]
		if !ok {
			f.skips.Orphans++ // a subscriber cannot place these either
			return
		}
		pos = p.Position + 1
	}
	parent := e.parent
	rec.beginStore(parent, pos, len(e.hashes))
	for i, h := range e.hashes {
		content := tokens.ContentHash(e.tokens[i*e.blockSize : (i+1)*e.blockSize])
		if pos == 0 {
			content = tokens.Root(tokens.Namespace("", e.lora, e.salt), content)
		}
		old, held := f.announced[h]
		if held {
			old.Copies++ // the first placement stays: a chained hash has one parent
		} else {
			old = Entry{Parent: parent, Content: content, Position: pos, Copies: 1}
			f.head.Digest += tokens.DigestTerm(h)
		}
		f.announced[h] = old
		rec.stored(h, content)
		parent, pos = h, pos+1
	}
}

func (f *Fold) remove(rec *record, h uint64) {
	old, held := f.announced[h]
	if !held {
		f.skips.Unknown++
		return
	}
	rec.removed(h, old)
	if old.Copies--; old.Copies > 0 {
		f.announced[h] = old
		return
	}
	delete(f.announced, h)
	f.head.Digest -= tokens.DigestTerm(h)
}

// Head is where the fold stands now.
func (f *Fold) Head() Head {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head
}

// Skipped are the counts of events that changed nothing.
func (f *Fold) Skipped() Skips {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.skips
}

// Announced is a copy of the set and where it stands.
func (f *Fold) Announced() (map[uint64]Entry, Head) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.announced), f.head
}

// Digests appends to dst[:0] up to cap(dst) digests from sequence number from on, oldest first.
func (f *Fold) Digests(from int64, dst []contract.TruthDigest) []contract.TruthDigest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return page(f.digests, dst, func(d *contract.TruthDigest) bool { return d.Seq >= from })
}

// Shared is how many of hashes are announced, and where the fold stands.
func (f *Fold) Shared(hashes []uint64) (int, Head) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, h := range hashes {
		if _, ok := f.announced[h]; ok {
			n++
		}
	}
	return n, f.head
}

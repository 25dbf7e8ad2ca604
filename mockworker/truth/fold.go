package truth

import (
	"slices"
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
	// thousand very large batches cannot take hundreds of megabytes: about 8 MB.
	JournalChanges = 1 << 19
	// RequestRing is requests.
	RequestRing = 100_000
)

const mediumGPU = "GPU"

// Head says where a fold stands. Blocks and Digest are those of the device's main set.
type Head struct {
	// Epoch names the publisher incarnation: CLOCK_MONOTONIC ns of its beginning, 0 without one.
	Epoch int64
	// Seq is the last sequence number folded, -1 before the first.
	Seq    int64
	Blocks int
	Digest uint64
}

// Skips count events that were sent and change no announced set.
type Skips struct {
	Undecodable int64 // payloads that could not be read; they count as empty batches
	Orphans     int64 // stored events of the device's main set whose parent was not announced
	Unknown     int64 // removals of hashes that were not announced
	Other       int64 // other event types, tiers, and block sizes in the main set
}

// Fold is the announced set of one rank. It is safe for concurrent use.
type Fold struct {
	blockSize int

	mu      sync.Mutex // guards everything below; lock takes it, and whoever has it by lock sees all batches
	waiting waiting
	dec     decoder
	sets    sets
	head    Head
	skips   Skips
	digests *ring.Ring[contract.TruthDigest]
	journal *ring.Ring[record]
	changes int // block changes held by journal
	rec     recorder
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
	f.lock()
	defer f.mu.Unlock()
	return f.apply(seq, now, payload)
}

func (f *Fold) apply(seq, now int64, payload []byte) error {
	events, err := f.dec.batch(payload)
	if err != nil {
		f.skips.Undecodable++
		events = nil
	}
	f.fold(seq, now, events)
	return err
}

// Defer folds a payload as Apply does, but later: together with those that follow, and before anybody sees the
// fold. In a worker that does more than fold, a batch by itself finds neither tables nor code in the
// processor's caches, and costs twice what it costs in a run. The payload must not change any more.
func (f *Fold) Defer(seq, now int64, payload []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting.add(sent{seq, now, payload})
	if f.waiting.enough() {
		f.settle()
	}
}

// OnUnreadable has fn told of every deferred payload that cannot be read. fn must not call the fold.
func (f *Fold) OnUnreadable(fn func(seq int64, err error)) {
	f.lock()
	defer f.mu.Unlock()
	f.waiting.unreadable = fn
}

// lock takes mu and folds what waits, so that nobody sees a fold that is behind.
func (f *Fold) lock() {
	f.mu.Lock()
	f.settle()
}

// settle, with mu held, folds what waits.
func (f *Fold) settle() {
	for _, s := range f.waiting.batches {
		if err := f.apply(s.seq, s.monoNs, s.payload); err != nil && f.waiting.unreadable != nil {
			f.waiting.unreadable(s.seq, err)
		}
	}
	f.waiting.clear()
}

// Lost uses up a sequence number whose batch nobody can have: it was not sent and is in no replay. It
// changes nothing, because announced is what a subscriber must hold that got everything there was to get.
func (f *Fold) Lost(seq, now int64) {
	f.lock()
	defer f.mu.Unlock()
	f.fold(seq, now, nil)
}

// Restart begins the fold of a new publisher incarnation: nothing is announced, and the past is gone with
// the sequence numbers that named it.
func (f *Fold) Restart(epoch int64) {
	f.lock()
	defer f.mu.Unlock()
	f.sets, f.head = newSets(), Head{Epoch: epoch, Seq: -1}
	f.digests, f.journal, f.changes = ring.New[contract.TruthDigest](DigestRing), ring.New[record](JournalRing), 0
}

func (f *Fold) fold(seq, now int64, events []event) {
	f.rec.begin(seq, now)
	for i := range events {
		f.event(&events[i])
	}
	f.head.Seq, f.head.Blocks, f.head.Digest = seq, f.sets.all[0].blocks.n, f.sets.all[0].digest
	f.digests.Push(contract.TruthDigest{Seq: seq, MonoNs: now, Blocks: f.head.Blocks, Digest: contract.U64(f.head.Digest)})
	f.keep(f.rec.end())
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

func (f *Fold) event(e *event) {
	switch e.kind {
	case kindStored, kindRemoved:
		at, ok := f.sets.of(e)
		switch {
		case !ok:
			f.skips.Other += int64(e.times)
		case e.kind == kindStored:
			f.store(at, e)
		default:
			f.remove(at, e)
		}
	case kindCleared:
		f.rec.clear(f.sets.all)
		for _, s := range f.sets.all {
			s.blocks, s.digest = blocks{}, 0
		}
	default:
		f.skips.Other++
	}
}

// dense says that a store tells the tokens of each of its blocks and of nothing else.
func dense(e *event) bool { return e.blockSize > 0 && len(e.tokens) == 4*len(e.hashes)*e.blockSize }

// store takes in a store. What does not tell where and what its blocks are, as a placeholder of the host
// tier and a window's with holes, leaves them without a position; the main set of the device has no such.
func (f *Fold) store(at int, e *event) {
	if at == 0 && (e.blockSize != f.blockSize || !dense(e)) {
		f.skips.Other++
		return
	}
	pos, ok := f.sets.place(at, e)
	if !ok {
		f.skips.Orphans++ // a subscriber cannot place these either
		return
	}
	next := Entry{Parent: e.parent, Position: pos, Group: e.group}
	if pos == NoPosition || !dense(e) {
		next.Parent, next.Position = 0, NoPosition
	}
	f.rec.beginOp(op{kind: opStore, set: at, pos: next.Position, group: e.group, parent: next.Parent})
	to, digest := f.sets.all[at], uint64(0)
	to.blocks.warm(e.hashes)
	for i, h := range e.hashes {
		if next.Position != NoPosition {
			next.Content = contentOf(e, i, next.Position)
		}
		if to.blocks.add(h, next) {
			digest += tokens.DigestTerm(h)
		}
		f.rec.stored(h, next.Content)
		if next.Position != NoPosition {
			next.Parent, next.Position = h, next.Position+1
		}
	}
	to.digest += digest
}

// contentOf is the chain's content hash of the i-th block of a store.
func contentOf(e *event, i int, pos int32) uint64 {
	size := 4 * e.blockSize
	content := tokens.ContentHashBytes(e.tokens[i*size : (i+1)*size])
	if pos == 0 {
		return tokens.Root(tokens.Namespace("", e.lora, e.salt), content)
	}
	return content
}

func (f *Fold) remove(at int, e *event) {
	from, digest := f.sets.all[at], uint64(0)
	from.blocks.warm(e.hashes)
	for _, h := range e.hashes {
		old, held, last := from.blocks.drop(h)
		if !held {
			f.skips.Unknown++
			continue
		}
		if last {
			digest += tokens.DigestTerm(h)
		}
		f.rec.removed(at, h, old)
	}
	from.digest -= digest
}

// Head is where the fold stands now.
func (f *Fold) Head() Head {
	f.lock()
	defer f.mu.Unlock()
	return f.head
}

// Skipped are the counts of events that changed nothing.
func (f *Fold) Skipped() Skips {
	f.lock()
	defer f.mu.Unlock()
	return f.skips
}

// Announced is a copy of the device's main set and where it stands.
func (f *Fold) Announced() (map[uint64]Entry, Head) {
	f.lock()
	defer f.mu.Unlock()
	return f.sets.all[0].blocks.entries(), f.head
}

// Sets is a copy of every set there is, the device's main one first, and where the fold stands.
func (f *Fold) Sets() ([]Set, Head) {
	f.lock()
	defer f.mu.Unlock()
	out := make([]Set, len(f.sets.all))
	for i, s := range f.sets.all {
		out[i] = Set{Tier: s.tier, Class: s.class, Blocks: s.blocks.entries()}
	}
	return out, f.head
}

// Digests appends to dst[:0] up to cap(dst) digests from sequence number from on, oldest first.
func (f *Fold) Digests(from int64, dst []contract.TruthDigest) []contract.TruthDigest {
	f.lock()
	defer f.mu.Unlock()
	return page(f.digests, dst, func(d *contract.TruthDigest) bool { return d.Seq >= from })
}

// Heads are the sets there are without their blocks, the device's main one first, and where the fold stands.
func (f *Fold) Heads() ([]SetHead, Head) {
	f.lock()
	defer f.mu.Unlock()
	return f.sets.heads(), f.head
}

// Shared is how many of the hashes that resident yields are announced in the same tier and class, in the
// order of heads, and where the fold stands. Sets that only resident knows come last, with nothing
// announced.
func (f *Fold) Shared(resident []Resident) (heads []SetHead, shared []int, at Head) {
	f.lock()
	defer f.mu.Unlock()
	heads = f.sets.heads()
	shared = make([]int, len(heads), len(heads)+len(resident))
	for _, r := range resident {
		i := slices.IndexFunc(heads, func(h SetHead) bool { return h.Tier == r.Tier && h.Class == r.Class })
		if i < 0 {
			heads, shared = append(heads, SetHead{Tier: r.Tier, Class: r.Class}), append(shared, 0)
			continue
		}
		for _, h := range r.Hashes {
			if _, ok := f.sets.all[i].blocks.get(h); ok {
				shared[i]++
			}
		}
	}
	return heads, shared, f.head
}

// Resident is the distinct hashes that an engine holds in one tier and class.
type Resident struct {
	Tier, Class string
	Hashes      []uint64
	// Group is one of the groups that hold them, Several that there are others.
	Group   int
	Several bool
}

// ClassOfGroup is the class of a cache group as far as stores have told it.
func (f *Fold) ClassOfGroup(group int) string {
	f.lock()
	defer f.mu.Unlock()
	return f.sets.classOf(int16(group))
}

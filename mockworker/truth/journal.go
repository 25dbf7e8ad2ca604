package truth

import (
	"fmt"
	"slices"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
)

// record is what one batch changed. It does not change once it is in the journal, so readers share it.
type record struct {
	seq, monoNs int64
	changes     int // blocks stored, removed and cleared
	// words are the operations in order, packed: three words for each, and two for each of its blocks.
	words []uint64
	// cleared are the tables that clears took, all sets of the first clear first.
	cleared []blocks
}

type opKind uint8

const (
	opStore  opKind = iota // blocks that follow each other in a chain, upwards
	opRemove               // blocks that follow each other in a chain, downwards, as an engine evicts them
	opClear                // everything: its n is the number of sets
)

// op is one operation, unpacked.
type op struct {
	kind opKind
	set  int // place of the set among the fold's
	n    int
	// pos is the position of the first block, group that of all of them, and parent the hash before the
	// block that is lowest in the chain.
	pos    int32
	group  int16
	parent uint64
	blocks []uint64 // hash and content of each
}

const (
	opWords    = 3
	blockWords = 2
	oneMore    = 1 << 32 // in an operation's first word
)

// ops yields the operations in order.
func (r *record) ops(yield func(op) bool) {
	for w := r.words; len(w) > 0; {
		o := op{
			kind: opKind(w[0]), set: int(uint8(w[0] >> 8)), n: int(w[0] >> 32),
			pos: int32(uint32(w[1])), group: int16(w[1] >> 32), parent: w[2],
		}
		end := opWords
		if o.kind != opClear {
			end += o.n * blockWords
		}
		o.blocks, w = w[opWords:end], w[end:]
		if !yield(o) {
			return
		}
	}
}

// block is the i-th block of a store or a removal.
func (o *op) block(i int) (hash uint64, e Entry) {
	e = Entry{Parent: o.parent, Content: o.blocks[i*blockWords+1], Position: o.pos, Group: o.group}
	if o.pos != NoPosition {
		before := i - 1
		e.Position += int32(i)
		if o.kind == opRemove {
			before = i + 1
			e.Position = o.pos - int32(i)
		}
		if before >= 0 && before < o.n {
			e.Parent = o.blocks[before*blockWords]
		}
	}
	return o.blocks[i*blockWords], e
}

// recorder packs the record of one batch. Its memory is used again for the next one.
type recorder struct {
	record
	op int // where the last operation begins in words
	// Of the last block of the last operation, a removal. Its parent is the third word of the operation.
	lastPos   int32
	lastGroup int16
}

func (r *recorder) begin(seq, now int64) {
	r.record = record{seq: seq, monoNs: now, words: r.words[:0]}
}

// end is the record for the journal.
func (r *recorder) end() record {
	out := r.record
	out.words = slices.Clone(r.words)
	return out
}

func (r *recorder) beginOp(o op) {
	r.op = len(r.words)
	place := uint64(uint32(o.pos)) | uint64(uint16(o.group))<<32
	r.words = append(r.words, uint64(o.kind)|uint64(o.set)<<8|uint64(o.n)<<32, place, o.parent)
}

// stored adds a block to the store that was begun.
func (r *recorder) stored(hash, content uint64) {
	r.words[r.op] += oneMore
	r.words = append(r.words, hash, content)
	r.changes++
}

// removed adds a removal of what was e, to the last operation if it goes on down the same chain.
func (r *recorder) removed(set int, hash uint64, e Entry) {
	if r.goesOn(set, hash, e.Position, e.Group) {
		r.words[r.op+2] = e.Parent
	} else {
		r.beginOp(op{kind: opRemove, set: set, pos: e.Position, group: e.Group, parent: e.Parent})
	}
	r.lastPos, r.lastGroup = e.Position, e.Group
	r.stored(hash, e.Content)
}

func (r *recorder) goesOn(set int, hash uint64, pos int32, group int16) bool {
	if len(r.words) == 0 || uint16(r.words[r.op]) != uint16(opRemove)|uint16(set)<<8 || r.lastGroup != group {
		return false
	}
	if pos == NoPosition {
		return r.lastPos == NoPosition
	}
	return r.lastPos == pos+1 && r.words[r.op+2] == hash
}

// clear takes over the tables: the fold starts new ones.
func (r *recorder) clear(sets []*set) {
	r.beginOp(op{kind: opClear, n: len(sets)})
	for _, s := range sets {
		r.cleared = append(r.cleared, s.blocks)
		r.changes += s.blocks.n
	}
}

// undo takes the sets back to before the record.
func (r *record) undo(sets []Set) {
	cleared := r.cleared
	for _, o := range slices.Backward(slices.Collect(r.ops)) {
		switch o.kind {
		case opStore:
			o.undoStore(sets[o.set].Blocks)
		case opRemove:
			o.undoRemove(sets[o.set].Blocks)
		case opClear:
			for i := range sets {
				clear(sets[i].Blocks)
			}
			first := len(cleared) - o.n
			for i := range o.n {
				sets[i].Blocks = cleared[first+i].entries()
			}
			cleared = cleared[:first]
		}
	}
}

func (o *op) undoStore(set map[uint64]Entry) {
	for i := range o.n {
		hash, _ := o.block(i)
		e := set[hash]
		if e.Copies--; e.Copies == 0 {
			delete(set, hash)
			continue
		}
		set[hash] = e
	}
}

func (o *op) undoRemove(set map[uint64]Entry) {
	for i := range o.n {
		hash, e := o.block(i)
		if now, held := set[hash]; held {
			e = now
		}
		e.Copies++
		set[hash] = e
	}
}

// line is the record as the journal API gives it. sets name the places of its operations.
func (r *record) line(sets []Set) contract.TruthJournal {
	j := contract.TruthJournal{Seq: r.seq, MonoNs: r.monoNs, Stored: []contract.TruthStore{}, Removed: []contract.U64{}}
	for o := range r.ops {
		stored, removed := &j.Stored, &j.Removed
		if o.set > 0 {
			other := otherOf(&j, sets[o.set])
			stored, removed = &other.Stored, &other.Removed
		}
		switch o.kind {
		case opStore:
			*stored = o.appendStores(*stored)
		case opRemove:
			for i := range o.n {
				*removed = append(*removed, contract.U64(o.blocks[i*blockWords]))
			}
		case opClear:
			j.Cleared = true
		}
	}
	return j
}

// otherOf is the part of a line for a set that is not the device's main one.
func otherOf(j *contract.TruthJournal, s Set) *contract.TruthJournalSet {
	for i := range j.Others {
		if o := &j.Others[i]; o.Tier == s.Tier && o.Class == s.Class {
			return o
		}
	}
	j.Others = append(j.Others, contract.TruthJournalSet{
		Tier: s.Tier, Class: s.Class, Stored: []contract.TruthStore{}, Removed: []contract.U64{},
	})
	return &j.Others[len(j.Others)-1]
}

func (o *op) appendStores(dst []contract.TruthStore) []contract.TruthStore {
	for i := range o.n {
		hash, e := o.block(i)
		s := contract.TruthStore{Hash: contract.U64(hash), Position: int(e.Position), Content: contract.U64(e.Content)}
		if s.Position > 0 {
			parent := contract.U64(e.Parent)
			s.Parent = &parent
		}
		dst = append(dst, s)
	}
	return dst
}

// At is the announced sets as they were after batch seq, from the present ones and the journal undone. It
// fails when the journal no longer reaches back that far, or seq has not been sent.
func (f *Fold) At(seq int64) ([]Set, Head, error) {
	sets, newer, epoch, err := f.since(seq)
	if err != nil {
		return nil, Head{}, err
	}
	for i := len(newer) - 1; i >= 0; i-- {
		newer[i].undo(sets)
	}
	h := Head{Epoch: epoch, Seq: seq, Blocks: len(sets[0].Blocks)}
	for hash := range sets[0].Blocks {
		h.Digest += tokens.DigestTerm(hash)
	}
	return sets, h, nil
}

// since is a copy of the present sets, the records behind seq, oldest first, and the epoch of both.
func (f *Fold) since(seq int64) ([]Set, []record, int64, error) {
	sets, head := f.Sets()
	if seq > head.Seq {
		return nil, nil, 0, fmt.Errorf("sequence %d is not sent yet: the last one is %d", seq, head.Seq)
	}
	f.lock()
	defer f.mu.Unlock()
	if f.head.Epoch != head.Epoch { // restarted between the copy and now
		return nil, nil, 0, fmt.Errorf("sequence %d was another incarnation's: the publisher has just restarted", seq)
	}
	newer := page(f.journal, make([]record, 0, f.journal.Len()), func(r *record) bool { return r.seq > seq })
	for len(newer) > 0 && newer[len(newer)-1].seq > head.Seq {
		newer = newer[:len(newer)-1] // sent between the copy and now
	}
	if f.journal.Len() > 0 && f.journal.At(0).seq > seq+1 {
		return nil, nil, 0, fmt.Errorf("sequence %d is behind the journal, which starts at %d", seq, f.journal.At(0).seq)
	}
	return sets, newer, head.Epoch, nil
}

// Journal appends to dst[:0] up to cap(dst) lines from sequence number from on, oldest first.
func (f *Fold) Journal(from int64, dst []contract.TruthJournal) []contract.TruthJournal {
	f.lock()
	recs := page(f.journal, make([]record, 0, cap(dst)), func(r *record) bool { return r.seq >= from })
	names := make([]Set, len(f.sets.all))
	for i, s := range f.sets.all {
		names[i] = Set{Tier: s.tier, Class: s.class}
	}
	f.mu.Unlock()
	dst = dst[:0]
	for i := range recs {
		dst = append(dst, recs[i].line(names))
	}
	return dst
}

package truth

import (
	"fmt"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
)

// record is what one batch changed, in order, packed: a block stored takes 16 bytes, one removed 32. A
// record does not change once it is in the journal, so readers share it.
type record struct {
	seq, monoNs int64
	changes     int
	ops         []op
	// words hold the blocks of ops in turn: hash and content of each stored one; hash, parent, content
	// and position of each removed one.
	words []uint64
}

type opKind uint8

const (
	opStore  opKind = iota // n blocks from position pos on, the first one's parent is parent
	opRemove               // n blocks
	opClear                // everything: old is what was held
)

type op struct {
	kind   opKind
	set    uint8 // place of the set among the fold's
	n      int32
	pos    int32
	parent uint64
	old    []blocks // of every set
}

const (
	storeWords  = 2
	removeWords = 4
)

func (r *record) beginStore(at int, parent uint64, pos int32, n int) {
	r.ops = append(r.ops, op{kind: opStore, set: uint8(at), parent: parent, pos: pos, n: int32(n)})
	if r.words == nil {
		r.words = make([]uint64, 0, n*storeWords)
	}
	r.changes += n
}

func (r *record) stored(hash, content uint64) { r.words = append(r.words, hash, content) }

func (r *record) removed(at int, hash uint64, e Entry) {
	if n := len(r.ops); n == 0 || r.ops[n-1].kind != opRemove || r.ops[n-1].set != uint8(at) {
		r.ops = append(r.ops, op{kind: opRemove, set: uint8(at)})
	}
	r.ops[len(r.ops)-1].n++
	r.words = append(r.words, hash, e.Parent, e.Content, uint64(uint32(e.Position))|uint64(uint16(e.Group))<<32)
	r.changes++
}

// clear takes over the tables: the fold starts new ones.
func (r *record) clear(sets []*set) {
	o := op{kind: opClear}
	for _, s := range sets {
		o.old = append(o.old, s.blocks)
		r.changes += s.blocks.n
	}
	r.ops = append(r.ops, o)
}

// undo takes the sets back to before the record.
func (r *record) undo(sets []Set) {
	words := r.words
	for i := len(r.ops) - 1; i >= 0; i-- {
		o := &r.ops[i]
		switch o.kind {
		case opStore:
			first := len(words) - int(o.n)*storeWords
			undoStore(sets[o.set].Blocks, words[first:])
			words = words[:first]
		case opRemove:
			first := len(words) - int(o.n)*removeWords
			undoRemove(sets[o.set].Blocks, words[first:])
			words = words[:first]
		case opClear:
			for j := range sets {
				clear(sets[j].Blocks)
			}
			for j := range o.old {
				sets[j].Blocks = o.old[j].entries()
			}
		}
	}
}

func undoStore(set map[uint64]Entry, words []uint64) {
	for i := 0; i < len(words); i += storeWords {
		e := set[words[i]]
		if e.Copies--; e.Copies == 0 {
			delete(set, words[i])
			continue
		}
		set[words[i]] = e
	}
}

func undoRemove(set map[uint64]Entry, words []uint64) {
	for i := 0; i < len(words); i += removeWords {
		e, held := set[words[i]]
		if !held {
			e = Entry{Parent: words[i+1], Content: words[i+2], Position: int32(uint32(words[i+3])), Group: int16(words[i+3] >> 32)}
		}
		e.Copies++
		set[words[i]] = e
	}
}

// line is the record as the journal API gives it. sets name the places of its operations.
func (r *record) line(sets []Set) contract.TruthJournal {
	j := contract.TruthJournal{Seq: r.seq, MonoNs: r.monoNs, Stored: []contract.TruthStore{}, Removed: []contract.U64{}}
	words := r.words
	for i := range r.ops {
		o := &r.ops[i]
		stored, removed := &j.Stored, &j.Removed
		if o.set > 0 {
			other := otherOf(&j, sets[o.set])
			stored, removed = &other.Stored, &other.Removed
		}
		switch o.kind {
		case opStore:
			n := int(o.n) * storeWords
			*stored = appendStores(*stored, o, words[:n])
			words = words[n:]
		case opRemove:
			for range o.n {
				*removed = append(*removed, contract.U64(words[0]))
				words = words[removeWords:]
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

func appendStores(dst []contract.TruthStore, o *op, words []uint64) []contract.TruthStore {
	parent := contract.U64(o.parent)
	for i := 0; i < len(words); i += storeWords {
		s := contract.TruthStore{Hash: contract.U64(words[i]), Position: NoPosition, Content: contract.U64(words[i+1])}
		if o.pos != NoPosition {
			s.Position = int(o.pos) + i/storeWords
		}
		if s.Position > 0 {
			p := parent
			s.Parent = &p
		}
		dst = append(dst, s)
		parent = s.Hash
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
	f.mu.Lock()
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
	f.mu.Lock()
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

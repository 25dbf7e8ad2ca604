package oracle

import "encoding/binary"

// Reference is an index that is slow and obviously right: per holder, a map from engine hash to the chain
// of content hashes that ends in the block. It is not safe for concurrent use.
type Reference struct {
	// maxCopies is how many copies of a hash are counted: 1 for a plain index, in which a removal ends a
	// membership.
	maxCopies int
	holders   map[uint32]map[uint64]*held
}

// held is one membership.
type held struct {
	// chain is the contents from the root to the block, 8 bytes each, as a key.
	chain  string
	copies int
}

// Block is one membership of a Reference.
type Block struct {
	Hash     uint64
	Position int
	Content  uint64
}

// Stored says what Reference.Store did, in blocks.
type Stored struct {
	Stored, Duplicate, Moved int
	UnknownParent            bool
}

// NewReference counts up to maxCopies copies of a hash.
func NewReference(maxCopies int) *Reference {
	return &Reference{maxCopies: maxCopies, holders: make(map[uint32]map[uint64]*held)}
}

// Store puts hashes, which name contents, under parent or at the root. Nothing is stored under a parent
// that the holder does not have. A hash that is held elsewhere moves and keeps its copies.
func (r *Reference) Store(holder uint32, parent uint64, hasParent bool, hashes, contents []uint64) (out Stored) {
	if r.holders[holder] == nil {
		r.holders[holder] = make(map[uint64]*held)
	}
	blocks := r.holders[holder]
	chain := ""
	if hasParent {
		p := blocks[parent]
		if p == nil {
			return Stored{UnknownParent: true}
		}
		chain = p.chain
	}
	for i, hash := range hashes {
		chain += string(binary.BigEndian.AppendUint64(nil, contents[i]))
		old := blocks[hash]
		copies := 1
		switch {
		case old == nil:
			out.Stored++
		case old.chain == chain:
			out.Duplicate++
			copies += old.copies
		default:
			out.Moved++
			copies += old.copies
		}
		blocks[hash] = &held{chain: chain, copies: min(copies, r.maxCopies)}
	}
	return out
}

// Remove takes one copy of each hash. removed counts memberships that ended, unknown hashes that the
// holder did not have.
func (r *Reference) Remove(holder uint32, hashes []uint64) (removed, unknown int) {
	for _, hash := range hashes {
		block := r.holders[holder][hash]
		if block == nil {
			unknown++
			continue
		}
		if block.copies--; block.copies == 0 {
			delete(r.holders[holder], hash)
			removed++
		}
	}
	return removed, unknown
}

// Clear ends every membership of holder.
func (r *Reference) Clear(holder uint32) {
	if r.holders[holder] != nil {
		r.holders[holder] = make(map[uint64]*held)
	}
}

// Drop forgets holder.
func (r *Reference) Drop(holder uint32) { delete(r.holders, holder) }

// Score is the number of leading blocks of chain that holder has.
func (r *Reference) Score(holder uint32, chain []uint64) int {
	has := make(map[string]bool)
	for _, block := range r.holders[holder] {
		has[block.chain] = true
	}
	prefix := ""
	for i, content := range chain {
		prefix += string(binary.BigEndian.AppendUint64(nil, content))
		if !has[prefix] {
			return i
		}
	}
	return len(chain)
}

// Count is how many engine hashes holder has.
func (r *Reference) Count(holder uint32) int { return len(r.holders[holder]) }

// Blocks are the memberships of holder, by hash.
func (r *Reference) Blocks(holder uint32) map[uint64]Block {
	out := make(map[uint64]Block)
	for hash, block := range r.holders[holder] {
		last := block.chain[len(block.chain)-8:]
		out[hash] = Block{Hash: hash, Position: len(block.chain)/8 - 1, Content: binary.BigEndian.Uint64([]byte(last))}
	}
	return out
}

// Chain is the contents from the root to the block that hash names, nil when holder does not have it.
func (r *Reference) Chain(holder uint32, hash uint64) (contents []uint64) {
	block := r.holders[holder][hash]
	if block == nil {
		return nil
	}
	for rest := []byte(block.chain); len(rest) > 0; rest = rest[8:] {
		contents = append(contents, binary.BigEndian.Uint64(rest))
	}
	return contents
}

package twist

import (
	"bytes"
	"iter"
	"slices"
)

// maxStale bounds the removed blocks that are looked for in the past: the last ones are the likeliest to have
// their parent still.
const maxStale = 4

// StaleStore announces a block once more that this batch removes, behind everything else in it: stored,
// removed, stored, and no removal to come (vLLM issue 49125, where a partial block's hash returns after its
// promotion). past yields the payloads before this one, newest first; the store is a copy of the one there, cut
// to that block. Only a block whose parent the batch leaves is of use, and none that it stores again itself.
func (b *Batch) StaleStore(past iter.Seq[[]byte]) bool {
	gone := b.removals()
	for i := len(gone) - 1; i >= max(0, len(gone)-maxStale); i-- {
		e, ok := findStore(past, gone[i])
		if !ok || b.stores(gone[i]) || slices.ContainsFunc(gone, func(g removal) bool { return bytes.Equal(g.hash, field(&e, parent).raw) }) {
			continue
		}
		events := &b.root.items[1]
		events.items = append(events.items, e)
		return true
	}
	return false
}

// removal is one removed block.
type removal struct {
	hash   []byte // as it is on the wire
	medium string
}

func (b *Batch) removals() (gone []removal) {
	for i := range b.events() {
		if e := &b.events()[i]; is(e, removed) && withHashes(e) {
			for _, h := range field(e, hashes).items {
				gone = append(gone, removal{h.raw, mediumOf(e)})
			}
		}
	}
	return gone
}

// stores says whether the batch itself stores a block.
func (b *Batch) stores(g removal) bool {
	return b.find(stored, func(e *value) bool { return at(e, g) >= 0 }) != nil
}

// at is where in a store's list a block is, -1 when it is not.
func at(e *value, g removal) int {
	if !isStore(e) || mediumOf(e) != g.medium {
		return -1
	}
	return slices.IndexFunc(field(e, hashes).items, func(h value) bool { return bytes.Equal(h.raw, g.hash) })
}

// findStore is the latest store of a block, cut to it.
func findStore(past iter.Seq[[]byte], g removal) (e value, ok bool) {
	for payload := range past {
		if !bytes.Contains(payload, g.hash) {
			continue
		}
		b, err := Parse(payload)
		if err != nil {
			continue // another fault has made it unreadable
		}
		if e := b.find(stored, func(e *value) bool { return at(e, g) >= 0 }); e != nil {
			return cut(e, at(e, g))
		}
	}
	return value{}, false
}

// cut makes a store of n blocks one of its i-th. It fails where the tokens are not those of the blocks.
func cut(e *value, i int) (one value, ok bool) {
	list, ids := field(e, hashes).items, field(e, tokenIDs).items
	per := len(ids) / len(list)
	if per == 0 || per*len(list) != len(ids) {
		return value{}, false
	}
	one = value{shape: e.shape, items: slices.Clone(e.items)}
	if i > 0 {
		*field(&one, parent) = list[i-1]
	}
	*field(&one, hashes) = value{shape: array, items: list[i : i+1]}
	*field(&one, tokenIDs) = value{shape: array, items: ids[i*per : (i+1)*per]}
	if keys := field(&one, extraKeys); keys != nil && keys.shape == array && len(keys.items) == len(list) {
		*keys = value{shape: array, items: keys.items[i : i+1]}
	}
	return one, true
}

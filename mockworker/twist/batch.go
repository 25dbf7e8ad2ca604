package twist

import (
	"errors"
	"fmt"
	"slices"
)

// Batch is one payload that may be changed before it goes out. Every method that changes it says whether
// there was anything to change: a batch without a stored event has no parent to get wrong.
type Batch struct{ root value }

// Parse reads a payload: a positional array of ts, events and, but for the oldest engines, the rank.
func Parse(payload []byte) (*Batch, error) {
	root, rest, err := parse(payload, 0)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading an event batch: %w", err)
	case len(rest) > 0:
		return nil, fmt.Errorf("reading an event batch: %d bytes stand behind it", len(rest))
	case root.shape != array || len(root.items) < 2 || root.items[1].shape != array:
		return nil, errors.New("reading an event batch: it is no array of a time and events")
	}
	return &Batch{root: root}, nil
}

// Bytes is the payload as it is now.
func (b *Batch) Bytes() []byte { return b.root.append(nil) }

// Empty says that no event is left, so that there is nothing to send.
func (b *Batch) Empty() bool { return len(b.events()) == 0 }

func (b *Batch) events() []value { return b.root.items[1].items }

// The types of event there are.
const (
	stored  = "BlockStored"
	removed = "BlockRemoved"
)

// is says whether an event is of a type.
func is(e *value, kind string) bool {
	switch {
	case e.shape == array && len(e.items) > 0:
		return e.items[0].isText(kind)
	case e.shape == object && len(e.items) > 1:
		return e.items[0].isText("type") && e.items[1].isText(kind)
	}
	return false
}

// place is where a field stands in an event that is an array. Versions only ever added to the end.
func place(e *value, field string) int {
	if field == medium {
		if is(e, removed) {
			return 2
		}
		return 6
	}
	for i, name := range []string{"type", hashes, parent, tokenIDs, blockSize} {
		if name == field {
			return i
		}
	}
	return 8 // extra_keys
}

// The fields that are changed here.
const (
	hashes    = "block_hashes"
	parent    = "parent_block_hash"
	tokenIDs  = "token_ids"
	blockSize = "block_size"
	extraKeys = "extra_keys"
	medium    = "medium"
)

// field is a field of an event, nil when the event has none of this name.
func field(e *value, name string) *value {
	if e.shape == array {
		if i := place(e, name); i < len(e.items) {
			return &e.items[i]
		}
		return nil
	}
	for i := 0; i+1 < len(e.items); i += 2 {
		if e.items[i].isText(name) {
			return &e.items[i+1]
		}
	}
	return nil
}

// unset gives a field its default: nil in an array, no key in a map.
func unset(e *value, name string) {
	if e.shape == array {
		*field(e, name) = null()
		return
	}
	for i := 0; i+1 < len(e.items); i += 2 {
		if e.items[i].isText(name) {
			e.items = slices.Delete(e.items, i, i+2)
			return
		}
	}
}

// find is the first event of a type that want takes.
func (b *Batch) find(kind string, want func(*value) bool) *value {
	for i := range b.events() {
		if e := &b.events()[i]; is(e, kind) && want(e) {
			return e
		}
	}
	return nil
}

// mediumOf is the medium of an event, empty when it tells none.
func mediumOf(e *value) string {
	v := field(e, medium)
	if v == nil || v.shape != scalar || len(v.raw) == 0 || v.raw[0]&0xe0 != 0xa0 {
		return ""
	}
	return string(v.raw[1:])
}

// withHashes are events that name at least one block.
func withHashes(e *value) bool {
	h := field(e, hashes)
	return h != nil && h.shape == array && len(h.items) > 0
}

// isStore are stores with every field that a store must have.
func isStore(e *value) bool {
	ids := field(e, tokenIDs)
	return withHashes(e) && field(e, parent) != nil && ids != nil && ids.shape == array
}

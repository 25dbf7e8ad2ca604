package twist

import (
	"bytes"
	"slices"
)

// DropRemovals takes out every BlockRemoved of a medium that from takes, and returns how many blocks they
// named. An engine whose session ends does so (SGLang issue 29750), and a store-only host tier (LMCache 5076).
func (b *Batch) DropRemovals(from func(medium string) bool) (blocks int) {
	return b.drop(removed, from)
}

// DropStores is the same for BlockStored: of a host tier that is not announced (LMCache issue 3532), or of
// blocks that come back to the device in silence (SGLang issue 32537).
func (b *Batch) DropStores(from func(medium string) bool) (blocks int) {
	return b.drop(stored, from)
}

func (b *Batch) drop(kind string, from func(medium string) bool) (blocks int) {
	events := &b.root.items[1]
	events.items = slices.DeleteFunc(events.items, func(e value) bool {
		if !is(&e, kind) || !from(mediumOf(&e)) {
			return false
		}
		if h := field(&e, hashes); h != nil {
			blocks += len(h.items)
		}
		return true
	})
	return blocks
}

// DuplicateStore announces the batch's first stored blocks twice, as an engine that reports reused prefixes
// does (vLLM issue 45261).
func (b *Batch) DuplicateStore() bool {
	e := b.find(stored, withHashes)
	if e == nil {
		return false
	}
	events := &b.root.items[1]
	events.items = append(events.items, *e)
	return true
}

// DuplicateHash names the last block of the first store twice in its list, tokens included (Dynamo pull
// request 6569: a consumer then cleared the whole worker).
func (b *Batch) DuplicateHash() bool {
	e := b.find(stored, isStore)
	if e == nil {
		return false
	}
	list, ids := field(e, hashes), field(e, tokenIDs)
	per := len(ids.items) / len(list.items)
	list.items = append(list.items, list.items[len(list.items)-1])
	ids.items = append(ids.items, ids.items[len(ids.items)-per:]...)
	if keys := field(e, extraKeys); keys != nil && keys.shape == array && len(keys.items) > 0 {
		keys.items = append(keys.items, keys.items[len(keys.items)-1])
	}
	return true
}

// UnknownEvent adds an event of a type that no release has: a block that nobody uses any more but that is
// still there (vLLM pull request 50732).
func (b *Batch) UnknownEvent() bool {
	e := b.find(stored, withHashes)
	if e == nil {
		e = b.find(removed, withHashes)
	}
	if e == nil {
		return false
	}
	list := value{shape: array, items: field(e, hashes).items[:1]}
	fields := []value{text("BlockInactive"), list, text("GPU")}
	if e.shape == object {
		fields = []value{text("type"), fields[0], text(hashes), list, text("medium"), fields[2]}
	}
	events := &b.root.items[1]
	events.items = append(events.items, value{shape: e.shape, items: fields})
	return true
}

// furthest is the number of elements of the longest array event there is to come: vLLM's stores of 0.32
// have 14 fields as maps.
const furthest = 15

// UnknownField gives every event a field that no release has. A map gets a key, an array one more element
// behind all that any version may have there. They are those of open pull requests: BlockStored.origin
// (vLLM 51699) and BlockRemoved.remaining_copy_counts (48933); to a cleared event it is the first.
func (b *Batch) UnknownField() bool {
	for i := range b.events() {
		e := &b.events()[i]
		name, v := text("origin"), text("NEW")
		if is(e, removed) {
			name, v = text("remaining_copy_counts"), value{shape: array, items: []value{{raw: []byte{0}}}}
		}
		if e.shape == object {
			e.items = append(e.items, name, v)
			continue
		}
		for len(e.items) < furthest {
			e.items = append(e.items, null())
		}
		e.items = append(e.items, v)
	}
	return len(b.events()) > 0
}

// UnknownElement gives the batch itself one more element, the sixteen bytes of a publisher's id (vLLM pull
// request 57789). It stands where the rank would, if the engine is too old to have one.
func (b *Batch) UnknownElement() bool {
	id := append([]byte{0xc4, 16}, bytes.Repeat([]byte{0x5a}, 16)...)
	if len(b.root.items) == 2 {
		b.root.items = append(b.root.items, null())
	}
	b.root.items = append(b.root.items, value{raw: id})
	return true
}

// UnknownParent puts the first store behind a block that was never announced (vLLM issue 58119).
func (b *Batch) UnknownParent() bool {
	e := b.find(stored, isStore)
	if e == nil {
		return false
	}
	*field(e, parent) = other(field(e, hashes).items[0], 0xff)
	return true
}

// Mask takes the first half of the first store's blocks, or all of them, out of its hashes and not out of
// its tokens, as sparse attention groups do (vLLM issue 44451).
func (b *Batch) Mask(all bool) bool {
	e := b.find(stored, withHashes)
	if e == nil {
		return false
	}
	list := field(e, hashes)
	n := (len(list.items) + 1) / 2
	if all {
		n = len(list.items)
	}
	list.items = list.items[n:]
	if keys := field(e, extraKeys); keys != nil && keys.shape == array {
		keys.items = keys.items[min(n, len(keys.items)):]
		if len(keys.items) == 0 {
			unset(e, extraKeys) // an engine turns an empty list into no list
		}
	}
	return true
}

// Corrupt changes one field of the first event that has it: of a store its first hash, its parent (which is
// forgotten, so that the blocks seem to be a prompt's first: vllm-ascend issue 12002) or its first token.
// Any other name is the payload itself, which then is no MessagePack from its events on.
func (b *Batch) Corrupt(name string) bool {
	switch name {
	case "hash":
		return b.corruptHash()
	case "parent":
		e := b.find(stored, func(e *value) bool { p := field(e, parent); return p != nil && !p.isNull() })
		if e != nil {
			*field(e, parent) = null()
		}
		return e != nil
	case "tokens":
		return b.corruptToken()
	}
	b.root.items[1] = value{raw: []byte{0xc1}} // the one byte that MessagePack never uses
	return true
}

func (b *Batch) corruptHash() bool {
	e := b.find(stored, withHashes)
	if e == nil {
		return false
	}
	list := field(e, hashes)
	list.items[0] = other(list.items[0], 1)
	return true
}

func (b *Batch) corruptToken() bool {
	e := b.find(stored, func(e *value) bool { t := field(e, tokenIDs); return t != nil && len(t.items) > 0 })
	if e == nil {
		return false
	}
	id := &field(e, tokenIDs).items[0]
	for id.shape == array && len(id.items) > 0 { // SGLang's pairs, with speculative decoding
		id = &id.items[0]
	}
	if id.shape != scalar {
		return false
	}
	*id = value{raw: []byte{0}} // token 0, which no prompt of ours begins with
	return true
}

// other is a hash that differs from one in bits of its last byte.
func other(hash value, bits byte) value {
	if len(hash.raw) < 9 { // never of a real engine: its hashes are 64 bits or digests
		return value{raw: []byte{0xcf, 0xff, 0, 0, 0, 0, 0, 0, bits}}
	}
	raw := bytes.Clone(hash.raw)
	raw[len(raw)-1] ^= bits
	return value{raw: raw}
}

// Truncate cuts a payload in the middle.
func Truncate(payload []byte) []byte { return payload[:len(payload)/2] }

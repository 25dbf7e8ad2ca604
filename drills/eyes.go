package drills

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
)

// The lab reads event batches with a reader of its own, which shares nothing with the gateway under test
// nor with the engine: what both of them get wrong must not look right.

// wireBatch is the payload of a batch as the lab's own eyes read it.
type wireBatch struct {
	// ts is the publisher's own time stamp, seconds since 1970.
	ts     float64
	events []wireEvent
	// strange says that the batch itself has an element that no version has.
	strange bool
}

// wireEvent is one event. Hashes are the last 64 bits of what the engine sent, as in the engines' truth.
type wireEvent struct {
	kind      string
	hashes    []uint64
	parent    *uint64
	tokens    []uint64
	blockSize int
	// strange says that it has a field that no version has.
	strange bool
}

// Types of events.
const (
	wireStored  = "BlockStored"
	wireRemoved = "BlockRemoved"
	wireCleared = "AllBlocksCleared"
)

// Every version's fields: what stands behind the last, or under another name, is strange. The longest
// array has 15 elements.
const (
	mostElements = 15
	mostOfBatch  = 3 // ts, events, rank
)

var wireKeys = []string{
	"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx",
	"kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership", "session_id", "cache_salt",
}

// errCut says that a payload ends too early.
var errCut = errors.New("the payload is cut")

// readBatch reads a payload: an array of ts, events and perhaps a rank.
func readBatch(payload []byte) (wireBatch, error) {
	dec := msgpack.NewDecoder(bytes.NewReader(payload))
	dec.UseLooseInterfaceDecoding(true)
	root, err := dec.DecodeInterface()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return wireBatch{}, errCut
	case err != nil:
		return wireBatch{}, fmt.Errorf("reading an event batch: %w", err)
	}
	items, _ := root.([]any)
	if len(items) < 2 {
		return wireBatch{}, errors.New("reading an event batch: it is no array of a time and events")
	}
	b := wireBatch{strange: len(items) > mostOfBatch}
	b.ts, _ = items[0].(float64)
	events, ok := items[1].([]any)
	if !ok {
		return wireBatch{}, errors.New("reading an event batch: its events are no list")
	}
	for _, e := range events {
		b.events = append(b.events, readEvent(e))
	}
	return b, nil
}

// readEvent reads an event of either layout.
func readEvent(x any) wireEvent {
	fields, strange := map[string]any{}, false
	switch x := x.(type) {
	case []any:
		strange = len(x) > mostElements
		for i, name := range []string{"type", "block_hashes", "parent_block_hash", "token_ids", "block_size"} {
			if i < len(x) {
				fields[name] = x[i]
			}
		}
	case map[string]any:
		fields = x
		for name := range x {
			strange = strange || !slices.Contains(wireKeys, name)
		}
	}
	e := wireEvent{strange: strange, hashes: wireNumbers(fields["block_hashes"]), tokens: wireNumbers(fields["token_ids"])}
	e.kind, _ = fields["type"].(string)
	if p, ok := wireNumber(fields["parent_block_hash"]); ok {
		e.parent = &p
	}
	if n, ok := wireNumber(fields["block_size"]); ok {
		e.blockSize = int(n)
	}
	return e
}

func wireNumbers(x any) []uint64 {
	list, _ := x.([]any)
	var out []uint64
	for _, v := range list {
		if pair, ok := v.([]any); ok && len(pair) > 0 { // of an engine that speculates
			v = pair[0]
		}
		n, _ := wireNumber(v)
		out = append(out, n)
	}
	return out
}

// wireNumber is a number or a hash: of bytes the last 8, of a signed one its two's complement.
func wireNumber(x any) (uint64, bool) {
	switch v := x.(type) {
	case int64:
		return uint64(v), true
	case uint64:
		return v, true
	case []byte:
		tail := v[max(0, len(v)-8):]
		return binary.BigEndian.Uint64(append(make([]byte, 8-len(tail)), tail...)), true
	}
	return 0, false
}

// holding is what an engine's cache had, by its own word, when batch seq was the last one published: the
// position of each block by its hash.
type holding struct {
	seq    int64
	blocks map[uint64]int
}

// folded is what a subscriber holds after batches up to a number, with the copies of each block.
func folded(seen []batch, upTo int64) map[uint64]int {
	out := map[uint64]int{}
	for _, b := range seen {
		if b.seq > upTo {
			continue
		}
		for _, e := range b.wire.events {
			switch e.kind {
			case wireStored:
				for _, h := range e.hashes {
					out[h]++
				}
			case wireRemoved:
				for _, h := range e.hashes {
					if out[h] > 1 {
						out[h]--
					} else {
						delete(out, h)
					}
				}
			case wireCleared:
				clear(out)
			}
		}
	}
	return out
}

// ghosts are the blocks of batches that a subscriber holds and the engine does not have. seen must reach the
// holding's number.
func ghosts(seen []batch, has holding) map[uint64]bool {
	out := map[uint64]bool{}
	for h := range folded(seen, has.seq) {
		if _, ok := has.blocks[h]; !ok {
			out[h] = true
		}
	}
	return out
}

// unheard are the blocks that the engine has and a subscriber does not hold, although it got everything.
func unheard(seen []batch, has holding) map[uint64]bool {
	heard, out := folded(seen, has.seq), map[uint64]bool{}
	for h := range has.blocks {
		if heard[h] == 0 {
			out[h] = true
		}
	}
	return out
}

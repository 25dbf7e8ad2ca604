package events

import (
	"encoding/binary"
	"strings"
)

// Kind says what an event reports.
type Kind uint8

// The three events that engines publish.
const (
	Stored Kind = iota + 1
	Removed
	Cleared
	// Attached is a kind of Op alone: a store that names blocks and does not describe them.
	Attached
)

// String is the class name on the wire.
func (k Kind) String() string {
	switch k {
	case Attached:
		return "Attached"
	case Stored:
		return "BlockStored"
	case Removed:
		return "BlockRemoved"
	case Cleared:
		return "AllBlocksCleared"
	}
	return "unknown"
}

// Key is one of the extra keys that entered a block's hash beside its tokens: a text (LoRA name, salt),
// a text with an offset (a multimodal item), or bytes (embeddings).
type Key struct {
	Text      string
	HasOffset bool
	Offset    int64 // tokens from the block's start to the item's start, negative when it began before
	Bytes     []byte
}

// Event is one event of a batch as it was sent. Slices and byte keys are valid until the batch is decoded
// into again or its payload changes. Empty texts stand for absent ones.
type Event struct {
	Kind   Kind
	Hashes []uint64 // signed ones as two's complement, bytes as their last 8, big-endian

	// Of a Stored only.
	Parent    uint64
	HasParent bool
	Tokens    []uint32 // of all blocks; of a bigram page the first of each pair
	Bigram    bool
	BlockSize int
	LoRAID    int64 // 0 without an adapter: engines count them from 1
	LoRAName  string
	Salt      string
	ExtraKeys [][]Key // per hash; nil when no block has any
	SpecKind  string
	Window    int64

	Medium   string
	HasGroup bool
	Group    int64
	Locality string
	Owner    string
}

// Batch is one decoded message. The zero value is ready; decoding into it again reuses its memory.
type Batch struct {
	TS     float64 // unix seconds at which the engine collected it, 0 when unreadable
	Rank   int     // data-parallel rank as stamped, -1 when absent
	Events []Event
	// Malformed and UnknownType count events that were left out.
	Malformed, UnknownType int

	// Arenas behind the events' slices. A slice keeps pointing at the old array when one grows.
	hashes []uint64
	tokens []uint32
	// keys counts extra keys and the blocks that list them, towards maxKeys.
	keys int
}

// Decode reads payload into b. An event that cannot be read is counted and left out. An error means that
// the payload as a whole is not a batch; b is then empty.
func (b *Batch) Decode(payload []byte) error {
	b.reset()
	if len(payload) > maxPayload {
		return errMany
	}
	r := reader{buf: payload}
	err := b.envelope(&r)
	if err == nil && r.left() > 0 {
		err = errExtra
	}
	if err != nil {
		b.reset()
	}
	return err
}

// HasClear reports whether payload carries the engine's own clear.
func HasClear(payload []byte) bool {
	var b Batch
	return b.Decode(payload) == nil && b.Clears()
}

// Clears reports whether b carries the engine's own clear.
func (b *Batch) Clears() bool {
	for i := range b.Events {
		if b.Events[i].Kind == Cleared && !b.Events[i].foreignOwner() {
			return true
		}
	}
	return false
}

func (b *Batch) reset() {
	clear(b.Events) // texts and byte keys of the last batch must not be kept alive
	*b = Batch{Rank: -1, Events: b.Events[:0], hashes: b.hashes[:0], tokens: b.tokens[:0]}
}

// envelope reads [ts, events, rank, ...] or {"ts", "events", "data_parallel_rank", ...}.
func (b *Batch) envelope(r *reader) error {
	if n, err := r.array(); err == nil {
		return b.arrayBatch(r, n)
	}
	n, err := r.object()
	if err != nil {
		return err
	}
	seen := false
	for ; n > 0; n-- {
		key, err := r.text()
		if err != nil {
			return err
		}
		switch string(key) {
		case "ts":
			err = b.readTS(r)
		case "events":
			seen = true
			err = b.readEvents(r)
		case "data_parallel_rank":
			err = b.readRank(r)
		default:
			err = r.skip(maxDepth)
		}
		if err != nil {
			return err
		}
	}
	if !seen {
		return errType
	}
	return nil
}

func (b *Batch) arrayBatch(r *reader, n int) error {
	if n < 2 {
		return errType
	}
	if err := b.readTS(r); err != nil {
		return err
	}
	if err := b.readEvents(r); err != nil {
		return err
	}
	if n > 2 {
		if err := b.readRank(r); err != nil {
			return err
		}
	}
	for ; n > 3; n-- {
		if err := r.skip(maxDepth); err != nil {
			return err
		}
	}
	return nil
}

// readTS reads the time stamp; one that is not a number is passed over, because it costs no event.
func (b *Batch) readTS(r *reader) error {
	v, err := r.number()
	if err != nil {
		return r.skip(maxDepth)
	}
	b.TS = v
	return nil
}

// readRank reads the rank like readTS.
func (b *Batch) readRank(r *reader) error {
	v, err := r.integer()
	if err != nil || v < 0 || v > 1<<16 {
		if err != nil {
			return r.skip(maxDepth)
		}
		return nil
	}
	b.Rank = int(v)
	return nil
}

// readEvents reads the list of events. An unreadable event is passed over as a value; only bytes that are
// no value at all end the batch.
func (b *Batch) readEvents(r *reader) error {
	b.Events, b.hashes, b.tokens, b.keys = b.Events[:0], b.hashes[:0], b.tokens[:0], 0
	n, err := r.array()
	if err != nil {
		return err
	}
	if n > maxEvents {
		return errMany
	}
	for ; n > 0; n-- {
		start := r.at
		var e Event
		if b.readEvent(r, &e) {
			b.Events = append(b.Events, e)
			continue
		}
		r.at = start
		if err := r.skip(maxDepth); err != nil {
			return err
		}
	}
	return nil
}

// readEvent reads one event of either layout, or counts why not.
func (b *Batch) readEvent(r *reader, e *Event) bool {
	seen, known, err := b.eventFields(r, e)
	switch {
	case err == nil && !known:
		b.UnknownType++
		return false
	case err != nil || seen&required[e.Kind] != required[e.Kind]:
		b.Malformed++
		return false
	}
	return true
}

// eventFields reads the fields of one event and says which it saw.
func (b *Batch) eventFields(r *reader, e *Event) (seen fields, known bool, err error) {
	if n, err := r.array(); err == nil {
		return b.arrayEvent(r, e, n)
	}
	n, err := r.object()
	if err != nil {
		return 0, false, err
	}
	return b.mapEvent(r, e, n)
}

// arrayEvent reads [tag, fields...], the layout of vLLM up to 0.23 and of SGLang until September 2026.
func (b *Batch) arrayEvent(r *reader, e *Event, n int) (seen fields, known bool, err error) {
	if n < 1 {
		return 0, false, errType
	}
	tag, err := r.text()
	if err != nil {
		return 0, false, err
	}
	if e.Kind = kindOf(tag); e.Kind == 0 {
		return 0, false, nil
	}
	slots := arraySlots[e.Kind]
	for i := range n - 1 {
		f := unknownField
		if i < len(slots) {
			f = slots[i]
		}
		if err := b.field(r, e, f); err != nil {
			return 0, true, err
		}
		seen |= 1 << f
	}
	return seen, true, nil
}

// mapEvent reads {"type": tag, fields...}. The tag is first on the wire, but any order is read.
func (b *Batch) mapEvent(r *reader, e *Event, n int) (seen fields, known bool, err error) {
	tagged := false
	for ; n > 0; n-- {
		key, err := r.text()
		if err != nil {
			return 0, false, err
		}
		if string(key) == "type" {
			tag, err := r.text()
			if err != nil {
				return 0, false, err
			}
			if tagged, e.Kind = true, kindOf(tag); e.Kind == 0 {
				return 0, false, nil
			}
			continue
		}
		f := fieldOf(key)
		if err := b.field(r, e, f); err != nil {
			return 0, tagged, err
		}
		seen |= 1 << f
	}
	if !tagged {
		return 0, false, errType
	}
	return seen, true, nil
}

func kindOf(tag []byte) Kind {
	switch string(tag) {
	case "BlockStored":
		return Stored
	case "BlockRemoved":
		return Removed
	case "AllBlocksCleared":
		return Cleared
	}
	return 0
}

// hash reads a block hash: an integer as its 64-bit pattern, or bytes by their last 8 as big-endian.
func (r *reader) hash() (uint64, error) {
	v, _, err := r.bits()
	if err != errType {
		return v, err
	}
	digest, err := r.bytes()
	if err != nil {
		return 0, err
	}
	if len(digest) == 0 {
		return 0, errRange
	}
	if len(digest) > 8 {
		digest = digest[len(digest)-8:]
	}
	var wide [8]byte
	copy(wide[8-len(digest):], digest)
	return binary.BigEndian.Uint64(wide[:]), nil
}

// readHashes reads a list of block hashes into the arena.
func (b *Batch) readHashes(r *reader, e *Event) error {
	n, err := r.array()
	if err != nil {
		return err
	}
	start := len(b.hashes)
	for ; n > 0; n-- {
		h, err := r.hash()
		if err != nil {
			return err
		}
		b.hashes = append(b.hashes, h)
	}
	e.Hashes = b.hashes[start:len(b.hashes):len(b.hashes)]
	return nil
}

// readTokens reads a list of token ids, or of bigrams, into the arena; a mix of both is malformed.
func (b *Batch) readTokens(r *reader, e *Event) error {
	n, err := r.array()
	if err != nil {
		return err
	}
	start := len(b.tokens)
	if n > 0 && r.buf[r.at] == 0x92 {
		e.Bigram = true
	}
	for ; n > 0; n-- {
		t, err := e.readToken(r)
		if err != nil {
			return err
		}
		b.tokens = append(b.tokens, t)
	}
	e.Tokens = b.tokens[start:len(b.tokens):len(b.tokens)]
	return nil
}

// readToken reads one id, or the first id of a pair. Neighbouring pairs overlap, so the firsts are the
// text; what is lost is the one token behind the last page, which the page's hash does depend on.
func (e *Event) readToken(r *reader) (uint32, error) {
	if !e.Bigram {
		return r.token()
	}
	if n, err := r.array(); err != nil || n != 2 {
		return 0, errType
	}
	first, err := r.token()
	if err == nil {
		_, err = r.token()
	}
	return first, err
}

// readExtraKeys reads one entry per block, nil or a list of keys. Memory is taken only once a block has keys.
func (b *Batch) readExtraKeys(r *reader, e *Event) error {
	if r.null() {
		return nil
	}
	n, err := r.array()
	if err != nil {
		return err
	}
	if b.keys += n; b.keys > maxKeys {
		return errMany
	}
	for i := range n {
		if r.null() {
			continue
		}
		if e.ExtraKeys == nil {
			e.ExtraKeys = make([][]Key, n)
		}
		if e.ExtraKeys[i], err = b.readKeys(r); err != nil {
			return err
		}
	}
	return nil
}

// readKeys reads the keys of one block.
func (b *Batch) readKeys(r *reader) ([]Key, error) {
	n, err := r.array()
	if err != nil {
		return nil, err
	}
	if b.keys += n; b.keys > maxKeys {
		return nil, errMany
	}
	keys := make([]Key, n)
	for i := range keys {
		if err := keys[i].read(r); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// read reads a text, [text, offset] or bytes.
func (k *Key) read(r *reader) error {
	if text, err := r.text(); err == nil {
		k.Text = string(text)
		return nil
	}
	if data, err := r.bytes(); err == nil {
		k.Bytes = data
		return nil
	}
	n, err := r.array()
	if err != nil || n != 2 {
		return errType
	}
	text, err := r.text()
	if err != nil {
		return err
	}
	k.Text, k.HasOffset = string(text), true
	k.Offset, err = r.integer()
	return err
}

// readMetadata reads SGLang's map of further fields, of which the salt is the only known one.
func (e *Event) readMetadata(r *reader) error {
	n, err := r.object()
	if err != nil {
		return err
	}
	for ; n > 0; n-- {
		key, err := r.text()
		if err != nil {
			return err
		}
		if string(key) == "cache_salt" {
			err = readText(r, &e.Salt)
		} else {
			err = r.skip(maxDepth)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readText reads a string or nil. The words that every event repeats cost no memory.
func readText(r *reader, dst *string) error {
	if r.null() {
		*dst = ""
		return nil
	}
	text, err := r.text()
	if err != nil {
		return err
	}
	switch string(text) {
	case "GPU":
		*dst = "GPU"
	case "full_attention":
		*dst = "full_attention"
	case "LOCAL":
		*dst = "LOCAL"
	default:
		*dst = string(text)
	}
	return nil
}

// readInt reads an integer, or nil as 0.
func readInt(r *reader, dst *int64) (err error) {
	if r.null() {
		*dst = 0
		return nil
	}
	*dst, err = r.integer()
	return err
}

// foreignOwner reports an event of the residency agent, which speaks about its own store, not the
// engine's.
func (e *Event) foreignOwner() bool { return strings.EqualFold(e.Owner, "kvcr") }

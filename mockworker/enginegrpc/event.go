package enginegrpc

import (
	"encoding/binary"
	"errors"
	"math"

	pb "fleetdrill/internal/protos/smgcommon"
)

// Kinds of event that a message can tell.
type kind uint8

const (
	unknown kind = iota
	stored
	removed
	cleared
)

// event is one event of a payload. Pointers are nil for what it does not tell.
type event struct {
	kind      kind
	hashes    []int64
	parent    *int64
	tokens    []uint32
	blockSize int64
	loraID    *int64
	loraName  string
	salt      string
	// extraKeys has one entry per block that has extra keys or stands before one that has.
	extraKeys [][]*pb.KvBlockExtraKey
	medium    *string
	group     *uint32
	spec      *string
	window    *uint32
	locality  *string
	ownership *string
	session   *string
}

// batch is a payload taken apart.
type batch struct {
	ts     float64
	rank   *int32
	events []event
	// left counts the events that cannot be read or are of no known type.
	left int
}

// Slots of array events behind their type. Versions only ever added to the end.
var (
	storedSlots = [...]string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
		"extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership", "session_id"}
	removedSlots = [...]string{"block_hashes", "medium", "group_idx", "locality", "ownership"}
)

// decode takes a payload apart: [ts, events, rank], events as maps or arrays. An event that cannot be read
// costs itself; a payload that is no batch is an error.
func decode(payload []byte) (batch, error) {
	r := reader{payload}
	var b batch
	n, err := r.array()
	if err != nil {
		return b, err
	}
	if n < 2 {
		return b, errors.New("a batch has less than two elements")
	}
	ts, err := r.head()
	if err != nil {
		return b, err
	}
	if ts.shape == isFloat {
		b.ts = ts.f
	}
	if err := b.readEvents(&r); err != nil {
		return b, err
	}
	if n > 2 {
		h, err := r.head()
		if err != nil {
			return b, err
		}
		if h.shape == isInt && !h.negative && h.n <= math.MaxInt32 {
			rank := int32(h.n)
			b.rank = &rank
		}
	}
	return b, nil
}

func (b *batch) readEvents(r *reader) error {
	n, err := r.array()
	if err != nil {
		return err
	}
	b.events = make([]event, 0, min(n, 1024))
	for range n {
		v, err := r.value()
		if err != nil {
			return err
		}
		var e event
		if e.read(&v) != nil || e.kind == unknown {
			b.left++
			e = event{}
		}
		b.events = append(b.events, e)
	}
	return nil
}

func (e *event) read(r *reader) error {
	h, err := r.head()
	if err != nil {
		return err
	}
	switch h.shape {
	case isArray:
		return e.readSlots(r, int(h.n))
	case isMap:
		return e.readFields(r, int(h.n))
	}
	return errors.New("an event is neither a map nor an array")
}

func (e *event) readType(r *reader) error {
	name, err := r.text()
	switch name {
	case "BlockStored":
		e.kind = stored
	case "BlockRemoved":
		e.kind = removed
	case "AllBlocksCleared":
		e.kind = cleared
	}
	return err
}

func (e *event) readSlots(r *reader, n int) error {
	if n == 0 {
		return errors.New("an event has no type")
	}
	if err := e.readType(r); err != nil {
		return err
	}
	var slots []string
	switch e.kind {
	case stored:
		slots = storedSlots[:]
	case removed:
		slots = removedSlots[:]
	}
	for _, name := range slots[:min(n-1, len(slots))] {
		if err := e.field(name, r); err != nil {
			return err
		}
	}
	return nil
}

func (e *event) readFields(r *reader, n int) error {
	for range n {
		name, err := r.text()
		if err != nil {
			return err
		}
		if err := e.field(name, r); err != nil {
			return err
		}
	}
	return nil
}

func (e *event) field(name string, r *reader) (err error) {
	switch name {
	case "type":
		err = e.readType(r)
	case "block_hashes":
		err = e.readHashes(r)
	case "parent_block_hash":
		e.parent, err = r.optionalHash()
	case "token_ids":
		err = e.readTokens(r)
	case "block_size":
		var n *int64
		if n, err = r.optionalInt(); n != nil {
			e.blockSize = *n
		}
	case "lora_id":
		e.loraID, err = r.optionalInt()
	case "lora_name":
		err = e.readName(r)
	case "cache_salt":
		e.salt, err = r.textOr("")
	case "extra_keys":
		err = e.readExtraKeys(r)
	case "medium":
		e.medium, err = r.optionalText()
	case "group_idx":
		e.group, err = r.optionalUint32()
	case "kv_cache_spec_kind":
		e.spec, err = r.optionalText()
	case "kv_cache_spec_sliding_window":
		e.window, err = r.optionalUint32()
	case "locality":
		e.locality, err = r.optionalText()
	case "ownership":
		e.ownership, err = r.optionalText()
	case "session_id":
		e.session, err = r.optionalText()
	default:
		err = r.skip(1)
	}
	return err
}

// readName reads the adapter's name, or the map that SGLang's array events have in its place.
func (e *event) readName(r *reader) error {
	if len(r.b) == 0 || r.b[0]&0xf0 != 0x80 {
		var err error
		e.loraName, err = r.textOr("")
		return err
	}
	h, err := r.head()
	if err != nil {
		return err
	}
	return e.readFields(r, int(h.n))
}

func (e *event) readHashes(r *reader) error {
	n, err := r.array()
	if err != nil {
		return err
	}
	e.hashes = make([]int64, n)
	for i := range e.hashes {
		h, err := r.optionalHash()
		if err != nil {
			return err
		}
		if h == nil {
			return errors.New("a block hash is nil")
		}
		e.hashes[i] = *h
	}
	return nil
}

// optionalHash reads a hash as its 64 bits: an integer as it is, bytes by their last eight, big-endian.
func (r *reader) optionalHash() (*int64, error) {
	h, err := r.head()
	if err != nil {
		return nil, err
	}
	v := int64(h.n)
	switch {
	case h.shape == isNil:
		return nil, nil
	case h.shape == isInt:
		return &v, nil
	case h.shape == isBlob && h.n >= 8:
		v = int64(binary.BigEndian.Uint64(r.take(h.n)[h.n-8:]))
		return &v, nil
	}
	return nil, errors.New("a block hash is neither an integer nor 8 bytes or more")
}

// readTokens reads ids, or the pairs of a bigram key by their first.
func (e *event) readTokens(r *reader) error {
	n, err := r.array()
	if err != nil {
		return err
	}
	e.tokens = make([]uint32, n)
	for i := range e.tokens {
		h, err := r.head()
		if err == nil && h.shape == isArray && h.n == 2 {
			if h, err = r.head(); err == nil {
				err = r.skip(1)
			}
		}
		if err != nil {
			return err
		}
		if h.shape != isInt || h.negative || h.n > math.MaxUint32 {
			return errors.New("a token id is no unsigned number of 32 bits")
		}
		e.tokens[i] = uint32(h.n)
	}
	return nil
}

func (r *reader) optionalInt() (*int64, error) {
	h, err := r.head()
	if err != nil || h.shape == isNil {
		return nil, err
	}
	if h.shape != isInt {
		return nil, errors.New("a number has another type")
	}
	v := int64(h.n)
	return &v, nil
}

func (r *reader) optionalUint32() (*uint32, error) {
	n, err := r.optionalInt()
	if err != nil || n == nil {
		return nil, err
	}
	if *n < 0 || *n > math.MaxUint32 {
		return nil, errors.New("a number does not fit 32 bits")
	}
	v := uint32(*n)
	return &v, nil
}

func (r *reader) optionalText() (*string, error) {
	h, err := r.head()
	if err != nil || h.shape == isNil {
		return nil, err
	}
	if h.shape != isText {
		return nil, errors.New("a text has another type")
	}
	s := string(r.take(h.n))
	return &s, nil
}

func (r *reader) textOr(or string) (string, error) {
	s, err := r.optionalText()
	if s != nil {
		or = *s
	}
	return or, err
}

func (e *event) readExtraKeys(r *reader) error {
	h, err := r.head()
	if err != nil || h.shape == isNil {
		return err
	}
	if h.shape != isArray {
		return errors.New("extra keys are no list")
	}
	for i := range int(h.n) {
		keys, err := r.keys()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			for len(e.extraKeys) < i {
				e.extraKeys = append(e.extraKeys, nil)
			}
			e.extraKeys = append(e.extraKeys, keys)
		}
	}
	return nil
}

// keys reads the extra keys of one block; those of shapes that no version has are passed over.
func (r *reader) keys() (out []*pb.KvBlockExtraKey, err error) {
	h, err := r.head()
	if err != nil || h.shape == isNil {
		return nil, err
	}
	if h.shape != isArray {
		return nil, errors.New("the extra keys of a block are no list")
	}
	for range h.n {
		v, err := r.value()
		if err != nil {
			return nil, err
		}
		if k := v.key(); k != nil {
			out = append(out, k)
		}
	}
	return out, nil
}

// key reads one extra key, nil for a shape that no version has.
func (r *reader) key() *pb.KvBlockExtraKey {
	h, err := r.head()
	if err != nil {
		return nil
	}
	switch h.shape {
	case isText:
		return &pb.KvBlockExtraKey{Key: &pb.KvBlockExtraKey_Text{Text: string(r.take(h.n))}}
	case isBlob:
		return &pb.KvBlockExtraKey{Key: &pb.KvBlockExtraKey_Blob{Blob: r.take(h.n)}}
	case isInt:
		return &pb.KvBlockExtraKey{Key: &pb.KvBlockExtraKey_Number{Number: int64(h.n)}}
	case isArray:
		id, err := r.text()
		if err != nil || h.n != 2 {
			return nil
		}
		offset, err := r.optionalInt()
		if err != nil || offset == nil {
			return nil
		}
		return &pb.KvBlockExtraKey{Key: &pb.KvBlockExtraKey_Multimodal{Multimodal: &pb.KvMultimodalKey{Identifier: id, Offset: *offset}}}
	}
	return nil
}

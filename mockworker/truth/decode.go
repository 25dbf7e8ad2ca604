package truth

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// A payload is read by hand rather than through msgpack/v5, which is the oracle of the tests: it costs an
// eighth (13-libraries), and a length is checked against the bytes left before memory is taken for it.

// maxDepth bounds the nesting of a value that is skipped. Real events nest three deep.
const maxDepth = 8

var errTruncated = errors.New("the payload ends inside a value")

// Kinds of a decoded event.
type eventKind uint8

const (
	kindOther eventKind = iota // a type this package does not fold
	kindStored
	kindRemoved
	kindCleared
)

// event is one decoded event, or a run of removals that differ in nothing but their one hash. Slices are
// reused by the next decode.
type event struct {
	kind      eventKind
	times     int // events in the run, 1 for any other
	hashes    []uint64
	parent    uint64
	hasParent bool
	tokens    []byte // four bytes each, little-endian, as the content hash takes them
	blockSize int
	medium    string
	group     int16 // NoGroup when it is not told
	spec      string
	lora      string
	salt      string
}

// decoder turns payloads into events; it is reused so that a batch costs no allocation.
type decoder struct {
	b      []byte
	events []event
	last   []byte // b from the last of an event's hashes on
	like   pattern
}

// batch decodes a payload: a positional array of ts, events and, but for the oldest engines, the rank. The
// result is valid until the next call.
func (d *decoder) batch(payload []byte) ([]event, error) {
	d.b = payload
	d.events = d.events[:0]
	n, err := d.length(familyArray)
	if err != nil {
		return nil, fmt.Errorf("reading the batch: %w", err)
	}
	if n < 2 {
		return nil, fmt.Errorf("reading the batch: %d elements, want at least ts and events", n)
	}
	if err := d.skip(0); err != nil {
		return nil, fmt.Errorf("reading ts: %w", err)
	}
	count, err := d.length(familyArray)
	if err != nil {
		return nil, fmt.Errorf("reading the events: %w", err)
	}
	d.like = pattern{}
	for left := count; left > 0; left-- {
		if err := d.event(); err != nil {
			return nil, fmt.Errorf("reading event %d: %w", count-left, err)
		}
		left -= d.again(left - 1)
	}
	for range n - 2 {
		if err := d.skip(0); err != nil {
			return nil, fmt.Errorf("reading behind the events: %w", err)
		}
	}
	if len(d.b) != 0 {
		return nil, fmt.Errorf("%d bytes behind the batch", len(d.b))
	}
	return d.events, nil
}

// next appends a cleared event, keeping the slices of the one that stood there before.
func (d *decoder) next() *event {
	if len(d.events) < cap(d.events) {
		d.events = d.events[:len(d.events)+1]
	} else {
		d.events = append(d.events, event{})
	}
	e := &d.events[len(d.events)-1]
	*e = event{times: 1, hashes: e.hashes[:0], tokens: e.tokens[:0], group: NoGroup}
	return e
}

// event decodes one event, of any form, and notes what the next one may be like.
func (d *decoder) event() error {
	whole, e := d.b, d.next()
	var err error
	if d.peekArray() {
		err = d.arrayEvent(e)
	} else {
		err = d.mapEvent(e)
	}
	if err == nil {
		d.like = d.patternOf(e, whole[:len(whole)-len(d.b)])
	}
	return err
}

// mapEvent decodes a map whose keys begin with "type".
func (d *decoder) mapEvent(e *event) error {
	fields, err := d.length(familyMap)
	if err != nil {
		return err
	}
	for range fields {
		key, err := d.text()
		if err != nil {
			return err
		}
		if err := d.field(e, fieldOf(key)); err != nil {
			return fmt.Errorf("field %s: %w", key, err)
		}
	}
	return nil
}

// arrayEvent decodes an array that begins with the type.
func (d *decoder) arrayEvent(e *event) error {
	n, err := d.length(familyArray)
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("an event without a type")
	}
	if err := d.field(e, fieldType); err != nil {
		return fmt.Errorf("type: %w", err)
	}
	for i := range n - 1 {
		f := fieldOther
		if i < len(elements[e.kind]) {
			f = elements[e.kind][i]
		}
		if err := d.field(e, f); err != nil {
			return fmt.Errorf("element %d: %w", i+1, err)
		}
	}
	return nil
}

// field is what of an event is read.
type field uint8

const (
	fieldOther field = iota // passed over
	fieldType
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldMedium
	fieldGroup
	fieldSpec
	fieldLoRA
	fieldKeys
	fieldSalt
)

// elements are the fields behind the type of an array event. Versions only ever added to the end.
var elements = [...][]field{
	kindOther: nil,
	kindStored: {fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldOther /* lora_id */, fieldMedium,
		fieldLoRA, fieldKeys, fieldGroup, fieldSpec},
	kindRemoved: {fieldHashes, fieldMedium, fieldGroup},
	kindCleared: nil,
}

func fieldOf(key []byte) field {
	switch string(key) {
	case "type":
		return fieldType
	case "block_hashes":
		return fieldHashes
	case "parent_block_hash":
		return fieldParent
	case "token_ids":
		return fieldTokens
	case "block_size":
		return fieldBlockSize
	case "medium":
		return fieldMedium
	case "group_idx":
		return fieldGroup
	case "kv_cache_spec_kind":
		return fieldSpec
	case "lora_name":
		return fieldLoRA
	case "extra_keys":
		return fieldKeys
	case "cache_salt":
		return fieldSalt
	}
	return fieldOther
}

func (d *decoder) field(e *event, f field) (err error) {
	switch f {
	case fieldType:
		var name []byte
		name, err = d.text()
		e.kind = kindOf(name)
	case fieldHashes:
		e.hashes, err = d.hashes(e.hashes)
	case fieldParent:
		if e.hasParent = !d.null(); e.hasParent {
			e.parent, err = d.hash()
		}
	case fieldTokens:
		e.tokens, err = d.tokens(e.tokens)
	case fieldBlockSize:
		var n uint64
		n, err = d.uint()
		e.blockSize = int(min(n, 1<<20))
	case fieldMedium:
		e.medium, err = d.optionalText()
	case fieldGroup:
		if !d.null() {
			var n uint64
			n, err = d.uint()
			e.group = int16(min(n, maxGroups))
		}
	case fieldSpec:
		e.spec, err = d.optionalText()
	case fieldLoRA:
		if d.peekMap() {
			return d.metadata(e)
		}
		e.lora, err = d.optionalText()
	case fieldKeys:
		err = d.extraKeys(e)
	case fieldSalt:
		e.salt, err = d.optionalText()
	default:
		err = d.skip(0)
	}
	return err
}

// metadata reads the map that stands where vLLM has lora_name in SGLang's array events.
func (d *decoder) metadata(e *event) error {
	n, err := d.length(familyMap)
	if err != nil {
		return err
	}
	for range n {
		key, err := d.text()
		if err != nil {
			return err
		}
		f := fieldOther
		if string(key) == "cache_salt" {
			f = fieldSalt
		}
		if err := d.field(e, f); err != nil {
			return fmt.Errorf("metadata %s: %w", key, err)
		}
	}
	return nil
}

func kindOf(name []byte) eventKind {
	switch string(name) {
	case "BlockStored":
		return kindStored
	case "BlockRemoved":
		return kindRemoved
	case "AllBlocksCleared":
		return kindCleared
	}
	return kindOther
}

// extraKeys reads the salt out of the first block's keys: [lora_name, (mm item)..., salt], the salt being
// there only when the block starts at token 0. Without a salt the last string is the adapter's name.
func (d *decoder) extraKeys(e *event) error {
	if d.null() {
		return nil
	}
	n, err := d.length(familyArray)
	if err != nil {
		return err
	}
	for i := range n {
		if i > 0 || d.peekNull() {
			err = d.skip(0)
		} else {
			err = d.firstKeys(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) firstKeys(e *event) error {
	n, err := d.length(familyArray)
	if err != nil {
		return err
	}
	for i := range n {
		if !d.peekText() {
			if err := d.skip(0); err != nil {
				return err
			}
			continue
		}
		s, err := d.text()
		if err != nil {
			return err
		}
		// lora_name stands before extra_keys in declaration order, so it is known here.
		if i == 0 && e.lora != "" && string(s) == e.lora {
			continue
		}
		e.salt = string(s)
	}
	return nil
}

func (d *decoder) hashes(dst []uint64) ([]uint64, error) {
	n, err := d.length(familyArray)
	if err != nil {
		return dst, err
	}
	for range n {
		d.last = d.b
		h, err := d.hash()
		if err != nil {
			return dst, err
		}
		dst = append(dst, h)
	}
	return dst, nil
}

// hash reads an engine hash: an integer as it is, bytes by their last eight, big-endian.
func (d *decoder) hash() (uint64, error) {
	if len(d.b) > 8 && isInt64(d.b[0]) { // what nearly every one is
		h := binary.BigEndian.Uint64(d.b[1:])
		d.b = d.b[9:]
		return h, nil
	}
	if len(d.b) > 0 && d.b[0] >= codeBytes8 && d.b[0] <= 0xc6 {
		raw, err := d.bytes()
		if err != nil {
			return 0, err
		}
		if len(raw) < 8 {
			return 0, fmt.Errorf("a hash of %d bytes", len(raw))
		}
		return binary.BigEndian.Uint64(raw[len(raw)-8:]), nil
	}
	return d.uint()
}

// tokens reads token ids, which are most of a batch: the forms that they have in practice are read here, on a
// local slice, because through the decoder each would cost several times as much.
func (d *decoder) tokens(dst []byte) ([]byte, error) {
	n, err := d.length(familyArray)
	if err != nil {
		return dst, err
	}
	if n > 0 && d.b[0] == pairMark {
		return d.pairs(dst, n)
	}
	begin := len(dst)
	dst = slices.Grow(dst, 4*n)[:begin+4*n] // length has checked n against the bytes there are
	for out := dst[begin:]; len(out) > 0; {
		if size := fourTokens(out, d.b); size > 0 {
			d.b, out = d.b[size:], out[16:]
			continue
		}
		few := min(16, len(out)) // what is not alike is not asked again for each
		if err := d.fewTokens(out[:few]); err != nil {
			return dst, err
		}
		out = out[few:]
	}
	return dst, nil
}

// fourTokens reads four ids of one width, as neighbours often are, from b and returns how many bytes they
// took; 0 when they are not alike.
func fourTokens(out, b []byte) (size int) {
	if len(out) < 16 || len(b) < 20 {
		return 0
	}
	out, b = out[:16], b[:20]
	switch code := b[0]; {
	case code == codeUint32 && b[5] == code && b[10] == code && b[15] == code:
		binary.LittleEndian.PutUint32(out, binary.BigEndian.Uint32(b[1:]))
		binary.LittleEndian.PutUint32(out[4:], binary.BigEndian.Uint32(b[6:]))
		binary.LittleEndian.PutUint32(out[8:], binary.BigEndian.Uint32(b[11:]))
		binary.LittleEndian.PutUint32(out[12:], binary.BigEndian.Uint32(b[16:]))
		return 20
	case code == codeUint16 && b[3] == code && b[6] == code && b[9] == code:
		binary.LittleEndian.PutUint32(out, uint32(binary.BigEndian.Uint16(b[1:])))
		binary.LittleEndian.PutUint32(out[4:], uint32(binary.BigEndian.Uint16(b[4:])))
		binary.LittleEndian.PutUint32(out[8:], uint32(binary.BigEndian.Uint16(b[7:])))
		binary.LittleEndian.PutUint32(out[12:], uint32(binary.BigEndian.Uint16(b[10:])))
		return 12
	}
	return 0
}

// fewTokens fills out with ids of any form.
func (d *decoder) fewTokens(out []byte) (err error) {
	b, at := d.b, 0
	for ; len(out) >= 4; out = out[4:] {
		var v uint32
		if at+5 <= len(b) && b[at] == codeUint16 {
			v = uint32(binary.BigEndian.Uint16(b[at+1:]))
			at += 3
		} else if at+5 <= len(b) && b[at] == codeUint32 {
			v = binary.BigEndian.Uint32(b[at+1:])
			at += 5
		} else {
			d.b = b[at:]
			if v, err = d.token(); err != nil {
				return err
			}
			b, at = d.b, 0
		}
		binary.LittleEndian.PutUint32(out, v)
	}
	d.b = b[at:]
	return nil
}

// token reads a token id of any form.
func (d *decoder) token() (uint32, error) {
	v, err := d.uint()
	if err == nil && v > math.MaxUint32 {
		err = fmt.Errorf("token id %d does not fit 32 bits", v)
	}
	return uint32(v), err
}

// pairMark begins an array of two.
const pairMark = 0x92

// pairs reads n pairs of neighbouring tokens by their first, which are the text without its last token.
func (d *decoder) pairs(dst []byte, n int) ([]byte, error) {
	for range n {
		size, err := d.length(familyArray)
		if err != nil {
			return dst, err
		}
		if size != 2 {
			return dst, fmt.Errorf("a pair of tokens has %d elements", size)
		}
		first, err := d.token()
		if err == nil {
			_, err = d.uint()
		}
		if err != nil {
			return dst, err
		}
		dst = binary.LittleEndian.AppendUint32(dst, first)
	}
	return dst, nil
}

func (d *decoder) optionalText() (string, error) {
	if d.null() {
		return "", nil
	}
	s, err := d.text()
	if err != nil {
		return "", err
	}
	switch string(s) { // what every event carries costs no allocation
	case mediumGPU:
		return mediumGPU, nil
	case "full_attention":
		return "full_attention", nil
	case "CPU":
		return "CPU", nil
	case "sliding_window":
		return "sliding_window", nil
	}
	return string(s), nil
}

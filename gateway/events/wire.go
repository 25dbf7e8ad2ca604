package events

import (
	"encoding/binary"
	"errors"
	"math"
)

// Bounds on what a payload may make us do. Lists are bounded by the payload's own length, too, because
// every element takes at least one byte and is checked against the bytes left before memory is
// taken for it.
const (
	// maxDepth bounds nesting. The deepest known value is a pair in a block's extra keys in a map event of
	// a map-shaped batch: 6.
	maxDepth = 16
	// maxEvents bounds the events of one batch. An engine publishes one scheduler step per batch, which
	// removes at most its pool; pools of real engines have under 100,000 blocks.
	maxEvents = 1 << 17
	// maxPayload bounds a batch in bytes. A step of 8,192 tokens takes under 100 KB; the largest known
	// batch, the full report of a prompt of a million tokens, about 6 MB.
	maxPayload = 16 << 20
	// maxKeys bounds the extra keys of one batch, and the blocks that list them: a key takes 56 bytes of
	// memory and as little as one of payload.
	maxKeys = 1 << 18
)

var (
	errShort = errors.New("events: value is cut off")
	errType  = errors.New("events: value has another type")
	errDeep  = errors.New("events: nested too deeply")
	errRange = errors.New("events: value out of range")
	errExtra = errors.New("events: bytes behind the batch")
	errMany  = errors.New("events: payload is too large")
)

// reader walks a msgpack buffer. Its methods read one value at the position or leave it where it is.
type reader struct {
	buf []byte
	at  int
}

// left is the number of unread bytes.
func (r *reader) left() int { return len(r.buf) - r.at }

// peek is the first byte of the next value.
func (r *reader) peek() (byte, error) {
	if r.at >= len(r.buf) {
		return 0, errShort
	}
	return r.buf[r.at], nil
}

// sized reads a big-endian number of size bytes behind the type byte.
func (r *reader) sized(size int) (uint64, error) {
	if r.left() < 1+size {
		return 0, errShort
	}
	b := r.buf[r.at+1:]
	var v uint64
	switch size {
	case 1:
		v = uint64(b[0])
	case 2:
		v = uint64(binary.BigEndian.Uint16(b))
	case 4:
		v = uint64(binary.BigEndian.Uint32(b))
	default:
		v = binary.BigEndian.Uint64(b)
	}
	r.at += 1 + size
	return v, nil
}

// null reads a nil if one stands here.
func (r *reader) null() bool {
	if r.at < len(r.buf) && r.buf[r.at] == 0xc0 {
		r.at++
		return true
	}
	return false
}

// bits reads an integer as its 64-bit pattern; negative says that the pattern is that of a value below 0.
func (r *reader) bits() (v uint64, negative bool, err error) {
	c, err := r.peek()
	if err != nil {
		return 0, false, err
	}
	switch {
	case c <= 0x7f:
		r.at++
		return uint64(c), false, nil
	case c >= 0xe0:
		r.at++
		return uint64(int64(int8(c))), true, nil
	case c >= 0xcc && c <= 0xcf:
		v, err = r.sized(1 << (c - 0xcc))
		return v, false, err
	case c >= 0xd0 && c <= 0xd3:
		size := 1 << (c - 0xd0)
		if v, err = r.sized(size); err != nil {
			return 0, false, err
		}
		shift := 64 - 8*size
		s := int64(v<<shift) >> shift
		return uint64(s), s < 0, nil
	}
	return 0, false, errType
}

// integer reads an integer that fits an int64.
func (r *reader) integer() (int64, error) {
	start := r.at
	v, negative, err := r.bits()
	if err == nil && !negative && v > math.MaxInt64 {
		r.at = start
		return 0, errRange
	}
	return int64(v), err
}

// token reads a token id: an integer in 0..2^32-1.
func (r *reader) token() (uint32, error) {
	start := r.at
	v, _, err := r.bits()
	if err == nil && v > math.MaxUint32 {
		r.at = start
		return 0, errRange
	}
	return uint32(v), err
}

// number reads an integer or a float.
func (r *reader) number() (float64, error) {
	c, err := r.peek()
	if err != nil {
		return 0, err
	}
	switch c {
	case 0xca:
		v, err := r.sized(4)
		return float64(math.Float32frombits(uint32(v))), err
	case 0xcb:
		v, err := r.sized(8)
		return math.Float64frombits(v), err
	}
	v, err := r.integer()
	return float64(v), err
}

// span reads a length of size bytes and then that many bytes.
func (r *reader) span(size int) ([]byte, error) {
	start := r.at
	n, err := r.sized(size)
	if err != nil {
		return nil, err
	}
	if n > uint64(r.left()) {
		r.at = start
		return nil, errShort
	}
	r.at += int(n)
	return r.buf[r.at-int(n) : r.at], nil
}

// text reads a string; it is valid as long as the buffer.
func (r *reader) text() ([]byte, error) {
	c, err := r.peek()
	if err != nil {
		return nil, err
	}
	switch {
	case c >= 0xa0 && c <= 0xbf:
		n := int(c & 0x1f)
		if r.left() < 1+n {
			return nil, errShort
		}
		r.at += 1 + n
		return r.buf[r.at-n : r.at], nil
	case c >= 0xd9 && c <= 0xdb:
		return r.span(1 << (c - 0xd9))
	}
	return nil, errType
}

// bytes reads a bin; it is valid as long as the buffer.
func (r *reader) bytes() ([]byte, error) {
	c, err := r.peek()
	if err != nil {
		return nil, err
	}
	if c < 0xc4 || c > 0xc6 {
		return nil, errType
	}
	return r.span(1 << (c - 0xc4))
}

// array reads the length of an array. It is at most the bytes left, so memory for that many elements may
// be taken.
func (r *reader) array() (int, error) { return r.length(0x90, 0xdc, 1) }

// object reads the number of pairs of a map, at most half the bytes left.
func (r *reader) object() (int, error) { return r.length(0x80, 0xde, 2) }

func (r *reader) length(fix, wide byte, perElement int) (int, error) {
	c, err := r.peek()
	if err != nil {
		return 0, err
	}
	start := r.at
	var n uint64
	switch {
	case c&0xf0 == fix:
		n = uint64(c & 0x0f)
		r.at++
	case c == wide || c == wide+1:
		if n, err = r.sized(2 << (c - wide)); err != nil {
			return 0, err
		}
	default:
		return 0, errType
	}
	if n > uint64(r.left()/perElement) {
		r.at = start
		return 0, errShort
	}
	return int(n), nil
}

// skip passes over one value of any type, nested at most depth deep.
func (r *reader) skip(depth int) error {
	c, err := r.peek()
	if err != nil {
		return err
	}
	switch {
	case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3:
		r.at++
		return nil
	case c&0xf0 == 0x90 || c == 0xdc || c == 0xdd:
		n, err := r.array()
		return r.skipAll(n, depth, err)
	case c&0xf0 == 0x80 || c == 0xde || c == 0xdf:
		n, err := r.object()
		return r.skipAll(2*n, depth, err)
	case c <= 0xbf || c >= 0xd9 && c <= 0xdb:
		_, err = r.text()
	case c >= 0xc4 && c <= 0xc6:
		_, err = r.bytes()
	case c == 0xca || c == 0xcb:
		_, err = r.number()
	case c >= 0xcc && c <= 0xd3:
		_, _, err = r.bits()
	case c >= 0xd4 && c <= 0xd8:
		err = r.skipBytes(2 + 1<<(c-0xd4))
	case c >= 0xc7 && c <= 0xc9:
		err = r.skipExt(1 << (c - 0xc7))
	default: // 0xc1, which msgpack never uses
		err = errType
	}
	return err
}

// skipAll passes over n values one level deeper.
func (r *reader) skipAll(n, depth int, err error) error {
	if err == nil && depth <= 0 {
		err = errDeep
	}
	for ; n > 0 && err == nil; n-- {
		err = r.skip(depth - 1)
	}
	return err
}

// skipExt passes over an extension whose length takes size bytes.
func (r *reader) skipExt(size int) error {
	n, err := r.sized(size)
	if err != nil {
		return err
	}
	if n >= uint64(r.left()) { // the extension's type byte comes on top
		return errShort
	}
	r.at += int(n) + 1
	return nil
}

func (r *reader) skipBytes(n int) error {
	if r.left() < n {
		return errShort
	}
	r.at += n
	return nil
}

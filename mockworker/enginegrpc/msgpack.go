package enginegrpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// A payload may be what a fault made of it, so lengths are checked against the bytes that are left before
// memory is taken for them, and nesting is bounded.

// maxDepth bounds nesting; events nest four deep.
const maxDepth = 8

var errEnds = errors.New("the payload ends inside a value")

// shape is what a msgpack value is.
type shape uint8

const (
	isNil shape = iota
	isBool
	isInt
	isFloat
	isText
	isBlob
	isArray
	isMap
)

// head is a value's first bytes: all of a scalar, the length of everything else.
type head struct {
	shape shape
	// n is the length, or an integer's 64 bits.
	n uint64
	// negative is an integer's sign, f a float.
	negative bool
	f        float64
}

// reader takes values off the front of a payload.
type reader struct{ b []byte }

// head reads a head. A promised length fits what is left.
func (r *reader) head() (head, error) {
	if len(r.b) == 0 {
		return head{}, errEnds
	}
	c := r.b[0]
	r.b = r.b[1:]
	switch {
	case c < 0x80:
		return head{shape: isInt, n: uint64(c)}, nil
	case c < 0x90:
		return r.long(isMap, uint64(c&0x0f))
	case c < 0xa0:
		return r.long(isArray, uint64(c&0x0f))
	case c < 0xc0:
		return r.long(isText, uint64(c&0x1f))
	case c >= 0xe0:
		return signed(int64(int8(c))), nil
	}
	return r.coded(c)
}

// coded reads what stands behind a code byte.
func (r *reader) coded(c byte) (head, error) {
	switch {
	case c == 0xc0:
		return head{shape: isNil}, nil
	case c == 0xc2 || c == 0xc3:
		return head{shape: isBool}, nil
	case c >= 0xc4 && c <= 0xc6:
		return r.sized(isBlob, c-0xc4)
	case c == 0xca:
		v, err := r.fixed(2)
		return head{shape: isFloat, f: float64(math.Float32frombits(uint32(v)))}, err
	case c == 0xcb:
		v, err := r.fixed(3)
		return head{shape: isFloat, f: math.Float64frombits(v)}, err
	case c >= 0xcc && c <= 0xcf:
		v, err := r.fixed(c - 0xcc)
		return head{shape: isInt, n: v}, err
	case c >= 0xd0 && c <= 0xd3:
		v, err := r.fixed(c - 0xd0)
		shift := 64 - 8<<(c-0xd0)
		return signed(int64(v<<shift) >> shift), err
	case c >= 0xd9 && c <= 0xdb:
		return r.sized(isText, c-0xd9)
	case c == 0xdc || c == 0xdd:
		return r.sized(isArray, c-0xdb)
	case c == 0xde || c == 0xdf:
		return r.sized(isMap, c-0xdd)
	}
	return head{}, fmt.Errorf("no engine sends code %#x", c)
}

func signed(v int64) head { return head{shape: isInt, n: uint64(v), negative: v < 0} }

// sized reads a length of 1<<log bytes.
func (r *reader) sized(s shape, log byte) (head, error) {
	n, err := r.fixed(log)
	if err != nil {
		return head{}, err
	}
	return r.long(s, n)
}

// long checks that a value of length n can be there: every item takes a byte or more.
func (r *reader) long(s shape, n uint64) (head, error) {
	least := n
	if s == isMap {
		least = 2 * n
	}
	if n > math.MaxInt32 || least > uint64(len(r.b)) {
		return head{}, errEnds
	}
	return head{shape: s, n: n}, nil
}

// fixed reads 1<<log bytes, big-endian.
func (r *reader) fixed(log byte) (uint64, error) {
	width := 1 << log
	if len(r.b) < width {
		return 0, errEnds
	}
	b := r.b
	r.b = b[width:]
	switch width {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), nil
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), nil
	}
	return binary.BigEndian.Uint64(b), nil
}

// expect reads a head of one shape.
func (r *reader) expect(s shape) (head, error) {
	h, err := r.head()
	if err == nil && h.shape != s {
		err = errors.New("a value has another type")
	}
	return h, err
}

func (r *reader) array() (int, error) {
	h, err := r.expect(isArray)
	return int(h.n), err
}

// take is the next n bytes, which long has found to be there.
func (r *reader) take(n uint64) []byte {
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) text() (string, error) {
	h, err := r.expect(isText)
	if err != nil {
		return "", err
	}
	return string(r.take(h.n)), nil
}

// skip passes over one value.
func (r *reader) skip(depth int) error {
	h, err := r.head()
	if err != nil {
		return err
	}
	items := h.n
	switch h.shape {
	case isText, isBlob:
		r.take(h.n)
		return nil
	case isMap:
		items = 2 * h.n
	case isArray:
	default:
		return nil
	}
	if depth >= maxDepth {
		return fmt.Errorf("values nest deeper than %d", maxDepth)
	}
	for range items {
		if err := r.skip(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

// value is the bytes of the next value, taken off the payload.
func (r *reader) value() (reader, error) {
	before := r.b
	if err := r.skip(1); err != nil {
		return reader{}, err
	}
	return reader{before[:len(before)-len(r.b)]}, nil
}

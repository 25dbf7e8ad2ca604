package twist

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxDepth bounds the nesting of a payload: real ones nest five deep.
const maxDepth = 16

var errTruncated = errors.New("the payload ends inside a value")

// shape says whether a value holds others.
type shape uint8

const (
	scalar shape = iota
	array
	object // items are key, value, key, value, ...
)

// value is one MessagePack value. A scalar is the very bytes it was read from.
type value struct {
	shape shape
	raw   []byte
	items []value
}

// parse reads one value and returns the bytes behind it. Lengths are checked against the bytes there are
// before memory is taken for them: an item has at least one byte.
func parse(b []byte, depth int) (v value, rest []byte, err error) {
	if len(b) == 0 {
		return v, nil, errTruncated
	}
	if depth > maxDepth {
		return v, nil, fmt.Errorf("values nest more than %d deep", maxDepth)
	}
	c := b[0]
	switch {
	case c >= 0x80 && c <= 0x8f:
		return parseItems(object, b[1:], 2*int(c&0x0f), depth)
	case c >= 0x90 && c <= 0x9f:
		return parseItems(array, b[1:], int(c&0x0f), depth)
	case c >= 0xdc && c <= 0xdf:
		width := 2 << (c & 1)
		n, rest, err := length(b[1:], width)
		if err != nil {
			return v, nil, err
		}
		if c <= 0xdd {
			return parseItems(array, rest, n, depth)
		}
		return parseItems(object, rest, 2*n, depth)
	}
	n, err := scalarLen(b)
	if err != nil {
		return v, nil, err
	}
	if n > len(b) {
		return v, nil, errTruncated
	}
	return value{raw: b[:n:n]}, b[n:], nil
}

func parseItems(s shape, b []byte, n, depth int) (v value, rest []byte, err error) {
	if n > len(b) {
		return v, nil, errTruncated
	}
	v.shape, v.items = s, make([]value, n)
	for i := range v.items {
		if v.items[i], b, err = parse(b, depth+1); err != nil {
			return value{}, nil, err
		}
	}
	return v, b, nil
}

// length reads a big-endian length of 1, 2 or 4 bytes.
func length(b []byte, width int) (n int, rest []byte, err error) {
	if len(b) < width {
		return 0, nil, errTruncated
	}
	for _, c := range b[:width] {
		n = n<<8 | int(c)
	}
	return n, b[width:], nil
}

// scalarLen is the length in bytes of the scalar that b begins with.
func scalarLen(b []byte) (int, error) {
	c := b[0]
	switch {
	case c < 0x80, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3:
		return 1, nil
	case c >= 0xa0 && c <= 0xbf:
		return 1 + int(c&0x1f), nil
	}
	switch c {
	case 0xcc, 0xd0:
		return 2, nil
	case 0xcd, 0xd1:
		return 3, nil
	case 0xca, 0xce, 0xd2:
		return 5, nil
	case 0xcb, 0xcf, 0xd3:
		return 9, nil
	case 0xc4, 0xd9, 0xc5, 0xda, 0xc6, 0xdb:
		width := map[byte]int{0xc4: 1, 0xd9: 1, 0xc5: 2, 0xda: 2, 0xc6: 4, 0xdb: 4}[c]
		n, _, err := length(b[1:], width)
		return 1 + width + n, err
	}
	return 0, fmt.Errorf("byte %#x is not one that event payloads have", c)
}

// append writes the value, containers with the shortest head as msgspec does.
func (v *value) append(dst []byte) []byte {
	switch v.shape {
	case array:
		dst = head(dst, len(v.items), 0x90, 0xdc)
	case object:
		dst = head(dst, len(v.items)/2, 0x80, 0xde)
	default:
		return append(dst, v.raw...)
	}
	for i := range v.items {
		dst = v.items[i].append(dst)
	}
	return dst
}

func head(dst []byte, n int, fix, wide byte) []byte {
	switch {
	case n < 16:
		return append(dst, fix|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, wide), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, wide+1), uint32(n))
}

// null and text make scalars; a text is at most 31 bytes.
func null() value { return value{raw: []byte{0xc0}} }

func text(s string) value { return value{raw: append([]byte{0xa0 | byte(len(s))}, s...)} }

// isText says whether the value is the short text s.
func (v *value) isText(s string) bool {
	return v.shape == scalar && len(v.raw) == 1+len(s) && v.raw[0] == 0xa0|byte(len(s)) && string(v.raw[1:]) == s
}

func (v *value) isNull() bool { return v.shape == scalar && len(v.raw) == 1 && v.raw[0] == 0xc0 }

package truth

import (
	"encoding/binary"
	"fmt"
)

// family is a kind of length header: its fixed form, how many items that holds, and its first long code.
type family struct {
	name           string
	fix, fixMask   byte
	code8          byte // 0 when the family has no 8-bit form
	code16, code32 byte
	minItem        int // least bytes an item takes, to check a length against the bytes left
}

var (
	familyArray = family{name: "array", fix: 0x90, fixMask: 0x0f, code16: 0xdc, code32: 0xdd, minItem: 1}
	familyMap   = family{name: "map", fix: 0x80, fixMask: 0x0f, code16: 0xde, code32: 0xdf, minItem: 2}
	familyText  = family{name: "string", fix: 0xa0, fixMask: 0x1f, code8: 0xd9, code16: 0xda, code32: 0xdb, minItem: 1}
	familyBytes = family{name: "bytes", fix: 0xc1, code8: 0xc4, code16: 0xc5, code32: 0xc6, minItem: 1}
)

// Codes that are looked for by themselves.
const (
	codeBytes8 = 0xc4
	codeUint16 = 0xcd
	codeUint32 = 0xce
	codeUint64 = 0xcf
	codeInt64  = 0xd3
)

// isInt64 says that eight bytes follow, of an integer or its two's complement.
func isInt64(code byte) bool { return code == codeUint64 || code == codeInt64 }

// length reads a header of f and refuses one that promises more than the bytes left can hold.
func (d *decoder) length(f family) (int, error) {
	if len(d.b) == 0 {
		return 0, errTruncated
	}
	c := d.b[0]
	var n uint64
	switch {
	case f.fixMask != 0 && c&^f.fixMask == f.fix:
		n, d.b = uint64(c&f.fixMask), d.b[1:]
	case f.code8 != 0 && c == f.code8, c == f.code16, c == f.code32:
		width := 2
		if c == f.code8 {
			width = 1
		} else if c == f.code32 {
			width = 4
		}
		v, err := d.bigEndian(width)
		if err != nil {
			return 0, err
		}
		n = v
	default:
		return 0, fmt.Errorf("code %#x where a %s must stand", c, f.name)
	}
	if n > uint64(len(d.b)/f.minItem) {
		return 0, fmt.Errorf("a %s of %d items in %d bytes: %w", f.name, n, len(d.b), errTruncated)
	}
	return int(n), nil
}

// bigEndian reads the width bytes behind a code byte, and the code byte with them.
func (d *decoder) bigEndian(width int) (v uint64, err error) {
	if len(d.b) <= width {
		return 0, errTruncated
	}
	for _, c := range d.b[1 : 1+width] {
		v = v<<8 | uint64(c)
	}
	d.b = d.b[1+width:]
	return v, nil
}

// uint reads an integer of any width; a negative one as its two's complement.
func (d *decoder) uint() (uint64, error) {
	if len(d.b) == 0 {
		return 0, errTruncated
	}
	switch c := d.b[0]; {
	case c < 0x80:
		d.b = d.b[1:]
		return uint64(c), nil
	case c >= 0xe0:
		d.b = d.b[1:]
		return uint64(int64(int8(c))), nil
	case c == 0xce && len(d.b) >= 5: // most token ids
		v := binary.BigEndian.Uint32(d.b[1:])
		d.b = d.b[5:]
		return uint64(v), nil
	case c >= 0xcc && c <= 0xcf:
		return d.bigEndian(1 << (c - 0xcc))
	case c >= 0xd0 && c <= 0xd3:
		width := 1 << (c - 0xd0)
		v, err := d.bigEndian(width)
		shift := 64 - 8*width
		return uint64(int64(v<<shift) >> shift), err
	default:
		return 0, fmt.Errorf("code %#x where an integer must stand", c)
	}
}

func (d *decoder) text() ([]byte, error)  { return d.run(familyText) }
func (d *decoder) bytes() ([]byte, error) { return d.run(familyBytes) }

func (d *decoder) run(f family) ([]byte, error) {
	n, err := d.length(f)
	if err != nil {
		return nil, err
	}
	s := d.b[:n]
	d.b = d.b[n:]
	return s, nil
}

// null consumes a nil if one is next.
func (d *decoder) null() bool {
	if !d.peekNull() {
		return false
	}
	d.b = d.b[1:]
	return true
}

func (d *decoder) peekNull() bool { return len(d.b) > 0 && d.b[0] == 0xc0 }

func (d *decoder) peekArray() bool {
	return len(d.b) > 0 && (d.b[0]&0xf0 == 0x90 || d.b[0] == 0xdc || d.b[0] == 0xdd)
}

func (d *decoder) peekMap() bool {
	return len(d.b) > 0 && (d.b[0]&0xf0 == 0x80 || d.b[0] == 0xde || d.b[0] == 0xdf)
}

func (d *decoder) peekText() bool {
	return len(d.b) > 0 && (d.b[0]&0xe0 == 0xa0 || d.b[0] >= 0xd9 && d.b[0] <= 0xdb)
}

// skip passes over one value of any type but extensions, which no engine sends.
func (d *decoder) skip(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	if len(d.b) == 0 {
		return errTruncated
	}
	switch c := d.b[0]; {
	case d.peekArray():
		return d.skipItems(familyArray, 1, depth)
	case d.peekMap():
		return d.skipItems(familyMap, 2, depth)
	case d.peekText():
		_, err := d.text()
		return err
	case c >= 0xc4 && c <= 0xc6:
		_, err := d.bytes()
		return err
	case c == 0xc0 || c == 0xc2 || c == 0xc3:
		d.b = d.b[1:]
		return nil
	case c == 0xca || c == 0xcb:
		_, err := d.bigEndian(4 << (c - 0xca))
		return err
	default:
		_, err := d.uint()
		return err
	}
}

func (d *decoder) skipItems(f family, per, depth int) error {
	n, err := d.length(f)
	if err != nil {
		return err
	}
	for range n * per {
		if err := d.skip(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

package blockhash

import (
	"encoding/binary"
	"encoding/hex"
)

// maxDigest is the longest digest in bytes, that of SHA-256.
const maxDigest = 32

// intDigest is the length of a digest that is only an integer.
const intDigest = 8

// Digest is one block hash: 32 bytes of SHA-256, 16 of xxh3-128, or 8 when only the event integer is
// known (FromInt). It is comparable; the zero Digest is no hash.
type Digest struct {
	b [maxDigest]byte
	n uint8
	// front puts the event integer at the digest's beginning, as SGLang has it.
	front bool
}

// FromInt is a digest known only by its event integer, as engines before byte hashes had them. On the
// wire it is always an integer.
func FromInt(v uint64) Digest {
	d := Digest{n: intDigest}
	binary.BigEndian.PutUint64(d.b[:], v)
	return d
}

// FromBytes is the digest with these bytes; what is longer than 32 bytes is cut.
func FromBytes(b []byte) Digest {
	var d Digest
	d.n = uint8(copy(d.b[:], b))
	return d
}

// EventInt is the integer that stands for the digest in an event: its last 8 bytes, big-endian, and of an
// SGLang page its first 8.
func (d Digest) EventInt() uint64 {
	switch {
	case d.n < intDigest:
		return 0
	case d.front:
		return binary.BigEndian.Uint64(d.b[:intDigest])
	}
	return binary.BigEndian.Uint64(d.b[d.n-intDigest : d.n])
}

// Bytes are the digest's bytes: 32, 16 or 8, none of the zero Digest. They alias d.
func (d *Digest) Bytes() []byte { return d.b[:d.n] }

// IsInt says that only the event integer is known.
func (d Digest) IsInt() bool { return d.n == intDigest }

// String is the digest in hex.
func (d Digest) String() string { return hex.EncodeToString(d.b[:d.n]) }

// Packed is a digest without its length and form, which all digests of one hasher have in common: for
// whoever keeps many.
type Packed [maxDigest]byte

// Pack is d's bytes. They are d again by Unpack with a digest of the same hasher.
func (d *Digest) Pack() Packed { return d.b }

// Unpack is the digest of these bytes in the form of another one.
func (p *Packed) Unpack(form Digest) Digest {
	form.b = *p
	return form
}

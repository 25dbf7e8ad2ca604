package blockhash

import "encoding/binary"

// Major types of CBOR (RFC 8949 section 3.1), already shifted into the top three bits.
const (
	cborUint  = 0 << 5
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborNull  = 0xf6
)

// appendCBORBlock appends canonical CBOR of (parent, tokens, extra keys or null): tuples are plain
// arrays of definite length.
func appendCBORBlock(dst, parent []byte, tokens []uint32, x Extra) []byte {
	dst = appendCBORHead(dst, cborArray, 3)
	dst = appendCBORHead(dst, cborBytes, uint32(len(parent)))
	dst = append(dst, parent...)
	dst = appendCBORHead(dst, cborArray, uint32(len(tokens)))
	for _, t := range tokens {
		dst = appendCBORHead(dst, cborUint, t)
	}
	return appendCBORExtra(dst, x)
}

func appendCBORExtra(dst []byte, x Extra) []byte {
	n := x.count()
	if n == 0 {
		return append(dst, cborNull)
	}
	dst = appendCBORHead(dst, cborArray, uint32(n))
	if x.LoRAName != "" {
		dst = appendCBORText(dst, x.LoRAName)
	}
	if x.CacheSalt != "" {
		dst = appendCBORText(dst, x.CacheSalt)
	}
	return dst
}

// count is the number of extra keys.
func (x Extra) count() int {
	n := 0
	if x.LoRAName != "" {
		n++
	}
	if x.CacheSalt != "" {
		n++
	}
	return n
}

func appendCBORText(dst []byte, s string) []byte {
	return append(appendCBORHead(dst, cborText, uint32(len(s))), s...)
}

// appendCBORHead appends a head in its shortest form, which is what canonical means here.
func appendCBORHead(dst []byte, major byte, n uint32) []byte {
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n <= 0xff:
		return append(dst, major|24, byte(n))
	case n <= 0xffff:
		return append(dst, major|25, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, major|26), n)
}

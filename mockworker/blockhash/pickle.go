package blockhash

import "encoding/binary"

// Opcodes of pickle protocol 5 (CPython's Lib/pickle.py).
const (
	pickleProto           = 0x80
	pickleFrame           = 0x95
	pickleStop            = '.'
	pickleMark            = '('
	pickleMemoize         = 0x94
	pickleNone            = 'N'
	pickleBinInt          = 'J'
	pickleBinInt1         = 'K'
	pickleBinInt2         = 'M'
	pickleLong1           = 0x8a
	pickleShortBinBytes   = 'C'
	pickleShortBinUnicode = 0x8c
	pickleBinUnicode      = 'X'
	pickleEmptyTuple      = ')'
	pickleTuple           = 't'
	pickleTuple1          = 0x85 // TUPLE2 and TUPLE3 follow
)

// frameBody is where the body starts: protocol (2 bytes), FRAME (1) and its length (8). CPython starts a
// second frame behind 64 KiB, which no block of fewer than 13,000 tokens reaches.
const frameBody = 11

// appendPickleBlock appends pickle.dumps((parent, tokens, extra keys or None), protocol=5). Every bytes,
// str and tuple object is memoised right after it, integers never are.
func appendPickleBlock(dst, parent []byte, tokens []uint32, x Extra) []byte {
	dst, start := openFrame(dst)
	dst = append(dst, pickleShortBinBytes, byte(len(parent)))
	dst = append(dst, parent...)
	dst = append(dst, pickleMemoize)
	dst = appendPickleTokens(dst, tokens)
	dst = appendPickleExtra(dst, x)
	return closeFrame(append(dst, pickleTuple1+2, pickleMemoize), start)
}

func appendPickleSeed(dst []byte, seed string) []byte {
	dst, start := openFrame(dst)
	return closeFrame(appendPickleText(dst, seed), start)
}

func openFrame(dst []byte) (out []byte, start int) {
	start = len(dst)
	return append(dst, pickleProto, 5, pickleFrame, 0, 0, 0, 0, 0, 0, 0, 0), start
}

// closeFrame ends the pickle and writes the frame's length, which counts the STOP too.
func closeFrame(dst []byte, start int) []byte {
	dst = append(dst, pickleStop)
	binary.LittleEndian.PutUint64(dst[start+frameBody-8:], uint64(len(dst)-start-frameBody))
	return dst
}

func appendPickleTokens(dst []byte, tokens []uint32) []byte {
	n := len(tokens)
	if n == 0 {
		return append(dst, pickleEmptyTuple) // the one tuple that is not memoised
	}
	if n > 3 {
		dst = append(dst, pickleMark)
	}
	for _, t := range tokens {
		dst = appendPickleInt(dst, t)
	}
	return append(dst, tupleOp(n), pickleMemoize)
}

func appendPickleExtra(dst []byte, x Extra) []byte {
	n := x.count()
	if n == 0 {
		return append(dst, pickleNone)
	}
	if x.LoRAName != "" {
		dst = appendPickleText(dst, x.LoRAName)
	}
	if x.CacheSalt != "" {
		dst = appendPickleText(dst, x.CacheSalt)
	}
	return append(dst, tupleOp(n), pickleMemoize)
}

// tupleOp is the opcode that builds a tuple of n >= 1 items.
func tupleOp(n int) byte {
	if n > 3 {
		return pickleTuple
	}
	return byte(pickleTuple1 + n - 1)
}

func appendPickleInt(dst []byte, v uint32) []byte {
	switch {
	case v <= 0xff:
		return append(dst, pickleBinInt1, byte(v))
	case v <= 0xffff:
		return append(dst, pickleBinInt2, byte(v), byte(v>>8))
	case v <= 0x7fffffff:
		return binary.LittleEndian.AppendUint32(append(dst, pickleBinInt), v)
	}
	// Above a signed 32-bit integer: five bytes, the last one keeps the sign positive.
	return append(binary.LittleEndian.AppendUint32(append(dst, pickleLong1, 5), v), 0)
}

func appendPickleText(dst []byte, s string) []byte {
	if len(s) <= 0xff {
		dst = append(dst, pickleShortBinUnicode, byte(len(s)))
	} else {
		dst = binary.LittleEndian.AppendUint32(append(dst, pickleBinUnicode), uint32(len(s)))
	}
	return append(append(dst, s...), pickleMemoize)
}

package tokens

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// hashSeed is the seed of every content, namespace and prefix hash (xxh3-64).
const hashSeed = 1337

// ContentHash hashes one block's tokens alone: xxh3-64, seed 1337, over the ids as little-endian uint32.
func ContentHash(block []uint32) uint64 {
	var stack [1024]byte
	buf := stack[:0]
	for _, t := range block {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	return ContentHashBytes(buf)
}

// ContentHashBytes is ContentHash of ids that stand as little-endian uint32 already.
func ContentHashBytes(block []byte) uint64 { return xxh3.HashSeed(block, hashSeed) }

// Namespace is the namespace of (model, LoRA, salt): 0 when all are empty, which is the gateway's
// default model without adapter and salt.
func Namespace(model, lora, salt string) uint64 {
	if model == "" && lora == "" && salt == "" {
		return 0
	}
	buf := make([]byte, 0, len(model)+len(lora)+len(salt)+2)
	buf = append(append(buf, model...), 0)
	buf = append(append(buf, lora...), 0)
	buf = append(buf, salt...)
	return xxh3.HashSeed(buf, hashSeed)
}

// Root mixes a namespace into the first content hash of a chain; the default namespace leaves it alone.
func Root(ns, h0 uint64) uint64 {
	if ns == 0 {
		return h0
	}
	return pair(ns, h0)
}

// PrefixNext extends a prefix hash by one content hash: p_i = xxh3-64 seed 1337 of LE(p_{i-1}) LE(h_i).
func PrefixNext(prefix, content uint64) uint64 { return pair(prefix, content) }

func pair(a, b uint64) uint64 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:8], a)
	binary.LittleEndian.PutUint64(buf[8:], b)
	return xxh3.HashSeed(buf[:], hashSeed)
}

// AppendChain appends the chain of ids to dst: one content hash per full block of blockSize tokens, the
// namespace mixed into the first. Tokens behind the last full block do not count.
func AppendChain(dst []uint64, ids []uint32, blockSize int, ns uint64) []uint64 {
	start := len(dst)
	for ; len(ids) >= blockSize; ids = ids[blockSize:] {
		dst = append(dst, ContentHash(ids[:blockSize]))
	}
	if len(dst) > start {
		dst[start] = Root(ns, dst[start])
	}
	return dst
}

// DigestTerm is one hash's share of a Digest: the splitmix64 finaliser. Digests are sums modulo 2^64 of
// terms, so both sides keep them up by adding and subtracting, whatever the order of events.
func DigestTerm(hash uint64) uint64 {
	hash ^= hash >> 30
	hash *= 0xbf58476d1ce4e5b9
	hash ^= hash >> 27
	hash *= 0x94d049bb133111eb
	return hash ^ hash>>31
}

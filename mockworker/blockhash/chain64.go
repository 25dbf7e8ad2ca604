package blockhash

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// NewChain64 makes a hasher that no engine has: xxh3-64 over the tokens, seeded by the parent, 8 bytes a
// digest. It tells blocks apart as well as the others do where nobody attacks it, in a tenth of the time,
// and stands in for them in simulations.
func NewChain64() *Hasher { return &Hasher{chain: true, none: FromInt(xxh3.HashString(DefaultSeed))} }

// nextChain64 hashes the tokens as little-endian uint32, then the extra keys, each behind a zero byte.
func nextChain64(parent *Digest, tokens []uint32, x Extra) Digest {
	var stack [smallInput]byte
	buf := stack[:0]
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	if x.LoRAName != "" || x.CacheSalt != "" {
		buf = append(append(buf, 0), x.LoRAName...)
		buf = append(append(buf, 0), x.CacheSalt...)
	}
	return FromInt(xxh3.HashSeed(buf, parent.EventInt()))
}

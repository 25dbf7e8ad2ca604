package blockhash

import (
	"crypto/sha256"
	"encoding/binary"
)

// saltDomain begins what a cache salt is hashed with (SGLang's sglang-cache-salt-v1).
const saltDomain = "sglang-cache-salt-v1\x00"

// NewSGLang makes the hasher of SGLang's radix tree pages: SHA-256 of the page before it, all 32 bytes,
// and of each token as a little-endian uint32. There is no seed: nothing stands before the first page but
// the hash of a cache salt. Adapters do not enter, so an adapter's pages have the base model's hashes, as
// in the engine. The event integer is the first 8 bytes, which the wire sends as an int64.
func NewSGLang() *Hasher { return &Hasher{page: true} }

// nextPage hashes a page. salt belongs to the first page only.
func nextPage(prior *Digest, tokens []uint32, salt string) Digest {
	var stack [largeInput]byte
	buf := append(stack[:0], prior.Bytes()...)
	if salt != "" {
		first := sha256.Sum256(append([]byte(saltDomain), salt...))
		buf = append(stack[:0], first[:]...)
	}
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	return Digest{b: sha256.Sum256(buf), n: sha256.Size, front: true}
}

package blockhash

import (
	"crypto/sha256"
	"fmt"

	"github.com/zeebo/xxh3"
)

// DefaultSeed is the seed string of engines started without PYTHONHASHSEED, for the two SHA-256
// algorithms since vLLM 0.29; before that, and for the xxhash pair, an unseeded engine draws one.
const DefaultSeed = "vllm-none-hash"

// smallInput bounds the serialised inputs that are built in a small stack buffer. A block of 16 tokens
// needs 130 bytes at most without extra keys; clearing a larger buffer would cost more than the hash.
const smallInput = 256

// largeInput bounds those built on the stack at all: blocks of 256 tokens with short extra keys.
const largeInput = 2048

// Hasher computes block hashes with one algorithm and seed. It is immutable and safe for concurrent use.
type Hasher struct {
	cbor  bool
	xx    bool
	chain bool
	page  bool
	none  Digest
}

// Extra are the extra keys of one block that this package hashes: the adapter's name in every block and
// the cache salt in block 0 only, which is the caller's to observe. Empty strings are no keys.
type Extra struct {
	LoRAName  string
	CacheSalt string
}

// New makes the hasher of an algorithm ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor") with a seed
// string, which is PYTHONHASHSEED or DefaultSeed. It fails on an unknown algorithm.
func New(algo, seed string) (*Hasher, error) {
	h := &Hasher{}
	switch algo {
	case "sha256":
	case "sha256_cbor":
		h.cbor = true
	case "xxhash":
		h.xx = true
	case "xxhash_cbor":
		h.cbor, h.xx = true, true
	default:
		return nil, fmt.Errorf("unknown block hash algorithm %q: have sha256, sha256_cbor, xxhash, xxhash_cbor", algo)
	}
	h.none = h.sum(h.appendSeed(nil, seed))
	return h, nil
}

// NoneHash is the parent of every first block; SGLang's has no bytes.
func (h *Hasher) NoneHash() Digest { return h.none }

// Next is the hash of the block of tokens that follows parent. It does not allocate for blocks of up to
// 256 tokens.
func (h *Hasher) Next(parent Digest, tokens []uint32, x Extra) Digest {
	switch {
	case h.chain:
		return nextChain64(&parent, tokens, x)
	case h.page:
		return nextPage(&parent, tokens, x.CacheSalt)
	}
	if inputBound(len(tokens), x) > smallInput {
		return h.nextLarge(&parent, tokens, x)
	}
	var stack [smallInput]byte
	return h.sum(h.appendBlock(stack[:0], &parent, tokens, x))
}

func (h *Hasher) nextLarge(parent *Digest, tokens []uint32, x Extra) Digest {
	var stack [largeInput]byte
	return h.sum(h.appendBlock(stack[:0], parent, tokens, x))
}

// inputBound is an upper bound of the serialised input's bytes: 5 a token in both formats, 64 for
// everything of fixed size, 8 for the head and memo mark of each string. Ids of 2^31 and more, which no
// vocabulary has, take 7 in pickle: they only cost an allocation.
func inputBound(tokens int, x Extra) int {
	return 5*tokens + 64 + len(x.LoRAName) + len(x.CacheSalt) + 16
}

// The two formats are told apart by a branch, not through an interface or a function value: the compiler
// could not keep the buffers on the stack across an indirect call.

func (h *Hasher) appendBlock(dst []byte, parent *Digest, tokens []uint32, x Extra) []byte {
	if h.cbor {
		return appendCBORBlock(dst, parent.Bytes(), tokens, x)
	}
	return appendPickleBlock(dst, parent.Bytes(), tokens, x)
}

func (h *Hasher) appendSeed(dst []byte, seed string) []byte {
	if h.cbor {
		return appendCBORText(dst, seed)
	}
	return appendPickleSeed(dst, seed)
}

func (h *Hasher) sum(input []byte) Digest {
	if h.xx {
		sum := xxh3.Hash128(input).Bytes()
		d := Digest{n: uint8(len(sum))}
		copy(d.b[:], sum[:])
		return d
	}
	return Digest{b: sha256.Sum256(input), n: sha256.Size}
}

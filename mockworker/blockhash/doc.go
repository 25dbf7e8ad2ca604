// Package blockhash computes the chained hashes by which vLLM names cache blocks, and SGLang pages.
//
// In vLLM a block's hash is H((parent digest, token ids, extra keys)), where the tuple is serialised exactly as
// CPython would: pickle protocol 5 for "sha256" and "xxhash", canonical CBOR for the "_cbor" pair. Only
// the subset of both formats that such tuples need lives here. The parent of the first block is
// NONE_HASH, the hash of a seed string. SGLang's simpler rule is in sglang.go.
//
// The one idea to know: digests chain at full length and are cut to 64 bits only when they go into an
// event (Digest.EventInt).
package blockhash

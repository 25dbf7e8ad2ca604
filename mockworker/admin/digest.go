package admin

import (
	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
)

// digestOf is the digest of a set of distinct hashes.
func digestOf(blocks []contract.TruthBlock) contract.U64 {
	var d uint64
	for i := range blocks {
		d += tokens.DigestTerm(uint64(blocks[i].Hash))
	}
	return contract.U64(d)
}

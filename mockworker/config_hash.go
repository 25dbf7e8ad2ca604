package mockworker

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/wire"
)

// RandomHashSeed is the --hash-seed of an engine that draws its own, as those without PYTHONHASHSEED did
// before vLLM 0.29 and still do with the xxhash pair (vllm#51875): the same prompt has other hashes in every
// engine and after every start, so that nobody can compare them between processes.
const RandomHashSeed = "random"

// newHasher is the hasher of one rank.
func (p *plan) newHasher() (*blockhash.Hasher, error) {
	if p.HashSeed != RandomHashSeed || wire.IsSGLang(p.Wire) { // SGLang's hashes have no seed
		return p.engine.Hasher, nil
	}
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("drawing a hash seed: %w", err)
	}
	return blockhash.New(p.HashAlgo, hex.EncodeToString(seed[:]))
}

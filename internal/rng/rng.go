// Package rng derives every random choice of a run from one seed, through named sub-streams.
//
// The one idea: a stream is found by its name, never by its place in a sequence of draws. The instants
// of a load, its prompt lengths, the victim of a fault and the phase of its injection each have a
// stream of their own, so adding one draw to one of them leaves the others as they were and an old seed
// still reproduces an old run. The values are the same on every architecture and every Go release:
// PCG-DXSM, xxh3 and splitmix64 are fixed algorithms over 64-bit integers.
//
// Nothing here is fit for secrets.
package rng

import (
	"math/rand/v2"

	"github.com/zeebo/xxh3"
)

// gamma is the increment of splitmix64: 2^64 divided by the golden ratio, odd (Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators", 2014).
const gamma = 0x9e3779b97f4a7c15

// Stream is the random sub-stream called name of the run with this seed. Two calls with the same
// arguments give two streams that yield the same values; streams with different names or seeds are
// unrelated. A stream is not safe for concurrent use.
func Stream(seed uint64, name string) *rand.Rand {
	h := xxh3.HashString(name)
	// The name enters both words of the state, each behind its own finaliser: seeds 1 and 2, or names
	// that differ in one letter, must not give states that differ in one bit.
	return rand.New(rand.NewPCG(mix(seed+h), mix(seed^mix(h))))
}

// RunSeed is the seed of repeat i of a drill whose file says base: the i-th output of the splitmix64
// generator that starts at base, counting from 0.
func RunSeed(base uint64, i int) uint64 {
	return mix(base + (uint64(i)+1)*gamma)
}

// mix is the finaliser of splitmix64: a bijection in which every input bit moves half of the output bits.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

package kinds

import (
	"fmt"
	"strconv"
	"strings"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/chain"
	"fleetdrill/gateway/index/crtc"
	"fleetdrill/gateway/index/maptree"
	"fleetdrill/gateway/index/positional"
	"fleetdrill/gateway/index/sharded"
)

// Names of the indexes; Default is the one used when none is named.
const (
	Chain      = "chain"
	CRTC       = "crtc"
	MapTree    = "maptree"
	Positional = "positional"
	// Run is another name of Chain.
	Run     = "run"
	Default = Chain

	shardedPrefix = "sharded:"
	maxShards     = 64
)

// Help lists what New accepts, for flags and errors.
const Help = "chain (or run), positional, maptree, crtc, sharded:N (N chains, 1 to 64)"

// New makes the index of that name. An unknown name is an error that lists the known ones.
func New(name string) (index.Index, error) {
	switch name {
	case Chain, Run:
		return chain.New(), nil
	case CRTC:
		return crtc.New(), nil
	case MapTree:
		return maptree.New(), nil
	case Positional:
		return positional.New(), nil
	}
	if count, ok := strings.CutPrefix(name, shardedPrefix); ok {
		if n, err := strconv.Atoi(count); err == nil && n >= 1 && n <= maxShards {
			return sharded.New(n, func() index.Index { return chain.New() }), nil
		}
	}
	return nil, fmt.Errorf("kv index %q is not one of %s", name, Help)
}

// minBytes is the least bound that makes sense: below it the index would do nothing but give up.
const minBytes = 1 << 20

// Bound holds ix below maxBytes, 0 for no bound. It is an error if ix cannot be held, or the bound is too small.
func Bound(ix index.Index, maxBytes int64) error {
	if maxBytes == 0 {
		return nil
	}
	if maxBytes < minBytes {
		return fmt.Errorf("bound of %d bytes: must be at least %d, or 0 for none", maxBytes, minBytes)
	}
	bounded, ok := ix.(index.Bounded)
	if !ok {
		return fmt.Errorf("bound of %d bytes: this index cannot be bounded, %s can", maxBytes, Chain)
	}
	bounded.SetMaxBytes(maxBytes)
	return nil
}

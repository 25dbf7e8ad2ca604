package indextest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/gateway/index"
	"fleetdrill/internal/tokens"
	"fleetdrill/oracle"
)

// Alphabets are small, so that holes, heals, divergent siblings, duplicates, twins (one place, two hashes),
// moved hashes and reused holder ids all happen within a few events.
const (
	holders  = 3
	hashes   = 14
	contents = 3
	maxStore = 5
	maxOps   = 40
)

// Target is what is compared: an Index, or a Residency above one.
type Target interface {
	Store(h index.Holder, parent uint64, hasParent bool, hashes, contents []uint64) index.StoreResult
	Remove(h index.Holder, hashes []uint64) (removed, unknown int)
	Clear(h index.Holder)
	Drop(h index.Holder)
}

// Index checks that an index made by make equals the reference after every event of random histories.
func Index(t *testing.T, make func() index.Index) {
	rapid.Check(t, func(t *rapid.T) {
		ix := make()
		run(t, ix, ix, oracle.NewReference(1), nil, nil)
	})
}

// Understating checks the same of an index whose scores may be too low, but never too high. It returns how
// many of the scores were.
func Understating(t *testing.T, make func() index.Index) (low, asked int) {
	var under understated
	rapid.Check(t, func(t *rapid.T) {
		ix := make()
		run(t, ix, ix, oracle.NewReference(1), nil, &under)
	})
	return under.low, under.asked
}

// understated counts scores that are too low, where that is allowed.
type understated struct{ low, asked int }

// Residency checks the same of a Residency, which counts up to 8 copies, and its digest.
func Residency(t *testing.T, make func() index.Index) {
	rapid.Check(t, func(t *rapid.T) {
		r := index.NewResidency(make())
		run(t, r, r.Index(), oracle.NewReference(8), r.Digest, nil)
	})
}

// history is one run: the target, the index to look up in, and the reference beside it.
type history struct {
	*rapid.T
	target Target
	index  index.Index
	ref    *oracle.Reference
	digest func(index.Holder) uint64
	// under is set for an index whose scores may be too low.
	under *understated
	// chains are content chains that were once stored, from the root.
	chains [][]uint64
	scores index.Scores
}

func run(t *rapid.T, target Target, ix index.Index, ref *oracle.Reference, digest func(index.Holder) uint64, under *understated) {
	h := &history{T: t, target: target, index: ix, ref: ref, digest: digest, under: under}
	for range rapid.IntRange(1, maxOps).Draw(t, "events") {
		h.event()
		h.compare()
		h.lookups()
	}
	for holder := range index.Holder(holders) {
		target.Drop(holder)
	}
	if s := ix.Stats(); s != (index.Stats{}) {
		t.Fatalf("with every holder dropped, %+v is left", s)
	}
}

func (h *history) event() {
	holder := index.Holder(rapid.IntRange(0, holders-1).Draw(h.T, "holder"))
	switch rapid.IntRange(0, 19).Draw(h.T, "kind") {
	case 0:
		h.target.Clear(holder)
		h.ref.Clear(uint32(holder))
	case 1:
		h.target.Drop(holder)
		h.ref.Drop(uint32(holder))
	case 2, 3, 4, 5, 6, 7:
		h.remove(holder)
	default:
		h.store(holder)
	}
}

func (h *history) drawHashes(label string, atLeast int) []uint64 {
	return rapid.SliceOfNDistinct(rapid.Uint64Range(1, hashes), atLeast, maxStore, rapid.ID[uint64]).Draw(h.T, label)
}

func (h *history) remove(holder index.Holder) {
	list := h.drawHashes("removed", 1)
	before := h.ref.Blocks(uint32(holder))
	wantRemoved, wantUnknown := h.ref.Remove(uint32(holder), slices.Clone(list))
	removed, unknown := h.target.Remove(holder, list)
	if removed != wantRemoved || unknown != wantUnknown {
		h.Fatalf("removing %v from %d: %d removed, %d unknown; want %d, %d", list, holder, removed, unknown, wantRemoved, wantUnknown)
	}
	for i, hash := range list[:removed+unknown] {
		if _, was := before[hash]; was != (i < removed) {
			h.Fatalf("removing from %d: the removed ones do not come first in %v (%d removed)", holder, list, removed)
		}
	}
}

func (h *history) store(holder index.Holder) {
	list := h.drawHashes("stored", 1)
	var parent uint64
	var chain []uint64
	hasParent := rapid.IntRange(0, 2).Draw(h.T, "child") > 0
	if hasParent {
		parent = rapid.Uint64Range(1, hashes).Draw(h.T, "parent")
		list = slices.DeleteFunc(list, func(hash uint64) bool { return hash == parent })
		chain = h.ref.Chain(uint32(holder), parent)
	}
	blocks := make([]uint64, len(list))
	for i := range blocks {
		blocks[i] = rapid.Uint64Range(100, 100+contents-1).Draw(h.T, "content")
	}
	want := h.ref.Store(uint32(holder), parent, hasParent, list, blocks)
	got := h.target.Store(holder, parent, hasParent, list, blocks)
	known := got.Known
	got.Known = nil
	if diff := cmp.Diff(index.StoreResult{Stored: want.Stored, Duplicate: want.Duplicate, Moved: want.Moved, UnknownParent: want.UnknownParent}, got); diff != "" {
		h.Fatalf("storing %v as %v under %d (%v) at %d (-want +got):\n%s", list, blocks, parent, hasParent, holder, diff)
	}
	if len(known) != got.Duplicate+got.Moved {
		h.Fatalf("%d hashes were known, listed %v", got.Duplicate+got.Moved, known)
	}
	if !want.UnknownParent {
		h.chains = append(h.chains, append(chain, blocks...))
	}
}

// compare checks every membership, count and digest.
func (h *history) compare() {
	var total int64
	for holder := range index.Holder(holders) {
		want := h.ref.Blocks(uint32(holder))
		got := map[uint64]oracle.Block{}
		h.index.Each(holder, func(m index.Membership) bool {
			got[m.Hash] = oracle.Block{Hash: m.Hash, Position: m.Position, Content: m.Content}
			return true
		})
		if diff := cmp.Diff(want, got); diff != "" {
			h.Fatalf("memberships of %d (-want +got):\n%s", holder, diff)
		}
		for hash := range uint64(hashes + 1) {
			if _, held := want[hash]; h.index.Holds(holder, hash) != held {
				h.Fatalf("%d holds %d: %v, want %v", holder, hash, !held, held)
			}
		}
		if n := h.index.Count(holder); n != len(want) {
			h.Fatalf("count of %d is %d, want %d", holder, n, len(want))
		}
		total += int64(len(want))
		h.compareDigest(holder, want)
	}
	if s := h.index.Stats(); s.Memberships != total {
		h.Fatalf("stats count %d memberships, want %d", s.Memberships, total)
	}
}

func (h *history) compareDigest(holder index.Holder, want map[uint64]oracle.Block) {
	if h.digest == nil {
		return
	}
	var sum uint64
	for hash := range want {
		sum += tokens.DigestTerm(hash)
	}
	if got := h.digest(holder); got != sum {
		h.Fatalf("digest of %d is %x, want %x over %d hashes", holder, got, sum, len(want))
	}
}

// lookups asks for every chain that was ever stored, and for its neighbours.
func (h *history) lookups() {
	for _, chain := range h.chains {
		n := len(chain)
		h.lookup(chain)
		h.lookup(chain[:n/2])
		for _, at := range []int{n / 2, n - 1} { // the middle replaced, the tail replaced
			other := slices.Clone(chain)
			other[at] = 999
			h.lookup(other)
		}
		h.lookup(append(slices.Clone(chain), 100))
	}
	h.lookup(nil)
}

func (h *history) lookup(chain []uint64) {
	h.scores = h.index.Lookup(chain, h.scores)
	for holder := range index.Holder(holders) {
		got := 0
		if int(holder) < len(h.scores) {
			got = int(h.scores[holder])
		}
		want := h.ref.Score(uint32(holder), chain)
		if h.under != nil {
			if h.under.asked++; got < want {
				h.under.low++
				continue
			}
		}
		if got != want {
			h.Fatalf("score of %d for %v is %d, want %d", holder, chain, got, want)
		}
	}
}

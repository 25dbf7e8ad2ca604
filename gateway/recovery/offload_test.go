package recovery

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/chain"
	"fleetdrill/gateway/index/maptree"
	"fleetdrill/internal/tokens"
	"fleetdrill/oracle"
)

// told is an event of a tier: op is store (described), name (a store by name alone), remove or clear.
type told struct {
	op, medium string
	parent     uint64 // 0 for none
	hashes     []uint64
}

// wire is the event as engines send it; block h is one token long, token h.
func (e told) wire() any {
	switch e.op {
	case "clear":
		return []any{"AllBlocksCleared"}
	case "remove":
		return map[string]any{"type": "BlockRemoved", "block_hashes": e.hashes, "medium": e.medium}
	case "name":
		return map[string]any{"type": "BlockStored", "block_hashes": e.hashes, "parent_block_hash": nil,
			"token_ids": []uint32{}, "block_size": 0, "lora_id": nil, "medium": e.medium}
	}
	var parent any
	if e.parent > 0 {
		parent = e.parent
	}
	out := storeOf(parent, e.hashes...).(map[string]any)
	out["medium"] = e.medium
	return out
}

// tiersOf is what the index has in each tier.
func (r rank) tiersOf() (device, host []uint64) {
	r.residency.EachTier(0, func(m index.Membership, onDevice, onHost bool) bool {
		if onDevice {
			device = append(device, m.Hash)
		}
		if onHost {
			host = append(host, m.Hash)
		}
		return true
	})
	slices.Sort(device)
	slices.Sort(host)
	return device, host
}

// TestOffload plays stories of two tiers. A batch is one line per event:
//
//	batch
//	store GPU 1 2 3            blocks 1 2 3 from the root
//	store CPU 4 under 3        a described store
//	name CPU 1                 a store by name alone
//	remove GPU 3
//	clear
//
// Shown are what each tier has, the leading blocks of the chain 1 2 3 ..., and what was not known.
func TestOffload(t *testing.T) {
	datadriven.Walk(t, "testdata/offload", func(t *testing.T, path string) {
		r := newRank(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var list []any
			for _, line := range strings.Split(d.Input, "\n") {
				list = append(list, parseTold(t, line).wire())
			}
			e := r.apply(list...)
			device, host := r.tiersOf()
			var content []uint64
			for h := uint32(1); h < 10; h++ {
				content = append(content, tokens.ContentHash([]uint32{h}))
			}
			score := append(r.residency.Index().Lookup(content, nil), 0)[0]
			return fmt.Sprintf("device %v, host %v, score %d\nunknown %d on the device, %d on the host; orphans %d\n",
				device, host, score, e.unknown, e.host.unknown, r.orphaned)
		})
	})
}

func parseTold(t *testing.T, line string) (e told) {
	t.Helper()
	words := strings.Fields(line)
	if e.op = words[0]; e.op == "clear" {
		return e
	}
	e.medium = words[1]
	for i := 2; i < len(words); i++ {
		under := words[i] == "under"
		if under {
			i++
		}
		n, err := strconv.ParseUint(words[i], 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if under {
			e.parent = n
		} else {
			e.hashes = append(e.hashes, n)
		}
	}
	return e
}

// naive keeps per tier how many copies there are of each block, and nothing else. It has no early stores:
// it forgets no place before a batch ends.
type naive struct {
	copies  [2]map[uint64]int
	seen    map[uint64]bool // held at some moment of this batch
	orphans int64
}

func newNaive() *naive {
	return &naive{copies: [2]map[uint64]int{{}, {}}, seen: map[uint64]bool{}}
}

func (n *naive) holds(h uint64) bool { return n.copies[0][h] > 0 || n.copies[1][h] > 0 }

func (n *naive) apply(e told) {
	tier := 0
	if e.medium == "CPU" {
		tier = 1
	}
	if e.op == "clear" {
		orphans := n.orphans
		*n = *newNaive()
		n.orphans = orphans
	}
	for _, h := range e.hashes {
		switch {
		case e.op == "remove":
			n.copies[tier][h] = max(n.copies[tier][h]-1, 0)
		case e.op == "name" && !n.seen[h]:
			n.orphans++
		default:
			n.copies[tier][h] = min(n.copies[tier][h]+1, 8)
			n.seen[h] = true
		}
	}
}

// next ends a batch.
func (n *naive) next() {
	n.seen = map[uint64]bool{}
	for _, tier := range n.copies {
		maps.DeleteFunc(tier, func(_ uint64, c int) bool { return c == 0 })
		for h := range tier {
			n.seen[h] = true
		}
	}
}

// Blocks form a tree: the parent of block h is h/2, and block 1 is the root.
const treeBlocks = 15

func (n *naive) draw(t *rapid.T) (e told) {
	e.medium = rapid.SampledFrom([]string{"GPU", "CPU"}).Draw(t, "medium")
	h := rapid.Uint64Range(1, treeBlocks).Draw(t, "block")
	e.hashes = []uint64{h}
	switch rapid.IntRange(0, 15).Draw(t, "event") {
	case 0:
		e = told{op: "clear"}
	case 1, 2, 3, 4, 5:
		e.op = "remove"
	case 6, 7, 8:
		e.op, e.medium = "name", "CPU"
	case 9, 10: // an eviction to the host: how engines name what the device has lost
		e.op, e.medium = "demote", "GPU"
	default:
		e.op, e.parent = "store", h/2
		if h > 1 && !n.holds(h/2) {
			e = told{op: "remove", medium: e.medium, hashes: e.hashes} // engines store under what they have
		}
	}
	return e
}

// Batches of random events of both tiers leave, after each, what the naive counts have, in each tier, with its
// sums; scores are those of the blocks that either tier has.
func TestTiersEqualNaiveCounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var ix index.Index = chain.New()
		if rapid.Bool().Draw(rt, "maptree") {
			ix = maptree.New()
		}
		r := rank{newApplier(Source{BlockSize: 1}, index.NewResidency(ix)), t}
		n := newNaive()
		for range rapid.IntRange(1, 25).Draw(rt, "batches") {
			var list, behind []any
			for range rapid.IntRange(1, 5).Draw(rt, "events") {
				e := n.draw(rt)
				switch {
				case e.op == "demote" && n.copies[0][e.hashes[0]] == 0:
					continue
				case e.op == "demote":
					e.op = "remove"
					behind = append(behind, told{op: "name", medium: "CPU", hashes: e.hashes})
				case e.op == "clear":
					behind = nil
				}
				n.apply(e)
				list = append(list, e.wire())
			}
			for _, e := range behind {
				n.apply(e.(told))
				list = append(list, e.(told).wire())
			}
			n.next()
			r.apply(list...)
			n.compare(rt, r)
		}
	})
}

func (n *naive) compare(t *rapid.T, r rank) {
	var got [2][]uint64
	got[0], got[1] = r.tiersOf()
	ref := oracle.NewReference(1)
	for h := uint64(1); h <= treeBlocks; h++ { // parents first, holes taken out afterwards
		ref.Store(0, h/2, h > 1, []uint64{h}, []uint64{tokens.ContentHash([]uint32{uint32(h)})})
	}
	for h := uint64(1); h <= treeBlocks; h++ {
		if !n.holds(h) {
			ref.Remove(0, []uint64{h})
		}
	}
	for tier, list := range got {
		if want := slices.Sorted(maps.Keys(n.copies[tier])); !slices.Equal(list, want) {
			t.Fatalf("tier %d has %v, want %v", tier, list, want)
		}
		blocks, digest := r.residency.Sums(0, index.Tier(tier))
		for _, h := range list {
			digest -= tokens.DigestTerm(h)
		}
		if blocks != len(list) || digest != 0 {
			t.Fatalf("tier %d: %d blocks counted of %d, the digest is %x off", tier, blocks, len(list), digest)
		}
	}
	if r.orphaned != n.orphans {
		t.Fatalf("%d orphans, want %d", r.orphaned, n.orphans)
	}
	for h := uint64(1); h <= treeBlocks; h++ {
		var path []uint64
		for at := h; at > 0; at /= 2 {
			path = append([]uint64{tokens.ContentHash([]uint32{uint32(at)})}, path...)
		}
		if got, want := append(r.residency.Index().Lookup(path, nil), 0)[0], ref.Score(0, path); int(got) != want {
			t.Fatalf("the chain to %d scores %d, want %d", h, got, want)
		}
	}
}

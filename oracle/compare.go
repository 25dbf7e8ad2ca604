package oracle

import (
	"cmp"
	"slices"

	"fleetdrill/internal/contract"
)

// Side says who is wrong about a block, in the gateway's favour or not.
type Side string

// The ways in which a block can differ.
const (
	Missing Side = "missing" // announced, not in the gateway's index
	Extra   Side = "extra"   // in the gateway's index, not announced
	Moved   Side = "moved"   // in both, at different places
)

// Difference is one block on which the two sides do not agree. Position and Content are the engine's, or
// the gateway's if only it has the block.
type Difference struct {
	Side Side `json:"side"`
	// Tier is "host", or empty for the device.
	Tier     string       `json:"tier,omitempty"`
	Hash     contract.U64 `json:"hash"`
	Position int          `json:"position"`
	Content  contract.U64 `json:"content"`
	// Gateway is where the gateway has a moved block.
	Gateway *contract.DumpBlock `json:"gateway,omitempty"`
	// Events are what the engine's journal says about the block up to the compared number, oldest first.
	Events []string `json:"events,omitempty"`
}

// Diff is the result of a comparison; its lists are by position, then hash.
type Diff struct {
	Missing, Extra, Moved []Difference
}

// Equal reports that there is no difference.
func (d Diff) Equal() bool { return len(d.Missing)+len(d.Extra)+len(d.Moved) == 0 }

// add takes in the differences of another tier.
func (d *Diff) add(tier string, other Diff) {
	for _, list := range []struct{ to, from *[]Difference }{
		{&d.Missing, &other.Missing}, {&d.Extra, &other.Extra}, {&d.Moved, &other.Moved}} {
		for _, one := range *list.from {
			one.Tier = tier
			*list.to = append(*list.to, one)
		}
		sortByPlace(*list.to)
	}
}

// First are up to n differences from all lists, by position.
func (d Diff) First(n int) []Difference {
	all := slices.Concat(d.Missing, d.Extra, d.Moved)
	sortByPlace(all)
	return all[:min(n, len(all))]
}

// Compare holds the blocks that a gateway has against those that an engine announced, by engine hash.
// Copies do not count: what the gateway may say is whether a block is there. Nor does the place of a block
// whose events did not tell it; on the device all do.
func Compare(engine []contract.TruthBlock, gateway []contract.DumpBlock) Diff {
	var d Diff
	has := make(map[contract.U64]contract.DumpBlock, len(gateway))
	for _, b := range gateway {
		has[b.Hash] = b
	}
	for _, b := range engine {
		g, ok := has[b.Hash]
		delete(has, b.Hash)
		diff := Difference{Hash: b.Hash, Position: b.Position, Content: b.Content}
		switch {
		case !ok:
			diff.Side = Missing
			d.Missing = append(d.Missing, diff)
		case b.Position >= 0 && (g.Position != b.Position || g.Content != b.Content):
			diff.Side, diff.Gateway = Moved, &g
			d.Moved = append(d.Moved, diff)
		}
	}
	for _, g := range has {
		d.Extra = append(d.Extra, Difference{Side: Extra, Hash: g.Hash, Position: g.Position, Content: g.Content})
	}
	sortByPlace(d.Missing)
	sortByPlace(d.Extra)
	sortByPlace(d.Moved)
	return d
}

func sortByPlace(list []Difference) {
	slices.SortFunc(list, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Tier, b.Tier))
	})
}

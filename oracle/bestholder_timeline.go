package oracle

import (
	"fmt"
	"slices"

	"fleetdrill/internal/contract"
)

// Timeline is what the engines of a fleet announced over time, in the order of their journals, kept small: a
// block that came or went is 8 bytes. It is filled while a fleet runs and asked afterwards.
type Timeline struct {
	folds []fold
	next  []int64 // per holder: the sequence number its journal continues at
	lines [][]change
}

// change is one batch of a holder.
type change struct {
	monoNs       int64
	gained, lost []uint64 // prefix hashes
}

// NewTimeline is the empty timeline of so many holders.
func NewTimeline(holders int) *Timeline {
	t := &Timeline{folds: make([]fold, holders), next: make([]int64, holders), lines: make([][]change, holders)}
	for i := range t.folds {
		t.folds[i] = fold{}
	}
	return t
}

// Seed begins a holder's part with the set that it had announced up to batch seq (-1: none yet), blocks in
// the order of their positions. It must come before the holder's first line.
func (t *Timeline) Seed(holder int, seq, monoNs int64, blocks []contract.TruthBlock) {
	c := change{monoNs: monoNs}
	for i := range blocks {
		b := &blocks[i]
		parent := uint64(0)
		if b.Parent != nil {
			parent = uint64(*b.Parent)
		}
		for range max(1, b.Copies) {
			if prefix, gained, _ := t.folds[holder].store(uint64(b.Hash), parent, b.Parent != nil, uint64(b.Content)); gained {
				c.gained = append(c.gained, prefix)
			}
		}
	}
	t.next[holder] = seq + 1
	t.add(holder, c)
}

// Next is the sequence number at which the journal of holder continues.
func (t *Timeline) Next(holder int) int64 { return t.next[holder] }

// Append adds the next line of a holder's journal. A line that is not the next one is an error: blocks are
// missing, and nothing that is asked about later instants would be true.
//
// A line does not say in which order its blocks were stored and removed. Stores go first: a removal can then
// find the copy that it is about, and a store its parent, whichever order it was.
func (t *Timeline) Append(holder int, j *contract.TruthJournal) error {
	if j.Seq != t.next[holder] {
		return fmt.Errorf("the journal continues at batch %d, want %d", j.Seq, t.next[holder])
	}
	t.next[holder]++
	f := t.folds[holder]
	if j.Cleared { // by itself and first: the batch may store the same blocks anew
		c := change{monoNs: j.MonoNs}
		for _, b := range f {
			c.lost = append(c.lost, b.prefix)
		}
		clear(f)
		t.add(holder, c)
	}
	c := change{monoNs: j.MonoNs}
	for i := range j.Stored {
		s := &j.Stored[i]
		parent := uint64(0)
		if s.Parent != nil {
			parent = uint64(*s.Parent)
		}
		if prefix, gained, _ := f.store(uint64(s.Hash), parent, s.Parent != nil, uint64(s.Content)); gained {
			c.gained = append(c.gained, prefix)
		}
	}
	for _, hash := range j.Removed {
		if prefix, lost := f.remove(uint64(hash)); lost {
			c.lost = append(c.lost, prefix)
		}
	}
	t.add(holder, c)
	return nil
}

func (t *Timeline) add(holder int, c change) {
	if len(c.gained)+len(c.lost) > 0 {
		t.lines[holder] = append(t.lines[holder], c)
	}
}

// Placement asks what a prompt could have reused at an instant.
type Placement struct {
	// AtNs is CLOCK_MONOTONIC.
	AtNs int64
	// Chain makes the prompt's chain (tokens.AppendChain) in dst.
	Chain func(dst []uint64) []uint64
	// Answer takes the leading blocks that each holder had; depths is valid during the call.
	Answer func(depths []int, best int)
}

// Ask answers every placement, in the order of their instants: a batch published at an instant is there for
// a placement at that instant.
func (t *Timeline) Ask(placements []Placement) {
	order := slices.Clone(placements)
	slices.SortStableFunc(order, func(a, b Placement) int { return int(min(max(a.AtNs-b.AtNs, -1), 1)) })
	sets := newPrefixSets(len(t.lines))
	live, depths, at := make([]uint64, sets.words), make([]int, len(t.lines)), make([]int, len(t.lines))
	var chain []uint64
	for _, p := range order {
		for h, lines := range t.lines {
			for ; at[h] < len(lines) && lines[at[h]].monoNs <= p.AtNs; at[h]++ {
				lines[at[h]].apply(&sets, h)
			}
		}
		chain = p.Chain(chain[:0])
		best := sets.depths(chain, live, depths)
		p.Answer(depths, best)
	}
}

// apply makes one batch true. A block that was stored and removed in one batch ends removed, as in Append.
func (c *change) apply(sets *prefixSets, holder int) {
	for _, prefix := range c.gained {
		sets.add(holder, prefix)
	}
	for _, prefix := range c.lost {
		sets.take(holder, prefix)
	}
}

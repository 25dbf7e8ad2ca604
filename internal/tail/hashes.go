package tail

import (
	"slices"
	"strings"

	"fleetdrill/gateway/events"
)

// Algorithm is one way in which an engine may hash its blocks.
type Algorithm struct {
	// Name says the algorithm and, if it has one, the seed.
	Name string
	// Chain returns the event integers of the first blocks of a chain. lora and salt are empty without.
	Chain func(blocks [][]uint32, lora, salt string) []uint64
}

// checkedBlocks bounds how many blocks of a store are recomputed: two do not agree by chance.
const checkedBlocks = 4

// detector finds the algorithm of an engine by recomputing the stores that begin a chain.
type detector struct {
	algorithms []Algorithm
	found      string
	looked     bool // a store was tried
}

// look tries a batch. news says that the algorithm became known, another one, or that a first look found
// none of them.
func (d *detector) look(b *events.Batch) (news bool) {
	for i := range b.Events {
		if e := &b.Events[i]; beginsChain(e) {
			news = d.try(e) || news
		}
	}
	return news
}

// beginsChain reports a store that can be recomputed: from the first token on, of plain tokens.
func beginsChain(e *events.Event) bool {
	if e.Kind != events.Stored || e.HasParent || e.Bigram || len(e.Hashes) == 0 {
		return false
	}
	if e.BlockSize < 1 || len(e.Tokens) != len(e.Hashes)*e.BlockSize {
		return false
	}
	for _, keys := range e.ExtraKeys[:min(len(e.ExtraKeys), checkedBlocks)] {
		for _, k := range keys {
			if k.HasOffset || k.Bytes != nil {
				return false
			}
		}
	}
	return true
}

func (d *detector) try(e *events.Event) (news bool) {
	n := min(len(e.Hashes), checkedBlocks)
	blocks := make([][]uint32, n)
	for i := range blocks {
		blocks[i] = e.Tokens[i*e.BlockSize : (i+1)*e.BlockSize]
	}
	name := d.explain(blocks, e.LoRAName, saltOf(e), e.Hashes[:n])
	before, looked := d.found, d.looked
	d.looked = true
	if name == "" {
		// Old wires hide salts and adapters, so a store that nothing explains does not unsay what is known.
		return !looked
	}
	d.found = name
	return name != before
}

// explain names the algorithm that gives these hashes; the one known so far is asked first.
func (d *detector) explain(blocks [][]uint32, lora, salt string, want []uint64) string {
	for _, known := range []bool{true, false} {
		for _, a := range d.algorithms {
			if known == (a.Name == d.found) && slices.Equal(a.Chain(blocks, lora, salt), want) {
				return a.Name
			}
		}
	}
	return ""
}

// saltOf is the cache salt of a store that begins a chain: a field of its own, or the text among the first
// block's extra keys that is not the adapter's name.
func saltOf(e *events.Event) string {
	salt := e.Salt
	if len(e.ExtraKeys) > 0 {
		for i, k := range e.ExtraKeys[0] {
			if i > 0 || k.Text != e.LoRAName {
				salt = k.Text
			}
		}
	}
	return salt
}

// sentence says what is known.
func (d *detector) sentence() string {
	switch {
	case !d.looked:
		return "not seen yet: no store began a chain"
	case d.found == "":
		names := make([]string, len(d.algorithms))
		for i, a := range d.algorithms {
			names[i] = a.Name
		}
		return "unknown: none of " + strings.Join(names, ", ") + " gives them; the seed is random, or one to name with --hash-seed"
	}
	return d.found
}

package lru

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A pool evicts in the order of last use and, of one use, from a chain's end; held blocks stay.
func TestEvictionOrder(t *testing.T) {
	p := New(4)
	fill := func(hashes ...uint64) (ids []int32, gone []uint64) {
		for _, h := range hashes {
			id, g, evicted := p.Fill(h)
			if ids = append(ids, id); evicted {
				gone = append(gone, g)
			}
		}
		return ids, gone
	}
	a, _ := fill(1, 2)
	b, _ := fill(11, 12)
	p.Release(a)
	p.Release(b)
	held := []int32{p.Hold(1)} // used again, and held
	if hit, idle := p.Match([]uint64{1, 2, 3}); hit != 2 || idle != 1 || p.Room() != 3 {
		t.Fatalf("%d hits, %d idle, room for %d", hit, idle, p.Room())
	}
	if _, gone := fill(21, 22, 23); !slices.Equal(gone, []uint64{2, 12, 11}) {
		t.Fatalf("evicted %v, want 2 (the oldest leaf), 12, 11", gone)
	}
	p.Release(held)
	if _, gone := fill(31); !slices.Equal(gone, []uint64{1}) || p.Len() != 4 || p.Size() != 4 {
		t.Fatalf("evicted %v, %d of %d cached", gone, p.Len(), p.Size())
	}
}

// The pool's own counts equal those of a walk, whatever is done to it.
func TestCountsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := New(rapid.IntRange(3, 8).Draw(t, "blocks"))
		var held [][]int32
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				p.Release(held[0])
				held = held[1:]
				continue
			}
			chain := []uint64{1, 1 + rapid.Uint64Range(1, 3).Draw(t, "second"), 10 + rapid.Uint64Range(0, 30).Draw(t, "third")}
			hit, idle := p.Match(chain)
			if len(chain)-hit > p.Room()-idle {
				continue
			}
			var ids []int32
			for _, h := range chain[:hit] {
				ids = append(ids, p.Hold(h))
			}
			for _, h := range chain[hit:] {
				id, _, _ := p.Fill(h)
				ids = append(ids, id)
			}
			held = append(held, ids)
		}
		busy := map[int32]bool{}
		for _, ids := range held {
			for _, id := range ids {
				busy[id] = true
			}
		}
		if p.Room() != p.Size()-len(busy) || p.Len() != len(slices.Collect(p.Hashes())) {
			t.Fatalf("room for %d of %d, %d held; %d cached", p.Room(), p.Size(), len(busy), p.Len())
		}
	})
}

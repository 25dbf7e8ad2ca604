package chain

import "testing"

// A map that lost all its names keeps working, and looks nothing up in the slots that it gave back.
func TestPlacesComeBackFromNothing(t *testing.T) {
	var p places
	hashes := make([]uint64, 5*ahead)
	for i := range hashes {
		hashes[i] = uint64(i) * golden
	}
	for round := range 3 {
		p.reserve(len(hashes))
		for i, hash := range hashes {
			p.warm(hashes, i)
			if old := p.put(hash, placeOf(roots, uint32(i))); old != 0 {
				t.Fatalf("round %d: hash %d was at %v", round, i, old)
			}
		}
		for i, hash := range hashes {
			p.warm(hashes, i)
			if at := p.take(hash); at.offset() != uint32(i) {
				t.Fatalf("round %d: hash %d was at %v", round, i, at)
			}
		}
		p.shrink()
		if p.n != 0 || len(p.slots) != 0 {
			t.Fatalf("round %d: %d names in %d slots", round, p.n, len(p.slots))
		}
		for i := range hashes {
			p.warm(hashes, i)
		}
	}
}

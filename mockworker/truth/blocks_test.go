package truth

import (
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/internal/tokens"
)

// TestBlocksAgainstAMap compares the table with a map over few hashes, so that runs form and break.
func TestBlocksAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b blocks
		want := map[uint64]Entry{}
		for range rapid.IntRange(1, 200).Draw(t, "changes") {
			hash := rapid.Uint64Range(0, 30).Draw(t, "hash")
			old, held := want[hash]
			if rapid.IntRange(0, 2).Draw(t, "store") > 0 {
				e := Entry{
					Parent: rapid.Uint64().Draw(t, "parent"), Position: int32(rapid.IntRange(-1, 5).Draw(t, "position")),
					Group: int16(rapid.IntRange(NoGroup, maxGroups).Draw(t, "group")),
				}
				if first := b.add(hash, e); first == held {
					t.Fatalf("storing %d: new %v, held before %v", hash, first, held)
				}
				if held {
					e = old
				}
				e.Copies = old.Copies + 1
				want[hash] = e
				continue
			}
			got, was, last := b.drop(hash)
			if was != held || held && got != old || last != (old.Copies == 1) {
				t.Fatalf("dropping %d: %+v, held %v, last %v; want %+v", hash, got, was, last, old)
			}
			if old.Copies--; held && old.Copies > 0 {
				want[hash] = old
			} else {
				delete(want, hash)
			}
		}
		if diff := cmp.Diff(want, b.entries()); diff != "" || b.n != len(want) {
			t.Fatalf("%d blocks (-want +got):\n%s", b.n, diff)
		}
		for hash := range uint64(31) {
			if got, ok := b.get(hash); got != want[hash] || ok != (want[hash].Copies > 0) {
				t.Fatalf("%d is %+v, want %+v", hash, got, want[hash])
			}
		}
	})
}

// TestMemoryPerAnnouncedBlock: with the 76 bytes of the engine's pool a cached block stays below 160. The table
// grows by halves, so that it is looked at in every stage.
func TestMemoryPerAnnouncedBlock(t *testing.T) {
	size := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for n := 16_384; n < 32_768; n += 2_000 {
		before := size()
		var b blocks
		for i := range uint64(n) {
			b.add(tokens.DigestTerm(i), Entry{})
		}
		per := float64(size()-before) / float64(n)
		runtime.KeepAlive(b)
		if per > 60 {
			t.Errorf("%.1f bytes an announced block of %d", per, n)
		}
		t.Logf("%.1f bytes an announced block of %d", per, n)
	}
}

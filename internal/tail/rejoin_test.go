package tail

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRejoin loses the connection behind batches 0 and 1 and comes back to a publisher whose replay holds
// what the case says. Only that tells whether it is still the same one.
func TestRejoin(t *testing.T) {
	one := func(name byte) []byte { // a batch of no events, told apart by its time
		return []byte{0x92, 0xcb, 0x41, 0xda, 0x30, 0x54, 0x98, 0x10, 0, name, 0x90}
	}
	for _, c := range []struct {
		name   string
		holds  [][]byte
		broken error
		want   []string
	}{
		{"the same", [][]byte{one(1), one(2), one(3)}, nil, []string{"connected", "2 replay"}},
		{"nothing new", [][]byte{one(1), one(2)}, nil, []string{"connected"}},
		{"another, as far", [][]byte{one(7), one(8)}, nil, []string{"connected", "restart", "0 replay", "1 replay"}},
		{"another, not as far", [][]byte{one(7)}, nil, []string{"connected", "restart", "0 replay"}},
		{"no answer", nil, errors.New("nothing for 3s"), []string{"connected", "replay"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			holds, broken := [][]byte{one(1), one(2)}, error(nil)
			tl := newTailer(Options{}, func(from uint64, take func(int64, uint64, []byte) bool) (bool, error) {
				for seq := from; seq < uint64(len(holds)) && take(1, seq, holds[seq]); seq++ {
				}
				return false, broken
			}, func(l Line) {
				if l.Kind == KindBatch {
					got = append(got, fmt.Sprintf("%d %s", *l.Seq, l.Batch.Source))
				} else {
					got = append(got, string(l.Kind))
				}
			})
			tl.up(1, "here")
			tl.down(2, errors.New("closed by the peer"))
			if diff := cmp.Diff([]string{"connected", "0 replay", "1 replay", "replay", "down"}, got); diff != "" {
				t.Fatalf("before (-want +got):\n%s", diff)
			}
			got, holds, broken = nil, c.holds, c.broken
			tl.up(3, "here")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("after (-want +got):\n%s", diff)
			}
		})
	}
}

package ring

import (
	"testing"

	"pgregory.net/rapid"
)

// A ring must hold exactly what the tail of a plain slice holds, whatever the order of pushes and pops.
func TestRingIsTheTailOfASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 40).Draw(t, "max")
		r, want := New[int](most), []int{}
		for i, push := range rapid.SliceOfN(rapid.Bool(), 0, 200).Draw(t, "pushes") {
			switch {
			case push:
				r.Push(i)
				want = append(want, i)
				want = want[max(0, len(want)-most):]
			case len(want) > 0:
				if got := r.Pop(); got != want[0] {
					t.Fatalf("popped %d, want %d", got, want[0])
				}
				want = want[1:]
			}
			if r.Len() != len(want) || r.Full() != (len(want) == most) {
				t.Fatalf("length %d of at most %d, want %d", r.Len(), most, len(want))
			}
			for i, w := range want {
				if *r.At(i) != w {
					t.Fatalf("item %d is %d, want %d", i, *r.At(i), w)
				}
			}
		}
	})
}

func TestAnEmptyRingHoldsNoMemory(t *testing.T) {
	if r := New[[1024]byte](1 << 30); r.buf != nil {
		t.Fatalf("%d items reserved before the first push", len(r.buf))
	}
}

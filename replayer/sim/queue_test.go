package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is put in and taken out between, the first one leaves.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var want []event
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				at, k, w := rapid.Int64Range(0, 5).Draw(t, "at"), kind(rapid.IntRange(0, int(arrives)).Draw(t, "kind")), rapid.IntRange(0, 3).Draw(t, "worker")
				q.push(at, k, w)
				e := event{at, uint64(k)<<56 | uint64(w)<<40, q.n}
				if e.kind() != k || e.worker() != w {
					t.Fatalf("%d of worker %d became %d of %d", k, w, e.kind(), e.worker())
				}
				i, _ := slices.BinarySearchFunc(want, e, func(a, b event) int {
					if a.before(&b) {
						return -1
					}
					return 1
				})
				want = slices.Insert(want, i, e)
			},
			"pop": func(t *rapid.T) {
				if len(want) == 0 {
					t.Skip()
				}
				if got := q.pop(); got != want[0] {
					t.Fatalf("%+v left, want %+v", got, want[0])
				}
				want = want[1:]
			},
		})
	})
}

func TestFIFO(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f fifo[int]
		in, out := 0, 0
		for _, n := range rapid.SliceOf(rapid.IntRange(-90, 100)).Draw(t, "runs") {
			for ; n > 0; n-- {
				f.push(in)
				in++
			}
			for ; n < 0 && out < in; n++ {
				if got := f.pop(); got != out {
					t.Fatalf("%d left, want %d", got, out)
				}
				out++
			}
		}
	})
}

package trace

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawStamps are stamps that do not decrease and are often equal.
func drawStamps(t *rapid.T) []int64 {
	stamps := rapid.SliceOf(rapid.Int64Range(0, 20)).Draw(t, "stamps")
	slices.Sort(stamps)
	for i := range stamps {
		stamps[i] *= 1_000_000_000
	}
	return stamps
}

func TestRawKeepsTheStamps(t *testing.T) {
	got := Raw([]int64{5, 5, 9, 12})
	if d := cmp.Diff([]int64{0, 0, 4, 7}, got); d != "" {
		t.Fatalf("-want +got\n%s", d)
	}
	if got := Raw(nil); len(got) != 0 {
		t.Fatalf("nothing gives %v", got)
	}
}

func TestSpreadStaysInTheSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stamps := drawStamps(t)
		got := Spread(stamps, rapid.Uint64().Draw(t, "seed"))
		if len(got) != len(stamps) || !slices.IsSorted(got) {
			t.Fatalf("%v is spread to %v", stamps, got)
		}
		distinct := slices.Compact(slices.Clone(stamps))
		for i, s := range stamps {
			slot, _ := slices.BinarySearch(distinct, s)
			width := int64(1)
			switch {
			case slot+1 < len(distinct):
				width = distinct[slot+1] - s
			case slot > 0:
				width = s - distinct[slot-1]
			}
			if at := stamps[0] + got[i]; at < s || at >= s+width {
				t.Fatalf("stamp %d of %v is spread to %d, want less than %d later", s, distinct, at, width)
			}
		}
	})
}

// The same rows come at the same instants whatever else was selected, as long as their slots are whole
// and have a slot behind them.
func TestSpreadDoesNotDependOnTheSelection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stamps := drawStamps(t)
		if len(stamps) == 0 || stamps[0] == stamps[len(stamps)-1] {
			t.Skip("one slot")
		}
		whole := Spread(stamps, 7)
		from := rapid.IntRange(0, len(stamps)-1).Draw(t, "from")
		for from > 0 && stamps[from-1] == stamps[from] {
			from--
		}
		last := stamps[len(stamps)-1]
		for i, offset := range Spread(stamps[from:], 7) {
			if stamps[from+i] != last && stamps[from]+offset != stamps[0]+whole[from+i] {
				t.Fatalf("row %d of %v comes at %d, selected from %d on at %d", from+i, stamps, stamps[0]+whole[from+i], from, stamps[from]+offset)
			}
		}
	})
}

// 40,000 rows in 4,000 slots of 1,000 ns: the mean of uniform draws is 499.5 with a standard deviation of
// 1.44; neighbouring seeds differ.
func TestSpreadIsUniform(t *testing.T) {
	var stamps []int64
	for slot := range int64(4000) {
		for range 10 {
			stamps = append(stamps, slot*1000)
		}
	}
	a, b := Spread(stamps, 1), Spread(stamps, 2)
	total, equal := int64(0), 0
	for i, at := range a {
		total += at - stamps[i]
		if at == b[i] {
			equal++
		}
	}
	if mean := float64(total) / float64(len(a)); mean < 493 || mean > 506 {
		t.Errorf("mean offset in a slot %.1f ns, want about 499.5", mean)
	}
	if equal > 400 {
		t.Errorf("%d of %d instants are those of another seed", equal, len(a))
	}
}

// Old seeds must give old instants.
func TestSpreadGolden(t *testing.T) {
	got := Spread([]int64{0, 0, 0, 3_000_000_000, 3_000_000_000, 5_999_000_000}, 1)
	if d := cmp.Diff([]int64{1642051371, 1665083307, 2228126994, 4847094750, 5902477218, 7606387756}, got); d != "" {
		t.Fatalf("-want +got\n%s", d)
	}
}

package compare

import (
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/drills/judge"
)

// result draws a result on a grid of whole numbers: exact, with an interval, open at the top, or without a
// value.
func result(t *rapid.T, name string) judge.Result {
	v := func(at int) *float64 { f := float64(at); return &f }
	low := rapid.IntRange(0, 10).Draw(t, name+" low")
	high := rapid.IntRange(low, 10).Draw(t, name+" high")
	r := judge.Result{Unit: "s"}
	switch rapid.IntRange(0, 3).Draw(t, name+" kind") {
	case 0:
	case 1:
		r.Value = v(low)
	case 2:
		r.Value, r.Low, r.High = v((low+high)/2), v(low), v(high)
	case 3:
		r.Value, r.Low = v(high), v(low)
	}
	return r
}

// covers says by the definition whether a value may have been x.
func covers(r judge.Result, x float64) bool {
	switch {
	case r.Value == nil:
		return false
	case r.Low == nil:
		return x == *r.Value
	case r.High == nil:
		return x >= *r.Low
	}
	return x >= *r.Low && x <= *r.High
}

// TestRelate: two intervals overlap exactly if some value may have been both; the order of the runs does
// not matter.
func TestRelate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := result(t, "a"), result(t, "b")
		got := Relate(a, b)
		if back := Relate(b, a); back != got {
			t.Fatalf("%s one way, %s the other", got, back)
		}
		both := false
		for x := 0.0; x <= 10; x++ {
			both = both || (covers(a, x) && covers(b, x))
		}
		switch got {
		case "":
			if a.Value != nil && b.Value != nil {
				t.Fatal("two values were not compared")
			}
		case Overlap, Equal:
			if !both {
				t.Fatalf("%s, and no value may have been both", got)
			}
		default:
			if both {
				t.Fatalf("%s, and a value may have been both", got)
			}
		}
		b.Unit = "bytes"
		if Relate(a, b) != "" {
			t.Fatal("seconds were compared with bytes")
		}
	})
}

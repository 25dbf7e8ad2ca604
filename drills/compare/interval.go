package compare

import (
	"math"

	"fleetdrill/drills/judge"
)

// Relation is how two measured values stand to each other.
type Relation string

// The relations. Overlap and Apart are said of intervals, Equal and Different of two exact values.
const (
	Overlap   Relation = "overlap"   // the runs alone show no difference
	Apart     Relation = "apart"     // they differ by more than either measurement leaves open
	Equal     Relation = "equal"     // two counts that are one number
	Different Relation = "different" // two counts that are not
)

// Relate compares what two runs measured for one expectation. It is empty when one of them measured
// nothing, or when they measured in different units.
func Relate(a, b judge.Result) Relation {
	aLow, aHigh, ok := span(a)
	bLow, bHigh, okB := span(b)
	if !ok || !okB || a.Unit != b.Unit {
		return ""
	}
	// An exact value against an interval is a question of overlap: only two exact ones can be equal.
	switch exact := aLow == aHigh && bLow == bHigh; {
	case exact && aLow == bLow:
		return Equal
	case exact:
		return Different
	case aLow <= bHigh && bLow <= aHigh:
		return Overlap
	}
	return Apart
}

// span is the interval of a result: its own, a point for an exact value, and open at the top for what had
// not happened by the end of the record.
func span(r judge.Result) (low, high float64, ok bool) {
	switch {
	case r.Value == nil:
		return 0, 0, false
	case r.Low != nil && r.High != nil:
		return *r.Low, *r.High, true
	case r.Low != nil:
		return *r.Low, math.Inf(1), true
	}
	return *r.Value, *r.Value, true
}

package engine

import (
	"strings"
	"testing"
)

// curve has a floor, a plateau and a rise, in ms.
func curve() *Curve {
	return &Curve{
		Points:    []Point{{100, 10e6}, {200, 20e6}, {400, 20e6}, {800, 60e6}},
		BatchBase: 5e6, BatchToken: 50_000,
		D0: 4e6, D1: 10e6, D2: -2e6, Capacity: 1000,
	}
}

func TestCurve(t *testing.T) {
	for _, c := range []struct {
		name string
		pass Pass
		want int64 // us
	}{
		{"nothing still takes a millisecond", Pass{}, 1000},
		{"below the first point", prefilled(1, 0), 10_000},
		{"on a point", prefilled(200, 0), 20_000},
		{"between two", prefilled(150, 0), 15_000},
		{"on the plateau", prefilled(300, 0), 20_000},
		{"beyond the last, by its slope", prefilled(900, 0), 70_000},
		{"what is cached costs nothing", prefilled(200, 5000), 20_000},
		{"two prompts by the line", Pass{prefillTokens: 500, prefillSeqs: 2, prefillLargest: 300}, 30_000},
		{"but not below the largest alone", Pass{prefillTokens: 802, prefillSeqs: 2, prefillLargest: 800}, 60_000},
		{"decoding in half the pool", Pass{decodeSeqs: 3, decodeContext: 500}, 4000 + 5000 - 500},
		{"in more than all of it", Pass{decodeSeqs: 3, decodeContext: 5000}, 4000 + 10_000 - 2000},
		{"both", Pass{prefillTokens: 200, prefillSeqs: 1, prefillLargest: 200, decodeSeqs: 1, decodeContext: 500}, 28_500},
	} {
		if got := (Timing{Curve: curve()}).duration(c.pass); got != c.want*1000 {
			t.Errorf("%s: %d us, want %d", c.name, got/1000, c.want)
		}
	}
	low := curve()
	low.D0, low.D1, low.D2 = 0, 0, 0
	if got := low.duration(Pass{decodeSeqs: 1, prefillSeqs: 1, prefillTokens: 100, prefillLargest: 100}); got != 11e6 {
		t.Errorf("decoding of less than a millisecond: %d ns, want 11 ms with its prefill", got)
	}
}

func TestCurveRefusesNonsense(t *testing.T) {
	for want, change := range map[string]func(*Curve){
		"at least two points":  func(c *Curve) { c.Points = c.Points[:1] },
		"points must rise":     func(c *Curve) { c.Points[1].Tokens = 100 },
		"falls at its end":     func(c *Curve) { c.Points[3].Ns = 1 },
		"time is -1":           func(c *Curve) { c.BatchToken = -1 },
		"capacity is 0":        func(c *Curve) { c.Capacity = 0 },
		"decoding term is NaN": func(c *Curve) { c.D2 = nan() },
	} {
		c := curve()
		change(c)
		if err := (Timing{Curve: c}).validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/replayer/trace"
)

// lines is a trace of rows given as "stamp input output first-id", ids counting up from the first.
func lines(rows ...string) string {
	var b strings.Builder
	for i, row := range rows {
		var stampMs, in, out, id int
		if _, err := fmt.Sscan(row, &stampMs, &in, &out, &id); err != nil {
			panic(err)
		}
		r := trace.Row{N: i, StampNs: int64(stampMs) * 1e6, Input: in, Output: out}
		for k := range (in + trace.BlockTokens - 1) / trace.BlockTokens {
			r.IDs = append(r.IDs, uint64(id+k))
		}
		b.Write(r.AppendJSON(nil))
	}
	return b.String()
}

func read(t testing.TB, text string, o Options) *Plan {
	t.Helper()
	p, err := Read(trace.NewReader(strings.NewReader(text), "test", trace.Options{}), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// short shows what matters of a request.
func short(p *Plan) (out []string) {
	for _, r := range p.Requests {
		s := fmt.Sprintf("%s at %d ms, %d+%d", r.ID, r.OffsetNs/1e6, r.PromptTokens, r.MaxTokens)
		if r.Warmup {
			s += " warmup"
		}
		out = append(out, s)
	}
	return out
}

func TestRowsBecomeRequests(t *testing.T) {
	text := lines("1000 600 10 0", "1000 5000 0 0", "4000 513 9000 0", "10000 100 3 0")
	for _, c := range []struct {
		what    string
		o       Options
		want    []string
		skipped Skipped
	}{
		{"as they are", Options{Arrivals: Raw}, []string{"row-0 at 0 ms, 600+10", "row-1 at 0 ms, 5000+1", "row-2 at 3000 ms, 513+512", "row-3 at 9000 ms, 100+3"}, Skipped{}},
		{"three times faster", Options{Arrivals: Raw, Speed: 3}, []string{"row-0 at 0 ms, 600+10", "row-1 at 0 ms, 5000+1", "row-2 at 1000 ms, 513+512", "row-3 at 3000 ms, 100+3"}, Skipped{}},
		{"bounded", Options{Arrivals: Raw, MaxInput: 600, MaxOutput: 4}, []string{"row-0 at 0 ms, 600+4", "row-2 at 3000 ms, 513+4", "row-3 at 9000 ms, 100+3"}, Skipped{LongInput: 1}},
		{"a small model", Options{Arrivals: Raw, ModelLimit: 1000}, []string{"row-0 at 0 ms, 600+10", "row-3 at 9000 ms, 100+3"}, Skipped{OverLimit: 2}},
		{"whole blocks", Options{Arrivals: Raw, WholeBlocks: true, MaxInput: 1024}, []string{"row-0 at 0 ms, 1024+10", "row-2 at 3000 ms, 1024+512", "row-3 at 9000 ms, 512+3"}, Skipped{LongInput: 1}},
		{"warmed up", Options{Arrivals: Raw, MaxInput: 600, Warmup: 2}, []string{"row-0 at 0 ms, 600+10 warmup", "row-2 at 3000 ms, 513+512 warmup", "row-3 at 9000 ms, 100+3"}, Skipped{LongInput: 1}},
	} {
		p := read(t, text, c.o)
		if d := cmp.Diff(c.want, short(p)); d != "" {
			t.Errorf("%s (-want +got)\n%s", c.what, d)
		}
		if p.Rows != 4 || p.Skipped != c.skipped {
			t.Errorf("%s: %d rows, %+v, want 4, %+v", c.what, p.Rows, p.Skipped, c.skipped)
		}
	}
}

func TestARequestHasItsRowsTokens(t *testing.T) {
	p := read(t, lines("0 700 1 5"), Options{})
	row := p.Requests[0].Row
	if got, want := p.Requests[0].Tokens(nil), trace.Tokens(nil, &row); !slices.Equal(got, want) || len(got) != 700 {
		t.Errorf("%d tokens, or others than the row's", len(got))
	}
	whole := read(t, lines("0 700 1 5"), Options{WholeBlocks: true}).Requests[0].Tokens(nil)
	if len(whole) != 1024 || !slices.Equal(whole[:700], p.Requests[0].Tokens(nil)) {
		t.Errorf("whole blocks: %d tokens, or another beginning", len(whole))
	}
}

func TestNothingToReplay(t *testing.T) {
	for _, c := range []struct {
		text string
		o    Options
		want string
	}{
		{lines("0 700 1 5"), Options{MaxInput: 5}, "no row is left of 1: 1 above the input bound, 0 above the model's limit"},
		{lines("0 700 1 5"), Options{Speed: -1}, "speed -1"},
		{lines("0 700 1 5"), Options{Arrivals: "burst"}, `arrivals "burst": want spread or raw`},
		{"{}", Options{}, "test:1: no timestamp"},
		{lines("0 700 1 5"), Options{Hot: HotPrefix{Share: 2, Heads: 1, Tokens: 512}}, "share 2"},
	} {
		_, err := Read(trace.NewReader(strings.NewReader(c.text), "test", trace.Options{}), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want one with %q", err, c.want)
		}
	}
}

// Whatever the rows and the speed, requests are due in the order of the trace, within their slots, at the
// same instants for a seed, and a speed only scales them.
func TestArrivals(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(rt, "rows")
		var rows []string
		stamp := 0
		for range n {
			stamp += 3000 * rapid.IntRange(0, 2).Draw(rt, "slots")
			rows = append(rows, fmt.Sprintf("%d 10 1 0", stamp))
		}
		o := Options{Seed: rapid.Uint64().Draw(rt, "seed")}
		one := read(t, lines(rows...), o)
		o.Speed = rapid.Float64Range(0.1, 100).Draw(rt, "speed")
		fast := read(t, lines(rows...), o)
		last := int64(0)
		for i, r := range one.Requests {
			if r.OffsetNs < last || r.OffsetNs < r.Row.StampNs-one.Requests[0].Row.StampNs {
				rt.Fatalf("request %d at %d, before %d or its stamp", i, r.OffsetNs, last)
			}
			last = r.OffsetNs
			if d := float64(fast.Requests[i].OffsetNs)*o.Speed - float64(r.OffsetNs); d > o.Speed || d < -o.Speed {
				rt.Fatalf("request %d: %d at speed %v, %d at 1", i, fast.Requests[i].OffsetNs, o.Speed, r.OffsetNs)
			}
		}
		if one.WindowNs() != last {
			rt.Fatalf("window %d, want %d", one.WindowNs(), last)
		}
	})
}

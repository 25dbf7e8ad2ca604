package synth

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/internal/tokens"
	"fleetdrill/replayer/load"
)

// matrix is the load of the release matrix: 24/s, 256-1,024 tokens after one of 8 heads of 512, half of
// the requests with a fresh prefix instead.
func matrix() Spec {
	return Spec{Name: "main", Seed: 7, Model: "mock-8b", Rate: 24, Input: Range{256, 1024}, Output: Range{64, 128},
		Heads: 8, HeadTokens: 512, NewPrefix: 0.5}
}

func take(t testing.TB, s Spec, n int) []load.Request {
	t.Helper()
	g, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	var out []load.Request
	for range n {
		r, ok := g.Next()
		if !ok {
			break
		}
		out = append(out, r)
	}
	return out
}

// body is what a gateway reads of a request.
type body struct {
	Model         string   `json:"model"`
	Prompt        []uint32 `json:"prompt"`
	MaxTokens     int      `json:"max_tokens"`
	IgnoreEOS     bool     `json:"ignore_eos"`
	Stream        bool     `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func decode(t testing.TB, r load.Request) (b body) {
	t.Helper()
	if err := json.Unmarshal(r.Body, &b); err != nil {
		t.Fatalf("%s: %v", r.ID, err)
	}
	return b
}

func TestBodyIsWhatTheLabelsSay(t *testing.T) {
	heads := map[int][]uint32{}
	for _, r := range take(t, matrix(), 200) {
		b := decode(t, r)
		if b.Model != "mock-8b" || !b.IgnoreEOS || !b.Stream || !b.StreamOptions.IncludeUsage {
			t.Fatalf("%s: %+v", r.ID, b)
		}
		if len(b.Prompt) != r.PromptTokens || b.MaxTokens != r.MaxTokens {
			t.Fatalf("%s: %d tokens and %d to make, labels say %d and %d", r.ID, len(b.Prompt), b.MaxTokens, r.PromptTokens, r.MaxTokens)
		}
		if slices.Min(b.Prompt) < tokens.FirstWord || slices.Max(b.Prompt) >= tokens.Vocab {
			t.Fatalf("%s: token ids outside the words", r.ID)
		}
		if r.NewPrefix != (r.Head < 0) {
			t.Fatalf("%s: new prefix %v, head %d", r.ID, r.NewPrefix, r.Head)
		}
		head := b.Prompt[:512]
		if known, ok := heads[r.Head]; ok && slices.Equal(known, head) != (r.Head >= 0) {
			t.Fatalf("%s: head %d is not what it was, or a fresh prefix came back", r.ID, r.Head)
		}
		heads[r.Head] = head
	}
}

// Two runs with one seed send the same bytes, whoever builds them: the digest may never change.
func TestSameSeedSameBytes(t *testing.T) {
	h := sha256.New()
	for _, r := range take(t, matrix(), 100) {
		fmt.Fprintln(h, r.OffsetNs, r.ID, r.Path, string(r.Body))
	}
	const want = "7758c35d34faf9639445cd0523971c61"
	if got := hex.EncodeToString(h.Sum(nil))[:32]; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

func TestRequestIDsDifferBetweenLoadsAndSeeds(t *testing.T) {
	other, later := matrix(), matrix()
	other.Name, later.Seed = "agents", 8
	seen := map[string]bool{}
	for _, s := range []Spec{matrix(), other, later} {
		for _, r := range take(t, s, 50) {
			seen[r.ID] = true
		}
	}
	if len(seen) != 150 {
		t.Errorf("%d different ids of 150", len(seen))
	}
}

// view is what one property of a load shows of a request.
type view struct {
	offset                   int64
	prompt, output, head     int
	fresh                    bool
	firstToken, lastOfPrompt uint32
}

func views(t *testing.T, s Spec) (out []view) {
	for _, r := range take(t, s, 100) {
		p := decode(t, r).Prompt
		out = append(out, view{r.OffsetNs, r.PromptTokens, r.MaxTokens, r.Head, r.NewPrefix, p[0], p[len(p)-1]})
	}
	return out
}

func TestOnePropertyLeavesTheOthersAlone(t *testing.T) {
	base := views(t, matrix())
	for _, c := range []struct {
		what   string
		change func(*Spec)
		mask   func(*view) // blanks what the change may touch
	}{
		{"rate", func(s *Spec) { s.Rate = 100 }, func(v *view) { v.offset = 0 }},
		{"poisson", func(s *Spec) { s.Poisson = true }, func(v *view) { v.offset = 0 }},
		{"output", func(s *Spec) { s.Output = Range{1, 9} }, func(v *view) { v.output = 0 }},
		{"input", func(s *Spec) { s.Input = Range{100, 900} }, func(v *view) { v.prompt, v.lastOfPrompt = 0, 0 }},
		{"heads", func(s *Spec) { s.Heads = 3 }, func(v *view) {
			if !v.fresh {
				v.head, v.firstToken = 0, 0
			}
		}},
		{"new prefix", func(s *Spec) { s.NewPrefix = 0 }, func(v *view) { v.fresh, v.head, v.firstToken, v.lastOfPrompt = false, 0, 0, 0 }},
	} {
		s := matrix()
		c.change(&s)
		got, want := views(t, s), slices.Clone(base)
		if slices.Equal(got, want) {
			t.Errorf("%s: the change changed nothing", c.what)
		}
		for i := range got {
			c.mask(&got[i])
			c.mask(&want[i])
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(view{})); d != "" {
			t.Errorf("%s shifted something else (-base +changed)\n%s", c.what, d)
		}
	}
}

func TestInstantsLieInTheFirstHalfOfTheirSlots(t *testing.T) {
	const slot = 1e9 / 24.0
	var sum float64
	requests := take(t, matrix(), 5000)
	for i, r := range requests {
		in := (float64(r.OffsetNs) - float64(i)*slot) / slot
		if in < -1e-6 || in > 0.5 {
			t.Fatalf("request %d leaves at %.3f of its slot", i, in)
		}
		sum += in
	}
	if mean := sum / 5000; math.Abs(mean-0.25) > 0.01 {
		t.Errorf("mean place %.3f, want 0.25", mean)
	}
}

// Exponential gaps have a standard deviation as large as their mean.
func TestPoissonGaps(t *testing.T) {
	s := matrix()
	s.Poisson = true
	var last int64
	var sum, squares float64
	const n = 20_000
	s.Input, s.HeadTokens = Range{1, 1}, 1
	for _, r := range take(t, s, n) {
		gap := float64(r.OffsetNs-last) / 1e9 * s.Rate
		sum, squares, last = sum+gap, squares+gap*gap, r.OffsetNs
	}
	mean := sum / n
	if sd := math.Sqrt(squares/n - mean*mean); math.Abs(mean-1) > 0.03 || math.Abs(sd-1) > 0.05 {
		t.Errorf("gaps of mean %.3f and deviation %.3f slots, want 1 and 1", mean, sd)
	}
}

func TestDistributions(t *testing.T) {
	const n = 8000
	var fresh int
	var input, output float64
	heads := map[int]int{}
	for _, r := range take(t, matrix(), n) {
		input += float64(r.PromptTokens - 512)
		output += float64(r.MaxTokens)
		heads[r.Head]++
		if r.NewPrefix {
			fresh++
		}
	}
	// Five standard deviations of each figure.
	if m := input / n; math.Abs(m-640) > 13 {
		t.Errorf("mean input %.1f, want 640", m)
	}
	if m := output / n; math.Abs(m-96) > 1.1 {
		t.Errorf("mean output %.1f, want 96", m)
	}
	if math.Abs(float64(fresh)-n/2) > 224 {
		t.Errorf("%d fresh prefixes of %d, want half", fresh, n)
	}
	for i := range 8 {
		if math.Abs(float64(heads[i])-n/16) > 110 {
			t.Errorf("head %d in %d requests, want about %d", i, heads[i], n/16)
		}
	}
}

func prompts(t *testing.T, s Spec, n int) map[string]int {
	out := map[string]int{}
	for _, r := range take(t, s, n) {
		b := string(r.Body)
		out[b[strings.Index(b, "["):strings.Index(b, "]")]]++
	}
	return out
}

func TestHitsOnlyRepeatsAFixedSet(t *testing.T) {
	s := matrix()
	s.HitsOnly, s.Name = true, "phase1"
	first := prompts(t, s, 400)
	if len(first) != 8 {
		t.Fatalf("%d prompts, want 8", len(first))
	}
	s.Name = "phase2"
	for p := range prompts(t, s, 400) {
		if first[p] == 0 {
			t.Errorf("the second phase sends a prompt that the first did not")
		}
	}
	for _, r := range take(t, s, 50) {
		if r.NewPrefix || r.Head < 0 {
			t.Errorf("%s: new prefix %v, head %d", r.ID, r.NewPrefix, r.Head)
		}
	}
	s.Heads = 0
	if got := prompts(t, s, 10); len(got) != 1 {
		t.Errorf("%d prompts without heads, want 1", len(got))
	}
}

func TestTrickle(t *testing.T) {
	s := Spec{Name: "trickle", Seed: 7, Trickle: true}
	if got := prompts(t, s, 100); len(got) != 100 {
		t.Errorf("%d different prompts of 100", len(got))
	}
	requests := take(t, s, 101)
	if at := float64(requests[100].OffsetNs) / 1e9; math.Abs(at-10) > 0.1 {
		t.Errorf("request 100 leaves after %.2f s, want 10", at)
	}
	head := decode(t, requests[0]).Prompt[:64]
	for _, r := range requests {
		p := decode(t, r).Prompt
		if !slices.Equal(p[:64], head) || len(p) < 2*64+1 {
			t.Fatalf("%s: %d tokens, want more than twice the head of 64, and one head for all", r.ID, len(p))
		}
	}
	// An engine that holds a head of the matrix load must not hold the trickle's with it.
	for _, r := range take(t, matrix(), 50) {
		if slices.Equal(decode(t, r).Prompt[:16], head[:16]) {
			t.Fatalf("%s begins with the trickle's head", r.ID)
		}
	}
}

func TestLoadsOfOneSeedSendDifferentPrompts(t *testing.T) {
	a, b := matrix(), matrix()
	b.Name = "second"
	seen := prompts(t, a, 100)
	for p := range prompts(t, b, 100) {
		if seen[p] != 0 {
			t.Fatal("both loads send one prompt")
		}
	}
}

// Whatever the spec, offsets never decrease, lengths stay in range, the count is kept, and no two
// prompts are equal unless the load is hits-only.
func TestAnySpec(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(rt, name) }
		s := Spec{Name: "x", Seed: rapid.Uint64().Draw(rt, "seed"), Rate: rapid.Float64Range(0.01, 1e6).Draw(rt, "rate"),
			Poisson: rapid.Bool().Draw(rt, "poisson"), Count: in("count", 1, 50), Heads: in("heads", 0, 4),
			NewPrefix: rapid.Float64Range(0, 1).Draw(rt, "new_prefix"), HitsOnly: rapid.Bool().Draw(rt, "hits_only")}
		s.Input.Min = in("input", 8, 40)
		s.Input.Max = s.Input.Min + in("more input", 0, 40)
		s.Output.Min = in("output", 1, 9)
		s.Output.Max = s.Output.Min + in("more output", 0, 9)
		s.HeadTokens = in("head_tokens", min(s.Heads, 1), 40)
		requests := take(t, s, 100)
		if len(requests) != s.Count {
			rt.Fatalf("%d requests, want %d", len(requests), s.Count)
		}
		var last int64
		for _, r := range requests {
			p := decode(t, r).Prompt
			input := len(p) - s.HeadTokens
			if r.OffsetNs < last || input < s.Input.Min || input > s.Input.Max || r.MaxTokens < s.Output.Min || r.MaxTokens > s.Output.Max {
				rt.Fatalf("%+v: request %s at %d after %d, %d tokens in, %d out", s, r.ID, r.OffsetNs, last, input, r.MaxTokens)
			}
			last = r.OffsetNs
		}
		if got := len(prompts(t, s, 100)); s.HitsOnly && got > max(1, s.Heads) || !s.HitsOnly && got != s.Count {
			rt.Fatalf("%+v: %d different prompts", s, got)
		}
	})
}

func TestClosedLoopHasNoInstants(t *testing.T) {
	s := matrix()
	s.Rate, s.Concurrency = 0, 512
	for _, r := range take(t, s, 5) {
		if r.OffsetNs != 0 {
			t.Errorf("offset %d", r.OffsetNs)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		change func(*Spec)
		want   string
	}{
		{func(s *Spec) {}, ""},
		{func(s *Spec) { *s = Spec{Trickle: true} }, ""},
		{func(s *Spec) { s.Heads = 0 }, ""},
		{func(s *Spec) { s.Rate = 0 }, "rate 0 and concurrency 0: want exactly one of them"},
		{func(s *Spec) { s.Concurrency = 3 }, "rate 24 and concurrency 3: want exactly one of them"},
		{func(s *Spec) { s.Rate = math.NaN() }, "rate NaN: want 0 to 1,000,000 requests per second"},
		{func(s *Spec) { s.Count = -1 }, "count -1: want no negative number"},
		{func(s *Spec) { s.Input = Range{9, 8} }, "input 9..8: want a range of token counts"},
		{func(s *Spec) { s.Output = Range{0, 8} }, "output 0..8: want a range that starts at 1 or above"},
		{func(s *Spec) { s.HeadTokens = 0 }, "heads 8 of 0 tokens: want heads of at least one token"},
		{func(s *Spec) { s.Heads, s.HeadTokens, s.Input = 0, 0, Range{0, 8} }, "a prompt needs at least one token"},
		{func(s *Spec) { s.NewPrefix = 50 }, "new_prefix 50: want a share from 0 to 1"},
		{func(s *Spec) { s.BlockSize = -1 }, "block size -1: want at least one token"},
	} {
		s := matrix()
		c.change(&s)
		_, err := New(s)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", s, err, c.want)
		}
	}
}

// The formula against the sum over requests that the generator makes, with the built-in `drill`
// coefficients enlarged where they hide each other.
func TestUtilisationIsTheMeanOverRequests(t *testing.T) {
	timing := Timing{B: 2200, C: 2800, D: 30, E: 2.1}
	hits, plain, trickle := matrix(), matrix(), Spec{Name: "t", Trickle: true}
	hits.HitsOnly = true
	plain.Heads, plain.HeadTokens = 0, 0
	for _, s := range []Spec{matrix(), hits, plain, trickle} {
		e := s.expanded()
		const n = 20_000
		var ns float64
		for _, r := range take(t, s, n) {
			ns += cost(e, r, timing)
		}
		want := ns / n * e.Rate / 1e9 / 8
		if got := Utilisation(s, timing, 8); math.Abs(got/want-1) > 0.02 {
			t.Errorf("%+v: utilisation %.5f, summed %.5f", s, got, want)
		}
	}
}

// cost is a request's time on an engine by itself, step by step.
func cost(s Spec, r load.Request, t Timing) (ns float64) {
	prefill := r.PromptTokens
	switch {
	case s.HitsOnly:
		prefill = s.BlockSize
	case r.Head >= 0:
		prefill -= s.HeadTokens
	}
	ns = float64(prefill) * (t.B + t.E*(float64(r.PromptTokens)-float64(prefill)/2))
	for i := range r.MaxTokens - 1 {
		ns += t.C + t.D*float64(r.PromptTokens+i+1)
	}
	return ns
}

func TestUtilisationOfTheMatrixLoad(t *testing.T) {
	drill := Timing{B: 2200, C: 2800, D: 3, E: 0.21}
	if got := Utilisation(matrix(), drill, 8); math.Abs(got-0.0085) > 0.0005 {
		t.Errorf("utilisation %.4f, want about 0.0085: 2.0 ms of prefill, 0.3 ms of c and 0.3 ms of d, three times a second", got)
	}
	closed := matrix()
	closed.Rate, closed.Concurrency = 0, 8
	if got := Utilisation(closed, drill, 8); got != 1 {
		t.Errorf("closed loop %.3f, want 1", got)
	}
}

func BenchmarkNext(b *testing.B) {
	g, err := New(matrix())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		g.Next()
	}
}

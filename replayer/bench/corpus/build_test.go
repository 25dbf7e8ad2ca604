package corpus

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/internal/shared"
	"fleetdrill/oracle"
	"fleetdrill/replayer/trace"
)

// small are parameters under which a few rows fill and overfill the pools.
func small() Params {
	return Params{LengthFactor: 2, Duplication: 2, Workers: 3, Seed: 7, BlockSize: 128, PoolBlocks: 256, SpeedUp: 10}
}

// builtIn is the first n rows of the built-in trace.
func builtIn(t testing.TB, n int) Rows {
	t.Helper()
	r, err := trace.Default(trace.Options{Rows: trace.Rows{Count: n}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rows, err := ReadRows(r)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// replay feeds the events of a corpus to the reference, which must know every parent and every removed hash.
func replay(t interface{ Fatalf(string, ...any) }, c *Corpus) *oracle.Reference {
	ref := oracle.NewReference(1)
	for i := range c.Ops {
		op := &c.Ops[i]
		switch op.Kind {
		case Stored:
			hashes, contents := c.Blocks(op)
			if res := ref.Store(op.Worker, op.Parent, op.HasParent == 1, hashes, contents); res.UnknownParent || res.Stored != len(hashes) {
				t.Fatalf("operation %d stores %d blocks: %+v", i, len(hashes), res)
			}
		case Removed:
			if removed, unknown := ref.Remove(op.Worker, slices.Clone(c.Gone(op))); unknown > 0 || removed != int(op.Length) {
				t.Fatalf("operation %d removes %d blocks, %d of them unknown", i, op.Length, unknown)
			}
		}
	}
	return ref
}

// Replaying the events leaves each worker exactly the blocks that its engine has, under the chains that the
// queries ask for.
func TestEventsLeadToTheEnginesOwnState(t *testing.T) {
	own := map[int][]uint64{}
	c, err := build(builtIn(t, 200), small(), func(worker int, hashes []uint64) { own[worker] = hashes })
	if err != nil {
		t.Fatal(err)
	}
	if c.Totals.RemovedBlocks == 0 || c.Totals.Requests != 2*200 {
		t.Fatalf("%+v: nothing was evicted, or rows are missing", c.Totals)
	}
	ref, resident := replay(t, c), uint64(0)
	for worker := range small().Workers {
		got := slices.Sorted(maps.Keys(ref.Blocks(uint32(worker))))
		want := slices.Sorted(slices.Values(own[worker]))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("worker %d (-engine +reference):\n%s", worker, diff)
		}
		resident += uint64(len(want))
	}
	if resident != c.Resident || c.Resident != c.resident() {
		t.Fatalf("%d memberships are left, the corpus says %d and counts %d", resident, c.Resident, c.resident())
	}
	found := 0
	for i := range c.Ops {
		if op := &c.Ops[i]; op.Kind == Query {
			for worker := range small().Workers {
				found += ref.Score(uint32(worker), c.Chain(op))
			}
		}
	}
	if found == 0 {
		t.Fatal("no query finds anything in the end: queries and events speak of different blocks")
	}
}

// Whatever rows and pools: the events make sense, only leaves are evicted, and each worker's timeline fills
// the window.
func TestAnyRowsGiveAConsistentCorpus(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rows Rows
		stamp := int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "rows") {
			stamp += int64(rapid.IntRange(0, 3).Draw(t, "gap")) * 10_000_000
			row := trace.Row{StampNs: stamp, Output: rapid.IntRange(0, 400).Draw(t, "output"), IDs: []uint64{0}}
			for range rapid.IntRange(0, 3).Draw(t, "more ids") {
				row.IDs = append(row.IDs, row.IDs[len(row.IDs)-1]*3+uint64(rapid.IntRange(1, 3).Draw(t, "id")))
			}
			rows.Rows = append(rows.Rows, row)
		}
		p := Params{LengthFactor: 1, Duplication: rapid.IntRange(1, 2).Draw(t, "copies"), Workers: 2, Seed: 1, BlockSize: 128,
			PoolBlocks: rapid.IntRange(16, 60).Draw(t, "pool"), SpeedUp: rapid.IntRange(1, 10).Draw(t, "speed-up")}
		c, err := Build(rows, p)
		if err != nil {
			t.Fatal(err)
		}
		replay(t, c)
		leavesOnly(t, c)
		ends(t, c)
		if bound, _ := p.Size(rows); c.Bytes() > bound {
			t.Fatalf("%d bytes, the bound said %d", c.Bytes(), bound)
		}
	})
}

// leavesOnly checks that no block is evicted while one that follows it in its chain is there.
func leavesOnly(t *rapid.T, c *Corpus) {
	parents, kids := map[[2]uint64]uint64{}, map[[2]uint64]int{}
	for i := range c.Ops {
		op := &c.Ops[i]
		w := uint64(op.Worker)
		switch op.Kind {
		case Stored:
			hashes, _ := c.Blocks(op)
			parent := op.Parent
			for _, h := range hashes {
				parents[[2]uint64{w, h}] = parent
				kids[[2]uint64{w, parent}]++
				parent = h
			}
		case Removed:
			for _, h := range c.Gone(op) {
				if n := kids[[2]uint64{w, h}]; n > 0 {
					t.Fatalf("operation %d evicts a block that %d others follow", i, n)
				}
				kids[[2]uint64{w, parents[[2]uint64{w, h}]}]--
			}
		}
	}
}

func ends(t *rapid.T, c *Corpus) {
	first, last := map[uint32]uint64{}, map[uint32]uint64{}
	for i := range c.Ops {
		op := &c.Ops[i]
		if _, seen := first[op.Worker]; !seen {
			first[op.Worker] = op.Deadline
		}
		last[op.Worker] = op.Deadline
	}
	for w := range first {
		if first[w] != 0 || last[w] != c.WindowNs && last[w] != 0 {
			t.Fatalf("worker %d acts from %d to %d of %d ns", w, first[w], last[w], c.WindowNs)
		}
	}
}

// A row of n ids becomes 4n blocks of 128 tokens per length factor, copies share nothing, and answers give a
// block per 128 tokens.
func TestFactors(t *testing.T) {
	rows := Rows{Rows: []trace.Row{{IDs: []uint64{0, 1, 2}, Output: 300}, {StampNs: 1e9, IDs: []uint64{0, 1, 5}, Output: 10}}}
	p := small()
	p.Workers, p.LengthFactor, p.Duplication = 1, 4, 3
	c, err := Build(rows, p)
	if err != nil {
		t.Fatal(err)
	}
	want := Totals{Requests: 6, StoredEvents: 3 * (1 + 2 + 1), RequestBlocks: 3 * 2 * 48, StoredBlocks: 3 * (48 + 2 + 16)}
	if diff := cmp.Diff(want, c.Totals); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
	distinct := map[uint64]bool{}
	for _, h := range c.Queries {
		distinct[h] = true
	}
	if len(distinct) != 3*4*16 {
		t.Fatalf("%d distinct blocks in the prompts, want 3 copies of 4 ids of 16", len(distinct))
	}
}

func TestRowsThatNoPoolHoldsAreRefused(t *testing.T) {
	p := small()
	p.PoolBlocks = 16
	c, err := Build(Rows{Rows: []trace.Row{{IDs: []uint64{1}, Output: 1}, {IDs: []uint64{1, 2, 3}, Output: 1}}}, p)
	if err != nil {
		t.Fatal(err)
	}
	if c.Refused != 2 || c.Totals.StoredBlocks != 2*8 || c.Totals.Requests != 4 {
		t.Fatalf("%+v", c.Header)
	}
}

func TestBadParametersAreNamed(t *testing.T) {
	rows := Rows{Rows: []trace.Row{{IDs: []uint64{1 << 53}}}}
	for want, change := range map[string]func(*Params){
		"length factor 0":        func(p *Params) { p.LengthFactor = 0 },
		"duplication 2000":       func(p *Params) { p.Duplication = 2000 },
		"0 workers":              func(p *Params) { p.Workers = 0 },
		"block size 100":         func(p *Params) { p.BlockSize = 100 },
		"pool of 1 blocks":       func(p *Params) { p.PoolBlocks = 1 },
		"speed-up 0":             func(p *Params) { p.SpeedUp = 0 },
		"too large to be copied": func(p *Params) { p.Duplication = 999 },
	} {
		p := small()
		change(&p)
		if _, err := Build(rows, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := Build(Rows{}, small()); err == nil {
		t.Error("a corpus of no rows")
	}
}

// The public conversation trace, its first rows at the published factors: the traits that the bench counts on.
func TestConversationRows(t *testing.T) {
	r, err := trace.Open(shared.Path(t, "traces/conversation_trace.jsonl"), trace.Options{Rows: trace.Rows{Count: 300}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rows, err := ReadRows(r)
	if err != nil {
		t.Fatal(err)
	}
	p := DefaultParams()
	p.Duplication, p.Workers = 1, 8
	c, err := Build(rows, p)
	if err != nil {
		t.Fatal(err)
	}
	replay(t, c)
	if c.Totals.RequestBlocks%16 != 0 || c.Totals.RequestBlocks/c.Totals.Requests < 200 || c.Refused > 0 {
		t.Fatalf("%+v", c.Header)
	}
}

package trace

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/shared"
)

// answers are the figures that the public traces are known to have, as they are published: rounded.
type answers struct {
	Rows, UniqueBlocks             int
	Span, Input, Output            string
	Block, Token, RoundRobin, Best string
}

func answersOf(s Stat) answers {
	return answers{
		Rows: s.Rows, UniqueBlocks: s.UniqueBlocks,
		Span: fmt.Sprintf("%.1f", s.SpanS), Input: fmt.Sprintf("%.0f", s.MeanInput), Output: fmt.Sprintf("%.0f", s.MeanOutput),
		Block: fmt.Sprintf("%.3f", s.BlockReuse), Token: fmt.Sprintf("%.4f", s.TokenReuse), RoundRobin: fmt.Sprintf("%.4f", s.RoundRobin8),
		Best: fmt.Sprintf("%.4f (%.2f)", s.LongestMatch8.Reuse, s.LongestMatch8.Balance),
	}
}

func TestKnownAnswers(t *testing.T) {
	const conversation, synthetic = "traces/conversation_trace.jsonl", "traces/synthetic_trace.jsonl"
	for _, c := range []struct {
		file, rows string
		want       answers
	}{
		{conversation, "0-1999", answers{2000, 38_788, "669.0", "13721", "352", "0.289", "0.2941", "0.0897", "0.2941 (8.00)"}},
		{conversation, "0-3999", answers{4000, 71_424, "1302.0", "13312", "347", "0.326", "0.3314", "0.1136", "0.3314 (8.00)"}},
		{conversation, "", answers{12_031, 182_790, "3537.0", "12035", "343", "0.366", "0.3736", "0.1390", "0.3736 (8.00)"}},
		{synthetic, "", answers{3993, 43_924, "1022.0", "15325", "149", "0.640", "0.6512", "0.2306", "0.6512 (1.09)"}},
	} {
		t.Run(c.file+"/"+c.rows, func(t *testing.T) {
			s := measure(t, shared.Path(t, c.file), c.rows)
			if d := cmp.Diff(c.want, answersOf(s)); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			if c.file == conversation && c.rows == "" {
				checkShape(t, s)
			}
		})
	}
}

// checkShape looks for what arrivals are spread for, and what makes longest match fill one worker: the
// conversation trace counts in steps of 3 s and begins every prompt with one block.
func checkShape(t *testing.T, s Stat) {
	t.Helper()
	if s.Slots.Count != 1180 || s.Slots.StepS != 3 || s.Slots.RowsMax != 28 {
		t.Errorf("slots %+v, want 1180 of 3 s with up to 28 rows", s.Slots)
	}
	if want := (Head{Blocks: 1, Distinct: 1, TopRows: 12_031}); s.Heads[0] != want {
		t.Errorf("heads of one block %+v, want %+v", s.Heads[0], want)
	}
}

func measure(t *testing.T, path, rows string) Stat {
	t.Helper()
	var o Options
	var err error
	if o.Rows, err = ParseRows(rows); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := Measure(r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Four prompts of two blocks and 6 tokens each: who shares what with whom is plain.
func TestMeasureByHand(t *testing.T) {
	m := newMeter()
	for i, ids := range [][]uint64{
		{1, 2, 3}, // new
		{1, 2, 4}, // two blocks
		{5, 6, 7}, // new
		{5, 6, 7}, // all of it, the partial block too
	} {
		m.add(&Row{StampNs: int64(i/2) * 4e9, Input: 1030, Output: i, IDs: ids})
	}
	s := m.stat()
	want := Stat{
		Rows: 4, SpanS: 4, RowsRate: 1, InputRate: 1030, OutputRate: 1.5, MeanInput: 1030, MeanOutput: 1.5,
		Input: Lengths{1030, 1030, 1030, 1030, 1030}, Output: Lengths{0, 2, 3, 3, 3}, UniqueBlocks: 7,
		BlockReuse: 5. / 12, TokenReuse: 2054. / 4120, RoundRobin8: 0,
		// Row 2 has no match anywhere and goes to the first worker without load, not to the first.
		LongestMatch8: Placement{Reuse: 2054. / 4120, Balance: 4},
		Heads:         []Head{{1, 2, 2}, {2, 2, 2}, {4, 0, 0}, {8, 0, 0}},
		Slots:         Slots{Count: 2, StepS: 4, RowsP50: 2, RowsP99: 2, RowsMax: 2},
	}
	for _, size := range poolTokens {
		want.Pools = append(want.Pools, Pool{size, 2054. / 4120})
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Fatalf("-want +got\n%s", d)
	}
}

// The table of the built-in trace is the golden file; its figures as JSON have the documented keys.
func TestStatForPeopleAndMachines(t *testing.T) {
	r, err := Default(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Measure(r)
	if err != nil {
		t.Fatal(err)
	}
	s.Skipped, s.Problems = 1234, []string{"t.jsonl:7: no hash_ids"}
	const golden = "testdata/stat.txt"
	if os.Getenv("REWRITE") != "" {
		if err := os.WriteFile(golden, []byte(s.Text()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), s.Text()); d != "" {
		t.Errorf("%s, written anew with REWRITE=1 (-want +got)\n%s", golden, d)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(raw, &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"rows", "span_s", "mean_input", "mean_output", "unique_blocks", "block_reuse", "token_reuse", "round_robin_8", "longest_match_8"} {
		if keys[key] == nil {
			t.Errorf("no %q in %s", key, raw)
		}
	}
	placement, ok := keys["longest_match_8"].(map[string]any)
	if !ok || placement["reuse"] == nil || placement["balance"] == nil {
		t.Errorf("longest_match_8 is %v", keys["longest_match_8"])
	}
}

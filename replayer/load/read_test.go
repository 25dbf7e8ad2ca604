package load

import (
	"slices"
	"strings"
	"testing"
)

const chunkA = `{"choices":[{"text":"a"}]}`

// Token chunks at 100, 110, 150 and 151: what the record shows of them.
func TestGaps(t *testing.T) {
	f := &flight{rec: Record{MaxTokens: 4}}
	for _, at := range []int64{100, 110, 150, 151} {
		if _, err := f.event(at, event{data: []byte(chunkA)}); err != nil {
			t.Fatal(err)
		}
	}
	r := f.copy()
	if !slices.Equal(r.GapsNs, []int64{10, 40, 1}) || r.FirstNs != 100 || r.MaxGapNs != 40 || r.MaxGapEndNs != 150 || r.Output != 4 {
		t.Errorf("%+v", r)
	}
}

// Memory per request is bounded; the longest gap is not forgotten for it.
func TestGapsAreBounded(t *testing.T) {
	f := &flight{rec: Record{MaxTokens: 1 << 30}}
	at := int64(0)
	for i := range int64(2 * maxGaps) {
		at += i + 1
		f.token(&f.rec, at)
	}
	if r := f.copy(); len(r.GapsNs) != maxGaps || cap(r.GapsNs) != maxGaps || r.MaxGapNs != 2*maxGaps || r.MaxGapEndNs != at || r.Output != 2*maxGaps {
		t.Errorf("%d gaps, longest %d ending at %d", len(r.GapsNs), r.MaxGapNs, r.MaxGapEndNs)
	}
}

// A copy handed out does not change when the request goes on.
func TestCopiesStandStill(t *testing.T) {
	f := &flight{rec: Record{MaxTokens: 10}}
	for at := range int64(4) {
		f.token(&f.rec, 10+at)
	}
	before := f.copy()
	_ = append(before.GapsNs, 99) // must not reach the writer's array
	f.token(&f.rec, 50)
	if after := f.copy(); len(before.GapsNs) != 3 || after.GapsNs[3] != 37 {
		t.Errorf("before %v, after %v", before.GapsNs, after.GapsNs)
	}
}

// The cost of one token of a stream, from bytes to record.
func BenchmarkStreamToken(b *testing.B) {
	text := []byte(strings.Replace(token("a"), `"a"`, `" bacad","stop_reason":null,"prompt_token_ids":null,"token_ids":null`, 1))
	f := &flight{rec: Record{MaxTokens: maxGaps}}
	var p sseParser
	b.ReportAllocs()
	for now := int64(0); b.Loop(); now++ {
		if err := p.feed(text, func(e event) error { _, err := f.event(now, e); return err }); err != nil {
			b.Fatal(err)
		}
	}
}

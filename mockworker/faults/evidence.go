package faults

import (
	"fmt"
	"iter"
	"slices"
)

// maxEvidence bounds the lines of one fault's evidence; what it did beyond is counted.
const maxEvidence = 32

// evidence is what a fault acted on. Sequence numbers come in runs and are kept as such.
type evidence struct {
	runs  []run
	texts []string
	more  int64
}

// run is the sequence numbers from..to, said with what stands before them.
type run struct {
	what     string
	from, to int64
}

// seq notes a sequence number.
func (e *evidence) seq(what string, n int64) {
	if last := len(e.runs) - 1; last >= 0 && e.runs[last].what == what && (n == e.runs[last].to || n == e.runs[last].to+1) {
		e.runs[last].to = n
		return
	}
	if len(e.runs) >= maxEvidence {
		e.more++
		return
	}
	e.runs = append(e.runs, run{what, n, n})
}

// requests notes the ids of requests, the first ones by name.
func (e *evidence) requests(ids iter.Seq[string]) {
	all := slices.Sorted(ids)
	e.more += int64(max(0, len(all)-maxEvidence))
	for _, id := range all[:min(len(all), maxEvidence)] {
		e.texts = append(e.texts, "request "+id)
	}
}

// lines is the evidence as it is told, never nil.
func (e *evidence) lines() []string {
	out := append([]string{}, e.texts...)
	for _, r := range e.runs {
		if r.from == r.to {
			out = append(out, fmt.Sprintf("%s %d", r.what, r.from))
		} else {
			out = append(out, fmt.Sprintf("%s %d..%d", r.what, r.from, r.to))
		}
	}
	if e.more > 0 {
		out = append(out, fmt.Sprintf("and %d more", e.more))
	}
	return out
}

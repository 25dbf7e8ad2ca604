package drills

import (
	"errors"
	"regexp"
	"slices"
	"strconv"

	"fleetdrill/drills/scenario"
	"fleetdrill/internal/contract"
)

// sight is what there is to judge a batch by: all that the tap has received, and what the engine holds for
// the kinds that need it.
type sight struct {
	batches []batch
	usual   string // topic of the batches before the fault
	has     holding
}

// needsHolding are the surprises that show only beside what the engine holds.
func needsHolding(kind string, p scenario.Params) bool {
	return kind == contract.FaultUnknownParent || kind == contract.FaultCorrupt && (p.Word("field") == "hash" || p.Word("field") == "parent")
}

// strikes says whether the i-th batch of a sight is as a fault of this kind makes it.
func (s sight) strikes(kind string, p scenario.Params, i int) bool {
	b := s.batches[i]
	switch kind {
	case contract.FaultReorder: // it has overtaken the one behind it
		return i+1 < len(s.batches) && s.overtaken(i+1)
	case contract.FaultTruncate:
		return errors.Is(b.err, errCut)
	case contract.FaultUnknownEvent:
		return b.anyEvent(func(e wireEvent) bool {
			return !slices.Contains([]string{wireStored, wireRemoved, wireCleared}, e.kind)
		})
	case contract.FaultUnknownField:
		if p.Word("in") == "batch" {
			return b.wire.strange
		}
		return b.anyEvent(func(e wireEvent) bool { return e.strange })
	case contract.FaultStaleStore: // what it removed it stores again, behind the removal
		for k, e := range b.wire.events {
			if e.kind == wireRemoved && storesAny(b.wire.events[k+1:], e.hashes) {
				return true
			}
		}
		return false
	case contract.FaultMaskedStore:
		return b.anyStore(func(e wireEvent) bool {
			return len(e.hashes)*e.blockSize < len(e.tokens) && (p.Word("mask") != "all" || len(e.hashes) == 0)
		})
	case contract.FaultDuplicate:
		return s.twice(p.Word("of"), i)
	case contract.FaultUnknownParent:
		known := folded(s.batches, b.seq)
		return b.anyStore(func(e wireEvent) bool {
			if e.parent == nil {
				return false
			}
			_, had := s.has.blocks[*e.parent]
			return !had && known[*e.parent] == 0
		})
	case contract.FaultCorrupt:
		return s.wrong(p.Word("field"), i)
	}
	return false
}

// twice says whether something is in a batch, or the batch itself there, twice.
func (s sight) twice(of string, i int) bool {
	b := s.batches[i]
	switch of {
	case "batch":
		return i > 0 && s.batches[i-1].seq == b.seq && s.batches[i-1].print == b.print
	case "store":
		for k, e := range b.wire.events {
			if e.kind == wireStored && slices.ContainsFunc(b.wire.events[:k], func(x wireEvent) bool {
				return x.kind == wireStored && slices.Equal(x.hashes, e.hashes)
			}) {
				return true
			}
		}
		return false
	}
	return b.anyStore(func(e wireEvent) bool {
		return len(slices.Compact(slices.Sorted(slices.Values(e.hashes)))) < len(e.hashes)
	})
}

// wrong says whether a field of a batch is.
func (s sight) wrong(field string, i int) bool {
	b := s.batches[i]
	switch field {
	case "seq":
		return b.badSeq
	case "topic":
		return b.topic != s.usual
	case "payload":
		return b.err != nil && !errors.Is(b.err, errCut)
	case "tokens":
		return b.anyStore(func(e wireEvent) bool { return len(e.tokens) > 0 && e.tokens[0] == 0 })
	case "parent": // in the middle of a prompt, by the engine's own word
		return b.anyStore(func(e wireEvent) bool { return e.parent == nil && len(e.hashes) > 0 && s.has.blocks[e.hashes[0]] > 0 })
	}
	if b.seq > s.has.seq {
		return false
	}
	ghosts := ghosts(s.batches, s.has)
	return b.anyStore(func(e wireEvent) bool { return len(e.hashes) > 0 && ghosts[e.hashes[0]] })
}

// storesAny says whether events store one of some blocks.
func storesAny(events []wireEvent, hashes []uint64) bool {
	return slices.ContainsFunc(events, func(e wireEvent) bool {
		return e.kind == wireStored && slices.ContainsFunc(e.hashes, func(h uint64) bool { return slices.Contains(hashes, h) })
	})
}

func (b batch) anyEvent(is func(wireEvent) bool) bool { return slices.ContainsFunc(b.wire.events, is) }

func (b batch) anyStore(is func(wireEvent) bool) bool {
	return b.anyEvent(func(e wireEvent) bool { return e.kind == wireStored && is(e) })
}

// overtaken says whether the i-th batch came behind the one that follows it.
func (s sight) overtaken(i int) bool { return i > 0 && s.batches[i].seq == s.batches[i-1].seq-1 }

// struck are the batches from index first on that a fault made as they are, and the first clean one behind
// the last of them.
func (s sight) struck(kind string, p scenario.Params, first int) (hits []batch, clean batch, over bool) {
	for i := first; i < len(s.batches); i++ {
		switch {
		case s.strikes(kind, p, i):
			hits, over = append(hits, s.batches[i]), false
		case len(hits) > 0 && !over && !s.overtaken(i):
			clean, over = s.batches[i], true
		}
	}
	return hits, clean, over
}

var reSeqs = regexp.MustCompile(`^seq (\d+)(?:\.\.(\d+))?$`)

// maxSeqs bounds the numbers read from an engine's evidence.
const maxSeqs = 1_000_000

// evidenceSeqs are the sequence numbers of an engine's evidence, "seq 41..60".
func evidenceSeqs(lines []string) (out []int64) {
	for _, line := range lines {
		m := reSeqs.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		from, _ := strconv.ParseInt(m[1], 10, 64)
		to := from
		if m[2] != "" {
			to, _ = strconv.ParseInt(m[2], 10, 64)
		}
		for n := from; n <= to && len(out) < maxSeqs; n++ {
			out = append(out, n)
		}
	}
	return out
}

// seqsOf are the numbers of batches.
func seqsOf(bs []batch) []int64 {
	out := make([]int64, len(bs))
	for i, b := range bs {
		out[i] = b.seq
	}
	slices.Sort(out)
	return out
}

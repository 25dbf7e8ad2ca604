package trace

import (
	"errors"
	"fmt"
	"strconv"
)

const (
	// BlockTokens is the size of the blocks that ids stand for, in tokens (Mooncake's traces).
	BlockTokens = 512

	nsPerMs = 1_000_000
	// maxStampMs bounds a time, in ms: the largest whose nanoseconds fit 63 bits, with room for a span.
	maxStampMs = 9_000_000_000_000
	// maxLength bounds a prompt and an answer, in tokens: far above any model, and sums of them stay exact.
	maxLength = 1 << 30
	// maxID bounds a block id: the whole numbers that every JSON reader keeps exact.
	maxID = 1 << 53
)

// Row is one request of a trace.
type Row struct {
	// N is the row's number in its trace, from 0. Rows that cannot be read have a number too.
	N int
	// StampNs is when the request came, in ns of the trace's own time.
	StampNs int64
	// Input and Output are the lengths of prompt and answer, in tokens. Input is at least 1; an answer of 0
	// tokens is one that never came.
	Input, Output int
	// IDs name the prompt's blocks of BlockTokens tokens from the first to the last, which may be partial:
	// ceil(Input/BlockTokens) of them.
	IDs []uint64
	// Session names the conversation the row belongs to, empty when the trace does not say.
	Session string
	// DelayNs is how long the client waited after the answer before, in ns; 0 when the trace does not say.
	DelayNs int64
	// Priority is the request's scheduling priority, 0 when the trace does not say.
	Priority int
}

// AppendJSON appends the row as a line of a Mooncake trace, with its line feed. Session, delay and
// priority are written when they say something.
func (r *Row) AppendJSON(dst []byte) []byte {
	dst = appendMs(append(dst, `{"timestamp": `...), r.StampNs)
	dst = strconv.AppendInt(append(dst, `, "input_length": `...), int64(r.Input), 10)
	dst = strconv.AppendInt(append(dst, `, "output_length": `...), int64(r.Output), 10)
	if r.Session != "" {
		dst = appendString(append(dst, `, "session_id": `...), r.Session)
	}
	if r.DelayNs != 0 {
		dst = appendMs(append(dst, `, "delay": `...), r.DelayNs)
	}
	if r.Priority != 0 {
		dst = strconv.AppendInt(append(dst, `, "priority": `...), int64(r.Priority), 10)
	}
	dst = append(dst, `, "hash_ids": [`...)
	for i, id := range r.IDs {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = strconv.AppendUint(dst, id, 10)
	}
	return append(dst, "]}\n"...)
}

// appendMs writes ns as ms, whole ones without a decimal point.
func appendMs(dst []byte, ns int64) []byte {
	dst = strconv.AppendInt(dst, ns/nsPerMs, 10)
	if rest := ns % nsPerMs; rest != 0 {
		dst = fmt.Appendf(dst, ".%06d", rest)
	}
	return dst
}

// blocks is how many ids a prompt of input tokens has.
func blocks(input int) int { return (input + BlockTokens - 1) / BlockTokens }

// check finds what no request can be.
func (r *Row) check() error {
	switch {
	case r.Input < 0:
		return fmt.Errorf("input_length %d is negative", r.Input)
	case r.Input == 0:
		return errors.New("input_length 0: a request has a prompt")
	case r.Output < 0:
		return fmt.Errorf("output_length %d is negative", r.Output)
	case max(r.Input, r.Output) > maxLength:
		return fmt.Errorf("%d input and %d output tokens: the bound is %d", r.Input, r.Output, maxLength)
	case len(r.IDs) != blocks(r.Input):
		return fmt.Errorf("%d hash_ids for %d input tokens: want %d, one for each %d tokens begun",
			len(r.IDs), r.Input, blocks(r.Input), BlockTokens)
	}
	return nil
}

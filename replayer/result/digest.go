package result

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// digest is the SHA-256 of one line of text per request: every figure of its record that is not wall-clock,
// separated by spaces. Two simulations of one seed have equal digests; of a live replay it only tells records
// apart.
func digest(requests []Request) string {
	h := sha256.New()
	var line []byte
	for i := range requests {
		line = append(requests[i].appendLine(line[:0]), '\n')
		h.Write(line) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (r *Request) appendLine(b []byte) []byte {
	b = strconv.AppendInt(b, int64(r.Row), 10)
	for _, word := range []string{r.Outcome, r.Worker, r.Error} {
		b = strconv.AppendQuote(append(b, ' '), word)
	}
	for _, v := range []int64{r.ScheduledNs, r.SendLagNs, r.PlacedNs, r.EngineNs, r.TTFTNs, r.E2ENs, r.StalenessNs,
		int64(r.Attempts), int64(r.PromptTokens), int64(r.MaxTokens), int64(r.Cached), int64(r.OutputTokens), int64(r.Predicted),
		int64(r.Best), int64(r.Held), int64(r.Pooled), int64(r.Unbounded), int64(r.Preemptions)} {
		b = strconv.AppendInt(append(b, ' '), v, 10)
	}
	for _, g := range r.GapsNs {
		b = strconv.AppendInt(append(b, ' '), g, 10)
	}
	return b
}

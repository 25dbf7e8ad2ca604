package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"fleetdrill/internal/rng"
	"fleetdrill/replayer/trace"
)

// hotID is the first block id of hot heads: above every id that a trace in use has, and exact in JSON.
const hotID = 1 << 52

// maxHeads bounds the number of different heads.
const maxHeads = 4096

// HotPrefix makes a share of the conversations begin with one of a few heads: the first blocks of their
// prompts are replaced, so lengths stay as they are. The zero value changes nothing.
type HotPrefix struct {
	Share float64
	Heads int
	// Tokens is the length of a head, in whole blocks of trace.BlockTokens.
	Tokens int
}

// ParseHotPrefix reads "share=0.5,heads=1,tokens=3072"; the empty string is the zero value.
func ParseHotPrefix(s string) (HotPrefix, error) {
	h := HotPrefix{Heads: 1, Tokens: 3072}
	if s == "" {
		return HotPrefix{}, nil
	}
	for _, part := range strings.Split(s, ",") {
		name, value, _ := strings.Cut(part, "=")
		var err error
		switch name {
		case "share":
			h.Share, err = strconv.ParseFloat(value, 64)
		case "heads":
			h.Heads, err = strconv.Atoi(value)
		case "tokens":
			h.Tokens, err = strconv.Atoi(value)
		default:
			err = errors.New("want share, heads or tokens")
		}
		if err != nil {
			return HotPrefix{}, fmt.Errorf("hot prefix %q: %q: %w", s, part, err)
		}
	}
	return h, h.check()
}

func (h HotPrefix) check() error {
	if h == (HotPrefix{}) {
		return nil
	}
	switch {
	case !(h.Share > 0 && h.Share <= 1):
		return fmt.Errorf("hot prefix: share %v: want a number above 0, at most 1", h.Share)
	case h.Heads < 1 || h.Heads > maxHeads:
		return fmt.Errorf("hot prefix: heads %d: want 1 to %d", h.Heads, maxHeads)
	case h.Tokens < trace.BlockTokens || h.Tokens%trace.BlockTokens != 0:
		return fmt.Errorf("hot prefix: tokens %d: want whole blocks of %d", h.Tokens, trace.BlockTokens)
	}
	return nil
}

// apply replaces the first ids in place. Every row of a public trace begins with the same block, so it is the
// second id that names a conversation: its rows get the same head or none, and go on sharing what follows.
func (h HotPrefix) apply(ids []uint64, seed uint64) {
	if h.Share == 0 {
		return
	}
	draw := rng.Stream(seed, "hot-prefix/"+strconv.FormatUint(ids[min(1, len(ids)-1)], 10))
	if draw.Float64() >= h.Share {
		return
	}
	head := uint64(draw.IntN(h.Heads))
	blocks := h.Tokens / trace.BlockTokens
	for i := range min(blocks, len(ids)) {
		ids[i] = hotID + head*uint64(blocks) + uint64(i)
	}
}

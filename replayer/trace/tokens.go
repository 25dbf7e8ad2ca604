package trace

import "fleetdrill/internal/tokens"

const (
	// words is how many token ids stand for words.
	words = tokens.Vocab - tokens.FirstWord
	// gamma is the increment of splitmix64, 2^64 divided by the golden ratio.
	gamma = 0x9e3779b97f4a7c15
)

// Tokens appends the row's prompt to dst: for every id its BlockTokens token ids, the last block cut so
// that the prompt has row.Input tokens. All of them stand for words, so the prompt survives a round trip
// through text. A block's tokens depend on its id alone and never change, so prompts share exactly the
// tokens that their leading ids say.
func Tokens(dst []uint32, row *Row) []uint32 {
	left := row.Input
	for _, id := range row.IDs {
		n := min(left, BlockTokens)
		dst = appendBlock(dst, id, n)
		left -= n
	}
	return dst
}

// appendBlock appends the first n tokens of a block. Each output of splitmix64 gives two tokens, the upper
// half the first; a half becomes a word by multiplication in place of a division.
func appendBlock(dst []uint32, id uint64, n int) []uint32 {
	state := tokens.DigestTerm(id + gamma)
	for ; n >= 2; n -= 2 {
		state += gamma
		x := tokens.DigestTerm(state)
		dst = append(dst, word(x>>32), word(x&0xffff_ffff))
	}
	if n == 1 {
		dst = append(dst, word(tokens.DigestTerm(state+gamma)>>32))
	}
	return dst
}

// word maps 32 bits to a token id that stands for a word.
func word(bits uint64) uint32 { return tokens.FirstWord + uint32(bits*words>>32) }

package tokens

import "slices"

// Vocab is the number of token ids; ids are 0..Vocab-1. It is the vocabulary size of Qwen3.
const Vocab = 151_936

// The first 256 ids are single bytes, so any text can be encoded. Every other id is a word: a space and
// five letters, consonant and vowel in turn, which is one short word a person can read and 200,000
// combinations, more than the vocabulary needs.
const (
	byteTokens = 256
	consonants = "bcdfghjklmnpqrstvwxz"
	vowels     = "aeiou"
	wordLen    = 6
)

// FirstWord is the lowest id that stands for a word. Ids from FirstWord up survive
// Encode(Decode(ids)) unchanged whatever their order.
const FirstWord = byteTokens

// AppendText appends the text of ids to dst. An id outside the vocabulary appends nothing.
func AppendText(dst []byte, ids ...uint32) []byte {
	for _, id := range ids {
		switch {
		case id < byteTokens:
			dst = append(dst, byte(id))
		case id < Vocab:
			n := id - byteTokens
			c3 := n % 20
			n /= 20
			v2 := n % 5
			n /= 5
			c2 := n % 20
			n /= 20
			v1 := n % 5
			c1 := n / 5
			dst = append(dst, ' ', consonants[c1], vowels[v1], consonants[c2], vowels[v2], consonants[c3])
		}
	}
	return dst
}

// Decode is the text of ids.
func Decode(ids []uint32) string {
	return string(AppendText(make([]byte, 0, len(ids)*wordLen), ids...))
}

// Encode is the token ids of text: a word where one stands, its bytes elsewhere.
// Decode(Encode(text)) == text for every text, valid UTF-8 or not.
func Encode(text string) []uint32 {
	ids := make([]uint32, 0, len(text)/wordLen+8)
	for i := 0; i < len(text); {
		if len(ids) == cap(ids) {
			ids = slices.Grow(ids, len(text)-i) // once, for text that is no words: growing by and by would cost several times that
		}
		if id, ok := wordAt(text, i); ok {
			ids = append(ids, id)
			i += wordLen
			continue
		}
		ids = append(ids, uint32(text[i]))
		i++
	}
	return ids
}

// wordAt reads the word token that starts at text[i].
func wordAt(text string, i int) (uint32, bool) {
	if text[i] != ' ' || len(text)-i < wordLen {
		return 0, false
	}
	c1, v1 := consonantAt[text[i+1]], vowelAt[text[i+2]]
	c2, v2 := consonantAt[text[i+3]], vowelAt[text[i+4]]
	c3 := consonantAt[text[i+5]]
	if c1 < 0 || v1 < 0 || c2 < 0 || v2 < 0 || c3 < 0 {
		return 0, false
	}
	n := (((int(c1)*5+int(v1))*20+int(c2))*5+int(v2))*20 + int(c3) + byteTokens
	return uint32(n), n < Vocab
}

var consonantAt, vowelAt = letterTable(consonants), letterTable(vowels)

// letterTable maps a byte to its place in letters, -1 when it is none of them.
func letterTable(letters string) (t [256]int8) {
	for i := range t {
		t[i] = -1
	}
	for i := range len(letters) {
		t[letters[i]] = int8(i)
	}
	return t
}

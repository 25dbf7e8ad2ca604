package contract

import (
	"fmt"
	"strconv"
)

// U64 is an unsigned 64-bit value that travels as a decimal string: engine hashes (signed ones as
// their two's complement), content hashes and digests.
type U64 uint64

// MarshalJSON writes the value as a quoted decimal.
func (u U64) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 22)
	b = append(b, '"')
	b = strconv.AppendUint(b, uint64(u), 10)
	return append(b, '"'), nil
}

// UnmarshalJSON reads a quoted decimal; a bare number is accepted too.
func (u *U64) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("reading a 64-bit value from %q: %w", string(b), err)
	}
	*u = U64(v)
	return nil
}

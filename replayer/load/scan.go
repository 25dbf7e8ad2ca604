package load

import (
	"bytes"
	"encoding/json"
	"errors"
)

// scanner steps through JSON. Its methods read one value each and leave i behind it.
type scanner struct {
	b []byte
	i int
}

var errJSON = errors.New("not JSON")

// peek is the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		if c := s.b[s.i]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

func (s *scanner) atEnd() bool { return s.peek() == 0 && s.i >= len(s.b) }

// object calls visit for each key with i at its value, which visit must read. A value that is null, or
// not an object, is stepped over.
func (s *scanner) object(visit func(key []byte) error) error {
	if s.peek() != '{' {
		return s.skip()
	}
	return s.list('}', func() error {
		raw, err := s.string()
		if err != nil {
			return err
		}
		if s.peek() != ':' {
			return errJSON
		}
		s.i++
		return visit(key(raw))
	})
}

// each calls visit for each element of an array with i at it.
func (s *scanner) each(visit func() error) error {
	if s.peek() != '[' {
		return s.skip()
	}
	return s.list(']', visit)
}

// list reads comma-separated items up to the closing bracket.
func (s *scanner) list(closing byte, item func() error) error {
	s.i++
	if s.peek() == closing {
		s.i++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.i++
		case closing:
			s.i++
			return nil
		default:
			return errJSON
		}
	}
}

// value reads any value and returns its text.
func (s *scanner) value() ([]byte, error) {
	s.peek()
	from := s.i
	if err := s.skip(); err != nil {
		return nil, err
	}
	return s.b[from:s.i], nil
}

// skip steps over one value. Nesting is counted, not recursed into, so depth costs nothing.
func (s *scanner) skip() error {
	depth := 0
	for {
		switch c := s.peek(); c {
		case 0:
			return errJSON
		case '{', '[':
			depth++
			s.i++
		case '}', ']', ',', ':':
			if depth == 0 {
				return errJSON
			}
			if c == '}' || c == ']' {
				depth--
			}
			s.i++
		case '"':
			if _, err := s.string(); err != nil {
				return err
			}
		default:
			s.word()
		}
		if depth == 0 {
			return nil
		}
	}
}

// word steps over a number or a literal: at least one byte, so that skip always moves on.
func (s *scanner) word() {
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case ' ', '\n', '\t', '\r', ',', ':', '}', ']', '{', '[', '"':
			return
		}
	}
}

// string reads a string and returns what is between its quotes, escapes and all.
func (s *scanner) string() ([]byte, error) {
	if s.peek() != '"' {
		return nil, errJSON
	}
	s.i++
	from := s.i
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '"':
			s.i++
			return s.b[from : s.i-1], nil
		case '\\':
			s.i++
		}
		s.i++
	}
	s.i = len(s.b)
	return nil, errJSON
}

// key is the name a raw key stands for. Keys with escapes are legal and never seen.
func key(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	var name string
	if json.Unmarshal(append(append([]byte{'"'}, raw...), '"'), &name) != nil {
		return nil
	}
	return []byte(name)
}

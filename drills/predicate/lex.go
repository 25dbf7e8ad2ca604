package predicate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxSource bounds the text of one predicate, in bytes; maxDepth its nesting. Real ones are below 200
// bytes and five levels; the bounds keep a hostile file from costing more than an error.
const (
	maxSource = 4096
	maxDepth  = 64
)

// Error is a mistake in a predicate: Col is the byte offset in its text, from 0.
type Error struct {
	Col int
	Msg string
}

// Error is the message without the position: whoever knows the file adds line and column.
func (e *Error) Error() string { return e.Msg }

// Unit is the dimension of a number.
type Unit string

// Units. Durations are in seconds, sizes in bytes; a percent is a plain fraction.
const (
	UnitNone  Unit = ""
	UnitTime  Unit = "s"
	UnitBytes Unit = "bytes"
)

type tokenKind int

const (
	tokEOF tokenKind = iota
	tokIdent
	tokPath   // ident {"." ident}
	tokWorker // ident "/" digits
	tokNumber
	tokOp
)

// token is one word of a predicate with its place.
type token struct {
	kind tokenKind
	at   int
	text string
	num  float64
	unit Unit
	dur  time.Duration
}

func (t token) String() string {
	if t.kind == tokEOF {
		return "the end"
	}
	return strconv.Quote(t.text)
}

var operators = []string{"..", "<=", ">=", "==", "!=", "<", ">", "(", ")", "+", "-", "*", "/"}

// lex splits a predicate into tokens; the last one is tokEOF.
func lex(src string) ([]token, error) {
	if len(src) > maxSource {
		return nil, &Error{0, fmt.Sprintf("a predicate of %d bytes is longer than %d", len(src), maxSource)}
	}
	var out []token
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case isLetter(c):
			t := lexName(src, i)
			out = append(out, t)
			i += len(t.text)
		case isDigit(c):
			t, err := lexNumber(src, i)
			if err != nil {
				return nil, err
			}
			out = append(out, t)
			i += len(t.text)
		default:
			op, err := lexOp(src, i)
			if err != nil {
				return nil, err
			}
			out = append(out, token{kind: tokOp, at: i, text: op})
			i += len(op)
		}
	}
	return append(out, token{kind: tokEOF, at: len(src)}), nil
}

// lexOp reads an operator and explains the ones that other languages have.
func lexOp(src string, i int) (string, error) {
	for _, op := range operators {
		if strings.HasPrefix(src[i:], op) {
			return op, nil
		}
	}
	if src[i] == '=' {
		return "", &Error{i, `"=" is not an operator; write "=="`}
	}
	if src[i] == '!' {
		return "", &Error{i, `"!" is not an operator; write "not"`}
	}
	r := []rune(src[i:])[0]
	return "", &Error{i, fmt.Sprintf("unexpected character %q", r)}
}

// lexName reads an identifier, a dotted path or a worker with a rank. A `-` belongs to a name only between
// its letters or digits, which is why binary minus needs spaces.
func lexName(src string, i int) token {
	end := identEnd(src, i)
	kind := tokIdent
	if end+1 < len(src) && src[end] == '/' && isDigit(src[end+1]) {
		end++
		for end < len(src) && isDigit(src[end]) {
			end++
		}
		return token{kind: tokWorker, at: i, text: src[i:end]}
	}
	for end+1 < len(src) && src[end] == '.' && isLetter(src[end+1]) {
		end = identEnd(src, end+1)
		kind = tokPath
	}
	return token{kind: kind, at: i, text: src[i:end]}
}

// identEnd is where an identifier ends; see lexName for the minus.
func identEnd(src string, i int) int {
	for i < len(src) && (isLetter(src[i]) || isDigit(src[i]) || (src[i] == '-' && i+1 < len(src) && (isLetter(src[i+1]) || isDigit(src[i+1])))) {
		i++
	}
	return i
}

// lexNumber reads digits with an optional fraction and an optional unit. A compound duration such as
// 1m30s is one number.
func lexNumber(src string, i int) (token, error) {
	end := digitsEnd(src, i)
	if end+1 < len(src) && src[end] == '.' && isDigit(src[end+1]) {
		end = digitsEnd(src, end+1)
	}
	digits := end
	if end < len(src) && src[end] == '%' {
		end++
	}
	for end < len(src) && (isUnitByte(src[end]) || isDigit(src[end]) || (src[end] == '.' && end+1 < len(src) && isDigit(src[end+1]))) {
		end++
	}
	t := token{kind: tokNumber, at: i, text: src[i:end]}
	v, err := strconv.ParseFloat(src[i:digits], 64)
	if err != nil || math.IsInf(v, 0) {
		return t, &Error{i, fmt.Sprintf("%q is not a number", t.text)}
	}
	return withUnit(t, v, src[digits:end])
}

// withUnit turns a number and its unit into the base unit. time.ParseDuration reads the whole text, which
// also covers compounds.
func withUnit(t token, v float64, unit string) (token, error) {
	t.num = v
	if unit == "" {
		return t, nil
	}
	if unit == "%" {
		t.num = v / 100
		return t, nil
	}
	if factor, ok := sizes[unit]; ok {
		t.num, t.unit = v*factor, UnitBytes
		return t, nil
	}
	d, err := time.ParseDuration(t.text)
	if err != nil {
		return t, &Error{t.at, fmt.Sprintf("unknown unit in %q: durations end in ns, us, ms, s, m or h, sizes in B, KB, MB, GB, KiB, MiB or GiB, shares in %%", t.text)}
	}
	t.num, t.unit, t.dur = d.Seconds(), UnitTime, d
	return t, nil
}

// sizes are the units of a size: decimal ones are powers of 1000, binary ones of 1024.
var sizes = map[string]float64{"B": 1, "KB": 1e3, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

func isLetter(c byte) bool   { return c == '_' || (c|0x20 >= 'a' && c|0x20 <= 'z') }
func isDigit(c byte) bool    { return c >= '0' && c <= '9' }
func isUnitByte(c byte) bool { return (c|0x20 >= 'a' && c|0x20 <= 'z') || c == 0xc2 || c == 0xb5 }

func digitsEnd(src string, i int) int {
	for i < len(src) && isDigit(src[i]) {
		i++
	}
	return i
}

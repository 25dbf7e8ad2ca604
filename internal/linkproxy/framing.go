package linkproxy

import (
	"bytes"
	"math"
	"strconv"
)

// maxLine is how many bytes of a line are kept, as in most servers' limit for a request line (8 KiB). A
// longer start line makes the connection opaque; of a longer header only the rest is lost.
const maxLine = 8 << 10

// phase is where in a message a framer is.
type phase uint8

const (
	inStart     phase = iota // request line or status line
	inHead                   // headers
	inSized                  // a body of known length
	inChunkSize              // the line before a chunk
	inChunk                  // a chunk's bytes
	inChunkEnd               // the empty line behind a chunk
	inTrailer                // headers behind the last chunk
	inRest                   // a body that lasts until the connection ends
	lost                     // not HTTP/1, or not any more
)

// step is what a framer stopped at.
type step uint8

const (
	stepMore  step = iota // all bytes are used up
	stepStart             // the start line is read: method and path, or status, are set
	stepHead              // the headers are read: frame must be called
	stepEnd               // the message is complete
	stepLost              // the bytes are not HTTP/1
)

// framer finds the ends of the HTTP/1 messages in one direction of a connection. It is fed bytes as they
// come, in pieces of any size, and keeps no more of them than one line.
type framer struct {
	request bool // reads requests, otherwise responses
	phase   phase
	left    int64  // bytes still to come of a sized body or a chunk
	line    []byte // the beginning of a line whose end has not come yet
	cut     bool   // the line is longer than what is kept of it

	// Of the message being read:
	method, path string
	status       int
	length       int64 // Content-Length, -1 without
	coding       bool  // there is a Transfer-Encoding
	chunked      bool  // whose last coding is chunked
}

// next reads b up to the next step and returns the bytes behind it.
func (f *framer) next(b []byte) ([]byte, step) {
	for len(b) > 0 {
		var s step
		switch f.phase {
		case inSized, inChunk:
			b, s = f.skip(b)
		case inRest:
			return nil, stepMore
		case lost:
			return nil, stepLost
		default:
			var line []byte
			var whole bool
			if line, b, whole = f.readLine(b); !whole {
				continue
			}
			s = f.take(line)
			f.line, f.cut = f.line[:0], false
		}
		if s == stepLost {
			f.phase = lost
		}
		if s != stepMore {
			return b, s
		}
	}
	// A start line is given up as soon as it is too long, not when its end comes.
	if f.phase == inStart && f.cut {
		f.phase = lost
		return nil, stepLost
	}
	return nil, stepMore
}

// skip passes over body bytes.
func (f *framer) skip(b []byte) ([]byte, step) {
	n := min(f.left, int64(len(b)))
	f.left -= n
	switch {
	case f.left > 0:
		return b[n:], stepMore
	case f.phase == inChunk:
		f.phase = inChunkEnd
		return b[n:], stepMore
	default:
		f.phase = inStart
		return b[n:], stepEnd
	}
}

// readLine returns the next line without its end, and the bytes behind it. A line that is whole in b is
// not copied. The line is valid until the next call.
func (f *framer) readLine(b []byte) (line, rest []byte, whole bool) {
	end := bytes.IndexByte(b, '\n')
	part := b
	if end >= 0 {
		part, rest = b[:end], b[end+1:]
	}
	if end >= 0 && len(f.line) == 0 && len(part) <= maxLine {
		return bytes.TrimSuffix(part, []byte{'\r'}), rest, true
	}
	if room := maxLine - len(f.line); len(part) > room {
		part, f.cut = part[:room], true
	}
	f.line = append(f.line, part...)
	return bytes.TrimSuffix(f.line, []byte{'\r'}), rest, end >= 0
}

// take uses one line according to the phase.
func (f *framer) take(line []byte) step {
	switch f.phase {
	case inStart:
		return f.takeStart(line)
	case inHead:
		if len(line) == 0 {
			return stepHead
		}
		return f.takeHeader(line)
	case inChunkSize:
		return f.takeChunkSize(line)
	case inChunkEnd:
		if len(line) > 0 {
			return stepLost
		}
		f.phase = inChunkSize
	case inTrailer:
		if len(line) == 0 {
			f.phase = inStart
			return stepEnd
		}
	}
	return stepMore
}

func (f *framer) takeStart(line []byte) step {
	if f.cut {
		return stepLost
	}
	if len(line) == 0 && f.request {
		return stepMore // some clients send an empty line behind a body (RFC 9112, 2.2)
	}
	ok := false
	if f.request {
		ok = f.takeRequestLine(line)
	} else {
		ok = f.takeStatusLine(line)
	}
	if !ok {
		return stepLost
	}
	f.phase, f.length, f.coding, f.chunked = inHead, -1, false, false
	return stepStart
}

// takeRequestLine parses "POST /v1/completions HTTP/1.1".
func (f *framer) takeRequestLine(line []byte) bool {
	method, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok || !isToken(method) {
		return false
	}
	path, version, ok := bytes.Cut(rest, []byte{' '})
	if !ok || len(path) == 0 || !isHTTP1(version) {
		return false
	}
	// Connections repeat themselves: a kept string is used again without an allocation.
	if f.method != string(method) {
		f.method = string(method)
	}
	if f.path != string(path) {
		f.path = string(path)
	}
	return true
}

// takeStatusLine parses "HTTP/1.1 200 OK".
func (f *framer) takeStatusLine(line []byte) bool {
	version, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok || !isHTTP1(version) || len(rest) < 3 || len(rest) > 3 && rest[3] != ' ' {
		return false
	}
	status, ok := parseDigits(rest[:3], 10)
	if !ok || status < 100 {
		return false
	}
	f.status = int(status)
	return true
}

// takeHeader looks for the two headers that say where the body ends.
func (f *framer) takeHeader(line []byte) step {
	name, value, ok := bytes.Cut(line, []byte{':'})
	if !ok {
		if line[0] == ' ' || line[0] == '\t' || f.cut {
			return stepMore // a folded header, of a kind that does not matter
		}
		return stepLost
	}
	value = bytes.Trim(value, " \t")
	switch {
	case bytes.EqualFold(name, []byte("content-length")):
		n, ok := parseDigits(value, 10)
		if !ok || f.cut || f.length >= 0 && f.length != n {
			return stepLost
		}
		f.length = n
	case bytes.EqualFold(name, []byte("transfer-encoding")):
		if f.cut {
			return stepLost
		}
		last := value[bytes.LastIndexByte(value, ',')+1:]
		f.coding, f.chunked = true, bytes.EqualFold(bytes.Trim(last, " \t"), []byte("chunked"))
	}
	return stepMore
}

// takeChunkSize parses "1f" and "1f;extension".
func (f *framer) takeChunkSize(line []byte) step {
	size, _, _ := bytes.Cut(line, []byte{';'})
	n, ok := parseDigits(bytes.TrimRight(size, " \t"), 16)
	if !ok {
		return stepLost
	}
	f.phase, f.left = inChunk, n
	if n == 0 {
		f.phase = inTrailer
	}
	return stepMore
}

// frame sets where the body of the message ends whose headers were just read, as RFC 9112, 6.3 has it.
// bare says that there is no body whatever the headers say. It returns stepEnd for a message that is
// complete with its headers.
func (f *framer) frame(bare bool) step {
	switch {
	case bare:
		f.phase = inStart
		return stepEnd
	case f.chunked:
		f.phase = inChunkSize
	case f.coding && f.request:
		f.phase = lost
		return stepLost // such a request's end cannot be known
	case f.coding:
		f.phase = inRest
	case f.length > 0:
		f.phase, f.left = inSized, f.length
	case f.length == 0 || f.request:
		f.phase = inStart
		return stepEnd
	default:
		f.phase = inRest
	}
	return stepMore
}

func isHTTP1(version []byte) bool {
	return string(version) == "HTTP/1.1" || string(version) == "HTTP/1.0"
}

// isToken reports whether b can be a method: letters, digits and a few signs. It is narrower than the
// RFC's token, so that other protocols are told apart at their first line.
func isToken(b []byte) bool {
	for _, c := range b {
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_' {
			return false
		}
	}
	return len(b) > 0
}

// parseDigits is strict where strconv is not: no sign, no underscore, nothing above an int64.
func parseDigits(b []byte, base int) (int64, bool) {
	if len(b) == 0 || b[0] == '+' || b[0] == '-' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b), base, 64)
	return int64(min(n, math.MaxInt64)), err == nil && n <= math.MaxInt64
}

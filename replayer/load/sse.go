package load

import "bytes"

// maxEvent bounds one server-sent event, in bytes: a hostile server must not make the client grow.
const maxEvent = 1 << 20

// event is one server-sent event. Its slices are valid until the parser is fed again.
type event struct {
	name []byte // the event field, usually absent
	data []byte // the data fields, joined by newlines
}

// sseParser cuts a byte stream into server-sent events (WHATWG HTML, section 9.2), whatever pieces the
// bytes arrive in. An event without its closing blank line is never delivered, as the standard has it.
type sseParser struct {
	line    []byte // the beginning of a line that is not complete yet
	name    []byte
	data    []byte
	hasData bool
	skipLF  bool // the last byte seen was a CR, which ended a line: an LF after it belongs to it
}

// feed takes the next bytes and calls emit for every event they complete, in order, until emit fails.
func (p *sseParser) feed(b []byte, emit func(event) error) error {
	for len(b) > 0 {
		if p.skipLF {
			p.skipLF = false
			if b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		end := lineEnd(b)
		if end < 0 {
			p.line = append(p.line, b...)
			return p.checkSize()
		}
		line := b[:end]
		if len(p.line) > 0 {
			p.line = append(p.line, line...)
			line = p.line
		}
		p.skipLF = b[end] == '\r'
		b = b[end+1:]
		err := p.take(line, emit)
		p.line = p.line[:0]
		if err != nil {
			return err
		}
	}
	return nil
}

// lineEnd is the index of the first CR or LF, -1 for none: two vectorised searches, the second one only
// within the line.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// take handles one complete line.
func (p *sseParser) take(line []byte, emit func(event) error) error {
	if len(line) == 0 {
		return p.dispatch(emit)
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "data":
		if p.hasData {
			p.data = append(p.data, '\n')
		}
		p.data, p.hasData = append(p.data, value...), true
	case "event":
		p.name = append(p.name[:0], value...)
	}
	return p.checkSize()
}

func (p *sseParser) dispatch(emit func(event) error) error {
	e, ok := event{p.name, p.data}, p.hasData
	p.name, p.data, p.hasData = p.name[:0], p.data[:0], false
	if !ok {
		return nil
	}
	return emit(e)
}

func (p *sseParser) checkSize() error {
	if len(p.line) > maxEvent || len(p.data) > maxEvent {
		return failf("event longer than %d bytes", maxEvent)
	}
	return nil
}

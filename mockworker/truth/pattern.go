package truth

import (
	"bytes"
	"encoding/binary"
)

// pattern is the bytes around the hash of a removal. An engine that evicts sends a removal for every block,
// each in an event of its own, and from one to the next nothing changes but the hash. Comparing the bytes
// around it with those of the removal before says so in a few instructions, whatever the wire's form, and
// what is equal means the same: only the first removal of a run is decoded.
type pattern struct {
	head, tail []byte // without the hash's code byte
	code       byte   // of a bytes hash; codeUint64 also stands for codeInt64, as the sign has it
	width      int    // bytes behind the code byte, 0 for no pattern
}

// patternOf is the pattern of the event that was just read from raw. There is one for a removal of one hash in
// a form whose length does not depend on its value.
func (d *decoder) patternOf(e *event, raw []byte) pattern {
	if e.kind != kindRemoved || len(e.hashes) != 1 {
		return pattern{}
	}
	p := pattern{code: d.last[0]}
	switch {
	case isInt64(p.code):
		p.code, p.width = codeUint64, 8
	case p.code == codeBytes8:
		p.width = 1 + int(d.last[1])
	default:
		return pattern{}
	}
	begin := len(raw) + len(d.b) - len(d.last) // raw ends where d.b begins
	p.head, p.tail = raw[:begin], raw[begin+1+p.width:]
	return p
}

// again reads up to most events that are like the last one, into the same event, and returns how many.
func (d *decoder) again(most int) (n int) {
	p := &d.like
	if p.width == 0 {
		return 0
	}
	hash := len(p.head) + 1 // where what is behind the code byte begins
	tail := hash + p.width
	size := tail + len(p.tail)
	e, b := &d.events[len(d.events)-1], d.b
	for ; n < most && len(b) >= size && p.isCode(b[hash-1:]) &&
		bytes.Equal(b[:len(p.head)], p.head) && bytes.Equal(b[tail:size], p.tail); n++ {
		e.hashes = append(e.hashes, binary.BigEndian.Uint64(b[tail-8:]))
		b = b[size:]
	}
	e.times += n
	d.b = b
	return n
}

// isCode says that b begins with a hash of the same form and length.
func (p *pattern) isCode(b []byte) bool {
	if p.code == codeUint64 {
		return isInt64(b[0])
	}
	return b[0] == p.code && int(b[1])+1 == p.width
}

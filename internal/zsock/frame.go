package zsock

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The flag bits of a ZMTP 3 frame (rfc.zeromq.org/spec/23). All others are reserved and must be zero.
const (
	flagMore    = 0x1
	flagLong    = 0x2
	flagCommand = 0x4
)

const (
	// maxCommand bounds the body of a command in bytes: the longest that means anything here is a
	// SUBSCRIBE with its topic.
	maxCommand = 64 << 10
	// maxParts bounds the frames of one message; the longest on the wires of a fleet has five.
	maxParts = 1024
	// firstRead is how many bytes are allocated on the word of a frame header alone. More is allocated
	// only as bytes arrive, so a header that lies costs its sender as much as it costs us.
	firstRead = 256 << 10
)

var (
	errBadFrame = errors.New("malformed frame")
	errTooLarge = errors.New("message exceeds the limit")
)

// incoming is one message or one command as it came off the wire.
type incoming struct {
	frames  [][]byte // the parts of a message; nil for a command
	command string   // the name of a command; "" for a message
	body    []byte   // the body of a command, without its name
}

// frameReader cuts a byte stream into messages and commands. It is fed by anyone who can connect, so it
// allocates nothing that has not been paid for in bytes and never panics.
type frameReader struct {
	r   *bufio.Reader
	max int64 // bytes of one message, all frames together

	// A peer may put a PING between two frames of a message, so the parts so far outlive a call of next.
	parts [][]byte
	size  int64
}

// next returns the next whole message or command. io.EOF means that the stream ended between two of them.
func (f *frameReader) next() (incoming, error) {
	for {
		flags, size, n, err := peekHeader(f.r)
		if err != nil {
			if err == io.EOF && len(f.parts) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return incoming{}, err
		}
		if err := f.admit(flags, size); err != nil {
			return incoming{}, err
		}
		_, _ = f.r.Discard(n) // cannot fail: these bytes were just peeked
		body, err := readBody(f.r, int(size))
		if err != nil {
			return incoming{}, err
		}
		if flags&flagCommand != 0 {
			return parseCommand(body)
		}
		f.parts = append(f.parts, body)
		f.size += size
		if flags&flagMore == 0 {
			msg := incoming{frames: f.parts}
			f.parts, f.size = nil, 0
			return msg, nil
		}
	}
}

// admit judges a frame by its header, before anything is allocated for it.
func (f *frameReader) admit(flags byte, size int64) error {
	switch {
	case flags&^(flagMore|flagLong|flagCommand) != 0:
		return fmt.Errorf("%w: reserved bits set in flags %#02x", errBadFrame, flags)
	case flags&flagCommand != 0 && flags&flagMore != 0:
		return fmt.Errorf("%w: a command with the more flag", errBadFrame)
	case flags&flagCommand != 0 && (size < 0 || size > maxCommand):
		return fmt.Errorf("%w: command of %d bytes, at most %d", errTooLarge, uint64(size), maxCommand)
	case flags&flagCommand != 0:
		return nil
	case size < 0 || size > f.max-f.size:
		return fmt.Errorf("%w: frame of %d bytes after %d, at most %d", errTooLarge, uint64(size), f.size, f.max)
	case len(f.parts) == maxParts:
		return fmt.Errorf("%w: more than %d frames", errTooLarge, maxParts)
	}
	return nil
}

// peekHeader reads a frame header without consuming it: its flags, the size of the body in bytes (negative
// when the sender claims 2^63 or more) and the length n of the header itself.
func peekHeader(r *bufio.Reader) (flags byte, size int64, n int, err error) {
	b, err := r.Peek(2)
	if err == nil && b[0]&flagLong == 0 {
		return b[0], int64(b[1]), 2, nil
	}
	if err == nil {
		b, err = r.Peek(9)
	}
	if err != nil {
		if err == io.EOF && len(b) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, 0, 0, err
	}
	return b[0], int64(binary.BigEndian.Uint64(b[1:])), 9, nil
}

func readBody(r io.Reader, size int) ([]byte, error) {
	body := make([]byte, min(size, firstRead))
	for read := 0; ; {
		n, err := io.ReadFull(r, body[read:])
		read += n
		if err != nil && read < size {
			if err == io.EOF { // the header promised more
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if read == size {
			return body, nil
		}
		grown := make([]byte, min(size, 2*len(body)))
		copy(grown, body)
		body = grown
	}
}

// parseCommand splits the body of a command frame: one byte of name length, the name, the rest.
func parseCommand(body []byte) (incoming, error) {
	if len(body) == 0 || body[0] == 0 || int(body[0]) > len(body)-1 {
		return incoming{}, fmt.Errorf("%w: command without a whole name", errBadFrame)
	}
	n := 1 + int(body[0])
	return incoming{command: string(body[1:n]), body: body[n:]}, nil
}

package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"
)

// slotMs is the step of stamps, in ms, as in the public conversation trace.
const slotMs = 3000

// Shape says what Generate makes.
type Shape struct {
	// Seed decides every choice: equal shapes give equal bytes, on every machine.
	Seed uint64
	// Rows is how many rows there are, from 1 to 10 million.
	Rows int
	// Span is the time the rows come in, from 3 s to 31 days; stamps are the whole slots of 3 s in it.
	Span time.Duration
	// Clients send the rows, each in bursts of its own; from 1 to 10,000.
	Clients int
	// MaxInput bounds a prompt, in tokens, at least 1,024.
	MaxInput int
}

// DefaultShape is the shape of the trace that is built in: four and a half minutes at the rate of the
// public conversation trace, 3.4 rows a second.
func DefaultShape() Shape {
	return Shape{Seed: 1, Rows: 900, Span: 270 * time.Second, Clients: 32, MaxInput: 126_195}
}

// Check says which field is out of its bounds.
func (s Shape) Check() error {
	switch {
	case s.Rows < 1 || s.Rows > 10_000_000:
		return fmt.Errorf("rows %d: want 1 to 10000000", s.Rows)
	case s.Span < slotMs*time.Millisecond || s.Span > 31*24*time.Hour:
		return fmt.Errorf("span %s: want 3s to 744h (31 days)", s.Span)
	case s.Clients < 1 || s.Clients > 10_000:
		return fmt.Errorf("clients %d: want 1 to 10000", s.Clients)
	case s.MaxInput < 2*BlockTokens || s.MaxInput > maxLength:
		return fmt.Errorf("max input %d: want %d to %d tokens", s.MaxInput, 2*BlockTokens, maxLength)
	}
	return nil
}

// Generate writes a Mooncake trace of the given shape: conversations that grow by turns, so that the full
// blocks of a turn are a prefix of the next; heads that many conversations share; every row beginning with
// block 0; stamps in slots of 3 s; clients that send in bursts; lengths with the heavy tail of the public
// conversation trace. Rows are written as they are made; memory grows with the clients, not the rows.
func Generate(w io.Writer, s Shape) error {
	if err := s.Check(); err != nil {
		return fmt.Errorf("generating a trace: %w", err)
	}
	out := bufio.NewWriterSize(w, 64<<10)
	var line []byte
	err := s.each(func(row *Row) error {
		line = row.AppendJSON(line[:0])
		_, err := out.Write(line)
		return err
	})
	if err := errors.Join(err, out.Flush()); err != nil {
		return fmt.Errorf("writing a trace: %w", err)
	}
	return nil
}

// each yields all rows; a row is valid until the next one. A slot gets the share of the rows that its
// active clients have of all weight, so bursts show and the number of rows is exact. The total weight
// takes a first pass over the clients' states.
func (s Shape) each(yield func(*Row) error) error {
	slots := int(s.Span.Milliseconds() / slotMs)
	total := 0
	for first, slot := newSenders(s), 0; slot < slots; slot++ {
		total += first.step()
	}
	senders, talks := newSenders(s), newTalks(s)
	made, passed := 0, 0
	for slot := range slots {
		passed += senders.step()
		// Rounded up: the first slot, in which somebody is active, has a row, and the last one ends them.
		for due := (s.Rows*passed + total - 1) / total; made < due; made++ {
			row := talks.next(senders.pick(talks.draw), slot)
			row.N, row.StampNs = made, int64(slot)*slotMs*nsPerMs
			if err := yield(row); err != nil {
				return err
			}
		}
	}
	return nil
}

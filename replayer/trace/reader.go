package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// DefaultMaxLine bounds one line, in bytes: some 100,000 block ids, a prompt of 50 million tokens.
	DefaultMaxLine = 1 << 20
	// readBuffer is one read of the file, in bytes.
	readBuffer = 64 << 10
	// namedProblems is how many of the rows left out are remembered in words.
	namedProblems = 5
)

// Options say which rows a Reader gives.
type Options struct {
	// Rows selects rows by number; the zero value is every row. Rows outside are counted, not read.
	Rows Rows
	// SkipBad leaves out rows that cannot be read and counts them, in place of ending at the first one.
	SkipBad bool
	// MaxLine bounds one line in bytes; 0 means DefaultMaxLine.
	MaxLine int
}

// errTooLong is a line above the bound.
var errTooLong = errors.New("the line is too long")

// RowError is a row that cannot be read, with its place.
type RowError struct {
	// Name is the name of the trace as it was opened; Line counts its lines from 1.
	Name string
	Line int
	Err  error
}

// Error is "file:line: what is wrong".
func (e *RowError) Error() string { return fmt.Sprintf("%s:%d: %v", e.Name, e.Line, e.Err) }

// Unwrap is what is wrong.
func (e *RowError) Unwrap() error { return e.Err }

// Skipped are the rows that SkipBad left out.
type Skipped struct {
	Count int
	// First are the first few of them.
	First []*RowError
}

// Reader gives the rows of a Mooncake trace (JSON lines: timestamp in ms, input_length, output_length,
// hash_ids) one at a time, with memory for one line. It is not safe for concurrent use.
type Reader struct {
	name  string
	o     Options
	src   *bufio.Reader
	close func() error
	buf   []byte

	line      int // lines read
	rows      int // lines that were not blank, which is the next row's number
	given     int
	lastStamp int64 // of the last row given
	skipped   Skipped
	done      error
}

// NewReader reads a trace that is not compressed. name stands for it in errors.
func NewReader(r io.Reader, name string, o Options) *Reader {
	if o.MaxLine == 0 {
		o.MaxLine = DefaultMaxLine
	}
	return &Reader{name: name, o: o, src: bufio.NewReaderSize(r, readBuffer)}
}

// Name is the name of the trace as it was opened.
func (r *Reader) Name() string { return r.name }

// Next reads the next selected row into row, reusing row.IDs. At the end of the selection it returns
// io.EOF. A row that cannot be read, or that is older than the row before it, is a *RowError, unless
// SkipBad leaves it out; a trace or a selection without any row is an error. After an error every call
// returns that error.
func (r *Reader) Next(row *Row) error {
	for r.done == nil {
		err := r.next(row)
		if err == nil {
			r.given++
			return nil
		}
		var bad *RowError
		if r.o.SkipBad && errors.As(err, &bad) {
			r.skip(bad)
			continue
		}
		r.done = err
	}
	return r.done
}

// Skipped are the rows left out so far.
func (r *Reader) Skipped() Skipped { return r.skipped }

// Close closes what Open opened.
func (r *Reader) Close() error {
	if r.close == nil {
		return nil
	}
	return r.close()
}

func (r *Reader) skip(bad *RowError) {
	r.skipped.Count++
	if len(r.skipped.First) < namedProblems {
		r.skipped.First = append(r.skipped.First, bad)
	}
}

// next reads up to the next selected row.
func (r *Reader) next(row *Row) error {
	for {
		// Before reading on: what is behind the selection may be long, or broken.
		if r.o.Rows.past(r.rows) {
			return r.end()
		}
		line, lineErr := r.readLine()
		if lineErr == nil && len(line) == 0 {
			continue
		}
		if errors.Is(lineErr, io.EOF) {
			return r.end()
		}
		// A line that cannot be read is a row all the same, so that a selection names the same rows with
		// and without skipping.
		n := r.rows
		r.rows++
		if n < r.o.Rows.First && (lineErr == nil || errors.Is(lineErr, errTooLong)) {
			continue
		}
		if lineErr != nil {
			return lineErr
		}
		row.N = n
		return r.row(line, row)
	}
}

// row parses a line and holds it against the row before.
func (r *Reader) row(line []byte, row *Row) error {
	if err := parse(line, row); err != nil {
		return r.bad(err)
	}
	if r.given > 0 && row.StampNs < r.lastStamp {
		return r.bad(fmt.Errorf("out of order: timestamp %s ms after %s ms", appendMs(nil, row.StampNs), appendMs(nil, r.lastStamp)))
	}
	r.lastStamp = row.StampNs
	return nil
}

func (r *Reader) tooLong(length int) error {
	return r.bad(fmt.Errorf("%w: %d bytes, the bound is %d", errTooLong, length, r.o.MaxLine))
}

func (r *Reader) bad(err error) error { return &RowError{Name: r.name, Line: r.line, Err: err} }

// end is the end of the trace or of the selection.
func (r *Reader) end() error {
	switch {
	case r.given > 0:
		return io.EOF
	case r.skipped.Count > 0:
		// Not wrapped: this is the end and no row to skip.
		return fmt.Errorf("%s: none of %d rows can be read, the first: %v", r.name, r.skipped.Count, r.skipped.First[0])
	case r.rows == 0:
		return fmt.Errorf("%s: empty, no row in it", r.name)
	}
	return fmt.Errorf("%s: rows %s: the trace has %d rows, 0-%d", r.name, r.o.Rows, r.rows, r.rows-1)
}

// readLine is the next line without the white space around it, valid until the next call. io.EOF comes
// alone; a line that is too long or cut short is a *RowError; anything else ends the reading.
func (r *Reader) readLine() ([]byte, error) {
	r.buf = r.buf[:0]
	length := 0
	r.line++
	for {
		part, err := r.src.ReadSlice('\n')
		length += len(part)
		// What is too long is read to its end all the same, to find the next line, but not kept.
		if length <= r.o.MaxLine {
			r.buf = append(r.buf, part...)
		}
		switch {
		case err == nil && length > r.o.MaxLine:
			return nil, r.tooLong(length)
		case err == nil:
			return bytes.TrimSpace(r.buf), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return r.lastLine(length, err)
		}
	}
}

// lastLine is what stands behind the last line feed, when reading ended with err.
func (r *Reader) lastLine(length int, err error) ([]byte, error) {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		// The next read would say the same for ever.
		r.src.Reset(eof{})
		return nil, r.bad(errors.New("the compressed file is cut short"))
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("reading %s, line %d: %w", r.name, r.line, err)
	case length > r.o.MaxLine:
		return nil, r.tooLong(length)
	}
	line := bytes.TrimSpace(r.buf)
	if len(line) == 0 {
		return nil, io.EOF
	}
	// Without a line feed but whole it is a row like any other.
	if line[len(line)-1] != '}' {
		return nil, r.bad(errors.New("the last line is cut short"))
	}
	return line, nil
}

// eof is a file at its end.
type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fleetdrill/drills/judge"
)

// board shows what the runs of a lab are doing: on a terminal a table that is drawn over itself, a line
// per running drill and one of totals; elsewhere a plain line per event. Safe for concurrent use.
type board struct {
	out, err io.Writer
	quiet    bool // results go out as JSON, not here
	live     bool
	width    int

	mu    sync.Mutex // guards all below, and whole lines
	rows  []*boardRow
	drawn int // lines of the table on the terminal
}

// boardRow is one leg.
type boardRow struct {
	b    *board
	name string
	// many says that the leg has more than one run, whose ends are worth a line.
	many bool

	// Under b.mu.
	running  int
	finished int
	tally    map[judge.Verdict]int
	last     string
	began    time.Time
	over     bool
}

func newBoard(out, err io.Writer, quiet bool) *board {
	b := &board{out: out, err: err, quiet: quiet}
	b.width, b.live = terminal(err)
	return b
}

// tick redraws a live table once a second, so that its clocks move; the returned function ends that.
func (b *board) tick() (stop func()) {
	if !b.live {
		return func() {}
	}
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				b.mu.Lock()
				b.draw()
				b.mu.Unlock()
			case <-quit:
				return
			}
		}
	})
	return func() {
		close(quit)
		done.Wait()
	}
}

// terminal is the width of a writer's terminal, in columns; false when it has none.
func terminal(w io.Writer) (int, bool) {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return max(40, int(size.Col)), true
}

func (b *board) row(name string, many bool) *boardRow {
	r := &boardRow{b: b, name: name, many: many, tally: map[judge.Verdict]int{}}
	b.mu.Lock()
	b.rows = append(b.rows, r)
	b.mu.Unlock()
	return r
}

func (r *boardRow) start() {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.running++
	r.began, r.last = time.Now(), "starting"
	r.b.draw()
}

// say tells what a run is doing.
func (r *boardRow) say(line string) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.last = line
	if r.b.live {
		r.b.draw()
		return
	}
	fmt.Fprintf(r.b.err, "%s: %s\n", r.name, line)
}

// end takes in a run's result.
func (r *boardRow) end(d judge.Drill, err error) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.running--
	r.finished++
	r.tally[d.Verdict]++
	why := d.Reason
	if why == "" && err != nil {
		why = err.Error()
	}
	if !r.b.live && r.many {
		fmt.Fprintln(r.b.err, strings.TrimSpace(fmt.Sprintf("%s: run %d, seed %d: %s %s", r.name, r.finished, d.Seed, d.Verdict, why)))
	}
	r.b.draw()
}

func (r *boardRow) done() {
	r.b.mu.Lock()
	r.over = true
	r.b.mu.Unlock()
}

// print puts a finished result on standard output, above the table.
func (b *board) print(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.quiet {
		return
	}
	b.wipe()
	fmt.Fprint(b.out, text)
	b.draw()
}

// wipe takes the table off the terminal: up over its lines, then clear to the end of the screen.
func (b *board) wipe() {
	if b.drawn > 0 {
		fmt.Fprintf(b.err, "\x1b[%dA\x1b[J", b.drawn)
		b.drawn = 0
	}
}

// draw puts the table on the terminal in place of the last one. When every leg is over it leaves none.
func (b *board) draw() {
	if !b.live {
		return
	}
	b.wipe()
	lines := b.lines(time.Now())
	for _, l := range lines {
		fmt.Fprintln(b.err, clip(l, b.width-1))
	}
	b.drawn = len(lines)
}

// lines is the table.
func (b *board) lines(now time.Time) []string {
	var out []string
	over, waiting := 0, 0
	for _, r := range b.rows {
		switch {
		case r.over:
			over++
		case r.running == 0:
			waiting++
		default:
			out = append(out, fmt.Sprintf("  %-28s %-22s %4.0f s  %s", r.name, r.counts(), now.Sub(r.began).Seconds(), r.last))
		}
	}
	if over == len(b.rows) {
		return nil
	}
	return append(out, fmt.Sprintf("  %d of %d done, %d waiting", over, len(b.rows), waiting))
}

// counts is a row's runs so far, such as "3 pass, 1 invalid".
func (r *boardRow) counts() string {
	var parts []string
	for _, v := range []judge.Verdict{judge.Pass, judge.Fail, judge.Unknown, judge.Invalid, judge.Error} {
		if n := r.tally[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	if len(parts) == 0 {
		return "first run"
	}
	return strings.Join(parts, ", ")
}

// clip cuts a line to a width in characters.
func clip(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}

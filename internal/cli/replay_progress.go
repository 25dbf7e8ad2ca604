package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"fleetdrill/replayer/live"
)

// quietEvery is between two progress lines where they stay, as in a CI log.
const quietEvery = 10 * time.Second

// progress shows how far a replay is: one line that is written over on a terminal, a line now and then
// elsewhere.
type progress struct {
	out      io.Writer
	name     string
	terminal bool
	last     time.Duration // of the last line that stays
	open     bool          // a line on the terminal is not ended
}

func newProgress(out io.Writer, name string) *progress {
	return &progress{out: out, name: name, terminal: isTerminal(out)}
}

// isTerminal says whether w is one.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// show shows a line that stands elapsed after the start; the last one always stays.
func (p *progress) show(line string, elapsed time.Duration, last bool) {
	switch {
	case p.terminal:
		// Erase to the end of the line: the one before may have been longer.
		fmt.Fprintf(p.out, "\r%s\x1b[K", line)
		p.open = true
	case elapsed-p.last >= quietEvery || last:
		p.last = elapsed
		fmt.Fprintln(p.out, line)
	}
}

// live shows how far a live replay is.
func (p *progress) live(now live.Progress) {
	p.show(fmt.Sprintf("%s: %d of %d rows, %d open, %.1f/s, TTFT p50 %.0f ms, hit ratio %.3f, %d errors", p.name, now.Ended, now.Planned,
		now.Sent-now.Ended, now.Rate, now.TTFTP50Ms, now.Hit, now.Errors), now.Elapsed, now.Ended == now.Planned)
}

// sim shows how far a simulated replay is, elapsed after its start.
func (p *progress) sim(ended, planned int, virtualS float64, elapsed time.Duration) {
	p.show(fmt.Sprintf("%s: %d of %d rows, %.0f virtual seconds, %.0fx", p.name, ended, planned, virtualS, virtualS/max(elapsed.Seconds(), 1e-3)),
		elapsed, false)
}

// end leaves the last line standing.
func (p *progress) end() {
	if p.open {
		fmt.Fprintln(p.out)
	}
}

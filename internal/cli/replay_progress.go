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

func (p *progress) tell(now live.Progress) {
	switch {
	case p.terminal:
		// Erase to the end of the line: the one before may have been longer.
		fmt.Fprintf(p.out, "\r%s\x1b[K", progressLine(p.name, now))
		p.open = true
	case now.Elapsed-p.last >= quietEvery || now.Ended == now.Planned:
		p.last = now.Elapsed
		fmt.Fprintln(p.out, progressLine(p.name, now))
	}
}

// end leaves the last line standing.
func (p *progress) end() {
	if p.open {
		fmt.Fprintln(p.out)
	}
}

func progressLine(name string, p live.Progress) string {
	return fmt.Sprintf("%s: %d of %d rows, %d open, %.1f/s, TTFT p50 %.0f ms, hit ratio %.3f, %d errors", name, p.Ended, p.Planned,
		p.Sent-p.Ended, p.Rate, p.TTFTP50Ms, p.Hit, p.Errors)
}

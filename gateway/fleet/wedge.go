package fleet

import (
	"time"

	"fleetdrill/internal/contract"
)

const (
	// priorPrefill is a worker's prefill rate before one is measured, tokens/s.
	priorPrefill = 10_000
	// prefillWindow is the busy time over which a rate is measured.
	prefillWindow = time.Second
	// pile is the number of silent streams that, without another progress channel, are no coincidence.
	pile = 4
	// After quietFor without progress of our own streams the step counter is read every quietPoll:
	// progress seen by a poll may be as old as the poll's period, which delays the verdict by as much.
	quietFor  = 150 * time.Millisecond
	quietPoll = 200 * time.Millisecond
	// measuredTokens is the least prompt, in tokens to compute, that says something about a prefill rate:
	// of a shorter one the engine's step is most of the wait.
	measuredTokens = 256
)

// progress is a worker's progress clock and its measured prefill rate.
type progress struct {
	last int64 // mono ns of the last progress on any channel
	owed int64 // since when a sent, unfinished, unblocked request exists; 0 = none

	rate          float64 // tokens/s of streams' prompts over the time one was awaited; 0 = not measured
	awaiting      int     // streams sent and without a first byte
	since         int64   // when awaiting last became positive or the window was cut
	busy          int64   // ns awaited in this window before since
	firstedTokens int64   // prompt tokens whose first byte came in this window
}

func (p *progress) forgive(gap int64) {
	p.last += gap
	if p.owed > 0 {
		p.owed += gap
	}
	p.since += gap
}

// await counts a stream whose prompt is now with the engine.
func (p *progress) await(now int64) {
	if p.awaiting == 0 {
		p.since = now
	}
	p.awaiting++
}

// awaited ends the wait for a stream's first byte; tokens is 0 when none came. Rates come from busy time
// alone: an idle worker is not a slow one.
func (p *progress) awaited(now, tokens int64) {
	p.busy += now - p.since
	p.since = now
	p.awaiting--
	p.firstedTokens += tokens
	if p.busy >= int64(prefillWindow) && p.firstedTokens > 0 {
		p.rate = float64(p.firstedTokens) / time.Duration(p.busy).Seconds()
		p.busy, p.firstedTokens = 0, 0
	}
}

// bound is the time without progress that makes a worker wedged: stretched for the prompt tokens it has
// to prefill before it can show anything, twice over, and never without limit.
func (p *progress) bound(t Timing, tokens int64) int64 {
	return max(int64(t.Wedge), min(p.prefill(tokens), int64(t.WedgeCap)))
}

// prefill is twice the time that computing so many prompt tokens takes, ns.
func (p *progress) prefill(tokens int64) int64 {
	rate := p.rate
	if rate == 0 {
		rate = priorPrefill
	}
	return int64(2 * float64(tokens) / rate * float64(time.Second))
}

// debt is what a worker owes us at one instant.
type debt struct {
	requests, streams int
	tokens            int64 // prompt tokens to compute before anything can show
	oldest            int64 // mono ns at which the oldest owed stream was sent
}

func (w *Worker) debt() (d debt) {
	for _, r := range w.requests {
		// A client that does not read stops its own stream, not the worker.
		if r.sent == 0 || r.ending || r.blocked.Load() {
			continue
		}
		d.requests++
		// A whole answer shows nothing until it is done, but an engine that moved after its prompt's time
		// was over is past it.
		if r.first == 0 && (r.streamed || w.progress.last < r.sent+w.progress.prefill(r.uncached)) {
			d.tokens += r.uncached
		}
		if r.streamed {
			d.streams++
			if d.oldest == 0 || r.sent < d.oldest {
				d.oldest = r.sent
			}
		}
	}
	return d
}

// judgeWedge finds workers that answer and hold our work but do not move.
func (c *Core) judgeWedge(now int64, w *Worker) {
	if w.hung > 0 {
		// A resumed engine may have nothing of ours to show: its step counter tells.
		w.nextPoll = min(w.nextPoll, w.load.asked+int64(quietPoll))
		c.endHung(now, w)
		return
	}
	d := w.debt()
	// A draining worker's streams are left alone: it will not take more, and the stall bound still holds.
	if d.requests == 0 || w.dead > 0 || w.partitioned > 0 || w.phase == contract.PhaseDraining {
		w.progress.owed = 0
		return
	}
	if w.progress.owed == 0 {
		w.progress.owed = now
	}
	quiet := now - max(w.progress.last, w.progress.owed)
	if quiet >= int64(quietFor) {
		w.nextPoll = min(w.nextPoll, w.load.asked+int64(quietPoll))
	}
	bound := w.progress.bound(c.timing, d.tokens)
	if c.timing.Wedge == 0 || quiet < bound || !c.telling(now, w, d, bound) {
		return
	}
	w.hung = now
	c.wedged = append(c.wedged, w)
	c.end(w, contract.VetoWedged, func(r *Request) bool { return r.first == 0 })
}

// telling says whether silence means anything. A step counter or event stream that we can read would
// have moved; streams alone may all be waiting for a long prefill, so they must be many, or known to
// queue, or very old.
func (c *Core) telling(now int64, w *Worker, d debt, bound int64) bool {
	if w.eventsLive.Load() || w.load.stepsKnown(now, c.timing) {
		return true
	}
	return d.streams > 0 && (w.load.waiting(now, c.timing) > 0 || d.streams >= pile || now-d.oldest > 2*bound)
}

// endHung ends what a wedged worker may not keep: a probe without an answer after the bound, and open
// streams when their time is over.
func (c *Core) endHung(now int64, w *Worker) {
	c.end(w, contract.VetoWedged, func(r *Request) bool {
		if r.first == 0 {
			return now-r.begun >= int64(c.timing.Wedge)
		}
		return now-max(w.hung, r.begun) >= int64(c.timing.VetoedStream)
	})
}

// moved is progress at an instant: the one thing that lifts wedged.
func (c *Core) moved(at int64, w *Worker) {
	w.progress.last = max(w.progress.last, at)
	if w.hung > 0 {
		w.hung = 0
		c.admit(at, w)
		// The standstill is no measure of the worker's speed.
		w.progress.busy, w.progress.firstedTokens, w.progress.since = 0, 0, at
	}
}

// fold takes over what the data path stored since the last look.
func (c *Core) fold(now int64, w *Worker) {
	if at := w.lastByte.Load(); at > w.seenByte {
		w.seenByte = at
		c.contact(at, w)
		c.moved(at, w)
	}
	if at := w.lastEvent.Load(); at > w.seenEvent {
		w.seenEvent = at
		c.moved(at, w)
	}
	c.show(now, w)
}

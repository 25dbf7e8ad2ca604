package loop

import "sync"

// Sink is who takes the news of streams, on the delivery goroutine of their loop: it must be quick and
// must not block. It is told that a stream has something, and takes it with Take, now or later.
type Sink interface {
	// News says that s has tokens, or has ended. scratch is memory that the sink may use during the call;
	// it returns it, grown or not. With later it asks for Later.
	News(s *Stream, scratch []byte) (grown []byte, later bool)
	// Later is called when the sinks of everybody who had news at the same time have been told: for what need
	// not keep their tokens waiting, such as waking a goroutine.
	Later()
}

// outbox is the streams with news and the goroutine that tells their sinks, one after the other and in the
// order of the step. A step of a thousand streams would otherwise wake a thousand goroutines, in another
// order each time, and that order is what clients see as jitter between tokens. The steps never wait for it.
type outbox struct {
	posted chan struct{} // at most one token: "look"
	done   chan struct{} // nil while there was nobody to tell

	mu      sync.Mutex // guards everything below
	streams []*Stream
	whole   bool // streams ends with the last of a step
	closed  bool

	// Belonging to the loop goroutine: what the step it is in has news of.
	fresh []*Stream
	// begun says that a part of the step has been told.
	begun bool
}

// put notes a stream; send tells it. Both are for the loop goroutine.
func (o *outbox) put(s *Stream) { o.fresh = append(o.fresh, s) }

// send tells the streams that were put. Whole says that none of the same step is to follow.
func (o *outbox) send(whole bool) {
	if len(o.fresh) == 0 && !(whole && o.begun) {
		return
	}
	o.begun = !whole
	o.mu.Lock()
	o.streams, o.whole = append(o.streams, o.fresh...), whole
	o.mu.Unlock()
	clear(o.fresh)
	o.fresh = o.fresh[:0]
	if o.done == nil {
		o.done = make(chan struct{})
		go o.run()
	}
	o.post()
}

func (o *outbox) post() {
	select {
	case o.posted <- struct{}{}:
	default:
	}
}

// maxScratch is the memory that the delivery goroutine keeps between two steps.
const maxScratch = 64 << 10

func (o *outbox) run() {
	defer close(o.done)
	var batch []*Stream
	var later []Sink
	var scratch []byte
	for range o.posted {
		o.mu.Lock()
		batch, o.streams = o.streams, batch[:0]
		whole, closed := o.whole, o.closed
		o.mu.Unlock()
		for _, s := range batch {
			var more bool
			if scratch, more = s.sink.News(s, scratch); more {
				later = append(later, s.sink)
			}
		}
		clear(batch)
		if whole || closed {
			for _, s := range later {
				s.Later()
			}
			clear(later)
			later = later[:0]
		}
		if cap(scratch) > maxScratch {
			scratch = nil
		}
		if closed {
			return
		}
	}
}

// stop tells what is left and waits for the goroutine. A second token may come too late for what was put
// before: closed is therefore read together with the streams.
func (o *outbox) stop() {
	if o.done == nil {
		return
	}
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.post()
	<-o.done
}

package loop

import "sync"

// Stream is what the engine says about one request: its tokens in order, then how it ended. It holds at
// most MaxTokens ids, so a reader that is slow or gone costs memory of a known size and never time.
type Stream struct {
	loop *Loop
	id   string // the engine's name for it
	// whole readers are woken once, at the end.
	whole bool
	ready chan struct{}
	// sink, if set, is told in place of ready; choice is its number for this stream.
	sink    Sink
	choice  int
	adapter string // LoRA

	mu    sync.Mutex // guards ids and state
	ids   []uint32
	state State

	// Belonging to the loop goroutine.
	maxTokens  int
	lastMonoNs int64
	added      bool // to the engine, or refused by it
	started    bool // has its first token
}

// State is how far a request is.
type State struct {
	// Cached are the prompt tokens found in the cache; known with the first token.
	Cached int
	// Done is set with the last token, Finish then says how it ended: length or abort.
	Done   bool
	Finish string
	// Err says that the engine refused the request, or that the loop ended before it did.
	Err error
}

// Ready has a token when Take has something new. A stream submitted as whole has one only at its end.
func (s *Stream) Ready() <-chan struct{} { return s.ready }

// Take appends the ids that came since the last call to dst[:0].
func (s *Stream) Take(dst []uint32) ([]uint32, State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dst = append(dst[:0], s.ids...)
	s.ids = s.ids[:0]
	return dst, s.state
}

// Choice is the number that SubmitTo was given.
func (s *Stream) Choice() int { return s.choice }

// Done says whether everything is there to be taken.
func (s *Stream) Done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Done
}

// Abort makes the request leave the engine at the next step. It is harmless on a finished one.
func (s *Stream) Abort() { s.loop.post(letter{kind: abortLetter, stream: s}) }

// push gives a token and, with the last one, how the request ended: a reader must never see the last token
// without knowing that it is the last.
func (s *Stream) push(id uint32, cached int, finish string) {
	s.mu.Lock()
	s.ids = append(s.ids, id)
	s.state.Cached = cached
	s.state.Done, s.state.Finish = finish != "", finish
	s.mu.Unlock()
	if !s.whole || finish != "" {
		s.signal()
	}
}

// end ends a stream without a token.
func (s *Stream) end(finish string, err error) {
	s.mu.Lock()
	s.state.Done, s.state.Finish, s.state.Err = true, finish, err
	s.mu.Unlock()
	s.signal()
}

// endClosed ends a stream of a loop that is over, on the goroutine that submitted it.
func (s *Stream) endClosed() {
	s.mu.Lock()
	s.state.Done, s.state.Finish, s.state.Err = true, finishError, ErrClosed
	s.mu.Unlock()
	if s.sink != nil {
		if _, later := s.sink.News(s, nil); later {
			s.sink.Later()
		}
		return
	}
	s.signal()
}

// signal is for the loop goroutine, which sends what it put into the outbox at the end of its step.
func (s *Stream) signal() {
	if s.sink != nil {
		s.loop.out.put(s)
		return
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// TakeSound is Take for who cannot deal with errors: a stream that ended with one keeps everything, and ok is
// false.
func (s *Stream) TakeSound(dst []uint32) (ids []uint32, state State, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Err != nil {
		return dst[:0], s.state, false
	}
	dst = append(dst[:0], s.ids...)
	s.ids = s.ids[:0]
	return dst, s.state, true
}

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

	mu    sync.Mutex // guards ids and state
	ids   []uint32
	state State

	// Belonging to the loop goroutine.
	maxTokens  int
	lastMonoNs int64
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

func (s *Stream) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

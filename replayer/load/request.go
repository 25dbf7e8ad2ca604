package load

// Request is one planned request of a load.
type Request struct {
	// OffsetNs is when it should leave, nanoseconds after the start of the load. Offsets never decrease.
	OffsetNs int64
	// ID is sent as X-Request-Id; it should be unique within a run.
	ID string
	// Path is where it goes below the base URL; empty means /v1/completions.
	Path string
	// Body is the JSON to send; it must not change once handed over.
	Body []byte
	// Headers are sent besides Content-Type and X-Request-Id.
	Headers map[string]string
	// PromptTokens, MaxTokens, NewPrefix and Head (-1 for none) are copied to the record: what was asked
	// and how the prompt was made, which no answer repeats.
	PromptTokens int
	MaxTokens    int
	NewPrefix    bool
	Head         int
}

// Source hands out the requests of a load in scheduled order; false means there are no more. It is
// called from one goroutine, ahead of time, and need not be finite: Stop ends the load.
type Source interface {
	Next() (Request, bool)
}

// List is the Source of a slice.
func List(requests []Request) Source { return &list{rest: requests} }

type list struct{ rest []Request }

func (l *list) Next() (Request, bool) {
	if len(l.rest) == 0 {
		return Request{}, false
	}
	r := l.rest[0]
	l.rest = l.rest[1:]
	return r, true
}

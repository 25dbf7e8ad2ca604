package zsock

import (
	"bytes"
	"errors"
	"slices"

	"github.com/go-zeromq/zmq4"
)

// maxTopics bounds the subscriptions of one peer. A consumer of KV events has one.
const maxTopics = 1024

var errTooManyTopics = errors.New("too many subscriptions")

// filter is the set of topic prefixes a peer has subscribed to. It is never changed: with and without
// return a new one, so that a publisher can read one while the subscriber's next is being made.
type filter struct{ topics [][]byte }

// match reports whether a message with this first frame is for the subscriber.
func (f *filter) match(topic []byte) bool {
	for _, t := range f.topics {
		if bytes.HasPrefix(topic, t) {
			return true
		}
	}
	return false
}

func (f *filter) with(topic []byte) (*filter, error) {
	switch {
	case f.index(topic) >= 0:
		return f, nil
	case len(f.topics) == maxTopics:
		return nil, errTooManyTopics
	}
	return &filter{append(slices.Clone(f.topics), topic)}, nil
}

func (f *filter) without(topic []byte) *filter {
	i := f.index(topic)
	if i < 0 {
		return f
	}
	return &filter{slices.Delete(slices.Clone(f.topics), i, i+1)}
}

func (f *filter) index(topic []byte) int {
	return slices.IndexFunc(f.topics, func(t []byte) bool { return bytes.Equal(t, topic) })
}

// apply is what a subscriber's message or command makes of its filter: a message of one frame, 1 or 0 and
// then the topic, in ZMTP 3.0; a SUBSCRIBE or CANCEL command in ZMTP 3.1. Anything else changes nothing.
func (f *filter) apply(in incoming) (*filter, error) {
	switch {
	case in.command == zmq4.CmdSubscribe:
		return f.with(in.body)
	case in.command == zmq4.CmdCancel || in.command == zmq4.CmdUnsubscribe:
		return f.without(in.body), nil
	case len(in.frames) != 1 || len(in.frames[0]) == 0:
		return f, nil
	}
	switch topic := in.frames[0][1:]; in.frames[0][0] {
	case 1:
		return f.with(topic)
	case 0:
		return f.without(topic), nil
	}
	return f, nil
}

// subscription is the ZMTP 3.0 message that asks for a topic. Every peer understands it.
func subscription(topic string) message { return message{append([]byte{1}, topic...)} }

package tail

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"fleetdrill/internal/clock"
)

// CaptureVersion is the version of the capture format.
const CaptureVersion = 1

// Record is one line of a capture: first the head, of kind "capture", then what arrived, in order.
type Record struct {
	// Kind is capture, up, down, live or replay.
	Kind   string `json:"kind"`
	MonoNs int64  `json:"mono_ns"`
	Wall   string `json:"wall"`
	// Frames of a message as they came, in hex: topic, number, payload; of a replay answer an empty frame
	// first, and with old engines no topic. The end marker of an answer is recorded too. Over gRPC a message
	// is one frame, the bytes of a KvEventBatch.
	Frames []string `json:"frames,omitempty"`

	// Of the head only.
	Version int `json:"version,omitempty"`
	// Transport is zmq or grpc; a capture without one is of ZMQ.
	Transport string `json:"transport,omitempty"`
	Events    string `json:"events,omitempty"`
	Replay    string `json:"replay,omitempty"`
	Topic     string `json:"topic,omitempty"`
}

// recorder writes a capture; nil writes nothing. The first error sticks and ends the tail.
type recorder struct {
	w   io.Writer
	err error
}

func newRecorder(o Options) *recorder {
	if o.Record == nil {
		return nil
	}
	r := &recorder{w: o.Record}
	r.write(Record{Kind: "capture", MonoNs: clock.MonoNs(), Version: CaptureVersion, Transport: transportOf(o.Events), Events: o.Events, Replay: o.Replay, Topic: o.Topic})
	return r
}

func (r *recorder) write(rec Record) {
	if r == nil || r.err != nil {
		return
	}
	rec.Wall = clock.Wall()
	line, err := json.Marshal(rec)
	if err == nil {
		_, err = r.w.Write(append(line, '\n'))
	}
	if err != nil {
		r.err = fmt.Errorf("writing the capture: %w", err)
	}
}

func (r *recorder) frames(kind string, monoNs int64, frames [][]byte) {
	if r == nil {
		return
	}
	texts := make([]string, len(frames))
	for i, f := range frames {
		texts[i] = hex.EncodeToString(f)
	}
	r.write(Record{Kind: kind, MonoNs: monoNs, Frames: texts})
}

func (r *recorder) failed() error {
	if r == nil {
		return nil
	}
	return r.err
}

package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"fleetdrill/internal/badjson"
	"fleetdrill/internal/zsock"
)

// Config is vLLM's KVEventsConfig, the value of --kv-events-config.
type Config struct {
	EnableKVCacheEvents bool `json:"enable_kv_cache_events"`
	// Publisher is "zmq" or "null"; absent means zmq if events are enabled.
	Publisher *string `json:"publisher"`
	Endpoint  string  `json:"endpoint"`
	// ReplayEndpoint is nil without a replay socket.
	ReplayEndpoint *string `json:"replay_endpoint"`
	// BufferSteps is the number of batches kept for replay.
	BufferSteps int `json:"buffer_steps"`
	// HWM is the number of messages queued per subscriber before its messages are dropped; 0 drops none, as
	// in libzmq.
	HWM int `json:"hwm"`
	// MaxQueueSize is the number of batches between step loop and publisher; a full queue stops the steps.
	// 0 is a queue without bounds, as in Python.
	MaxQueueSize int    `json:"max_queue_size"`
	Topic        string `json:"topic"`
}

// DefaultConfig is what vLLM uses for keys that are not given.
func DefaultConfig() Config {
	return Config{Endpoint: "tcp://*:5557", BufferSteps: 10_000, HWM: 100_000, MaxQueueSize: 100_000}
}

// ParseConfig reads the JSON of --kv-events-config; empty text is the default, with events off. Unknown
// keys are refused, as the engine refuses them.
func ParseConfig(text string) (Config, error) {
	c := DefaultConfig()
	if text == "" {
		return c, nil
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("reading the KV events configuration: %w", badjson.Error(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Config{}, errors.New("reading the KV events configuration: something stands behind the JSON object")
	}
	if err := c.validate(); err != nil {
		return Config{}, fmt.Errorf("checking the KV events configuration: %w", err)
	}
	return c, nil
}

func (c Config) validate() error {
	if p := c.Publisher; p != nil && *p != "zmq" && *p != "null" {
		return fmt.Errorf("publisher is %q, must be zmq or null", *p)
	}
	for _, f := range []struct {
		key      string
		got, min int
	}{
		{"buffer_steps", c.BufferSteps, 0},
		{"hwm", c.HWM, 0},
		{"max_queue_size", c.MaxQueueSize, 0},
	} {
		if f.got < f.min {
			return fmt.Errorf("%s is %d, must be at least %d", f.key, f.got, f.min)
		}
	}
	return nil
}

// hwm is HWM as a socket takes it.
func (c Config) hwm() int {
	if c.HWM == 0 {
		return zsock.Unlimited
	}
	return c.HWM
}

// queueSize is MaxQueueSize as a queue takes it.
func (c Config) queueSize() int {
	if c.MaxQueueSize == 0 {
		return math.MaxInt
	}
	return c.MaxQueueSize
}

// Enabled says whether a publisher must run: publisher "null" turns it off although events are enabled.
func (c Config) Enabled() bool {
	return c.EnableKVCacheEvents && (c.Publisher == nil || *c.Publisher == "zmq")
}

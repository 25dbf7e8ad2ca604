package tail

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/zsock"
)

// Options say what to follow.
type Options struct {
	// Events and Replay are ZMQ endpoints, tcp://host:port or ipc://path, or both a gRPC port,
	// grpc://host:port, which serves either; Replay may be empty.
	Events, Replay string
	// From resumes a gRPC subscription behind that batch; 0 leaves the beginning to the engine.
	From uint64
	// Topic is the prefix of topics to subscribe to, over ZMQ.
	Topic string
	// Count ends after that many batches; 0 never does.
	Count int
	// Wait is how long the publisher may take to answer at first; 0 waits for ever.
	Wait time.Duration
	// Record takes the capture; nil records nothing.
	Record io.Writer
	// Algorithms are tried on the hashes, the first that fits wins.
	Algorithms []Algorithm
}

// replayTimeout bounds the silence of a replay socket: an idle vLLM looks at it every 100 ms.
const replayTimeout = 3 * time.Second

// schemeGRPC begins the endpoint of a gRPC port.
const schemeGRPC = "grpc://"

// OverGRPC says whether an endpoint is a gRPC port.
func OverGRPC(endpoint string) bool { return strings.HasPrefix(endpoint, schemeGRPC) }

func transportOf(endpoint string) string {
	if OverGRPC(endpoint) {
		return "grpc"
	}
	return "zmq"
}

// CheckEndpoint says what is wrong with an endpoint that a subscriber is to dial; nil when nothing is.
func CheckEndpoint(endpoint string) error {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	switch {
	case !ok:
		return fmt.Errorf("endpoint %q has no scheme: want tcp://HOST:PORT, ipc://PATH or grpc://HOST:PORT", endpoint)
	case scheme == "ipc" && rest != "":
		return nil
	case scheme != "tcp" && scheme != "grpc":
		return fmt.Errorf("endpoint %q: %s is no transport of KV events here, want tcp://HOST:PORT, ipc://PATH or grpc://HOST:PORT", endpoint, scheme)
	}
	host, port, err := net.SplitHostPort(rest)
	switch {
	case err != nil || port == "":
		return fmt.Errorf("endpoint %q: want %s://HOST:PORT", endpoint, scheme)
	case host == "*" || host == "":
		return fmt.Errorf("endpoint %q is where an engine binds: name its host, as in %s://127.0.0.1:%s", endpoint, scheme, port)
	}
	return nil
}

// Run follows until ctx ends, which is no error, or Count batches are out. It fails when the publisher
// does not answer within Wait, and when the capture cannot be written.
func Run(ctx context.Context, o Options, emit func(Line)) (err error) {
	if OverGRPC(o.Events) {
		return runGRPC(ctx, o, emit)
	}
	sub, err := zsock.DialSub(o.Events, zsock.SubOptions{Topic: o.Topic})
	if err != nil {
		return fmt.Errorf("subscribing to %s: %w", o.Events, err)
	}
	defer func() { err = errors.Join(err, sub.Close()) }()
	rec := newRecorder(o)
	var replay Replay
	if o.Replay != "" {
		replay = func(from uint64, take func(int64, uint64, []byte) bool) (bool, error) {
			return askReplay(ctx, o.Replay, from, rec, take)
		}
	}
	t := newTailer(o, replay, emit)
	if err := firstUp(ctx, sub, o, t, rec); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for !t.done && rec.failed() == nil {
		ev, err := sub.Recv(ctx)
		if err != nil {
			break // the end was asked for
		}
		step(t, ev, o.Events, rec)
	}
	t.end(clock.MonoNs())
	return rec.failed()
}

// firstUp waits for the publisher.
func firstUp(ctx context.Context, sub *zsock.Sub, o Options, t *tailer, rec *recorder) error {
	wait := ctx
	if o.Wait > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, o.Wait)
		defer cancel()
	}
	ev, err := sub.Recv(wait)
	if err != nil {
		return fmt.Errorf("no publisher answers at %s within %s: %w", o.Events, o.Wait, why(ctx, o.Events, errNoZMTP))
	}
	step(t, ev, o.Events, rec)
	return nil
}

var errNoZMTP = errors.New("something listens there that does not speak ZMQ")

// why tells why nobody answered, by dialling once more by hand: how far the tries got depends on the wait. mute
// is the reason when something listens there.
func why(ctx context.Context, endpoint string, mute error) error {
	scheme, addr, _ := strings.Cut(endpoint, "://")
	network := "tcp"
	if scheme == "ipc" {
		network = "unix"
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return err
	}
	return errors.Join(mute, c.Close())
}

func step(t *tailer, ev zsock.SubEvent, endpoint string, rec *recorder) {
	switch ev.Kind {
	case zsock.SubUp:
		rec.write(Record{Kind: "up", MonoNs: ev.MonoNs})
		t.up(ev.MonoNs, endpoint)
	case zsock.SubDown:
		rec.write(Record{Kind: "down", MonoNs: ev.MonoNs})
		t.down(ev.MonoNs, ev.Err)
	case zsock.SubMessage:
		rec.frames(SourceLive, ev.MonoNs, ev.Frames)
		t.message(ev.MonoNs, ev.Frames)
	}
}

// askReplay makes one request on a connection of its own.
func askReplay(ctx context.Context, endpoint string, from uint64, rec *recorder, take func(int64, uint64, []byte) bool) (topic bool, err error) {
	dealer, err := zsock.DialDealer(ctx, endpoint, zsock.DealerOptions{DialTimeout: replayTimeout})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dealer.Close()) }()
	if err := dealer.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return false, err
	}
	for {
		frames, err := recvWithin(ctx, dealer)
		if err != nil {
			return topic, err
		}
		now := clock.MonoNs()
		rec.frames(SourceReplay, now, frames)
		n := len(frames)
		if n != 3 && n != 4 || len(frames[n-2]) != 8 {
			return topic, fmt.Errorf("%s, want an empty one, perhaps a topic, 8 bytes of sequence number and a payload", lengths(frames))
		}
		topic = n == 4
		seq := binary.BigEndian.Uint64(frames[n-2])
		if seq == math.MaxUint64 || !take(now, seq, frames[n-1]) {
			return topic, nil
		}
	}
}

func recvWithin(ctx context.Context, d *zsock.Dealer) ([][]byte, error) {
	within, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	frames, err := d.Recv(within)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("nothing for %s", replayTimeout)
	}
	return frames, err
}

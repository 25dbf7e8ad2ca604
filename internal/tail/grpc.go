package tail

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"fleetdrill/internal/clock"
	pb "fleetdrill/internal/protos/smgcommon"
)

// services are those that publish SubscribeKvEvents, with the same messages; the first that a server has
// is taken.
var services = [...]string{
	"vllm.grpc.engine.VllmEngine", "sglang.grpc.scheduler.SglangScheduler", "tokenspeed.grpc.scheduler.TokenSpeedScheduler", "trtllm.TrtllmService",
}

const (
	// maxMessage bounds a message: a snapshot chunk of 2,048 long blocks takes some 5 MB.
	maxMessage = 64 << 20
	// headerWait is how long an accepted subscription may be without headers.
	headerWait = time.Second
	// retryEvery is the time between two tries to subscribe.
	retryEvery = 200 * time.Millisecond
	// pingEvery finds out that a silent engine is gone: 10 s is as often as gRPC lets a client ask.
	pingEvery = 10 * time.Second
)

// rawCodec hands messages on as the bytes they came in.
type rawCodec struct{}

// Marshal takes a request, which is a message.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encoding a %T: no message", v)
	}
	b, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal copies, because data is used again.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	out, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("decoding into a %T: no bytes", v)
	}
	*out = data.Materialize()
	return nil
}

// Name is the content type that every engine speaks.
func (rawCodec) Name() string { return "proto" }

func dialGRPC(endpoint string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(endpoint, schemeGRPC),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: retryEvery, Multiplier: 1, MaxDelay: retryEvery}, MinConnectTimeout: time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingEvery}))
	if err != nil {
		return nil, fmt.Errorf("dialling %s: %w", endpoint, err)
	}
	return conn, nil
}

// remote is an engine's gRPC port.
type remote struct {
	conn     *grpc.ClientConn
	endpoint string
	service  string // the one that it has, once known
	wg       sync.WaitGroup
}

// close ends whatever is open. The streams' contexts must be done.
func (r *remote) close() error {
	err := r.conn.Close()
	r.wg.Wait()
	return err
}

// subscribe opens a stream from a cursor on. It returns when the server accepted it or ctx ends.
func (r *remote) subscribe(ctx context.Context, start uint64) (grpc.ClientStream, error) {
	var err error
	for _, service := range services {
		if r.service != "" && service != r.service {
			continue
		}
		var st grpc.ClientStream
		if st, err = r.open(ctx, service, start); err == nil {
			r.service = service
			return st, nil
		}
		if !unknownService(err) {
			return nil, err
		}
	}
	return nil, err
}

func (r *remote) open(ctx context.Context, service string, start uint64) (grpc.ClientStream, error) {
	st, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+service+"/SubscribeKvEvents")
	if err != nil {
		return nil, err
	}
	if err := st.SendMsg(&pb.SubscribeKvEventsRequest{StartSequenceNumber: start}); err != nil {
		return nil, errors.Join(err, st.RecvMsg(new([]byte)))
	}
	if err := st.CloseSend(); err != nil {
		return nil, err
	}
	return st, r.accepted(st)
}

// accepted waits for the headers, which say that the subscription stands; some servers send none before
// their first message, so not for long. The error is the server's refusal.
func (r *remote) accepted(st grpc.ClientStream) error {
	done := make(chan error, 1)
	r.wg.Go(func() {
		header, err := st.Header()
		if err == nil && header == nil {
			err = errNoHeader
		}
		done <- err
	})
	timer := time.NewTimer(headerWait)
	defer timer.Stop()
	select {
	case err := <-done:
		if errors.Is(err, errNoHeader) { // a refusal without any
			return st.RecvMsg(new([]byte))
		}
		return err
	case <-timer.C:
		return nil
	}
}

var errNoHeader = errors.New("the stream ended without headers")

// unknownService says whether a server has no such service, rather than no events.
func unknownService(err error) bool {
	s, _ := status.FromError(err)
	return s.Code() == codes.Unimplemented && (strings.Contains(s.Message(), "unknown") || strings.Contains(s.Message(), "Method not found"))
}

// runGRPC is Run over gRPC: it subscribes, and again behind the last batch whenever the stream ends.
func runGRPC(ctx context.Context, o Options, emit func(Line)) (err error) {
	conn, err := dialGRPC(o.Events)
	if err != nil {
		return err
	}
	r := &remote{conn: conn, endpoint: o.Events}
	defer func() { err = errors.Join(err, r.close()) }()
	f := newFollowing(ctx, o, r, emit)
	if err := f.first(ctx, o.From); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("no KV events at %s: %w", o.Events, err)
	}
	for !f.t.done && f.rec.failed() == nil && pause(ctx, retryEvery) == nil {
		f.again(ctx)
	}
	f.t.end(clock.MonoNs())
	return f.rec.failed()
}

// following is a gRPC stream and those that follow it.
type following struct {
	o   Options
	r   *remote
	t   *tailer
	rec *recorder
	// start is the cursor of the next subscription. Resumed ones ask for the last batch once more, for
	// nothing else shows that it is another publisher's by now.
	start uint64
	last  uint64 // the last batch, 0 when nothing is resumed
}

func newFollowing(ctx context.Context, o Options, r *remote, emit func(Line)) *following {
	f := &following{o: o, r: r, rec: newRecorder(o), t: newTailer(o, nil, emit)}
	f.t.past, f.t.read = false, readMessage
	if o.Replay != "" {
		f.t.replay = func(from uint64, take func(int64, uint64, []byte) bool) (bool, error) {
			return false, r.refill(ctx, from, f.t.ranks.at, f.rec, take)
		}
		f.t.asked = true // there is no shape of answers to tell
	}
	return f
}

// first takes the first stream. The error is why there is none.
func (f *following) first(ctx context.Context, start uint64) error {
	st, cancel, err := f.r.subscribeWithin(ctx, start, f.o.Wait, true)
	defer cancel()
	if err != nil {
		return err
	}
	f.drink(ctx, st)
	return nil
}

// again takes one more stream, if there is one.
func (f *following) again(ctx context.Context) {
	st, cancel, err := f.r.subscribeWithin(ctx, f.start, f.o.Wait, false)
	defer cancel()
	switch {
	case ctx.Err() != nil:
	case err == nil:
		f.drink(ctx, st)
	case anew(err) && f.start < f.last: // perhaps only the repeat is out of reach
		f.start = f.last
	case anew(err):
		f.anew(clock.MonoNs(), status.Convert(err).Message())
	}
}

// drink takes messages until the stream ends or enough are out.
func (f *following) drink(ctx context.Context, st grpc.ClientStream) {
	f.rec.write(Record{Kind: "up", MonoNs: clock.MonoNs()})
	f.t.up(clock.MonoNs(), f.o.Events+" "+f.r.service)
	for !f.t.done && f.rec.failed() == nil {
		var raw []byte
		err := st.RecvMsg(&raw)
		now := clock.MonoNs()
		if err != nil {
			if ctx.Err() == nil {
				f.ended(now, err)
			}
			return
		}
		f.rec.frames(SourceLive, now, [][]byte{raw})
		repeat := f.start < f.last
		f.start = f.last // only the first message can be the repeat
		switch {
		case repeat && f.t.knows(raw, f.last):
		case repeat && f.t.disowns(raw, f.last):
			f.anew(now, fmt.Sprintf("batch %d is another one now", f.last))
			return
		default:
			f.t.pushed(now, raw)
		}
	}
}

// ended tells that a stream ended. The next one begins behind the last batch, or from nothing when the
// engine says that it counts anew.
func (f *following) ended(now int64, err error) {
	f.rec.write(Record{Kind: "down", MonoNs: now})
	f.t.down(now, err)
	f.last = f.t.resumeAt()
	if f.start = f.last; f.last > 1 {
		f.start--
	}
	if anew(err) {
		f.anew(now, "the engine ended the stream: "+status.Convert(err).Message())
	}
}

// anew begins from nothing.
func (f *following) anew(now int64, why string) {
	f.t.anew(now, why)
	f.start, f.last = 0, 0
}

// anew says whether an engine's numbers lead no further.
func anew(err error) bool {
	code := status.Code(err)
	return code == codes.OutOfRange || code == codes.DataLoss
}

// anew is a restart of all ranks.
func (t *tailer) anew(now int64, why string) {
	t.ranks = ranks{}
	t.restart(now, why)
}

// knows says whether a message is the last batch, seq, as it came before.
func (t *tailer) knows(message []byte, seq uint64) bool {
	f, err := frontOf(message)
	return err == nil && f.seq == seq && t.cursor.judge(seq, xxh3.Hash(message), true) == duplicate
}

// disowns says whether a message has the number of the last batch and is another one.
func (t *tailer) disowns(message []byte, seq uint64) bool {
	f, err := frontOf(message)
	return err == nil && f.seq == seq && t.cursor.judge(seq, xxh3.Hash(message), true) == restarted
}

// resumeAt is the cursor to resume from. Several ranks have no common one.
func (t *tailer) resumeAt() uint64 {
	if !t.cursor.placed || t.ranks.several() {
		return 0
	}
	return t.cursor.next - 1
}

// subscribeWithin tries until wait has passed, 0 being never; a server that answers with a refusal is not
// asked again. Later subscriptions are tried once. cancel ends the stream.
func (r *remote) subscribeWithin(ctx context.Context, start uint64, wait time.Duration, patient bool) (grpc.ClientStream, context.CancelFunc, error) {
	call, cancel := context.WithCancel(ctx)
	if wait > 0 {
		defer time.AfterFunc(wait, cancel).Stop()
	}
	var last error
	for {
		st, err := r.subscribe(call, start)
		if err == nil || !patient {
			return st, cancel, err
		}
		if status.Code(err) != codes.Unavailable && call.Err() == nil {
			return nil, cancel, err
		}
		if call.Err() == nil {
			last = err
		}
		if err := pause(call, retryEvery); err != nil {
			return nil, cancel, fmt.Errorf("nobody answers within %s: %w", wait, why(ctx, r.endpoint, silence(last)))
		}
	}
}

var errSilence = errors.New("something listens there that accepts no subscription")

// silence is errSilence with what the last try met, if any met something before the wait was over.
func silence(last error) error {
	if last == nil {
		return errSilence
	}
	return fmt.Errorf("%w: %w", errSilence, last)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refill takes what one rank sent from a number on out of a subscription of its own.
func (r *remote) refill(ctx context.Context, from uint64, rank int, rec *recorder, take func(int64, uint64, []byte) bool) error {
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(replayTimeout, func() { cancel(fmt.Errorf("nothing for %s", replayTimeout)) })
	defer silence.Stop()
	st, err := r.subscribe(call, from-min(from, 1))
	if err != nil {
		return cause(call, err)
	}
	for {
		var raw []byte
		if err := st.RecvMsg(&raw); err != nil {
			return cause(call, err)
		}
		silence.Reset(replayTimeout)
		now := clock.MonoNs()
		rec.frames(SourceReplay, now, [][]byte{raw})
		f, err := frontOf(raw)
		if err != nil {
			return err
		}
		if f.load != nil && loadOnly(f.load) || f.rank != rank {
			continue
		}
		if f.seq == math.MaxUint64 || !take(now, f.seq, raw) {
			return nil
		}
	}
}

func loadOnly(b []byte) bool {
	var l pb.EngineLoad
	return proto.Unmarshal(b, &l) == nil && l.GetLoadOnly()
}

func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && !slices.Contains([]error{context.Canceled, context.DeadlineExceeded}, c) {
		return c
	}
	return err
}

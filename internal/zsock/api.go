package zsock

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

type PubOptions struct {
	HWM          int
	WriteTimeout time.Duration
	Log          *slog.Logger
}
type PubStats struct {
	Peers                 int
	Sent, Dropped, Kicked uint64
}
type Pub struct{}

func NewPub(o PubOptions) *Pub                                { return &Pub{} }
func (p *Pub) Bind(endpoint string) (bound string, err error) { return "", errors.ErrUnsupported }
func (p *Pub) Connect(endpoint string) error                  { return errors.ErrUnsupported }
func (p *Pub) Send(frames ...[]byte)                          {}
func (p *Pub) Stats() PubStats                                { return PubStats{} }
func (p *Pub) Close() error                                   { return nil }

type SubOptions struct {
	Topic                  string
	Heartbeat              time.Duration
	BackoffMin, BackoffMax time.Duration
	Queue                  int
	MaxFrame               int64
	Log                    *slog.Logger
}
type SubKind int

const (
	SubUp SubKind = iota + 1
	SubDown
	SubMessage
)

type SubEvent struct {
	Kind   SubKind
	Frames [][]byte
	Err    error
	MonoNs int64
}
type Sub struct{}

func DialSub(endpoint string, o SubOptions) (*Sub, error) { return nil, errors.ErrUnsupported }
func (s *Sub) Recv(ctx context.Context) (SubEvent, error) { return SubEvent{}, errors.ErrUnsupported }
func (s *Sub) Redial()                                    {}
func (s *Sub) Close() error                               { return nil }

type RouterOptions struct {
	HWM      int
	MaxFrame int64
	Log      *slog.Logger
}
type RouterStats struct {
	Peers         int
	Sent, Dropped uint64
}
type Router struct{}
type Request struct{ Frames [][]byte }

func NewRouter(o RouterOptions) *Router                          { return &Router{} }
func (r *Router) Bind(endpoint string) (bound string, err error) { return "", errors.ErrUnsupported }
func (r *Router) Recv(ctx context.Context) (*Request, error)     { return nil, errors.ErrUnsupported }
func (r *Router) Stats() RouterStats                             { return RouterStats{} }
func (q *Request) Reply(frames ...[]byte) error                  { return errors.ErrUnsupported }
func (r *Router) Close() error                                   { return nil }

type DealerOptions struct {
	MaxFrame    int64
	DialTimeout time.Duration
}
type Dealer struct{}

func DialDealer(ctx context.Context, endpoint string, o DealerOptions) (*Dealer, error) {
	return nil, errors.ErrUnsupported
}
func (d *Dealer) Send(frames ...[]byte) error                { return errors.ErrUnsupported }
func (d *Dealer) Recv(ctx context.Context) ([][]byte, error) { return nil, errors.ErrUnsupported }
func (d *Dealer) Close() error                               { return nil }

// ErrClosed is returned by calls on a socket after its Close.
var ErrClosed = errors.New("zsock: socket closed")

package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"fleetdrill/internal/contract"
)

// Line reads one admin API over one connection of its own, for a sampler that asks the same thing ten
// times a second. It costs a third of what net/http's client does for that: no goroutines, no pool, no
// buffers made anew. One caller at a time.
type Line struct {
	addr  string // host:port
	token string
	conn  net.Conn // nil until the first question and after a failure
	in    *bufio.Reader
	body  bytes.Buffer
	out   []byte
}

// NewLine is a Line to an API; it connects when first asked.
func NewLine(a API) (*Line, error) {
	addr, err := HostPort(a.Base)
	return &Line{addr: addr, token: a.Token}, err
}

// Glance is the part of an engine's truth that changes ten times a second.
type Glance struct {
	Epoch int64        `json:"epoch"`
	Ranks []GlanceRank `json:"ranks"`
}

// GlanceRank is one rank of a Glance; see contract.TruthRank.
type GlanceRank struct {
	Rank            int          `json:"rank"`
	NextSeq         int64        `json:"next_seq"`
	AnnouncedBlocks int          `json:"announced_blocks"`
	Digest          contract.U64 `json:"digest"`
	Running         int          `json:"running"`
	Waiting         int          `json:"waiting"`
}

// Glance reads GET /admin/truth of a mock worker as far as a sample needs it.
func (l *Line) Glance(ctx context.Context) (Glance, error) {
	var g Glance
	return g, l.get(ctx, "/admin/truth", &g)
}

// RoutingState reads GET /routing/state of a gateway.
func (l *Line) RoutingState(ctx context.Context) (contract.RoutingState, error) {
	var s contract.RoutingState
	return s, l.get(ctx, "/routing/state", &s)
}

// Close ends the connection.
func (l *Line) Close() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// get asks once more on a new connection when the old one turns out to be dead: servers close idle ones.
func (l *Line) get(ctx context.Context, path string, out any) error {
	reused := l.conn != nil
	err := l.ask(ctx, path)
	if err != nil && reused && ctx.Err() == nil {
		err = l.ask(ctx, path)
	}
	if err != nil {
		return fmt.Errorf("reading http://%s%s: %w", l.addr, path, err)
	}
	if err := json.Unmarshal(l.body.Bytes(), out); err != nil {
		return fmt.Errorf("decoding http://%s%s: %w", l.addr, path, err)
	}
	return nil
}

// ask leaves the answer in body. A connection on which anything went wrong is not used again: what is
// left on it would be taken for the next answer.
func (l *Line) ask(ctx context.Context, path string) (err error) {
	if err := l.connect(ctx); err != nil {
		return err
	}
	conn := l.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if cut := !stop(); cut || err != nil {
			l.Close()
			err = errors.Join(err, context.Cause(ctx))
		}
	}()
	l.out = append(append(append(l.out[:0], "GET "...), path...), " HTTP/1.1\r\nHost: "...)
	l.out = append(append(l.out, l.addr...), "\r\n"...)
	if l.token != "" {
		l.out = append(append(append(l.out, "Authorization: Bearer "...), l.token...), "\r\n"...)
	}
	if _, err := conn.Write(append(l.out, "\r\n"...)); err != nil {
		return err
	}
	return l.answer()
}

func (l *Line) connect(ctx context.Context) error {
	if l.conn != nil {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", l.addr)
	if err != nil {
		return err
	}
	l.conn, l.in = conn, bufio.NewReaderSize(conn, 16<<10)
	return nil
}

func (l *Line) answer() error {
	resp, err := http.ReadResponse(l.in, nil)
	if err != nil {
		return err
	}
	l.body.Reset()
	if _, err := l.body.ReadFrom(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New("status " + strconv.Itoa(resp.StatusCode))
	}
	if resp.Close {
		l.Close()
	}
	return nil
}

package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

const (
	// maxMetrics bounds one /metrics answer, bytes; a real engine's is below 100 KB.
	maxMetrics = 4 << 20
	// drainHealth is read of a /health answer, bytes, so that it is an answer and not only a head.
	drainHealth = 4 << 10
)

// prober does the core's pings and polls.
type prober struct {
	pings *http.Client // a fresh connection each
	polls *http.Client
}

func newProber(timeout time.Duration) *prober {
	dialer := net.Dialer{Timeout: timeout}
	transport := func(keep bool) *http.Transport {
		return &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: !keep, DisableCompression: true,
			IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: 1}
	}
	return &prober{
		pings: &http.Client{Transport: transport(false), Timeout: timeout, CheckRedirect: noRedirect},
		polls: &http.Client{Transport: transport(true), Timeout: timeout, CheckRedirect: noRedirect},
	}
}

// noRedirect: an answer is an answer; following it would ask somebody else.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (p *prober) close() {
	p.pings.CloseIdleConnections()
	p.polls.CloseIdleConnections()
}

// ping asks /health and sorts what came.
func (p *prober) ping(ctx context.Context, url string) (PingResult, int) {
	resp, err := get(ctx, p.pings, url+"/health")
	if err != nil {
		if IsRefusal(err) {
			return PingRefused, 0
		}
		return PingSilent, 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, drainHealth))
	if resp.StatusCode == http.StatusOK {
		return PingOK, resp.StatusCode
	}
	return PingStatus, resp.StatusCode
}

// poll reads /metrics. answered is true for any answer; the record is nil when it held no load.
func (p *prober) poll(ctx context.Context, url string) (answered bool, r *Record, err error) {
	resp, err := get(ctx, p.polls, url+"/metrics")
	if err != nil {
		return false, nil, fmt.Errorf("polling load: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, drainHealth))
		return true, nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxMetrics))
	if err != nil {
		return true, nil, fmt.Errorf("reading load: %w", err)
	}
	rec, err := ParseMetrics(text)
	if err != nil {
		return true, nil, fmt.Errorf("reading load: %w", err)
	}
	return true, &rec, nil
}

func get(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// IsRefusal says whether err means that the peer's machine turned us away (refused, reset, or closed
// without an answer), as opposed to saying nothing.
func IsRefusal(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

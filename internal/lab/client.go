package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"fleetdrill/internal/contract"
)

// maxAnswer bounds any JSON answer the lab reads, in bytes. A routing state of 1,024 workers is under
// 1 MB.
const maxAnswer = 64 << 20

// NewHTTPClient is the client for admin APIs: keep-alive to many hosts, no compression, no redirects
// worth following, and a dial that fails quickly, since everything is on this machine.
func NewHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
		MaxIdleConns:        0,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}}
}

// API is a JSON client of one admin base URL.
type API struct {
	Base  string
	Token string
	HTTP  *http.Client
}

// Truth reads GET /admin/truth of a mock worker.
func (a API) Truth(ctx context.Context) (contract.Truth, error) {
	var t contract.Truth
	return t, a.get(ctx, "/admin/truth", &t)
}

// RoutingState reads GET /routing/state of a gateway.
func (a API) RoutingState(ctx context.Context) (contract.RoutingState, error) {
	var s contract.RoutingState
	return s, a.get(ctx, "/routing/state", &s)
}

// get reads one JSON document; an answer other than 200 is an error that carries the start of its body.
func (a API) get(ctx context.Context, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.Base+path, nil)
	if err != nil {
		return fmt.Errorf("building GET %s%s: %w", a.Base, path, err)
	}
	if a.Token != "" {
		req.Header.Set("Authorization", "Bearer "+a.Token)
	}
	resp, err := a.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("reading %s%s: %w", a.Base, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading %s%s: %w", a.Base, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("reading %s%s: status %d: %s", a.Base, path, resp.StatusCode, bytes.TrimSpace(body[:min(len(body), 200)]))
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("reading %s%s: %w", a.Base, path, err)
	}
	return nil
}

// HostPort is the host:port of a http:// or tcp:// URL.
func HostPort(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("reading endpoint %q: %w", raw, err)
	}
	if u.Port() == "" {
		return "", fmt.Errorf("reading endpoint %q: no port", raw)
	}
	return u.Host, nil
}

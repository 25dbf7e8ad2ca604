package load

import (
	"net"
	"net/http"
	"time"
)

// NewClient is an HTTP client for a load of up to maxConns open requests: it keeps every connection it
// opened, never asks for compression (a compressed stream arrives in lumps), never follows a proxy of
// the environment, and gives up on a connect after 2 s. It has no overall timeout: streams last as long
// as they last. Call CloseIdleConnections when done.
func NewClient(maxConns int) *http.Client {
	dialer := &net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			DisableCompression:  true,
			MaxIdleConns:        maxConns,
			MaxIdleConnsPerHost: maxConns,
			// Shorter than the keep-alive of common servers (vLLM's uvicorn: 5 s), so that the client drops
			// an idle connection before the server does.
			IdleConnTimeout: 4 * time.Second,
			// A prompt of 1,600 token ids is about 10 KB: one write for most, two for some.
			WriteBufferSize: 8 << 10,
			ReadBufferSize:  4 << 10,
		},
		// A redirect is an answer of the gateway like any other, not an invitation.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

package fleet

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	connectTimeout = time.Second
	// idleTimeout is below the 5 s after which vLLM and SGLang (uvicorn) close an idle connection, so that it is
	// ours to close and no request meets a closing one.
	idleTimeout = 4 * time.Second
	maxIdle     = 1024
)

// newTransport is the pool of connections for one worker's requests, counted in open: a worker that
// refuses new connections is dead only when none of these is left.
func newTransport(open *atomic.Int64) *http.Transport {
	dialer := net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			open.Add(1)
			return &countedConn{Conn: conn, open: open}, nil
		},
		MaxIdleConns:        maxIdle,
		MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true, // bytes pass as they are
	}
}

// countedConn leaves the count once, when it is closed.
type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

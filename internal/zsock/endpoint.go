package zsock

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"
)

// A peer that is gone without a word is noticed by the kernel after 5 s + 3 x 2 s, even on a connection on
// which nothing is ever sent; libzmq leaves this to the system default of two hours.
const (
	keepAliveIdle     = 5 * time.Second
	keepAliveInterval = 2 * time.Second
	keepAliveCount    = 3
)

// parseEndpoint splits a ZeroMQ endpoint into the network and address that package net understands. Only a
// binding endpoint may hold "*".
func parseEndpoint(endpoint string, bind bool) (network, address string, err error) {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	if !ok || rest == "" {
		return "", "", fmt.Errorf("endpoint %q: want tcp://HOST:PORT or ipc://PATH", endpoint)
	}
	switch scheme {
	case "ipc":
		return "unix", rest, nil
	case "tcp":
		address, err = tcpAddress(rest, bind)
		if err != nil {
			return "", "", fmt.Errorf("endpoint %q: %w", endpoint, err)
		}
		return "tcp", address, nil
	}
	return "", "", fmt.Errorf("endpoint %q: transport %q is not tcp or ipc", endpoint, scheme)
}

func tcpAddress(hostPort string, bind bool) (string, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return "", err
	}
	if !bind && (host == "*" || port == "*" || port == "0") {
		return "", fmt.Errorf("a wildcard can be bound, not dialled")
	}
	if host == "*" {
		host = "127.0.0.1"
	}
	if port == "*" {
		port = "0"
	}
	return net.JoinHostPort(host, port), nil
}

// listen binds an endpoint and returns it as a peer would dial it, with the real port.
func listen(endpoint string) (ln net.Listener, bound string, err error) {
	network, address, err := parseEndpoint(endpoint, true)
	if err != nil {
		return nil, "", err
	}
	if network == "unix" {
		if err := removeStale(address); err != nil {
			return nil, "", fmt.Errorf("binding %s: %w", endpoint, err)
		}
	}
	ln, err = net.Listen(network, address)
	if err != nil {
		return nil, "", fmt.Errorf("binding %s: %w", endpoint, err)
	}
	if network == "unix" {
		return ln, endpoint, nil
	}
	return ln, "tcp://" + ln.Addr().String(), nil
}

// removeStale unlinks the socket file that a killed process left behind, as libzmq does before it binds.
// Anything that is not a socket stays, and the bind then fails on it.
func removeStale(path string) error {
	if strings.HasPrefix(path, "@") { // abstract name: no file
		return nil
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return nil
	}
	return os.Remove(path)
}

// dial makes one attempt to reach an endpoint, at most timeout long.
func dial(ctx context.Context, endpoint string, timeout time.Duration) (net.Conn, error) {
	network, address, err := parseEndpoint(endpoint, false)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: timeout}
	nc, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("dialling %s: %w", endpoint, err)
	}
	return nc, nil
}

// tune sets the TCP options of a new connection; Go has already disabled Nagle's algorithm. An option that
// cannot be set means a connection that is already dead, which the handshake reports better.
func tune(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
		})
	}
}

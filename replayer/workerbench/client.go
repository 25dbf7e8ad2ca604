package workerbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// conn is one kept HTTP/1.1 connection with one request on it at a time.
type conn struct {
	net.Conn
	in *bufio.Reader
}

// dialTimeout bounds a connect; everything is on one machine or one network.
const dialTimeout = 5 * time.Second

// dial connects; the connection breaks when ctx ends, so that nobody waits for an answer for ever.
func dial(ctx context.Context, addr string, buffer int) (*conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	context.AfterFunc(ctx, func() { c.Close() })
	return &conn{c, bufio.NewReaderSize(c, buffer)}, nil
}

// post is the bytes of a POST of JSON.
func post(addr, path string, body []byte) []byte {
	b := []byte("POST " + path + " HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: application/json\r\nContent-Length: ")
	b = strconv.AppendInt(b, int64(len(body)), 10)
	return append(append(b, "\r\n\r\n"...), body...)
}

// errStatus is an answer other than 200.
var errStatus = errors.New("answer is not 200")

// do sends a request and gives the answer's body to read. Whatever read leaves is thrown away.
func (c *conn) do(request []byte, read func(io.Reader) error) error {
	if _, err := c.Write(request); err != nil {
		return fmt.Errorf("sending a request: %w", err)
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // for the message only
		return fmt.Errorf("%w: %s %s", errStatus, resp.Status, text)
	}
	if read != nil {
		if err := read(resp.Body); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// get fetches one page over a connection of its own.
func get(ctx context.Context, addr, path string) ([]byte, error) {
	c, err := dial(ctx, addr, 64<<10)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var page []byte
	err = c.do([]byte("GET "+path+" HTTP/1.1\r\nHost: "+addr+"\r\n\r\n"), func(r io.Reader) error {
		page, err = io.ReadAll(io.LimitReader(r, 16<<20))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("getting http://%s%s: %w", addr, path, err)
	}
	return page, nil
}

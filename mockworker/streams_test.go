package mockworker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// A thousand streams at once: one in ten stops reading, one in ten hangs up in the middle. All others get every
// token and a whole end, and their connection serves another request.
func TestAThousandStreams(t *testing.T) {
	const streams, length = 1000, 12
	f := start(t, func(c *Config) { c.Profile, c.MaxNumSeqs = "drill", streams })
	addr := strings.TrimPrefix(f.worker().HTTP, "http://")
	stuck := make(chan net.Conn, streams)
	var g errgroup.Group
	for i := range streams {
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":"story %d"}],"max_tokens":%d,"stream":true}`, i, length)
		request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		g.Go(func() error {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return err
			}
			if err := conn.SetDeadline(time.Now().Add(6 * patience)); err != nil {
				return err
			}
			if _, err := io.WriteString(conn, request); err != nil {
				return err
			}
			in := bufio.NewReader(conn)
			switch i % 10 {
			case 0:
				stuck <- conn
				return nil
			case 1:
				_, _ = in.ReadString('\n') // the answer has begun
				return conn.Close()
			}
			defer conn.Close()
			for again := range 2 {
				if again > 0 {
					if _, err := io.WriteString(conn, request); err != nil {
						return err
					}
				}
				if err := wholeStream(in, length); err != nil {
					return fmt.Errorf("stream %d, answer %d: %w", i, again, err)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	f.eventually("rest", func() bool {
		r := f.truth().Ranks[0]
		return r.Running == 0 && r.Waiting == 0 && r.KVUsage == 0
	})
	close(stuck)
	for conn := range stuck { // what it did not read is there
		if err := wholeStream(bufio.NewReader(conn), length); err != nil {
			t.Errorf("a late reader: %v", err)
		}
		conn.Close()
	}
}

// wholeStream reads one answer, which must have so many tokens and a clean end.
func wholeStream(in *bufio.Reader, tokens int) error {
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	// One event for each token, and one with the role before.
	if got := strings.Count(string(text), "data: {") - 1; resp.StatusCode != http.StatusOK || got != tokens || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		return fmt.Errorf("%s with %d tokens: %q", resp.Status, got, text)
	}
	return nil
}

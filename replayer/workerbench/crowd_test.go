package workerbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

const (
	roleEvent  = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	tokenEvent = `data: {"choices":[{"index":0,"delta":{"content":"word"}}]}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"
)

// chunked is a whole answer as it is on the wire, each event a chunk.
func chunked(tokens int) string {
	b := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	events := append(append([]string{roleEvent}, slices.Repeat([]string{tokenEvent}, tokens)...), doneEvent)
	for _, e := range events {
		b += fmt.Sprintf("%x\r\n%s\r\n", len(e), e)
	}
	return b + "0\r\n\r\n"
}

// Tokens are counted, and the end is found, however the network cuts the stream.
func TestStreamsAreCountedInAnyCut(t *testing.T) {
	text := []byte(chunked(7))
	for size := 1; size <= len(text); size++ {
		var g gaps
		over := false
		for rest := text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			var err error
			if over {
				t.Fatalf("reads of %d bytes: over with %d bytes left", size, len(rest))
			}
			if over, err = g.take(time.Now(), rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if g.tokens != 7 || !over {
			t.Errorf("reads of %d bytes: %d tokens, over %t", size, g.tokens, over)
		}
	}
}

// Gaps are between the reads that brought tokens; those of one read have one gap before them.
func TestGapsBetweenReads(t *testing.T) {
	begin := time.Now()
	var g gaps
	for _, r := range []struct {
		at   time.Duration
		text string
	}{{0, "HTTP/1.1 200 OK\r\n\r\n" + roleEvent}, {5, tokenEvent}, {9, "\r\n"}, {15, tokenEvent + tokenEvent}, {35, tokenEvent}} {
		if _, err := g.take(begin.Add(r.at), []byte(r.text)); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(g.tokens, g.ns); got != "4 [10 20]" {
		t.Errorf("tokens and gaps: %s", got)
	}
}

// A crowd reads answers to their ends, and says what was wrong with one that has none.
func TestCrowd(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		err    error
	}{
		"whole": {answer: func(w http.ResponseWriter, r *http.Request) {
			flushEach(w, roleEvent, tokenEvent, tokenEvent, doneEvent)
		}},
		"not chunked": {answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			w.Header().Set("Transfer-Encoding", "identity")
			flushEach(w, roleEvent, tokenEvent, tokenEvent, doneEvent)
		}},
		"refused": {answer: func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) }, err: errStatus},
		"breaks off": {err: io.ErrUnexpectedEOF, answer: func(w http.ResponseWriter, r *http.Request) {
			flushEach(w, roleEvent, tokenEvent)
			panic(http.ErrAbortHandler)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(c.answer)
			defer srv.Close()
			addr := srv.Listener.Addr().String()
			crowd, err := newCrowd(context.Background(), addr, 5, 2)
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(crowd.run(context.Background(), post(addr, "/", []byte("{}"))), crowd.close())
			if !errors.Is(err, c.err) {
				t.Errorf("ended with %v, want %v", err, c.err)
			}
			if tokens := crowd.into(map[string][]float64{}); c.err == nil && tokens != 10 {
				t.Errorf("%d tokens", tokens)
			}
		})
	}
}

// A crowd whose streams stand still ends with its context.
func TestCrowdEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var open atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		flushEach(w, roleEvent)
		if open.Add(1) == 2 {
			cancel()
		}
		<-r.Context().Done()
	}))
	defer srv.Close()
	addr := srv.Listener.Addr().String()
	crowd, err := newCrowd(ctx, addr, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := crowd.run(ctx, post(addr, "/", []byte("{}"))); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if err := crowd.close(); err != nil {
		t.Error(err)
	}
}

func flushEach(w http.ResponseWriter, events ...string) {
	for _, e := range events {
		_, _ = io.WriteString(w, e)
		w.(http.Flusher).Flush()
	}
}

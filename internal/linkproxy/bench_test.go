package linkproxy

import (
	"io"
	"net"
	"testing"
)

// BenchmarkRoundTrip is one request and one response of 1 KB on a kept connection: what the proxy adds
// is the difference to direct.
func BenchmarkRoundTrip(b *testing.B) {
	request := "POST /v1/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + string(make([]byte, 1000))
	response := "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + string(make([]byte, 1000))
	addr, accepted := listen(b)
	run := func(b *testing.B, client, upstream net.Conn) {
		go func() {
			buf := make([]byte, len(request))
			for {
				if _, err := io.ReadFull(upstream, buf); err != nil {
					return
				}
				if _, err := io.WriteString(upstream, response); err != nil {
					return
				}
			}
		}()
		buf := make([]byte, len(response))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := io.WriteString(client, request); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(client, buf); err != nil {
				b.Fatal(err)
			}
		}
		client.Close()
	}
	b.Run("direct", func(b *testing.B) {
		client := dial(b, addr)
		run(b, client, <-accepted)
	})
	b.Run("counted", func(b *testing.B) {
		client, upstream := connect(b, startProxy(b, addr, false), accepted)
		run(b, client, upstream)
	})
	b.Run("http", func(b *testing.B) {
		client, upstream := connect(b, startProxy(b, addr, true), accepted)
		run(b, client, upstream)
	})
}

// BenchmarkDialog is the log's own work for one request and its stream of 64 events.
func BenchmarkDialog(b *testing.B) {
	request := []byte("POST /v1/completions HTTP/1.1\r\nHost: w1\r\nContent-Length: 1000\r\n\r\n" + string(make([]byte, 1000)))
	head := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	event := []byte("80\r\n" + string(make([]byte, 128)) + "\r\n")
	end := []byte("0\r\n\r\n")
	d := newDialog()
	b.ReportAllocs()
	for b.Loop() {
		d.request(1, request)
		d.response(2, head)
		for range 64 {
			d.response(3, event)
		}
		d.response(4, end)
		if len(d.changes) != 2 {
			b.Fatal("the request was not followed")
		}
		d.changes = d.changes[:0]
	}
}

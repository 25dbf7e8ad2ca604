package linkproxy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestDialog runs the scripts in testdata/dialog. Commands:
//
//	connect          a new connection; time starts at 0 and grows by 1 with every command
//	up, down         bytes from the client, from the upstream: escapes as in Go, line ends of the script
//	                 do not count; bytewise feeds them one at a time
//	client-left      the client closes its side
//	end WHY          the connection ends: upstream-closed, upstream-reset, upstream-refused, client-gone
//	                 or proxy-closed
//
// The output is what happened to requests, then "opaque" if the connection is not followed any more.
func TestDialog(t *testing.T) {
	whys := map[string]ending{
		"upstream-closed": upstreamClosed, "upstream-reset": upstreamReset, "upstream-refused": upstreamRefused,
		"client-gone": clientGone, "proxy-closed": proxyClosed,
	}
	datadriven.Walk(t, "testdata/dialog", func(t *testing.T, path string) {
		var d dialog
		var now int64
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			now++
			feed := func(to func(int64, []byte)) {
				b := unescape(t, td.Input)
				if !td.HasArg("bytewise") {
					to(now, b)
					return
				}
				for i := range b {
					to(now, b[i:i+1])
				}
			}
			switch td.Cmd {
			case "connect":
				d, now = newDialog(), 0
			case "up":
				feed(d.request)
			case "down":
				feed(d.response)
			case "client-left":
				d.clientLeft()
			case "end":
				why, ok := whys[td.CmdArgs[0].Key]
				if !ok {
					td.Fatalf(t, "unknown ending %s", td.CmdArgs[0].Key)
				}
				d.end(now, why)
			default:
				td.Fatalf(t, "unknown command %s", td.Cmd)
			}
			out := render(d.changes)
			d.changes = nil
			if d.opaque {
				out += "opaque\n"
			}
			return out
		})
	})
}

func unescape(t *testing.T, s string) []byte {
	t.Helper()
	var b []byte
	for _, line := range strings.Split(s, "\n") {
		u, err := strconv.Unquote(`"` + line + `"`)
		if err != nil {
			t.Fatalf("input %s: %v", line, err)
		}
		b = append(b, u...)
	}
	return b
}

func render(changes []change) string {
	var b strings.Builder
	for _, c := range changes {
		if c.begin {
			fmt.Fprintf(&b, "%d begin %s %s\n", c.now, c.method, c.path)
		} else {
			fmt.Fprintf(&b, "%d %s %d\n", c.now, c.outcome, c.status)
		}
	}
	return b.String()
}

// exchange is one request and its response as bytes, and what the log must say about them.
type exchange struct {
	up, down []byte
	method   string
	path     string
	status   int
}

func (e exchange) want() []change {
	return []change{
		{begin: true, method: e.method, path: e.path},
		{outcome: OutcomeOK, status: e.status},
	}
}

func drawExchange(t *rapid.T) exchange {
	e := exchange{
		method: rapid.SampledFrom([]string{"GET", "POST", "HEAD", "PUT"}).Draw(t, "method"),
		path:   rapid.SampledFrom([]string{"/health", "/v1/completions", "/a?b=c%20d", "*"}).Draw(t, "path"),
		status: rapid.SampledFrom([]int{200, 204, 304, 404, 500, 503}).Draw(t, "status"),
	}
	var up, down bytes.Buffer
	if rapid.IntRange(0, 9).Draw(t, "blank") == 0 {
		up.WriteString("\r\n")
	}
	fmt.Fprintf(&up, "%s %s HTTP/1.1\r\nHost: x\r\n", e.method, e.path)
	writeBody(t, &up, e.method == "GET" || e.method == "HEAD")

	if rapid.IntRange(0, 4).Draw(t, "interim") == 0 {
		down.WriteString("HTTP/1.1 100 Continue\r\nX-Y: z\r\n\r\n")
	}
	fmt.Fprintf(&down, "HTTP/1.1 %d%s\r\nDate: now\r\n", e.status, rapid.SampledFrom([]string{" OK", " ", "", " Not Modified: yet"}).Draw(t, "reason"))
	switch {
	case e.method == "HEAD" || e.status == 304:
		down.WriteString("Content-Length: 1234\r\n\r\n") // of the body that is not sent
	case e.status == 204:
		down.WriteString("\r\n")
	default:
		writeBody(t, &down, false)
	}
	e.up, e.down = up.Bytes(), down.Bytes()
	return e
}

// writeBody ends the headers and writes a body in one of the ways to frame it.
func writeBody(t *rapid.T, b *bytes.Buffer, none bool) {
	// Bodies look like messages, so that a framer that loses its place is found out.
	body := rapid.SliceOfN(rapid.SampledFrom([]byte("GET / HTTP/1.1\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\x00\xff")), 0, 200).Draw(t, "body")
	switch kind := rapid.IntRange(0, 1).Draw(t, "framing"); {
	case none:
		b.WriteString("\r\n")
	case kind == 0:
		fmt.Fprintf(b, "cOntent-leNgth:\t%d \r\n\r\n%s", len(body), body)
	default:
		b.WriteString("Transfer-Encoding: gzip, Chunked\r\n\r\n")
		for len(body) > 0 {
			n := rapid.IntRange(1, len(body)).Draw(t, "chunk")
			fmt.Fprintf(b, "%x%s\r\n%s\r\n", n, rapid.SampledFrom([]string{"", ";x=y", " "}).Draw(t, "ext"), body[:n])
			body = body[n:]
		}
		b.WriteString(rapid.SampledFrom([]string{"0\r\n\r\n", "000\r\nX-Sum: 1\r\n\r\n"}).Draw(t, "end"))
	}
}

// pieces cuts b anywhere.
func pieces(t *rapid.T, b []byte) [][]byte {
	var out [][]byte
	for len(b) > 0 {
		n := rapid.IntRange(1, len(b)).Draw(t, "piece")
		out = append(out, b[:n])
		b = b[n:]
	}
	return out
}

var changeCmp = cmp.AllowUnexported(change{})

// Whatever the pieces in which they come, requests and responses are found, pipelined or not.
func TestEveryExchangeIsFoundInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDialog()
		var want []change
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			var up, down []byte
			var begins, ends []change
			for range rapid.IntRange(1, 3).Draw(t, "pipelined") {
				e := drawExchange(t)
				up, down = append(up, e.up...), append(down, e.down...)
				begins, ends = append(begins, e.want()[0]), append(ends, e.want()[1])
			}
			want = append(append(want, begins...), ends...)
			for _, p := range pieces(t, up) {
				d.request(0, p)
			}
			for _, p := range pieces(t, down) {
				d.response(0, p)
			}
		}
		if d.opaque {
			t.Fatal("valid HTTP made the dialog opaque")
		}
		if diff := cmp.Diff(want, d.changes, changeCmp); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}

// Bytes that are no HTTP, or HTTP that breaks off, give the same log in any pieces, keep little, and
// leave no request behind when the connection ends.
func FuzzDialog(f *testing.F) {
	f.Add([]byte("POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n"), []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nHTTP/1.0 500 x\r\n\r\nrest"), uint8(3))
	f.Add([]byte("CONNECT a:1 HTTP/1.1\r\n\r\n\x16\x03"), []byte("HTTP/1.1 100 x\r\n\r\nHTTP/1.1 200\r\n\r\n"), uint8(1))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), []byte{}, uint8(2))
	f.Add(bytes.Repeat([]byte("A"), 9000), []byte("HTTP/1.1 101 Switching Protocols\r\n\r\n"), uint8(200))
	f.Fuzz(func(t *testing.T, up, down []byte, size uint8) {
		whole, cut := newDialog(), newDialog()
		whole.request(0, up)
		whole.response(0, down)
		n := int(size) + 1
		for i := 0; i < len(up); i += n {
			cut.request(0, up[i:min(i+n, len(up))])
		}
		for i := 0; i < len(down); i += n {
			cut.response(0, down[i:min(i+n, len(down))])
		}
		for _, d := range []*dialog{&whole, &cut} {
			if kept := max(len(d.up.line), len(d.down.line)); kept > maxLine {
				t.Errorf("%d bytes of a line are kept", kept)
			}
			d.end(0, upstreamClosed)
			begun := 0
			for _, c := range d.changes {
				if c.begin {
					begun++
				}
			}
			if len(d.changes) != 2*begun {
				t.Errorf("%d changes for %d requests", len(d.changes), begun)
			}
		}
		if whole.opaque != cut.opaque {
			t.Errorf("opaque %v in one piece, %v in pieces of %d", whole.opaque, cut.opaque, n)
		}
		if diff := cmp.Diff(whole.changes, cut.changes, changeCmp); diff != "" {
			t.Errorf("pieces of %d: (-whole +cut)\n%s", n, diff)
		}
	})
}

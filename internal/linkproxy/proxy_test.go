package linkproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fleetdrill/internal/deadport"
	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds what would hang. It is no expectation: a test that needs it has failed.
const patience = time.Minute

// startProxy starts a proxy in front of upstream.
func startProxy(t testing.TB, upstream string, http bool) *Proxy {
	t.Helper()
	return start(t, New(Options{Upstream: upstream, HTTP: http}))
}

func start(t testing.TB, p *Proxy) *Proxy {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// serveHTTP starts an HTTP server and returns its address and a client that keeps its connections.
func serveHTTP(t testing.TB, h http.HandlerFunc) (addr string, client *http.Client) {
	t.Helper()
	srv := httptest.NewServer(h)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.Listener.Addr().String(), &http.Client{Transport: transport}
}

// listen accepts raw connections and hands them over.
func listen(t testing.TB) (addr string, accepted <-chan *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan *net.TCPConn)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			select {
			case conns <- c.(*net.TCPConn):
			case <-done:
				c.Close()
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		close(done)
		wg.Wait()
	})
	return l.Addr().String(), conns
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// connect dials through p and returns both ends of the way.
func connect(t testing.TB, p *Proxy, accepted <-chan *net.TCPConn) (client, upstream *net.TCPConn) {
	t.Helper()
	client = dial(t, p.Addr())
	upstream = <-accepted
	upstream.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { upstream.Close() })
	return client, upstream
}

func write(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func expectBytes(t testing.TB, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q (%v), want %q", got, err, want)
	}
}

func expectEnd(t testing.TB, c net.Conn, want error) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, want) {
		t.Fatalf("read %d bytes and %v, want %v", n, err, want)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// expectLog waits until the proxy's log reads so, without times.
func expectLog(t testing.TB, p *Proxy, want ...RequestLog) {
	t.Helper()
	for i := range want {
		want[i].N = i
	}
	noTimes := cmpopts.IgnoreFields(RequestLog{}, "StartMonoNs", "EndMonoNs")
	var diff string
	deadline := time.Now().Add(patience)
	for {
		if diff = cmp.Diff(want, p.Requests(0), noTimes); diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("log (-want +got)\n%s", diff)
		}
		time.Sleep(time.Millisecond)
	}
}

const post = "POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"

func logged(o Outcome, status int) RequestLog {
	return RequestLog{Method: "POST", Path: "/v1/completions", Outcome: o, Status: status}
}

func TestKeepAliveRequestsAreLoggedOneByOne(t *testing.T) {
	addr, client := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, n)
	})
	p := startProxy(t, addr, true)
	url := "http://" + p.Addr()
	do := func(method, path string, body int) {
		r, err := http.NewRequest(method, url+path, strings.NewReader(strings.Repeat("x", body)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got, _ := io.ReadAll(resp.Body); string(got) != fmt.Sprint(body) {
			t.Errorf("%s %s: the server read %s bytes, want %d", method, path, got, body)
		}
	}
	do("GET", "/health", 0)
	do("POST", "/v1/completions", 1_000_000)
	do("POST", "/busy", 10)
	do("GET", "/metrics?x=1", 0)
	expectLog(t, p,
		RequestLog{Method: "GET", Path: "/health", Outcome: OutcomeOK, Status: 200},
		RequestLog{Method: "POST", Path: "/v1/completions", Outcome: OutcomeOK, Status: 200},
		RequestLog{Method: "POST", Path: "/busy", Outcome: OutcomeOK, Status: 503},
		RequestLog{Method: "GET", Path: "/metrics?x=1", Outcome: OutcomeOK, Status: 200},
	)
	s := p.Stats()
	if s.Attempts != 2 || s.Probes != 2 || s.Open != 0 || s.Conns != 1 || s.Live != 1 || s.Opaque != 0 {
		t.Errorf("stats %+v, want 2 attempts and 2 probes on one connection", s)
	}
	if s.BytesUp < 1_000_010 || s.BytesDown == 0 {
		t.Errorf("stats %+v, want the bytes counted", s)
	}
	for i, r := range p.Requests(0) {
		if r.StartMonoNs == 0 || r.EndMonoNs < r.StartMonoNs {
			t.Errorf("request %d has times %d..%d", i, r.StartMonoNs, r.EndMonoNs)
		}
	}
	if got := p.Requests(3); len(got) != 1 || got[0].N != 3 {
		t.Errorf("from 3 on: %+v", got)
	}
}

// Each event of a stream passes when it is sent, and the request is open until the stream ends.
func TestStreamPassesEventByEvent(t *testing.T) {
	next := make(chan struct{})
	addr, client := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; i < 3; i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	})
	p := startProxy(t, addr, true)
	resp, err := client.Post("http://"+p.Addr()+"/v1/completions", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewReader(resp.Body)
	for i := 0; i < 3; i++ {
		// The server sends no further event before this one is here.
		if line, err := events.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d: %q, %v", i, line, err)
		}
		events.ReadString('\n')
		if s := p.Stats(); s.Open != 1 {
			t.Errorf("open %d during the stream, want 1", s.Open)
		}
		if r := p.Requests(0)[0]; r.Outcome != OutcomeOpen || r.EndMonoNs != 0 {
			t.Errorf("during the stream the log says %+v", r)
		}
		next <- struct{}{}
	}
	if _, err := events.ReadByte(); err != io.EOF {
		t.Fatalf("end of the stream: %v", err)
	}
	expectLog(t, p, logged(OutcomeOK, 200))
	if s := p.Stats(); s.Open != 0 {
		t.Errorf("open %d after the stream, want 0", s.Open)
	}
}

func TestResetInMidStreamReachesTheClient(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, true)
	client, upstream := connect(t, p, accepted)
	write(t, client, post)
	expectBytes(t, upstream, post)
	const part = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
	write(t, upstream, part)
	expectBytes(t, client, part)
	reset(upstream)
	expectEnd(t, client, syscall.ECONNRESET)
	expectLog(t, p, logged(OutcomeReset, 200))
	eventually(t, "the link is gone", func() bool { return p.Stats().Live == 0 })
}

func TestEarlyCloseReachesTheClientAsClose(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, true)
	client, upstream := connect(t, p, accepted)
	write(t, client, post)
	expectBytes(t, upstream, post)
	write(t, upstream, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
	upstream.Close()
	got, err := io.ReadAll(client)
	if err != nil || !bytes.HasSuffix(got, []byte("half")) {
		t.Errorf("read %q, %v, want the half and a clean end", got, err)
	}
	expectLog(t, p, logged(OutcomeCut, 200))
}

func TestClientResetReachesTheUpstream(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, true)
	client, upstream := connect(t, p, accepted)
	write(t, client, post)
	expectBytes(t, upstream, post)
	reset(client)
	expectEnd(t, upstream, syscall.ECONNRESET)
	expectLog(t, p, logged(OutcomeAborted, 0))
	eventually(t, "the link is gone", func() bool { return p.Stats().Live == 0 })
}

// A client that closes in the middle of a stream looks like one that only has no more to send; the next
// bytes of the stream tell.
func TestClientCloseInMidStreamReachesTheUpstream(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, true)
	client, upstream := connect(t, p, accepted)
	write(t, client, post)
	expectBytes(t, upstream, post)
	client.Close()
	expectEnd(t, upstream, io.EOF)
	write(t, upstream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
	eventually(t, "the upstream's writes fail", func() bool {
		_, err := io.WriteString(upstream, "5\r\nhello\r\n")
		return err != nil
	})
	expectLog(t, p, logged(OutcomeAborted, 200))
}

func TestHalfClose(t *testing.T) {
	for _, isHTTP := range []bool{false, true} {
		addr, accepted := listen(t)
		p := startProxy(t, addr, isHTTP)
		client, upstream := connect(t, p, accepted)

		// The client is done sending and still reads.
		write(t, client, "ping")
		client.CloseWrite()
		got, err := io.ReadAll(upstream)
		if err != nil || string(got) != "ping" {
			t.Errorf("the upstream read %q, %v", got, err)
		}
		write(t, upstream, "pong")
		expectBytes(t, client, "pong")
		upstream.Close()
		expectEnd(t, client, io.EOF)

		// And the other way round.
		client, upstream = connect(t, p, accepted)
		upstream.CloseWrite()
		expectEnd(t, client, io.EOF)
		write(t, client, "late")
		expectBytes(t, upstream, "late")
		client.Close()
		expectEnd(t, upstream, io.EOF)
		eventually(t, "the links are gone", func() bool { return p.Stats().Live == 0 })
	}
}

// A client that goes on sending to an upstream that has closed gets the reset it would get directly.
func TestSendingToAClosedUpstreamIsReset(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, false)
	client, upstream := connect(t, p, accepted)
	upstream.Close()
	expectEnd(t, client, io.EOF)
	eventually(t, "the client's writes fail", func() bool {
		_, err := io.WriteString(client, "anybody there?")
		return err != nil
	})
}

// startRefusing starts a proxy whose upstream refuses and which is patient with clients: how late their requests
// come does not depend on the machine.
func startRefusing(t testing.TB) *Proxy {
	t.Helper()
	p := New(Options{Upstream: deadport.New(t), HTTP: true})
	p.refusedWaits = int(patience / refusedWait)
	return start(t, p)
}

// A client of a refused upstream is reset as soon as the log has its request, or knows that there is none.
func TestRefusedUpstream(t *testing.T) {
	p := startRefusing(t)
	for _, request := range []string{post, "GET /health HTTP/1.1\r\n", "\x16\x03\x01\n"} {
		client := dial(t, p.Addr())
		write(t, client, request)
		expectEnd(t, client, syscall.ECONNRESET)
	}
	gone := dial(t, p.Addr())
	gone.CloseWrite()
	expectEnd(t, gone, syscall.ECONNRESET)
	expectLog(t, p, logged(OutcomeRefused, 0), RequestLog{Method: "GET", Path: "/health", Outcome: OutcomeRefused})
	if s := p.Stats(); s.Refused != 4 || s.Attempts != 1 || s.Probes != 1 || s.Open != 0 || s.Opaque != 1 {
		t.Errorf("stats %+v, want 4 refused, 1 attempt, 1 probe, none open, 1 opaque", s)
	}

	raw := startProxy(t, deadport.New(t), false)
	// Without a request line to wait for, the reset may come before the client has seen its connect succeed.
	if client, err := net.Dial("tcp", raw.Addr()); err == nil {
		expectEnd(t, client, syscall.ECONNRESET)
		client.Close()
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if s := raw.Stats(); s.Refused != 1 || s.Conns != 1 {
		t.Errorf("stats %+v, want one connection, refused", s)
	}
}

// A client that says nothing is reset after a while.
func TestRefusedSilentClient(t *testing.T) {
	p := startProxy(t, deadport.New(t), true)
	expectEnd(t, dial(t, p.Addr()), syscall.ECONNRESET)
	if s := p.Stats(); s.Refused != 1 || s.Attempts+s.Probes != 0 {
		t.Errorf("stats %+v, want one connection, refused, without a request", s)
	}
}

// A request that comes late, as from a client on a busy machine, is not missed: a wait that has run out is
// not the end.
func TestRefusedLateRequest(t *testing.T) {
	p := startRefusing(t)
	client := dial(t, p.Addr())
	<-time.After(3 * refusedWait) // the client's own delay is what is under test
	write(t, client, post)
	expectEnd(t, client, syscall.ECONNRESET)
	expectLog(t, p, logged(OutcomeRefused, 0))
}

// A hold keeps what a client sends to a refused upstream, and the refusal.
func TestRefusedDuringHold(t *testing.T) {
	p := startRefusing(t)
	client := dial(t, p.Addr())
	eventually(t, "the upstream has refused", func() bool { return p.Stats().Refused == 1 })
	p.Hold()
	write(t, client, post)
	eventually(t, "the request is held", func() bool { return p.Stats().HeldBytes == int64(len(post)) })
	client.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	expectEnd(t, client, os.ErrDeadlineExceeded)
	if got := p.Requests(0); len(got) != 0 {
		t.Errorf("during the hold the log says %+v", got)
	}
	p.Release()
	client.SetReadDeadline(time.Now().Add(patience))
	expectEnd(t, client, syscall.ECONNRESET)
	expectLog(t, p, logged(OutcomeRefused, 0))
}

func TestSetUpstream(t *testing.T) {
	first, firstAccepted := listen(t)
	second, secondAccepted := listen(t)
	p := startProxy(t, first, false)
	old, oldUp := connect(t, p, firstAccepted)
	p.SetUpstream(second)
	client, upstream := connect(t, p, secondAccepted)
	write(t, client, "new")
	expectBytes(t, upstream, "new")
	write(t, old, "old")
	expectBytes(t, oldUp, "old")
}

// A hold keeps every byte that comes after it, accepts new connections and keeps ends too; a release
// lets all go in order.
func TestHoldAndRelease(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, true)
	client, upstream := connect(t, p, accepted)
	const head = "POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n"
	write(t, client, head)
	expectBytes(t, upstream, head)
	eventually(t, "the head is counted", func() bool { return p.Stats().BytesUp == int64(len(head)) })

	p.Hold()
	p.Hold()
	body := randomBytes(100_000)
	write(t, client, string(body[:10]))
	write(t, client, string(body[10:]))
	write(t, upstream, "early")
	client.CloseWrite()
	newcomer := dial(t, p.Addr())
	write(t, newcomer, "GET / HTTP/1.1\r\n\r\n")
	const held = 100_000 + 5 + 18
	eventually(t, "every byte is held", func() bool { return p.Stats().HeldBytes == held })
	s := p.Stats()
	if s.BytesUp != int64(len(head)) || s.BytesDown != 0 || s.Probes != 0 {
		t.Errorf("bytes passed a hold: %+v", s)
	}
	if s.Conns != 2 {
		t.Errorf("%d connections, want the new one accepted", s.Conns)
	}

	p.Release()
	got, err := io.ReadAll(upstream)
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("after the release %d bytes came (%v), equal %v", len(got), err, bytes.Equal(got, body))
	}
	expectBytes(t, client, "early")
	second := <-accepted
	defer second.Close()
	expectBytes(t, second, "GET / HTTP/1.1\r\n\r\n")
	if s := p.Stats(); s.HeldBytes != 0 {
		t.Errorf("%d bytes held after the release", s.HeldBytes)
	}
	p.Release()
}

// The end of a connection is held like its bytes.
func TestHoldKeepsEnds(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, true)
	client, upstream := connect(t, p, accepted)
	write(t, client, post)
	expectBytes(t, upstream, post)
	p.Hold()
	reset(upstream)
	client.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	expectEnd(t, client, os.ErrDeadlineExceeded)
	if r := p.Requests(0)[0]; r.Outcome != OutcomeOpen {
		t.Errorf("during the hold the log says %+v", r)
	}
	p.Release()
	client.SetReadDeadline(time.Now().Add(patience))
	expectEnd(t, client, syscall.ECONNRESET)
	expectLog(t, p, logged(OutcomeReset, 0))
}

func TestCloseDuringHold(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, true)
	client, upstream := connect(t, p, accepted)
	write(t, client, post)
	expectBytes(t, upstream, post)
	p.Hold()
	write(t, client, "more")
	dial(t, p.Addr())
	eventually(t, "both are held", func() bool { return p.Stats().HeldBytes == 4 && p.Stats().Live == 2 })
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	expectLog(t, p, logged(OutcomeClosed, 0))
	// Asked of the socket: who dials the port may meet somebody who was given it since.
	if err := p.listener.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the port is open after Close: %v", err)
	}
}

// A delay keeps each piece for its time and the order of all, and the end behind them.
func TestDelay(t *testing.T) {
	const delay, count = 100 * time.Millisecond, 50
	addr, accepted := listen(t)
	p := startProxy(t, addr, false)
	client, upstream := connect(t, p, accepted)
	p.Delay(delay)
	start := time.Now()
	var sent bytes.Buffer
	for i := range count {
		piece := fmt.Sprintf("piece %d;", i)
		sent.WriteString(piece)
		write(t, client, piece)
		time.Sleep(time.Millisecond) // spaced so that the proxy reads many pieces
	}
	client.CloseWrite()
	expectBytes(t, upstream, "piece 0;")
	if took := time.Since(start); took < delay {
		t.Errorf("the first piece took %v, want at least %v", took, delay)
	}
	rest, err := io.ReadAll(upstream)
	if err != nil || "piece 0;"+string(rest) != sent.String() {
		t.Errorf("the rest is %q, %v", rest, err)
	}
}

// awaitRead waits until the proxy has taken in all that was sent to it. A hold shows what it has not read yet.
func awaitRead(t testing.TB, p *Proxy) {
	t.Helper()
	eventually(t, "the proxy has read all bytes", func() bool {
		p.Hold()
		defer p.Release()
		return p.Stats().HeldBytes == 0
	})
}

// A delay is latency, not a queue that slows down: pieces are taken in while others wait, and each is due one
// delay after it came, however many are in front of it.
func TestDelayedPiecesAreUnderWayTogether(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, false)
	client, _ := connect(t, p, accepted)
	p.Delay(time.Hour)
	for range 50 {
		write(t, client, "piece;")
		awaitRead(t, p)
	}
	if s := p.Stats(); s.BytesUp != 0 {
		t.Errorf("%d bytes went on before their time", s.BytesUp)
	}

	var late pump
	for i := range 50 {
		before := time.Now()
		late.postpone(&chunk{}, time.Hour)
		if due := late.late[i].due; due.Before(before.Add(time.Hour)) || due.After(time.Now().Add(time.Hour)) {
			t.Errorf("piece %d is due %v after it came", i, due.Sub(before))
		}
	}
}

// Without a delay again, bytes do not overtake the ones still under way.
func TestDelayEndsInOrder(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, false)
	client, upstream := connect(t, p, accepted)
	p.Delay(100 * time.Millisecond)
	write(t, client, "first")
	awaitRead(t, p)
	p.Delay(0)
	write(t, client, "second")
	expectBytes(t, upstream, "firstsecond")
}

// Close ends pumps that wait for a chunk's time.
func TestCloseDuringDelay(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, false)
	client, _ := connect(t, p, accepted)
	p.Delay(time.Hour)
	write(t, client, "never")
	client.CloseWrite()
	p.Close() // the test's own time limit is the check
}

// What the log cannot follow still passes untouched.
func TestOpaqueBytesPass(t *testing.T) {
	addr, accepted := listen(t)
	p := startProxy(t, addr, true)
	client, upstream := connect(t, p, accepted)
	up, down := randomBytes(300_000), randomBytes(300_000)
	var wg sync.WaitGroup
	wg.Go(func() {
		client.Write(up)
		client.CloseWrite()
	})
	wg.Go(func() {
		upstream.Write(down)
		upstream.CloseWrite()
	})
	var gotUp, gotDown []byte
	wg.Go(func() { gotUp, _ = io.ReadAll(upstream) })
	wg.Go(func() { gotDown, _ = io.ReadAll(client) })
	wg.Wait()
	if !bytes.Equal(gotUp, up) || !bytes.Equal(gotDown, down) {
		t.Errorf("%d and %d bytes came, not the ones sent", len(gotUp), len(gotDown))
	}
	if s := p.Stats(); s.Opaque != 1 || s.Attempts+s.Probes != 0 || s.BytesUp != 300_000 || s.BytesDown != 300_000 {
		t.Errorf("stats %+v, want one opaque connection", s)
	}
}

// Holds, delays and many connections at once: every client gets its own bytes back.
func TestChurn(t *testing.T) {
	addr, client := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if len(body)%3 == 0 {
			w.Header().Set("Connection", "close")
		}
		w.Write(body)
	})
	p := startProxy(t, addr, true)
	var clients sync.WaitGroup
	const each, lanes = 25, 8
	for lane := range lanes {
		clients.Go(func() {
			for i := range each {
				body := bytes.Repeat([]byte{byte(lane), byte(i)}, 10_000+i)
				resp, err := client.Post("http://"+p.Addr()+"/echo", "", bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("lane %d, request %d: %d bytes came back, %v", lane, i, len(got), err)
				}
			}
		})
	}
	faults := make(chan struct{})
	var injector sync.WaitGroup
	injector.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-faults:
				p.Release()
				p.Delay(0)
				return
			case <-time.After(time.Millisecond):
			}
			p.Delay(time.Duration(i%3) * time.Millisecond)
			if i%2 == 0 {
				p.Hold()
			} else {
				p.Release()
			}
			p.Stats()
			p.Requests(0)
		}
	})
	clients.Wait()
	close(faults)
	injector.Wait()
	eventually(t, "all requests have ended", func() bool { return p.Stats().Open == 0 })
	if s := p.Stats(); s.Attempts != each*lanes || s.Opaque != 0 {
		t.Errorf("stats %+v, want %d attempts", s, each*lanes)
	}
	for _, r := range p.Requests(0) {
		if r.Outcome != OutcomeOK {
			t.Errorf("%+v", r)
		}
	}
}

func TestStartFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := New(Options{Upstream: "127.0.0.1:1", Listen: l.Addr().String()})
	if err := p.Start(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listening twice: %v", err)
	}
	if p.Addr() != "" {
		t.Errorf("address %s of a proxy that did not start", p.Addr())
	}
	if err := p.Close(); err != nil {
		t.Errorf("closing a proxy that did not start: %v", err)
	}
	if err := p.Start(); err == nil {
		t.Errorf("starting after Close: %v", err)
	}
}

func randomBytes(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

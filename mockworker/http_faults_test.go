package mockworker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fleetdrill/internal/contract"
)

// The health paths lie while the engine serves.
func TestHealthFault(t *testing.T) {
	f := start(t, nil)
	id := f.arm(`{"kind":"health","mode":"error"}`)
	if status, _ := f.api("GET", "/health", ""); status != 503 {
		t.Errorf("health: %d", status)
	}
	if status, _ := f.api("GET", "/v1/models", ""); status != 200 {
		t.Errorf("models: %d", status)
	}
	f.complete(prompt(1, 4), 1, "")
	if got := f.fault(id); got.State != contract.FaultActing || got.Acted != 1 || got.Evidence[0] != "GET /health" {
		t.Errorf("evidence %+v", got)
	}
	f.heal(id)
	if status, _ := f.api("GET", "/health", ""); status != 200 {
		t.Errorf("healed: %d", status)
	}
	id = f.arm(`{"kind":"health","mode":"delay","by":"50ms"}`)
	begin := time.Now()
	if status, _ := f.api("GET", "/ping", ""); status != 200 || time.Since(begin) < 50*time.Millisecond {
		t.Errorf("delayed health: %d after %s", status, time.Since(begin))
	}
	f.heal(id)
	id = f.arm(`{"kind":"health","mode":"flap","by":"20ms"}`)
	seen := map[int]bool{}
	f.eventually("a flapping engine to be both", func() bool {
		status, _ := f.api("GET", "/health", "")
		seen[status] = true
		return seen[200] && seen[503]
	})
	f.heal(id)
}

// dial opens a connection to the API port and asks for its health; the error is what reading gave.
func (f *fleet) dial() (conn net.Conn, err error) {
	f.t.Helper()
	if conn, err = net.Dial("tcp", strings.TrimPrefix(f.worker().HTTP, "http://")); err != nil {
		return nil, err
	}
	_, err = io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
	return conn, err
}

func readLine(conn net.Conn, wait time.Duration) (string, error) {
	if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

// A closed port refuses whoever comes; who is connected stays so. Healed, it is the same port again.
func TestListenerClosed(t *testing.T) {
	f := start(t, nil)
	old, err := f.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if line, err := readLine(old, patience); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	id := f.arm(`{"kind":"listener"}`)
	if _, err := f.dial(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v", err)
	}
	if _, err := io.WriteString(old, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Error(err)
	}
	if line, err := readLine(old, patience); err != nil || !strings.Contains(line, "200") {
		t.Errorf("the open connection: %q, %v", line, err)
	}
	if got := f.fault(id); got.State != contract.FaultActing || !strings.HasSuffix(got.Evidence[0], "closed") {
		t.Errorf("evidence %+v", got)
	}
	f.heal(id)
	if status, _ := f.api("GET", "/health", ""); status != 200 {
		t.Errorf("healed: %d", status)
	}
	// For a time, and with the open connections.
	id = f.arm(`{"kind":"listener","existing":"close","for":"30ms"}`)
	if _, err := readLine(old, patience); err == nil {
		t.Error("the open connection stays")
	}
	f.awaitFault(id, contract.FaultDone)
	f.eventually("the port to open again", func() bool {
		conn, err := f.dial()
		if err != nil {
			return false
		}
		defer conn.Close()
		line, err := readLine(conn, patience)
		return err == nil && strings.Contains(line, "200")
	})
}

// A black hole takes connections and answers nobody, until it is healed.
func TestListenerBlackhole(t *testing.T) {
	f := start(t, nil)
	f.client.CloseIdleConnections()
	id := f.arm(`{"kind":"listener","mode":"blackhole"}`)
	conn, err := f.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var timeout net.Error
	if line, err := readLine(conn, 50*time.Millisecond); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a black hole answered %q, %v", line, err)
	}
	f.eventually("the connection as evidence", func() bool {
		return strings.Contains(strings.Join(f.fault(id).Evidence, "|"), conn.LocalAddr().String())
	})
	f.heal(id)
	if line, err := readLine(conn, patience); err != nil || !strings.Contains(line, "200") {
		t.Errorf("healed: %q, %v", line, err)
	}
}

func TestListenerReset(t *testing.T) {
	f := start(t, nil)
	id := f.arm(`{"kind":"listener","mode":"reset"}`)
	conn, err := f.dial()
	if err == nil {
		defer conn.Close()
		_, err = readLine(conn, patience)
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a new connection: %v", err)
	}
	f.heal(id)
	if status, _ := f.api("GET", "/health", ""); status != 200 {
		t.Errorf("healed: %d", status)
	}
}

// A stream is cut behind exactly the tokens it was to have, in each of the ways that it can end.
func TestCutStream(t *testing.T) {
	for how, check := range map[string]func(text string, err error) bool{
		"fin":       func(_ string, err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) },
		"rst":       func(_ string, err error) bool { return errors.Is(err, syscall.ECONNRESET) },
		"clean_end": func(_ string, err error) bool { return err == nil },
	} {
		t.Run(how, func(t *testing.T) {
			f := start(t, func(c *Config) { c.Profile = "drill" })
			id := f.arm(`{"kind":"cut_stream","how":"` + how + `","after_tokens":3}`)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			text, err := f.streamText(ctx, `{"prompt":"a","max_tokens":12,"stream":true}`)
			if n := strings.Count(text, "data: "); n != 3 || !check(text, err) || strings.Contains(text, "DONE") {
				t.Errorf("%d chunks, %v", n, err)
			}
			if got := f.fault(id); got.Acted != 1 || !strings.HasPrefix(got.Evidence[0], "request cmpl-") {
				t.Errorf("evidence %+v", got)
			}
			f.heal(id)
			f.eventually("the engine to be at rest", func() bool { return f.truth().Ranks[0].Running == 0 })
			if text, err := f.streamText(context.Background(), `{"prompt":"a","max_tokens":5,"stream":true}`); err != nil || strings.Count(text, "data: ") != 6 {
				t.Errorf("healed: %q, %v", text, err)
			}
		})
	}
}

// A stream that falls silent has its tokens and stays open, while the engine makes the others.
func TestCutStreamIntoSilence(t *testing.T) {
	f := start(t, func(c *Config) { c.Profile = "drill" })
	id := f.arm(`{"kind":"cut_stream","how":"silence","after_tokens":3}`)
	sc, body := f.openStream(12)
	defer body.Close()
	for n := 1; n < 3; {
		if !sc.Scan() {
			t.Fatalf("behind %d tokens: %v", n, sc.Err())
		}
		if strings.HasPrefix(sc.Text(), "data: ") {
			n++
		}
	}
	f.eventually("the engine to be at rest", func() bool { return len(f.truthRequests()) == 1 })
	if got := f.fault(id); got.Acted != 1 || !strings.HasPrefix(got.Evidence[0], "request cmpl-") {
		t.Errorf("evidence %+v", got)
	}
	more := make(chan string, 1)
	go func() {
		for sc.Scan() {
			if sc.Text() != "" {
				break
			}
		}
		more <- fmt.Sprint(sc.Text(), sc.Err())
	}()
	f.heal(id) // changes nothing for a stream that is silent
	f.complete(prompt(1, 20), 5, "")
	select {
	case text := <-more:
		t.Errorf("behind the silence: %s", text)
	default:
	}
	body.Close()
	<-more
}

// streamText reads a stream until it ends, breaks, or ctx ends.
func (f *fleet) streamText(ctx context.Context, body string) (string, error) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", f.worker().HTTP+"/v1/completions", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// Shares are drawn from the seed: two workers with the same one cut the same streams.
func TestShareIsDrawnFromTheSeed(t *testing.T) {
	draw := func(seed uint64) (out string) {
		f := start(t, func(c *Config) { c.Seed = seed })
		f.arm(`{"kind":"errors","share":0.5,"status":429}`)
		for range 16 {
			status, _ := f.api("POST", "/v1/completions", `{"prompt":"a","max_tokens":1}`)
			out += map[int]string{200: ".", 429: "x"}[status]
		}
		return out
	}
	a, b, c := draw(1), draw(1), draw(2)
	if a != b || a == c || !strings.Contains(a, "x") || !strings.Contains(a, ".") {
		t.Errorf("seed 1: %s and %s, seed 2: %s", a, b, c)
	}
}

// Errors come before the first byte, never reach the engine, and leave everything but generation alone.
func TestErrorsFault(t *testing.T) {
	f := start(t, nil)
	id := f.arm(`{"kind":"errors","status":503,"first":2}`)
	for i, want := range []int{503, 503, 200} {
		status, body := f.api("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":1,"stream":true}`, "X-Request-Id", "try")
		if status != want || want == 503 && !strings.Contains(body, `"type":"ServiceUnavailableError"`) {
			t.Errorf("request %d: %d %s", i, status, body)
		}
	}
	if status, _ := f.api("GET", "/v1/models", ""); status != 200 {
		t.Errorf("models: %d", status)
	}
	if got := f.fault(id); got.State != contract.FaultDone || got.Acted != 2 || got.Evidence[0] != "request try" {
		t.Errorf("evidence %+v", got)
	}
	if n := f.truth().Counters["finished_length"]; n != 1 {
		t.Errorf("%d requests reached the engine", n)
	}
}

// An SGLang port's errors have its own bodies: a message alone on its own route, flat on OpenAI's.
func TestErrorsFaultOfSGLang(t *testing.T) {
	f := start(t, func(c *Config) { c.Wire = "sglang-map" })
	f.arm(`{"kind":"errors","status":503}`)
	for path, want := range map[string]string{
		"/generate":       `{"error":{"message":"the engine was told to answer 503"}}`,
		"/v1/completions": `{"object":"error","message":"the engine was told to answer 503","type":"ServiceUnavailableError","param":null,"code":503}`,
	} {
		if status, body := f.api("POST", path, `{"text":"a","prompt":"a"}`); status != 503 || body != want {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
}

// Metrics and load lie about the present; counters go on.
func TestStaleLoad(t *testing.T) {
	f := start(t, func(c *Config) { c.Profile, c.EnableServerLoadTracking = "drill", true })
	running := func() string {
		_, text := f.api("GET", "/metrics", "")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "vllm:num_requests_running{") {
				return strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:])
			}
		}
		return "absent"
	}
	load := func() string { _, text := f.api("GET", "/load", ""); return text }
	if got := running() + load(); got != `0{"server_load":0}` {
		t.Fatalf("at rest: %s", got)
	}
	id := f.arm(`{"kind":"stale_load"}`)
	if got := running() + load(); got != `0{"server_load":0}` {
		t.Fatalf("the first look: %s", got)
	}
	_, body := f.openStream(50_000)
	defer body.Close()
	if got := running() + load(); got != `0{"server_load":0}` {
		t.Errorf("frozen: %s", got)
	}
	f.heal(id)
	if got := running() + load(); got != `1{"server_load":1}` {
		t.Errorf("healed: %s", got)
	}
	id = f.arm(`{"kind":"stale_load","mode":"zero"}`)
	if got := running() + load(); got != `0{"server_load":0}` {
		t.Errorf("zero: %s", got)
	}
	f.heal(id)
	id = f.arm(`{"kind":"stale_load","mode":"absent"}`)
	if got := running() + load(); got != `absent{"detail":"Not Found"}` {
		t.Errorf("absent: %s", got)
	}
	if got := f.fault(id); got.State != contract.FaultActing || got.Acted < 2 {
		t.Errorf("evidence %+v", got)
	}
	f.heal(id)
}

// A worker that boots answers nothing, or the list of models alone.
func TestBoot(t *testing.T) {
	begin := time.Now()
	f := start(t, func(c *Config) { c.BootDelay = 100 * time.Millisecond })
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("ready after %s", took)
	}
	f.complete(prompt(1, 4), 1, "")
	port := freePorts(t, 1)
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	seen := make(chan string, 1)
	go func() { // meets the worker while it boots
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			models, err := http.Get(url + "/v1/models")
			if err != nil {
				continue
			}
			models.Body.Close()
			health, err := http.Get(url + "/health")
			if err == nil {
				health.Body.Close()
				seen <- models.Status + ", " + health.Status
				return
			}
		}
		seen <- "nobody"
	}()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		c := defaults()
		c.Port, c.BootDelay, c.BootModels = port, time.Hour, "early"
		ended <- Run(ctx, c)
	}()
	if got := <-seen; got != "200 OK, 503 Service Unavailable" {
		t.Errorf("while it boots: %s", got)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended while it booted: %v", err)
	}
	f = start(t, func(c *Config) { c.BootDelay, c.BootModels = time.Millisecond, "early" })
	if status, _ := f.api("GET", "/health", ""); status != 200 {
		t.Errorf("health of a booted worker: %d", status)
	}
}

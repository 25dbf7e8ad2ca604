package mockworker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// metric is the value of the first series that begins so.
func (f *fleet) metric(series string) (value string) {
	f.t.Helper()
	_, text := f.api("GET", "/metrics", "")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, series) {
			return strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:])
		}
	}
	f.t.Fatalf("no series %s", series)
	return ""
}

// Clients go away in every state: before their first token, in the middle of it, whole or streamed. Nothing
// is left of them, and everybody is counted once.
func TestClientsThatGo(t *testing.T) {
	f := start(t, func(c *Config) { c.Profile, c.MaxNumSeqs = "drill", 2 })
	const each = 5
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for i := range each {
		for _, stream := range []bool{false, true} {
			wg.Go(func() {
				f.hang(ctx, fmt.Sprintf(`{"prompt":[%d,301,302],"max_tokens":5000,"stream":%t}`, 400+i, stream))
			})
		}
	}
	f.eventually("all to be in the engine", func() bool {
		r := f.truth().Ranks[0]
		return r.Running == 2 && r.Waiting == 2*each-2
	})
	cancel()
	wg.Wait()
	f.eventually("the engine to be empty", func() bool {
		r := f.truth().Ranks[0]
		return r.Running == 0 && r.Waiting == 0 && r.KVUsage == 0
	})
	f.complete(prompt(1, 8), 3, "")
	if got := f.metric(`vllm:request_success_total{engine="0",finished_reason="abort"`); got != "10" {
		t.Errorf("%s counted as aborted, want 10", got)
	}
	if got := f.metric(`vllm:request_success_total{engine="0",finished_reason="length"`); got != "1" {
		t.Errorf("%s counted as served, want 1", got)
	}
	if got := f.metric("vllm:num_requests_running{") + f.metric("vllm:num_requests_waiting{"); got != "00" {
		t.Errorf("running and waiting at rest: %s", got)
	}
}

// Far more clients than places: what they were told is what is counted, and at the end nobody is left.
func TestCountersAfterOverload(t *testing.T) {
	f := start(t, func(c *Config) { c.MaxNumSeqs, c.NumGPUBlocksOverride = 8, 64 })
	var mu sync.Mutex
	served := 0
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for j := range 4 {
				body := fmt.Sprintf(`{"prompt":%s,"max_tokens":20,"stream":%t}`, jsonOf(t, prompt(i*4+j, 40)), j%2 == 0)
				text, err := f.streamText(context.Background(), body)
				mu.Lock()
				if err == nil && strings.Contains(text, `"finish_reason":"length"`) {
					served++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if got := f.metric(`vllm:request_success_total{engine="0",finished_reason="length"`); got != fmt.Sprint(served) || served != 256 {
		t.Errorf("%s counted, %d served", got, served)
	}
	f.eventually("rest", func() bool { return f.metric("vllm:num_requests_running{") == "0" })
	if got := f.metric("vllm:generation_tokens_total{"); got != fmt.Sprint(20*served) {
		t.Errorf("%s tokens for %d requests", got, served)
	}
}

// A client that never reads costs the others nothing and loses its stream in the end. Its socket is small,
// so that it fills at once.
func TestFullSocketLosesItsStream(t *testing.T) {
	f := start(t, func(c *Config) { c.ClientWriteTimeout = 200 * time.Millisecond })
	conn, err := (&net.Dialer{}).Dial("tcp", strings.TrimPrefix(f.worker().HTTP, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	ids := jsonOf(t, prompt(1, 2000)) // every chunk of a chat with usage is long, and there are many
	body := `{"prompt":` + ids + `,"max_tokens":100000,"n":16,"stream":true,"return_token_ids":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`
	if _, err := fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	f.eventually("the stream to begin", func() bool { return f.truth().Ranks[0].Running > 0 })
	for f.truth().Ranks[0].Running > 0 { // others are served meanwhile
		begin := time.Now()
		if status, text := f.api("POST", "/v1/completions", `{"prompt":"b","max_tokens":3}`); status != http.StatusOK {
			t.Fatalf("beside a client that never reads: %d %s", status, text)
		}
		if took := time.Since(begin); took > patience/2 {
			t.Fatalf("a request beside a client that never reads took %s", took)
		}
	}
	if err := errors.Join(conn.(*net.TCPConn).SetReadBuffer(1<<20), conn.SetReadDeadline(time.Now().Add(patience))); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(string(text), "[DONE]") || strings.HasSuffix(string(text), "\r\n0\r\n\r\n") {
		t.Errorf("its stream ended whole, or not at all: %v", err)
	}
	if got := f.metric(`vllm:request_success_total{engine="0",finished_reason="abort"`); got != "16" {
		t.Errorf("%s choices counted as aborted, want 16", got)
	}
}

// A sleeping engine has lost its cache and holds what comes until it is awake; the streams it was in the
// middle of end as aborted, and subscribers learn of the loss with the first step after.
func TestSleep(t *testing.T) {
	f := start(t, func(c *Config) { c.Profile, c.ServerDevMode = "drill", true })
	f.complete(prompt(1, 64), 2, "")
	cut := make(chan string, 1)
	go func() {
		text, err := f.streamText(context.Background(), `{"prompt":"a","max_tokens":5000,"stream":true}`)
		cut <- fmt.Sprint(text[max(0, len(text)-300):], err)
	}()
	f.eventually("the stream to run", func() bool { return f.truth().Ranks[0].Running == 1 })
	if status, text := f.api("POST", "/sleep?level=2", ""); status != 200 {
		t.Fatalf("sleep: %d %s", status, text)
	}
	if text := <-cut; !strings.Contains(text, `"finish_reason":"abort"`) || !strings.HasSuffix(text, "data: [DONE]\n\n<nil>") {
		t.Errorf("the stream ended with %s", text)
	}
	if r := f.truth().Ranks[0]; r.ResidentBlocks != 0 || r.Running != 0 || r.AnnouncedBlocks == 0 {
		t.Errorf("asleep: %+v", r)
	}
	if got := f.metric(`vllm:engine_sleep_state{engine="0",model_name="mock-8b",sleep_state="discard_all"}`); got != "1" {
		t.Errorf("sleep state %s", got)
	}
	late := make(chan int, 1)
	go func() {
		status, _ := f.api("POST", "/v1/completions", `{"prompt":`+jsonOf(t, prompt(2, 33))+`,"max_tokens":1}`)
		late <- status
	}()
	f.eventually("a request to wait at the gate", func() bool { return f.truth().Ranks[0].Waiting == 1 })
	if status, text := f.api("POST", "/wake_up", ""); status != 200 {
		t.Fatalf("wake up: %d %s", status, text)
	}
	if status := <-late; status != 200 {
		t.Errorf("the request at the gate: %d", status)
	}
	f.eventually("announced and resident to be the same", func() bool {
		r := f.truth().Ranks[0]
		return r.ResidentBlocks == 2 && r.AnnouncedBlocks == 2 && r.Ghost == 0
	})
}

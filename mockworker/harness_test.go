package mockworker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) {
	if ready := os.Getenv(exitVar); ready != "" {
		serveUntilExit(ready)
		return
	}
	leaks.Main(m)
}

const eventsOn = `{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}`

// patience bounds every wait of a test for something that must happen.
const patience = 2 * time.Minute

// defaults is the configuration of no flags but free ports and events.
func defaults() Config {
	var c Config
	AddFlags(pflag.NewFlagSet("test", pflag.ContinueOnError), &c)
	c.Port, c.KVEventsConfig = 0, eventsOn
	c.TimeoutKeepAlive = 10 * time.Minute // a client that a busy machine holds up must not send into a closing connection
	return c
}

// fleet is a running process of workers.
type fleet struct {
	t      testing.TB
	ready  contract.ReadyFile
	client *http.Client
	cancel context.CancelFunc
	done   chan error
}

// start runs workers until the test ends.
func start(t testing.TB, change func(*Config)) *fleet {
	t.Helper()
	c := defaults()
	c.ReadyFile = filepath.Join(t.TempDir(), "ready.json")
	c.ShutdownGrace = 100 * time.Millisecond
	if change != nil {
		change(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &fleet{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 4 * time.Second}}, cancel: cancel, done: make(chan error, 1)}
	go func() { f.done <- Run(ctx, c) }()
	t.Cleanup(f.stop)
	f.eventually("the ready file", func() bool {
		select {
		case err := <-f.done:
			f.done <- err
			t.Fatalf("run ended: %v", err)
		default:
		}
		b, err := os.ReadFile(c.ReadyFile)
		return err == nil && json.Unmarshal(b, &f.ready) == nil
	})
	return f
}

func (f *fleet) stop() {
	f.client.CloseIdleConnections()
	f.cancel()
	if err := <-f.done; err != nil {
		f.t.Errorf("run: %v", err)
	}
	f.done <- nil
}

func (f *fleet) eventually(what string, ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

func (f *fleet) worker() contract.ReadyWorker { return f.ready.Workers[0] }

// do sends a request and reads the answer.
func (f *fleet) do(method, url, body string, header ...string) (int, http.Header, string) {
	f.t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func (f *fleet) api(method, path, body string, header ...string) (int, string) {
	f.t.Helper()
	status, _, b := f.do(method, f.worker().HTTP+path, body, header...)
	return status, b
}

// complete runs one completion over ids to its end.
func (f *fleet) complete(ids []uint32, maxTokens int, extra string) {
	f.t.Helper()
	b, _ := json.Marshal(ids)
	m, _ := json.Marshal(maxTokens)
	if status, text := f.api("POST", "/v1/completions", `{"prompt":`+string(b)+`,"max_tokens":`+string(m)+extra+`}`); status != 200 {
		f.t.Fatalf("completion: %d %s", status, text)
	}
}

// truth is the summary with every rank as it is after the question: on a busy machine the worker may answer
// before it has looked, with figures as old as it says.
func (f *fleet) truth() (t contract.Truth) {
	f.t.Helper()
	f.eventually("a truth that is not older than the question", func() bool {
		t = f.summary()
		for _, r := range t.Ranks {
			if r.ResidentMonoNs < t.MonoNs {
				return false
			}
		}
		return true
	})
	return t
}

// summary is what the worker says about itself, old figures of an engine that does not answer included.
func (f *fleet) summary() contract.Truth {
	f.t.Helper()
	status, _, b := f.do("GET", f.worker().Admin+"/admin/truth", "")
	var t contract.Truth
	if err := json.Unmarshal([]byte(b), &t); status != 200 || err != nil {
		f.t.Fatalf("truth: %d %s: %v", status, b, err)
	}
	return t
}

// jsonLines reads an answer of JSON lines: the first into head (nil: none), the others into a slice.
func jsonLines[T any](f *fleet, path string, head any) []T {
	f.t.Helper()
	status, _, b := f.do("GET", f.worker().Admin+path, "")
	if status != 200 {
		f.t.Fatalf("GET %s: %d %s", path, status, b)
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(b)))
	if head != nil {
		if err := dec.Decode(head); err != nil {
			f.t.Fatal(err)
		}
	}
	out := []T{}
	for dec.More() {
		var v T
		if err := dec.Decode(&v); err != nil {
			f.t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// prompt is n token ids that no other seed shares a block with.
func prompt(seed, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(256 + (seed*7919+i*31)%100_000)
	}
	return ids
}

// hang sends a completion and reads until ctx ends.
func (f *fleet) hang(ctx context.Context, body string) {
	req, err := http.NewRequestWithContext(ctx, "POST", f.worker().HTTP+"/v1/completions", strings.NewReader(body))
	if err != nil {
		f.t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
}

// dialRaw sends one request, formatted with the length and the text of its body, and never reads.
func (f *fleet) dialRaw(format, body string) net.Conn {
	f.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.worker().HTTP, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, format, len(body), body); err != nil {
		f.t.Fatal(err)
	}
	return conn
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

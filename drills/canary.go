package drills

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
	"fleetdrill/internal/tokens"
)

// canarySilence is how long a canary stays without an answer before that counts as proof. Under the
// matrix's load one returns in some 20 ms.
const canarySilence = 250 * time.Millisecond

// A canary's prompt and answer together stay below one block, so that it leaves no trace in any cache
// and makes no event.
const (
	canaryPrompt = 6
	canaryOutput = 2
)

// canary sends requests of the lab's own straight to an engine, past its link proxy and the gateway.
type canary struct {
	worker *lab.Worker
	http   *http.Client
	// token begins every prompt, so that two runs do not send the same.
	token uint32

	mu      sync.Mutex // guards n
	n       uint32
	pending sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

func newCanary(w *lab.Worker, token uint32) *canary {
	c := &canary{worker: w, http: lab.NewHTTPClient(), token: token}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// answer is how a canary's request ended.
type answer struct {
	ns  int64
	err error
}

// send starts a completion; its end arrives on the channel, or never does.
func (c *canary) send() <-chan answer {
	out := make(chan answer, 1)
	c.pending.Go(func() {
		err := c.post(c.ctx)
		out <- answer{clock.MonoNs(), err}
	})
	return out
}

// complete sends a completion and waits for its end.
func (c *canary) complete(ctx context.Context) (record.Evidence, error) {
	began := clock.MonoNs()
	if err := c.post(ctx); err != nil {
		return record.Evidence{}, err
	}
	now := clock.MonoNs()
	return seen(now, "%s served a completion of the lab's own in %.0f ms", c.worker.ID, float64(now-began)/1e6), nil
}

func (c *canary) post(ctx context.Context) error { return c.prompt(ctx, c.ids(canaryPrompt)) }

// prompt sends a completion of a prompt and wants it served.
func (c *canary) prompt(ctx context.Context, ids []uint32) error {
	status, err := c.try(ctx, ids)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("a completion of the lab's own to %s: status %d", c.worker.ID, status)
	}
	return err
}

// status sends a completion and says which status it got.
func (c *canary) status(ctx context.Context) (int, error) { return c.try(ctx, c.ids(canaryPrompt)) }

func (c *canary) try(ctx context.Context, ids []uint32) (int, error) {
	req, err := c.request(ctx, ids, canaryOutput, false)
	if err != nil {
		return 0, err
	}
	status, err := c.do(req)
	if err != nil {
		err = fmt.Errorf("a completion of the lab's own to %s: %w", c.worker.ID, err)
	}
	return status, err
}

// request is a completion of a prompt, straight to the engine.
func (c *canary) request(ctx context.Context, ids []uint32, output int, stream bool) (*http.Request, error) {
	body, err := json.Marshal(map[string]any{"prompt": ids, "max_tokens": output, "ignore_eos": true, "temperature": 0, "stream": stream})
	if err != nil {
		return nil, fmt.Errorf("building a canary: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.worker.Ready.HTTP+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("building a canary: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

// ids are n tokens that no other prompt of the lab has.
func (c *canary) ids(n int) []uint32 {
	c.mu.Lock()
	from := c.n
	c.n += uint32(n)
	c.mu.Unlock()
	out := make([]uint32, n)
	for i := range out {
		out[i] = tokens.FirstWord + (c.token+from+uint32(i))%(tokens.Vocab-tokens.FirstWord)
	}
	return out
}

// blocks are the tokens of a prompt that fills four blocks of so many.
func (c *canary) blocks(size int) []uint32 { return c.ids(4 * size) }

// streamEnd is how a stream of the lab's own went: its tokens, the pauses between them, and how it ended, in
// the words of the cut_stream fault. A whole one has its [DONE].
type streamEnd struct {
	tokens int
	pauses []time.Duration
	whole  bool
	how    string
}

// String is "3 tokens, then rst".
func (e streamEnd) String() string {
	if e.whole {
		return fmt.Sprintf("%d tokens and whole", e.tokens)
	}
	return fmt.Sprintf("%d tokens, then %s", e.tokens, e.how)
}

// stream sends a streamed completion and gives up when nothing comes for so long.
func (c *canary) stream(ctx context.Context, output int, patience time.Duration) (out streamEnd) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := c.request(ctx, c.ids(canaryPrompt), output, true)
	if err != nil {
		return streamEnd{how: err.Error()}
	}
	var silent atomic.Bool
	watch := time.AfterFunc(patience, func() { silent.Store(true); cancel() })
	defer watch.Stop()
	resp, err := c.http.Do(req)
	if err != nil {
		return streamEnd{how: endOf(err, silent.Load())}
	}
	defer resp.Body.Close()
	last := int64(0)
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			out.how = endOf(err, silent.Load())
			return out
		}
		watch.Reset(patience)
		switch data, ok := strings.CutPrefix(strings.TrimSpace(line), "data:"); {
		case ok && strings.TrimSpace(data) == "[DONE]":
			out.whole = true
			return out
		case ok && out.tokens < output:
			now := clock.MonoNs()
			if out.tokens > 0 {
				out.pauses = append(out.pauses, time.Duration(now-last))
			}
			out.tokens, last = out.tokens+1, now
		}
	}
}

// endOf names how a stream broke off as cut_stream does.
func endOf(err error, silent bool) string {
	switch {
	case silent:
		return "silence"
	case errors.Is(err, syscall.ECONNRESET):
		return "rst"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "fin"
	case errors.Is(err, io.EOF):
		return "clean_end"
	}
	return err.Error()
}

// keep holds a streamed completion open until ctx ends.
func (c *canary) keep(ctx context.Context, output int) {
	c.pending.Go(func() {
		// What becomes of it is seen in the engine's truth.
		c.stream(ctx, output, time.Minute)
	})
}

// fullReport sends a completion that wants its reused prefix announced. What becomes of it is seen elsewhere.
func (c *canary) fullReport() {
	c.pending.Go(func() {
		body := fmt.Sprintf(`{"prompt":[%d],"max_tokens":%d,"vllm_xargs":{"kv_cache_report_mode":"full"}}`, c.ids(1)[0], canaryOutput)
		req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.worker.Ready.HTTP+"/v1/completions", strings.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", "application/json")
		_, _ = c.do(req)
	})
}

// running reads what the engine's metrics tell of its running requests.
func (c *canary) running(ctx context.Context) (gauge, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.worker.Ready.HTTP+"/metrics", nil)
	if err != nil {
		return gauge{}, fmt.Errorf("building a request for metrics: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return gauge{}, fmt.Errorf("reading the metrics of %s: %w", c.worker.ID, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return gauge{}, fmt.Errorf("reading the metrics of %s: %w", c.worker.ID, err)
	}
	return readGauge(string(text)), nil
}

// healthy wants 200 of the engine's own /health.
func (c *canary) healthy(ctx context.Context) error {
	status, err := c.health(ctx)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("asking %s for its health: status %d", c.worker.ID, status)
	}
	return err
}

// health asks the engine's own /health for its status.
func (c *canary) health(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.worker.Ready.HTTP+"/health", nil)
	if err != nil {
		return 0, fmt.Errorf("building a health request: %w", err)
	}
	status, err := c.do(req)
	if err != nil {
		err = fmt.Errorf("asking %s for its health: %w", c.worker.ID, err)
	}
	return status, err
}

// do reads an answer to its end.
func (c *canary) do(req *http.Request) (status int, err error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, err
}

// close cuts what is still open and waits for it.
func (c *canary) close() {
	c.cancel()
	c.pending.Wait()
	c.http.CloseIdleConnections()
}

// closeIf closes a canary that may never have been made.
func (c *canary) closeIf() {
	if c != nil {
		c.close()
	}
}

// steps is the sum of the ranks' step counters.
func steps(t contract.Truth) (n int64) {
	for _, r := range t.Ranks {
		n += r.Steps
	}
	return n
}

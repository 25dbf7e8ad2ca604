package drills

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
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

func (c *canary) post(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.worker.Ready.HTTP+"/v1/completions", bytes.NewReader(c.body()))
	if err != nil {
		return fmt.Errorf("building a canary: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	status, err := c.do(req)
	if err != nil {
		return fmt.Errorf("a completion of the lab's own to %s: %w", c.worker.ID, err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("a completion of the lab's own to %s: status %d", c.worker.ID, status)
	}
	return nil
}

// body is a completion of token ids that no other request has.
func (c *canary) body() []byte {
	c.mu.Lock()
	c.n++
	n := c.n
	c.mu.Unlock()
	b := []byte(`{"prompt":[`)
	for i := range uint32(canaryPrompt) {
		id := tokens.FirstWord + (c.token+n*canaryPrompt+i)%(tokens.Vocab-tokens.FirstWord)
		b = append(strconv.AppendUint(b, uint64(id), 10), ',')
	}
	b = append(b[:len(b)-1], `],"max_tokens":`...)
	b = strconv.AppendInt(b, canaryOutput, 10)
	return append(b, `,"ignore_eos":true,"temperature":0}`...)
}

// healthy asks the engine's own /health.
func (c *canary) healthy(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.worker.Ready.HTTP+"/health", nil)
	if err != nil {
		return fmt.Errorf("building a health request: %w", err)
	}
	status, err := c.do(req)
	if err != nil {
		return fmt.Errorf("asking %s for its health: %w", c.worker.ID, err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("asking %s for its health: status %d", c.worker.ID, status)
	}
	return nil
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

// steps is the sum of the ranks' step counters.
func steps(t contract.Truth) (n int64) {
	for _, r := range t.Ranks {
		n += r.Steps
	}
	return n
}

package workerbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	goneSteps = "client gone until its slots and blocks are free"
	goneTime  = "the same, by the clock"
)

var disconnectFigures = []figure{
	{name: goneSteps, unit: "steps", bar: 1, goal: 1},
	{name: goneTime, unit: "ms", bar: none, goal: none},
}

// disconnect opens 64 streams, hangs up on all at once and counts the steps until nothing runs and no block
// is in use. Steps take 20 ms, so that a look at the truth falls between two of them. The step that runs
// while the clients hang up is not counted: nobody can leave it.
func (b *bench) disconnect(ctx context.Context) ([]Row, error) {
	profile, err := b.st.profile("step-20ms", int64(20*time.Millisecond))
	if err != nil {
		return nil, err
	}
	values := map[string][]float64{}
	err = b.with(ctx, []string{"--profile", profile}, func(t target) error {
		for range b.pick(20, 2) {
			if err := b.hangUp(ctx, t, values); err != nil {
				return err
			}
		}
		return nil
	})
	return rowsOf(disconnectFigures, values), err
}

func (b *bench) hangUp(ctx context.Context, t target, values map[string][]float64) error {
	const streams = 64
	request, err := completion(t, map[string]any{"prompt": freshPrompt(), "max_tokens": 10_000, "stream": true})
	if err != nil {
		return err
	}
	conns, err := dialAll(ctx, t.addr, streams)
	if err != nil {
		return err
	}
	for _, c := range conns {
		if _, err := c.Write(request); err != nil {
			return fmt.Errorf("sending a request: %w", err)
		}
	}
	if _, err := untilRank(ctx, t, func(r rankLoad) bool { return r.running == streams }); err != nil {
		return err
	}
	for _, c := range conns {
		if err := c.Close(); err != nil {
			return fmt.Errorf("hanging up: %w", err)
		}
	}
	gone := time.Now()
	before, err := rankOf(ctx, t)
	if err != nil {
		return err
	}
	after, err := untilRank(ctx, t, func(r rankLoad) bool { return r.running == 0 && r.usage == 0 })
	if err != nil {
		return err
	}
	values[goneSteps] = append(values[goneSteps], float64(max(0, after.steps-before.steps)))
	values[goneTime] = append(values[goneTime], time.Since(gone).Seconds()*1e3)
	return nil
}

// rankLoad is what /admin/truth says about the only rank's load.
type rankLoad struct {
	running, waiting int
	usage            float64
	steps            int64
}

func rankOf(ctx context.Context, t target) (rankLoad, error) {
	truth, err := truthOf(ctx, t)
	if err != nil {
		return rankLoad{}, err
	}
	r := truth.Ranks[0]
	return rankLoad{r.Running, r.Waiting, r.KVUsage, r.Steps}, nil
}

// patience bounds every wait for a state that must come.
const patience = 20 * time.Second

func untilRank(ctx context.Context, t target, is func(rankLoad) bool) (r rankLoad, err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if r, err = rankOf(ctx, t); err != nil || is(r) {
			return r, err
		}
		if err := wait(ctx, time.Millisecond); err != nil {
			return r, err
		}
	}
	return r, fmt.Errorf("the worker did not get there within %s: %+v", patience, r)
}

const (
	countedShare = "successes counted for each served, after an overload"
	leftRunning  = "requests counted as running, after an overload"
)

var overloadFigures = []figure{
	{name: countedShare, unit: "share", bar: 1, goal: 1, more: true},
	{name: leftRunning, unit: "requests", bar: 0, goal: 0},
}

// overload sends many more requests than run at once, a quarter of the clients hang up on their last one, and
// asks the metrics for what was served.
func (b *bench) overload(ctx context.Context) ([]Row, error) {
	profile, err := b.st.profile("step-1ms", int64(time.Millisecond))
	if err != nil {
		return nil, err
	}
	var rows []Row
	err = b.with(ctx, []string{"--profile", profile, "--max-num-seqs", "16"}, func(t target) error {
		rows, err = b.overloadOf(ctx, t)
		return err
	})
	return rows, err
}

func (b *bench) overloadOf(ctx context.Context, t target) ([]Row, error) {
	request, err := completion(t, map[string]any{"prompt": "say something", "max_tokens": 8})
	if err != nil {
		return nil, err
	}
	// Long enough that it is not done, and rightly counted, before the worker notices that its client is gone.
	long, err := completion(t, map[string]any{"prompt": "say something", "max_tokens": 1000})
	if err != nil {
		return nil, err
	}
	before, err := metric(ctx, t, "vllm:request_success_total", `finished_reason="length"`, `finished_reason="stop"`)
	if err != nil {
		return nil, err
	}
	served, err := b.crowdOut(ctx, t, request, long)
	if err != nil {
		return nil, err
	}
	var running float64
	for deadline := time.Now().Add(patience / 4); ; { // a peer may never get there
		if running, err = metric(ctx, t, "vllm:num_requests_running"); err != nil {
			return nil, err
		}
		if running == 0 || time.Now().After(deadline) {
			break
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	after, err := metric(ctx, t, "vllm:request_success_total", `finished_reason="length"`, `finished_reason="stop"`)
	return rowsOf(overloadFigures, map[string][]float64{
		countedShare: {(after - before) / float64(served)}, leftRunning: {running},
	}), err
}

// crowdOut keeps 256 clients busy with 16 requests each; every fourth sends long as its last one and hangs up.
// It returns how many answers came whole.
func (b *bench) crowdOut(ctx context.Context, t target, request, long []byte) (served int64, err error) {
	const clients, each = 256, 16
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var whole atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for i := range clients {
		g.Go(func() error {
			c, err := dial(ctx, t.addr, 4<<10)
			if err != nil {
				return err
			}
			defer c.Close()
			for n := range each {
				if i%4 == 0 && n == each-1 {
					_, err := c.Write(long)
					return errors.Join(err, c.Close())
				}
				if err := c.do(request, nil); err != nil {
					return err
				}
				whole.Add(1)
			}
			return nil
		})
	}
	err = g.Wait()
	return whole.Load(), err
}

// metric sums the series of a name that carry one of the labels, or all of them without any.
func metric(ctx context.Context, t target, name string, labels ...string) (sum float64, err error) {
	page, err := get(ctx, t.addr, "/metrics")
	if err != nil {
		return 0, err
	}
	found := false
	for line := range bytes.Lines(page) {
		series, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte("} "))
		if !ok || !bytes.HasPrefix(series, []byte(name+"{")) || !carries(series, labels) {
			continue
		}
		v, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s is %q: %w", name, value, err)
		}
		sum, found = sum+v, true
	}
	if !found && len(labels) == 0 {
		return 0, fmt.Errorf("/metrics of %s has no %s", t.addr, name)
	}
	return sum, nil
}

func carries(series []byte, labels []string) bool {
	for _, l := range labels {
		if bytes.Contains(series, []byte(l)) {
			return true
		}
	}
	return len(labels) == 0
}

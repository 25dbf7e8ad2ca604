package workerbench

import (
	"context"
	"errors"
	"time"

	"fleetdrill/replayer/load"
)

const (
	streamMemory = "memory of a chat stream, 1,000 open"
	streamCPU    = "CPU of a streamed token, 1,000 streams"
	streamCore   = "streamed tokens per second of CPU"
	streamGap99  = "gap between tokens, p99 of 1,000 streams at 50 ms"
	streamGap50  = "gap between tokens, p50 of 1,000 streams at 50 ms"
	streamStep   = 50 * time.Millisecond
)

var streamFigures = []figure{
	{name: streamMemory, unit: "KB", bar: 60, goal: 25},
	{name: streamCPU, unit: "us", bar: 12, goal: 6},
	{name: streamCore, unit: "tokens/s", bar: none, goal: none, more: true},
	{name: streamGap50, unit: "ms", bar: none, goal: none},
	{name: streamGap99, unit: "ms", bar: 55, goal: 52},
}

// streams measures many chat streams at once, one token for each every 50 ms.
func (b *bench) streams(ctx context.Context) ([]Row, error) {
	profile, err := b.st.profile("step-50ms", int64(streamStep))
	if err != nil {
		return nil, err
	}
	values := map[string][]float64{}
	for range b.pick(3, 1) { // a process each time: memory that one run needed is kept by the next
		err := b.with(ctx, []string{"--profile", profile}, func(t target) error { return b.streamsOnce(ctx, t, values) })
		if err != nil {
			return nil, err
		}
	}
	return rowsOf(streamFigures, values), nil
}

// streamsOf measures a peer that was started with 50 ms between tokens. Its peak counts from its start, so
// it should be fresh.
func (b *bench) streamsOf(ctx context.Context, t target) ([]Row, error) {
	values := map[string][]float64{}
	err := b.streamsOnce(ctx, t, values)
	return rowsOf(streamFigures, values), err
}

// streamsOnce opens the streams and follows them to their ends.
func (b *bench) streamsOnce(ctx context.Context, t target, values map[string][]float64) error {
	n, length := b.pick(1000, 100), b.pick(200, 20)
	request, err := generation(t, "/v1/chat/completions", map[string]any{
		"messages": []map[string]string{{"role": "user", "content": "tell me a story"}}, "max_tokens": length, "stream": true, "ignore_eos": true,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The pages of the program that serve a request come into memory with the first one, and are no stream's.
	if err := once(ctx, t, request); err != nil {
		return err
	}
	var before usage
	if t.pid != 0 {
		if before, err = usageOf(t.pid); err != nil {
			return err
		}
	}
	c, err := newCrowd(ctx, t.addr, n, length)
	if err != nil {
		return err
	}
	if t.pid != 0 { // taking a connection in is no token's
		opened, err := usageOf(t.pid)
		if err != nil {
			return errors.Join(err, c.close())
		}
		before.cpu = opened.cpu
	}
	if err := errors.Join(c.run(ctx, request), c.close()); err != nil {
		return err
	}
	tokens := float64(c.into(values))
	if t.pid == 0 {
		return nil
	}
	after, err := usageOf(t.pid)
	cpu := after.cpu - before.cpu
	values[streamMemory] = append(values[streamMemory], (after.peak-before.rss)/1024/float64(n))
	values[streamCPU] = append(values[streamCPU], cpu/tokens*1e6)
	values[streamCore] = append(values[streamCore], tokens/cpu)
	return err
}

// once sends a request on a connection of its own and waits for its answer.
func once(ctx context.Context, t target, request []byte) error {
	c, err := dial(ctx, t.addr, 4<<10)
	if err != nil {
		return err
	}
	return errors.Join(c.do(request, nil), c.Close())
}

func dialAll(ctx context.Context, addr string, n int) (conns []*conn, err error) {
	for range n {
		c, err := dial(ctx, addr, 2<<10)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// into adds what all streams saw to the values, and returns how many tokens came.
func (c *crowd) into(values map[string][]float64) (tokens int64) {
	h := load.NewHistogram()
	for i := range c.members {
		seen := &c.members[i].seen
		tokens += seen.tokens
		for _, ns := range seen.ns {
			h.Add(ns)
		}
	}
	q := h.Quantiles()
	values[streamGap50] = append(values[streamGap50], q.P50)
	values[streamGap99] = append(values[streamGap99], q.P99)
	return tokens
}

package workerbench

import (
	"context"
	"errors"
	"strconv"
	"time"
)

const mb = 1 << 20

var startFigures = []figure{{name: "start to /health 200", unit: "ms", bar: 60, goal: 15}}

// start measures how long a worker takes to serve, with its event sockets.
func (b *bench) start(ctx context.Context) ([]Row, error) {
	values := map[string][]float64{}
	for range b.pick(20, 3) {
		t, took, err := b.st.worker(ctx, append([]string{"--kv-events-config", eventsConfig}, b.o.WorkerArgs...)...)
		if err != nil {
			return nil, err
		}
		if err := t.stop(); err != nil {
			return nil, err
		}
		values[startFigures[0].name] = append(values[startFigures[0].name], took.Seconds()*1e3)
	}
	return rowsOf(startFigures, values), nil
}

const (
	idleRSS   = "idle worker, resident"
	idlePSS   = "idle worker, its share"
	servedRSS = "idle worker that has served, resident"
	crowdRSS  = "128 idle workers in one process, resident"
	crowdCPU  = "128 idle workers in one process, CPU"
	crowdSize = 128
)

var idleFigures = []figure{
	{name: idleRSS, unit: "MB", bar: 25, goal: 15},
	{name: idlePSS, unit: "MB", bar: none, goal: none},
	{name: servedRSS, unit: "MB", bar: 25, goal: 15},
	{name: crowdRSS, unit: "MB", bar: 400, goal: 200},
	{name: crowdCPU, unit: "% of a core", bar: 3, goal: 1},
}

// settle is how long a process is left alone before it counts as idle.
const settle = time.Second

// idle measures what a worker costs that nobody asks for anything.
func (b *bench) idle(ctx context.Context) ([]Row, error) {
	values := map[string][]float64{}
	for range b.pick(5, 1) {
		err := b.with(ctx, []string{"--kv-events-config", eventsConfig}, func(t target) error {
			return errors.Join(idleMemory(ctx, t, values), servedMemory(ctx, t, values))
		})
		if err != nil {
			return nil, err
		}
	}
	err := b.with(ctx, []string{"--count", strconv.Itoa(crowdSize), "--kv-events-config", eventsConfig}, func(t target) error {
		return b.crowd(ctx, t, values)
	})
	return rowsOf(idleFigures, values), err
}

// idleOf measures a peer that was left alone before.
func (b *bench) idleOf(ctx context.Context, t target) ([]Row, error) {
	values := map[string][]float64{}
	err := idleMemory(ctx, t, values)
	return rowsOf(idleFigures, values), err
}

func idleMemory(ctx context.Context, t target, values map[string][]float64) error {
	if err := wait(ctx, settle); err != nil {
		return err
	}
	u, err := usageOf(t.pid)
	values[idleRSS] = append(values[idleRSS], u.rss/mb)
	values[idlePSS] = append(values[idlePSS], u.pss/mb)
	return err
}

// servedMemory is what a worker holds that answered a hundred requests and was left alone again: a program's
// pages come into memory as they are used.
func servedMemory(ctx context.Context, t target, values map[string][]float64) error {
	request, err := generation(t, "/v1/chat/completions", map[string]any{
		"messages": []map[string]string{{"role": "user", "content": "say a few words"}}, "max_tokens": 8, "stream": true,
	})
	if err != nil {
		return err
	}
	for range 100 {
		if err := once(ctx, t, request); err != nil {
			return err
		}
	}
	if err := wait(ctx, settle); err != nil {
		return err
	}
	u, err := usageOf(t.pid)
	values[servedRSS] = append(values[servedRSS], u.rss/mb)
	return err
}

func (b *bench) crowd(ctx context.Context, t target, values map[string][]float64) error {
	if err := wait(ctx, settle); err != nil {
		return err
	}
	before, err := usageOf(t.pid)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := wait(ctx, time.Duration(b.pick(20, 3))*time.Second); err != nil {
		return err
	}
	after, err := usageOf(t.pid)
	values[crowdRSS] = []float64{after.rss / mb}
	values[crowdCPU] = []float64{100 * (after.cpu - before.cpu) / time.Since(began).Seconds()}
	return err
}

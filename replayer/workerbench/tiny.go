package workerbench

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	tinyRate    = "tiny completions, 16 clients"
	tinyCPU     = "CPU of a tiny completion, 16 clients"
	tinyClients = 16
)

var tinyFigures = []figure{
	{name: tinyRate, unit: "requests/s", bar: 25_000, goal: 45_000, more: true},
	{name: tinyCPU, unit: "us", bar: 40, goal: 22},
}

// tiny measures non-streamed completions of one token on an engine whose steps take no time: the cost of
// the surface around it.
func (b *bench) tiny(ctx context.Context) ([]Row, error) {
	profile, err := b.st.profile("instant", 0)
	if err != nil {
		return nil, err
	}
	var rows []Row
	err = b.with(ctx, []string{"--profile", profile}, func(t target) error {
		rows, err = b.tinyOf(ctx, t)
		return err
	})
	return rows, err
}

func (b *bench) tinyOf(ctx context.Context, t target) ([]Row, error) {
	request, err := completion(t, map[string]any{"prompt": "say one word", "max_tokens": 1})
	if err != nil {
		return nil, err
	}
	values := map[string][]float64{}
	for range b.pick(5, 1) {
		if err := b.tinyOnce(ctx, t, request, values); err != nil {
			return nil, err
		}
	}
	return rowsOf(tinyFigures, values), nil
}

func (b *bench) tinyOnce(ctx context.Context, t target, request []byte, values map[string][]float64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var done atomic.Int64
	until := time.Now().Add(time.Duration(b.pick(5, 1)) * time.Second)
	before, began, err := cpuOf(t), time.Now(), error(nil)
	g, ctx := errgroup.WithContext(ctx)
	for range tinyClients {
		g.Go(func() error {
			c, err := dial(ctx, t.addr, 4<<10)
			if err != nil {
				return err
			}
			defer c.Close()
			for time.Now().Before(until) {
				if err := c.do(request, nil); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	if err = g.Wait(); err != nil {
		return err
	}
	n := float64(done.Load())
	values[tinyRate] = append(values[tinyRate], n/time.Since(began).Seconds())
	if before >= 0 {
		values[tinyCPU] = append(values[tinyCPU], (cpuOf(t)-before)/n*1e6)
	}
	return nil
}

// cpuOf is the CPU time of a target in seconds, negative when it cannot be read.
func cpuOf(t target) float64 {
	if t.pid == 0 {
		return -1
	}
	u, err := usageOf(t.pid)
	if err != nil {
		return -1
	}
	return u.cpu
}

// completion is a request of /v1/completions.
func completion(t target, body map[string]any) ([]byte, error) {
	return generation(t, "/v1/completions", body)
}

func generation(t target, path string, body map[string]any) ([]byte, error) {
	body["model"] = t.model
	data, err := json.Marshal(body)
	return post(t.addr, path, data), err
}

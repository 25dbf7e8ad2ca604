package workerbench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"fleetdrill/gateway/events"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/zsock"
)

const (
	fillRate    = "KV block events on the wire, pool filling"
	fillBatches = "KV event batches on the wire, pool filling"
	fullRate    = "KV block events on the wire, pool of 16,384 blocks full"
	blockMemory = "memory of a cached block"
	toldMemory  = "memory of a cached block that was announced, replay buffer and journal included"
	eventGaps   = "batches that the subscriber did not get"
)

var eventFigures = []figure{
	{name: fillRate, unit: "blocks/s", bar: 200_000, goal: 500_000, more: true},
	{name: fillBatches, unit: "batches/s", bar: none, goal: none, more: true},
	{name: fullRate, unit: "blocks/s", bar: 200_000, goal: 500_000, more: true},
	{name: blockMemory, unit: "B", bar: 160, goal: 80},
	{name: toldMemory, unit: "B", bar: none, goal: none},
	{name: eventGaps, unit: "batches", bar: 0, goal: 0},
}

const (
	eventClients = 8
	promptBlocks = 256
	blockSize    = 16
	// roomy is the pool that shall not fill up: filling ends when half of it is used.
	roomy     = 1 << 22
	roomyLoad = roomy / 2 / promptBlocks // prompts
	fullPool  = 1 << 14
)

// events measures what one subscriber gets while eight clients send prompts that nobody sent before, on an
// engine whose steps take no time: first into a pool that has room to the end, then into one of 16,384 blocks,
// where every block stored evicts another.
func (b *bench) events(ctx context.Context) ([]Row, error) {
	profile, err := b.st.profile("instant", 0)
	if err != nil {
		return nil, err
	}
	values := map[string][]float64{}
	for range b.pick(3, 1) {
		for _, pool := range []struct {
			blocks, prompts int
			rate            string
		}{{roomy, roomyLoad, fillRate}, {fullPool, math.MaxInt, fullRate}} {
			args := []string{"--profile", profile, "--num-gpu-blocks-override", strconv.Itoa(pool.blocks), "--kv-events-config", eventsConfig}
			err := b.with(ctx, args, func(t target) error {
				return b.eventsOnce(ctx, t, pool.prompts, pool.rate, values)
			})
			if err != nil {
				return nil, err
			}
		}
	}
	for range b.pick(3, 1) {
		args := []string{"--profile", profile, "--num-gpu-blocks-override", strconv.Itoa(roomy)}
		if err := b.with(ctx, args, func(t target) error { return b.silent(ctx, t, values) }); err != nil {
			return nil, err
		}
	}
	return rowsOf(eventFigures, values), nil
}

// silent fills the cache of a worker that announces nothing.
func (b *bench) silent(ctx context.Context, t target, values map[string][]float64) error {
	if err := b.load(ctx, t, 200*time.Millisecond, roomyLoad/8); err != nil {
		return err
	}
	start, err := memoryOf(ctx, t)
	if err != nil {
		return err
	}
	if err := b.load(ctx, t, time.Duration(b.pick(4, 1))*time.Second, roomyLoad); err != nil {
		return err
	}
	return b.memory(ctx, t, start, blockMemory, values)
}

// eventsOf measures a peer, whose pool is taken to have room.
func (b *bench) eventsOf(ctx context.Context, t target) ([]Row, error) {
	values := map[string][]float64{}
	err := b.eventsOnce(ctx, t, roomyLoad, fillRate, values)
	return rowsOf(eventFigures, values), err
}

func (b *bench) eventsOnce(ctx context.Context, t target, prompts int, rate string, values map[string][]float64) error {
	f, err := follow(ctx, t.events)
	if err != nil {
		return err
	}
	if err := b.load(ctx, t, 200*time.Millisecond, roomyLoad/8); err != nil { // connections, and the first allocations
		return errors.Join(err, f.close())
	}
	before, began := f.seen(), time.Now()
	start, err := memoryOf(ctx, t)
	if err != nil {
		return errors.Join(err, f.close())
	}
	d := time.Duration(b.pick(4, 1)) * time.Second
	if err := b.load(ctx, t, d, prompts); err != nil {
		return errors.Join(err, f.close())
	}
	after, took := f.seen(), time.Since(began).Seconds()
	if err := f.close(); err != nil {
		return err
	}
	blocks := after.blocks - before.blocks
	values[rate] = append(values[rate], float64(blocks)/took)
	values[eventGaps] = append(values[eventGaps], float64(after.lost))
	if rate != fillRate {
		return nil
	}
	values[fillBatches] = append(values[fillBatches], float64(after.batches-before.batches)/took)
	return b.memory(ctx, t, start, toldMemory, values)
}

// memory is what the process holds more than before, for each block that its cache holds more.
func (b *bench) memory(ctx context.Context, t target, before held, figure string, values map[string][]float64) error {
	if t.admin == "" {
		return nil
	}
	after, err := memoryOf(ctx, t)
	if err != nil {
		return err
	}
	if after.blocks > before.blocks {
		values[figure] = append(values[figure], (after.rss-before.rss)/float64(after.blocks-before.blocks))
	}
	return ctx.Err()
}

// held is a process's memory and the blocks its cache holds.
type held struct {
	rss    float64
	blocks int
}

func memoryOf(ctx context.Context, t target) (h held, err error) {
	if t.admin == "" {
		return h, nil
	}
	truth, err := truthOf(ctx, t)
	asked := truth.MonoNs
	for err == nil && truth.Ranks[0].ResidentMonoNs < asked { // counting a large pool may take longer than an answer may
		truth, err = truthOf(ctx, t)
	}
	if err != nil {
		return h, err
	}
	u, err := usageOf(t.pid)
	return held{u.rss, truth.Ranks[0].ResidentBlocks}, err
}

func truthOf(ctx context.Context, t target) (truth contract.Truth, err error) {
	page, err := get(ctx, t.admin, "/admin/truth")
	if err != nil {
		return truth, err
	}
	if err := json.Unmarshal(page, &truth); err != nil || len(truth.Ranks) == 0 {
		return truth, fmt.Errorf("reading /admin/truth: %w", err)
	}
	return truth, nil
}

// load sends prompts that nobody sent before, for so long and at most so many.
func (b *bench) load(ctx context.Context, t target, d time.Duration, most int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	until := time.Now().Add(d)
	var sent atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range eventClients {
		g.Go(func() error {
			c, err := dial(ctx, t.addr, 4<<10)
			if err != nil {
				return err
			}
			defer c.Close()
			for sent.Add(1) <= int64(most) && time.Now().Before(until) {
				request, err := completion(t, map[string]any{"prompt": freshPrompt(), "max_tokens": 1})
				if err != nil {
					return err
				}
				if err := c.do(request, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// freshPrompt is promptBlocks whole blocks and one token. The first tokens are drawn anew, which makes all
// of its blocks new; the rest need not be random, and cost less so.
func freshPrompt() []uint32 {
	ids := make([]uint32, promptBlocks*blockSize+1)
	const first, vocab = 300, 100_000
	for i := range ids {
		ids[i] = first + uint32(i)
	}
	for i := range 4 {
		ids[i] = first + rand.Uint32N(vocab)
	}
	return ids
}

// tally is what a subscriber got.
type tally struct {
	blocks, batches, lost int64
}

// follower is a subscriber that counts.
type follower struct {
	sub    *zsock.Sub
	cancel context.CancelFunc
	done   chan error

	blocks, batches, lost atomic.Int64
}

// follow subscribes and returns when the connection stands. A batch published in the instants before the
// publisher has heard of the subscription is missed, and not counted as lost.
func follow(ctx context.Context, endpoint string) (*follower, error) {
	sub, err := zsock.DialSub(endpoint, zsock.SubOptions{Queue: 10_000})
	if err != nil {
		return nil, fmt.Errorf("subscribing to events: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{sub: sub, cancel: cancel, done: make(chan error, 1)}
	up := make(chan struct{})
	go func() { f.done <- f.count(ctx, up) }()
	select {
	case <-up:
		return f, nil
	case <-time.After(dialTimeout):
		return nil, errors.Join(fmt.Errorf("no publisher at %s within %s", endpoint, dialTimeout), f.close())
	}
}

func (f *follower) count(ctx context.Context, up chan<- struct{}) error {
	var batch events.Batch
	next := int64(-1)
	for {
		ev, err := f.sub.Recv(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		switch {
		case ev.Kind == zsock.SubUp && up != nil:
			close(up)
			up = nil
		case ev.Kind == zsock.SubMessage && len(ev.Frames) == 3 && len(ev.Frames[1]) == 8:
			seq := int64(binary.BigEndian.Uint64(ev.Frames[1]))
			if next >= 0 && seq > next {
				f.lost.Add(seq - next)
			}
			next = seq + 1
			if err := batch.Decode(ev.Frames[2]); err != nil {
				return fmt.Errorf("reading batch %d: %w", seq, err)
			}
			for i := range batch.Events {
				f.blocks.Add(int64(len(batch.Events[i].Hashes)))
			}
			f.batches.Add(1)
		}
	}
}

func (f *follower) seen() tally {
	return tally{f.blocks.Load(), f.batches.Load(), f.lost.Load()}
}

func (f *follower) close() error {
	f.cancel()
	return errors.Join(<-f.done, f.sub.Close())
}

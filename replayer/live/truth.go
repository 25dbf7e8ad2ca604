package live

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
	"fleetdrill/oracle"
)

// truth is what the engines of a fleet say about themselves, read while the load runs. The goroutine of follow
// owns everything but done until it has ended.
type truth struct {
	workers []*engineTruth
	// holders numbers every (worker, rank), in order.
	holders  int
	timeline *oracle.Timeline
	// lost says why the timeline has holes; nil when it has none.
	lost error

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// engineTruth is one worker's part.
type engineTruth struct {
	id          string
	api         lab.API
	ranks       []int
	firstHolder int
	state       contract.Truth // as it was before the load

	nextRequest int64
	requests    []contract.TruthRequest
}

// newTruth reads what the engines hold now; nothing may be sent to them yet.
func newTruth(ctx context.Context, workers []contract.ReadyWorker, client *http.Client) (*truth, error) {
	t := &truth{}
	for _, w := range workers {
		e := &engineTruth{id: w.ID, api: lab.API{Base: w.Admin, HTTP: client}, firstHolder: t.holders}
		for _, r := range w.Ranks {
			e.ranks = append(e.ranks, r.Rank)
		}
		t.holders += len(e.ranks)
		t.workers = append(t.workers, e)
	}
	t.timeline = oracle.NewTimeline(t.holders)
	for _, e := range t.workers {
		if err := e.begin(ctx, t.timeline); err != nil {
			return nil, fmt.Errorf("reading the truth of %s: %w", e.id, err)
		}
	}
	return t, nil
}

// begin reads the announced sets, and steps over the requests of earlier loads.
func (e *engineTruth) begin(ctx context.Context, t *oracle.Timeline) (err error) {
	if e.state, err = e.api.Truth(ctx); err != nil {
		return err
	}
	for i, rank := range e.ranks {
		var head contract.TruthBlocksHead
		var blocks []contract.TruthBlock
		err := e.lines(ctx, fmt.Sprintf("/admin/truth/blocks?set=announced&rank=%d", rank), func(line []byte) error {
			if head.Worker == "" {
				return json.Unmarshal(line, &head)
			}
			blocks = append(blocks, contract.TruthBlock{})
			return json.Unmarshal(line, &blocks[len(blocks)-1])
		})
		if err != nil {
			return err
		}
		t.Seed(e.firstHolder+i, head.Seq, head.MonoNs, blocks)
	}
	return e.readRequests(ctx, func(contract.TruthRequest) {})
}

// follow reads the journals until finish.
func (t *truth) follow(ctx context.Context) {
	ctx, t.stop = context.WithCancel(ctx)
	t.wg.Go(func() {
		tick := time.NewTicker(drainEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				t.drain(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
}

// finish reads the rest, and is the end of follow. It returns the engines' preemptions since the beginning.
func (t *truth) finish(ctx context.Context) (preemptions int) {
	t.stop()
	t.wg.Wait()
	t.drain(ctx)
	for _, e := range t.workers {
		now, err := e.api.Truth(ctx)
		if err != nil {
			t.lose(e, err)
			continue
		}
		preemptions += int(now.Counters["preemptions"] - e.state.Counters["preemptions"])
	}
	return preemptions
}

// drain reads what is new. A hole in the timeline is remembered and the rest goes on: who served a request is
// worth knowing even when nobody can say who could have.
func (t *truth) drain(ctx context.Context) {
	for _, e := range t.workers {
		err := e.readRequests(ctx, func(r contract.TruthRequest) { e.requests = append(e.requests, r) })
		for i, rank := range e.ranks {
			if t.lost == nil && err == nil {
				err = e.readJournal(ctx, rank, e.firstHolder+i, t.timeline)
			}
		}
		// A read that finish interrupted is read again by it.
		if err != nil && ctx.Err() == nil {
			t.lose(e, err)
		}
	}
}

func (t *truth) lose(e *engineTruth, err error) {
	if t.lost == nil {
		t.lost = fmt.Errorf("the truth of %s was lost: %w", e.id, err)
	}
}

func (e *engineTruth) readJournal(ctx context.Context, rank, holder int, t *oracle.Timeline) error {
	return e.lines(ctx, fmt.Sprintf("/admin/truth/journal?rank=%d&from=%d", rank, t.Next(holder)), func(line []byte) error {
		var j contract.TruthJournal
		if err := json.Unmarshal(line, &j); err != nil {
			return err
		}
		return t.Append(holder, &j)
	})
}

func (e *engineTruth) readRequests(ctx context.Context, take func(contract.TruthRequest)) error {
	return e.lines(ctx, fmt.Sprintf("/admin/truth/requests?from=%d", e.nextRequest), func(line []byte) error {
		var r contract.TruthRequest
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		e.nextRequest = r.N + 1
		take(r)
		return nil
	})
}

// maxTruthLine bounds one JSON line: a journal line of a step with 100,000 blocks.
const maxTruthLine = 32 << 20

// lines reads an answer of JSON lines; one that is cut short is an error of its last line.
func (e *engineTruth) lines(ctx context.Context, path string, take func(line []byte) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.api.Base+path, nil)
	if err != nil {
		return err
	}
	resp, err := e.api.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return fmt.Errorf("reading %s: status %d: %s", path, resp.StatusCode, bytes.TrimSpace(text))
	}
	s := bufio.NewScanner(resp.Body)
	s.Buffer(make([]byte, 0, 64<<10), maxTruthLine)
	for s.Scan() {
		if err := take(s.Bytes()); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
	}
	return errors.Join(s.Err())
}

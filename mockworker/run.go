package mockworker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Run serves c.Count workers until ctx ends, then lets open requests go on for c.ShutdownGrace. It returns
// nil after an orderly end, and an error when something could not be bound, written or served.
func Run(ctx context.Context, c Config) (err error) {
	p, err := c.plan()
	if err != nil {
		return err
	}
	var workers []*worker
	defer func() { err = errors.Join(err, closeAll(workers)) }()
	failed := make(chan error, 3*len(p.ids)) // each worker has up to three servers
	for i := range p.ids {
		w, err := newWorker(p, i, failed)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	for _, w := range workers {
		w.log.Info("worker serves", "http", w.ready.HTTP, "admin", w.ready.Admin, "grpc", w.ready.GRPC, "ranks", w.ready.Ranks)
	}
	if p.ReadyFile != "" {
		if err := writeReady(p.ReadyFile, workers); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	drainAll(workers, p.ShutdownGrace)
	return err
}

// drainAll lets the open requests of all workers end, for at most grace.
func drainAll(workers []*worker, grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() { w.drain(ctx) })
	}
	wg.Wait()
}

func closeAll(workers []*worker) (err error) {
	for _, w := range workers {
		err = errors.Join(err, w.close())
	}
	return err
}

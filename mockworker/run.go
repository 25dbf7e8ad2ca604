package mockworker

import (
	"context"
	"errors"
	"sync"
	"time"

	"fleetdrill/internal/clock"
)

// Run serves c.Count workers until ctx ends, then lets open requests go on for c.ShutdownGrace. It returns
// nil after an orderly end, and an error when something could not be bound, written or served.
func Run(ctx context.Context, c Config) (err error) {
	p, err := c.plan()
	if err != nil {
		return err
	}
	if p.BootModels == bootModelsLate && !boot(ctx, p.BootDelay) {
		return nil
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
	if p.BootModels == bootModelsEarly && !boot(ctx, p.BootDelay) {
		return nil
	}
	for _, w := range workers {
		w.log.Info("worker serves", "http", w.ready.HTTP, "admin", w.ready.Admin, "grpc", w.ready.GRPC, "ranks", w.ready.Ranks)
	}
	if p.ReadyFile != "" {
		if err := writeReady(p.ReadyFile, workers); err != nil {
			return err
		}
	}
	releaseBoot()
	defer boundGarbage()()
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	drainAll(workers, p.ShutdownGrace)
	return err
}

// boot lasts as long as a worker takes to start; false when ctx ends before.
func boot(ctx context.Context, delay time.Duration) bool {
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// bootUntil is when the API of a worker that is made now serves everything; 0 is at once.
func (p *plan) bootUntil() int64 {
	if p.BootDelay == 0 || p.BootModels == bootModelsLate {
		return 0
	}
	return clock.MonoNs() + int64(p.BootDelay)
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

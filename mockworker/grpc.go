package mockworker

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"fleetdrill/mockworker/enginegrpc"
)

// serveGRPC binds and serves the gRPC port of worker i, if it is to have one.
func (w *worker) serveGRPC(p *plan, i int) error {
	if p.GRPCPort < 0 {
		return nil
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(p.Host, strconv.Itoa(portOf(p.GRPCPort, i))))
	if err != nil {
		return fmt.Errorf("gRPC port: binding: %w", err)
	}
	o := enginegrpc.Options{
		Model: p.Model, Version: engineVersion(p.Wire), BlockSize: p.engine.BlockSize, NumBlocks: p.engine.NumBlocks,
		MaxModelLen: p.MaxModelLen, MaxTokens: p.ChatMaxTokens, MaxMessageBytes: int(p.MaxBodyBytes), FullLoads: p.FullLoads(), Log: w.log,
	}
	for _, r := range w.ranks {
		o.Ranks = append(o.Ranks, enginegrpc.Rank{Loop: r.Loop, Publisher: r.Publisher})
	}
	w.grpc = enginegrpc.New(o)
	w.ready.GRPC = dialable(ln.Addr().(*net.TCPAddr))
	w.wg.Go(func() {
		if err := w.grpc.Serve(ln); err != nil {
			w.failed <- fmt.Errorf("serving gRPC on %s: %w", ln.Addr(), err)
		}
	})
	return nil
}

func (w *worker) drainGRPC(ctx context.Context) {
	if w.grpc != nil && !w.grpc.Drain(ctx) {
		w.log.Warn("gRPC calls are still open at the end of the grace")
	}
}

func (w *worker) closeGRPC() {
	if w.grpc != nil {
		w.grpc.Close()
	}
}

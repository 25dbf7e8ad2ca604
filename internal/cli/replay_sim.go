package cli

import (
	"context"
	"fmt"
	"time"

	"fleetdrill/gateway"
	"fleetdrill/mockworker/engine"
	"fleetdrill/replayer/live"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/result"
	"fleetdrill/replayer/sim"
)

// loadPush is the --load-interval of workers that send their load by themselves.
const loadPush = "push"

// parseInterval reads --load-interval: a period, or push.
func parseInterval(s string) (every time.Duration, push bool, err error) {
	if s == loadPush {
		return time.Second, true, nil
	}
	if every, err = time.ParseDuration(s); err != nil || every <= 0 {
		return 0, false, fmt.Errorf("--load-interval %q: want a period above zero, or %s", s, loadPush)
	}
	return every, false, nil
}

// checkSim refuses what only a simulation can do, when none is asked for.
func (o *replayOptions) checkSim(changed func(string) bool) error {
	if o.loadReport != sim.LoadFull && o.loadReport != sim.LoadVLLM {
		return fmt.Errorf("--load-report %q: want %s or %s", o.loadReport, sim.LoadFull, sim.LoadVLLM)
	}
	if o.eventDelay < 0 {
		return fmt.Errorf("--event-delay %s: must not be negative", o.eventDelay)
	}
	if o.sim {
		return nil
	}
	for _, name := range []string{"event-delay", "load-report", "hash"} {
		if changed(name) {
			return fmt.Errorf("--%s: only with --sim", name)
		}
	}
	if o.loadPush {
		return fmt.Errorf("--load-interval %s: only with --sim", loadPush)
	}
	return nil
}

// simulate runs one policy in simulated time.
func (o *replayOptions) simulate(ctx context.Context, p *plan.Plan, info result.Info, lines *progress) (*live.Outcome, error) {
	prof, err := engine.LoadProfile(o.profile)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	r, err := sim.Run(ctx, sim.Config{
		Plan: p, Workers: o.workers, Policy: info.Policy, KVIndex: o.kvIndex, Retries: gateway.DefaultConfig().Retries, Profile: prof, NumBlocks: o.kvBlocks, BlockSize: o.blockSize,
		MaxNumSeqs: o.engine.maxNumSeqs, MaxNumBatchedTokens: o.engine.maxBatchedTokens, ReserveFullISL: o.engine.reserveFull, Late: o.engine.late,
		MaxModelLen: o.plan.ModelLimit, Hash: o.hash, Seed: o.plan.Seed, EventDelay: o.eventDelay,
		LoadReport: o.loadReport, LoadPush: o.loadPush, LoadEvery: o.loadEvery, LoadMaxAge: o.loadMaxAge,
		Progress: func(ended int, virtualNs int64) {
			lines.sim(ended, len(p.Requests), float64(virtualNs)/1e9, time.Since(began))
		},
	})
	if err != nil {
		return nil, err
	}
	info.Mode, info.WallS, info.VirtualS = result.Sim, time.Since(began).Seconds(), float64(r.VirtualNs)/1e9
	info.WorkerIDs, info.KVBlocks, info.BlockSize, info.Hash, info.Preemptions = r.WorkerIDs, r.KVBlocks, r.BlockSize, r.Hash, int(r.Preemptions)
	return &live.Outcome{Info: info, Requests: r.Requests}, nil
}

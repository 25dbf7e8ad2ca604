package bench

import (
	"context"
	"fmt"
)

// The benches that need no corpus: one fresh process per index and shape.

// each runs a task and keeps its result.
func each[T any](ctx context.Context, run Runner, t Task, say func(string), what string) (*T, error) {
	if say != nil {
		say(what)
	}
	result := new(T)
	if err := run(ctx, t, result); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return result, nil
}

// ChurnAll lives the same life with every index.
func ChurnAll(ctx context.Context, run Runner, indexes []string, s ChurnSpec, say func(string)) (*ChurnReport, error) {
	out := &ChurnReport{}
	for _, name := range indexes {
		s.Index = name
		r, err := each[ChurnResult](ctx, run, Task{Churn: &s}, say, fmt.Sprintf("%s: %d events", name, s.Events))
		if err != nil {
			return nil, err
		}
		out.Rows, out.Runs = append(out.Rows, r.Rows...), append(out.Runs, r)
	}
	return out, nil
}

// MemoryAll fills every index in both shapes; quick with an eighth of the memberships.
func MemoryAll(ctx context.Context, run Runner, indexes []string, quick bool, say func(string)) (*MemoryReport, error) {
	out := &MemoryReport{}
	for _, name := range indexes {
		for _, s := range MemoryShapes(name) {
			if quick {
				s.Memberships /= 8
			}
			r, err := each[MemoryRow](ctx, run, Task{Memory: &s}, say, fmt.Sprintf("%s: %d to %d holders per chain", name, s.MinHolders, s.MaxHolders))
			if err != nil {
				return nil, err
			}
			out.Rows = append(out.Rows, *r)
		}
	}
	return out, nil
}

// DecisionAll decides with every policy, index and size of fleet.
func DecisionAll(ctx context.Context, run Runner, indexes, policies []string, workers []int, quick bool, say func(string)) (*DecisionReport, error) {
	out := &DecisionReport{}
	for _, n := range workers {
		for _, name := range indexes {
			for _, p := range policies {
				s := DefaultDecision(name, p, n, quick)
				r, err := each[DecisionRow](ctx, run, Task{Decision: &s}, say, fmt.Sprintf("%s, %s: %d workers", name, p, n))
				if err != nil {
					return nil, err
				}
				out.Rows = append(out.Rows, *r)
			}
		}
	}
	return out, nil
}

// PeerAll measures every index in both shapes of the peer's bench.
func PeerAll(ctx context.Context, run Runner, indexes []string, quick bool, say func(string)) (*PeerReport, error) {
	out := &PeerReport{}
	for _, name := range indexes {
		for _, s := range PeerShapes(name, quick) {
			r, err := each[PeerRow](ctx, run, Task{Peer: &s}, say, fmt.Sprintf("%s: every chain on %d of %d holders", name, s.PerChain, s.Holders))
			if err != nil {
				return nil, err
			}
			out.Rows = append(out.Rows, *r)
		}
	}
	return out, nil
}

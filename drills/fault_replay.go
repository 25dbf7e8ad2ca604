package drills

import (
	"context"
	"errors"
	"fmt"

	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
)

// replayFault makes an engine's replay socket misbehave. Every look is a request of the lab's own.
type replayFault struct{ hookFault }

func replayKind(kind string) func(scene) fault {
	return func(s scene) fault { return &replayFault{hookFault: s.armed(kind)} }
}

// replayed is an answer: how many batches, and whether its end marker came.
type replayAnswer struct {
	batches int
	ended   bool
}

// wrong says what is not as the fault makes a replay; "" is nothing.
func (a replayAnswer) wrong(kind string, p scenario.Params) string {
	want := replayAnswer{}
	switch kind {
	case contract.FaultReplayEmpty:
		want.ended = true
	case contract.FaultReplayTruncate:
		want = replayAnswer{int(p.Whole("after")), p.Word("end") == "keep"}
	}
	if a == want {
		return ""
	}
	return fmt.Sprintf("it has %v, want %v", a, want)
}

// String is "3 batches and no end marker".
func (a replayAnswer) String() string {
	if a.ended {
		return fmt.Sprintf("%d batches and an end marker", a.batches)
	}
	return fmt.Sprintf("%d batches and no end marker", a.batches)
}

func (f *replayFault) ask(ctx context.Context) (replayAnswer, error) {
	got, err := replayWithin(ctx, f.worker, 0, canarySilence)
	if errors.Is(err, errQuiet) {
		return replayAnswer{batches: len(got)}, nil
	}
	return replayAnswer{len(got), true}, err
}

// prepare wants a whole answer that has something to lose.
func (f *replayFault) prepare(ctx context.Context) error {
	return poll(ctx, ghostPoll, "the replay has nothing to lose", func() (bool, error) {
		a, err := f.ask(ctx)
		return a.ended && a.batches > int(f.params.Whole("after")), err
	})
}

func (f *replayFault) confirm(ctx context.Context) (proof, error) {
	var e record.Evidence
	err := poll(ctx, ghostPoll, "the replay is as it should be", func() (bool, error) {
		a, err := f.ask(ctx)
		e = seen(clock.MonoNs(), "a replay request of the lab's own to %s got %v", f.worker.ID, a)
		return a.wrong(f.kind, f.params) == "", err
	})
	if err != nil {
		return proof{}, err
	}
	return f.proven(ctx, e)
}

func (f *replayFault) check(ctx context.Context) ([]record.Evidence, error) {
	a, err := f.ask(ctx)
	if wrong := a.wrong(f.kind, f.params); err == nil && wrong != "" {
		err = fmt.Errorf("the replay of %s was not broken to the end: %s", f.worker.ID, wrong)
	}
	return []record.Evidence{seen(clock.MonoNs(), "a replay request of the lab's own to %s still got %v", f.worker.ID, a)}, err
}

func (f *replayFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	if err := f.prepare(ctx); err != nil {
		return nil, err
	}
	return []record.Evidence{seen(clock.MonoNs(), "a replay request of the lab's own to %s got everything", f.worker.ID)}, nil
}

func (f *replayFault) close() {}

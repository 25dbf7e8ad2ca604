package drills

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
)

// hookPoll is the pause between two looks at a hook's state.
const hookPoll = 10 * time.Millisecond

// hook is the lab's end of one fault hook inside an engine.
type hook struct {
	worker *lab.Worker
	id     string
}

// arm asks the engine for the fault.
func (h *hook) arm(ctx context.Context, body map[string]any) (err error) {
	h.id, err = h.worker.Admin.AddFault(ctx, body)
	if err == nil && h.id == "" {
		err = errors.New("the engine gave the fault no id")
	}
	return err
}

// awaitActed waits until the hook says that it has acted. The engine's word alone confirms nothing, but
// it tells the instant better than what can be seen from outside.
func (h *hook) awaitActed(ctx context.Context) (record.Evidence, error) {
	var e record.Evidence
	err := poll(ctx, hookPoll, "the hook has not acted", func() (bool, error) {
		f, err := h.state(ctx)
		if err != nil || f.Acted == 0 {
			return false, err
		}
		e = seen(clock.MonoNs(), "%s says: %s %s is %s, acted %d times, first at %d%s", h.worker.ID, f.Kind, f.ID, f.State,
			f.Acted, f.FirstActedMonoNs, quoted(f.Evidence))
		return true, nil
	})
	return e, err
}

func (h *hook) state(ctx context.Context) (contract.TruthFault, error) {
	if h.id == "" {
		return contract.TruthFault{}, errors.New("no hook is armed")
	}
	all, err := h.worker.Admin.Faults(ctx)
	if err != nil {
		return contract.TruthFault{}, err
	}
	for _, f := range all {
		if f.ID == h.id {
			return f, nil
		}
	}
	return contract.TruthFault{}, fmt.Errorf("%s does not know hook %s", h.worker.ID, h.id)
}

func (h *hook) end(ctx context.Context) error {
	if h.id == "" {
		return nil
	}
	return h.worker.Admin.HealFault(ctx, h.id)
}

// maxQuoted bounds how much of an engine's own evidence goes into a line.
const maxQuoted = 3

func quoted(evidence []string) string {
	if len(evidence) == 0 {
		return ""
	}
	n := min(len(evidence), maxQuoted)
	return " (" + strings.Join(evidence[:n], "; ") + ")"
}

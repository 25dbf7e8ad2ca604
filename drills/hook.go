package drills

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
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

// hookFault is what every fault has that an engine is armed with: the scene, the hook and how to arm and heal
// it.
type hookFault struct {
	scene
	kind string
	hook hook
}

// armed is the base of a fault of a kind on this scene.
func (s scene) armed(kind string) hookFault {
	return hookFault{scene: s, kind: kind, hook: hook{worker: s.worker}}
}

func (f *hookFault) inject(ctx context.Context) error {
	return f.hook.arm(ctx, hookBody(f.kind, f.params))
}

func (f *hookFault) heal(ctx context.Context) error { return f.hook.end(ctx) }

// proven is the proof of what the lab saw, with the hook's own word in front.
func (f *hookFault) proven(ctx context.Context, saw ...record.Evidence) (proof, error) {
	acted, err := f.hook.awaitActed(ctx)
	return proof{evidence: append([]record.Evidence{acted}, saw...)}, err
}

// hookBody is the fault as the engine is asked for it. How long it lasts is not told: the lab heals it.
func hookBody(kind string, p scenario.Params) map[string]any {
	body := map[string]any{"kind": kind}
	if h, _ := contract.HookOf(kind); !h.HTTP {
		body["rank"] = 0
	}
	for _, x := range p {
		body[x.Name] = x.Value
		if d, ok := x.Value.(time.Duration); ok {
			body[x.Name] = d.String()
		}
	}
	if kind == contract.FaultExit && !p.Has("after_tokens") && p.Word("on") == "token" {
		body["at"] = time.Millisecond.String() // busy or not
	}
	return body
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

// awaitDone waits until the hook has ended by itself, and does something for it meanwhile.
func (h *hook) awaitDone(ctx context.Context, meanwhile func() error) error {
	return poll(ctx, hookPoll, "the hook is not done", func() (bool, error) {
		f, err := h.state(ctx)
		if err != nil || f.State == contract.FaultDone {
			return err == nil, err
		}
		return false, meanwhile()
	})
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

package drills

import (
	"context"
	"fmt"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
)

// ghostPoll is the pause between two readings of an engine's whole cache.
const ghostPoll = 100 * time.Millisecond

// watcher is a tap that knows what was published before it came up, and compares it with what the engine
// holds. What is no longer in the replay buffer it does not know, and says nothing about.
type watcher struct {
	tap     *tap
	history []batch
}

func newWatcher(ctx context.Context, s scene) (*watcher, error) {
	t, _, err := readyTap(ctx, s)
	w := &watcher{tap: t}
	if err == nil {
		w.history, err = replay(ctx, s.worker, 0)
	}
	return w, err
}

// all are the batches of the replay and those of the tap behind them.
func (w *watcher) all() []batch {
	out := w.history[:len(w.history):len(w.history)]
	last := int64(-1)
	if len(out) > 0 {
		last = out[len(out)-1].seq
	}
	for _, b := range w.tap.all() {
		if b.seq > last {
			out, last = append(out, b), b.seq
		}
	}
	return out
}

// ghosts are the blocks that the lab's subscription holds and the engine does not, at one sequence number.
func (w *watcher) ghosts(ctx context.Context, s scene) (map[uint64]bool, holding, error) {
	return w.compare(ctx, s, ghosts)
}

// unheard are those that the engine has and the lab's subscription does not hold.
func (w *watcher) unheard(ctx context.Context, s scene) (map[uint64]bool, holding, error) {
	return w.compare(ctx, s, unheard)
}

func (w *watcher) compare(ctx context.Context, s scene, by func([]batch, holding) map[uint64]bool) (map[uint64]bool, holding, error) {
	has, err := holds(ctx, s)
	if err != nil {
		return nil, has, err
	}
	err = w.tap.await(ctx, "the lab's own subscription does not come as far as the engine", func(bool, []batch) (bool, error) {
		all := w.all()
		return len(all) > 0 && all[len(all)-1].seq >= has.seq || has.seq < 0, nil
	})
	return by(w.all(), has), has, err
}

func (w *watcher) closeIf() {
	if w != nil {
		w.tap.closeIf()
	}
}

// noGhosts wants an engine that holds what it has announced.
func noGhosts(ctx context.Context, s scene) (*watcher, error) {
	w, err := newWatcher(ctx, s)
	if err != nil {
		return w, err
	}
	g, _, err := w.ghosts(ctx, s)
	if err == nil && len(g) > 0 {
		err = fmt.Errorf("%s lacks %d blocks that it has announced, before anything was done", s.worker.ID, len(g))
	}
	return w, err
}

// removalsFault makes an engine announce its evictions late or never. It acts when something is evicted: the
// cache must be full.
type removalsFault struct {
	hookFault
	watcher *watcher
	ghosts  map[uint64]bool
}

func (f *removalsFault) prepare(ctx context.Context) (err error) {
	f.watcher, err = noGhosts(ctx, f.scene)
	return err
}

func (f *removalsFault) confirm(ctx context.Context) (proof, error) {
	var e record.Evidence
	err := poll(ctx, ghostPoll, "the engine has every block that it has announced", func() (bool, error) {
		g, has, err := f.watcher.ghosts(ctx, f.scene)
		if len(g) > 0 {
			f.ghosts = g
			e = seen(clock.MonoNs(), "at batch %d the lab's own subscription holds %d blocks that %s has evicted", has.seq, len(g), f.worker.ID)
		}
		return len(g) > 0, err
	})
	if err != nil {
		return proof{}, err
	}
	return f.proven(ctx, e)
}

func (f *removalsFault) check(ctx context.Context) ([]record.Evidence, error) {
	g, has, err := f.watcher.ghosts(ctx, f.scene)
	if err == nil && len(g) == 0 {
		err = fmt.Errorf("at batch %d %s has every block that it has announced", has.seq, f.worker.ID)
	}
	return []record.Evidence{seen(clock.MonoNs(), "%d blocks that %s has evicted are still announced", len(g), f.worker.ID)}, err
}

// confirmHealed wants late removals to have arrived. Of muted ones nothing is left that could; the next
// eviction must be announced.
func (f *removalsFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	from := f.watcher.tap.count()
	if f.kind == contract.FaultLateRemovals {
		err := poll(ctx, ghostPoll, "late removals do not come", func() (bool, error) {
			g, _, err := f.watcher.ghosts(ctx, f.scene)
			return len(g) == 0, err
		})
		return []record.Evidence{seen(clock.MonoNs(), "%s has every block again that the lab's own subscription holds", f.worker.ID)}, err
	}
	err := f.watcher.tap.await(ctx, "the lab's own subscription sees no removal", func(_ bool, seen []batch) (bool, error) {
		for _, b := range seen[from:] {
			if b.anyEvent(func(e wireEvent) bool { return e.kind == wireRemoved }) {
				return true, nil
			}
		}
		return false, nil
	})
	return []record.Evidence{seen(clock.MonoNs(), "the lab's own subscription to %s sees a removal", f.worker.ID)}, err
}

func (f *removalsFault) close() { f.watcher.closeIf() }

// storesFault makes an engine announce none of its stores.
type storesFault struct {
	hookFault
	watcher *watcher
	canary  *canary
}

// prepare wants a replay that goes back to the beginning: what the lab has not heard of is then unannounced.
func (f *storesFault) prepare(ctx context.Context) (err error) {
	f.canary = newCanary(f.worker, f.token)
	if f.watcher, err = noGhosts(ctx, f.scene); err != nil {
		return err
	}
	u, _, err := f.watcher.unheard(ctx, f.scene)
	if err == nil && len(u) > 0 {
		err = fmt.Errorf("%s has %d blocks that the lab's own subscription and replay do not tell of, before anything was done", f.worker.ID, len(u))
	}
	return err
}

// look fills blocks with a prompt of the lab's own and counts those that are not heard of.
func (f *storesFault) look(ctx context.Context) (n int, e record.Evidence, err error) {
	if err := f.canary.prompt(ctx, f.canary.blocks(f.blockSize)); err != nil {
		return 0, e, err
	}
	u, has, err := f.watcher.unheard(ctx, f.scene)
	return len(u), seen(clock.MonoNs(), "at batch %d %s has %d blocks that the lab's own subscription has not heard of", has.seq, f.worker.ID, len(u)), err
}

func (f *storesFault) confirm(ctx context.Context) (proof, error) {
	var e record.Evidence
	err := poll(ctx, ghostPoll, "the lab's own subscription hears of every block that the engine has", func() (bool, error) {
		n, told, err := f.look(ctx)
		e = told
		return n > 0, err
	})
	if err != nil {
		return proof{}, err
	}
	return f.proven(ctx, e)
}

func (f *storesFault) check(ctx context.Context) ([]record.Evidence, error) {
	n, e, err := f.look(ctx)
	if err == nil && n == 0 {
		err = fmt.Errorf("the lab's own subscription hears of every block that %s has", f.worker.ID)
	}
	return []record.Evidence{e}, err
}

// confirmHealed wants a prompt's blocks to be heard of. Those from before never will be.
func (f *storesFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	from := f.watcher.tap.count()
	if err := f.canary.prompt(ctx, f.canary.blocks(f.blockSize)); err != nil {
		return nil, err
	}
	err := f.watcher.tap.await(ctx, "the lab's own subscription sees no store", func(_ bool, all []batch) (bool, error) {
		for _, b := range all[from:] {
			if b.anyStore(func(wireEvent) bool { return true }) {
				return true, nil
			}
		}
		return false, nil
	})
	return []record.Evidence{seen(clock.MonoNs(), "the lab's own subscription to %s sees a store", f.worker.ID)}, err
}

func (f *storesFault) close() { f.watcher.closeIf(); f.canary.closeIf() }

// clearFault empties an engine's cache, with or without saying so. It is over in the moment it acts; what it
// leaves behind is seen.
type clearFault struct {
	hookFault
	watcher *watcher
	canary  *canary
	first   int
}

// prepare wants something to lose.
func (f *clearFault) prepare(ctx context.Context) (err error) {
	f.canary = newCanary(f.worker, f.token)
	if f.watcher, err = noGhosts(ctx, f.scene); err != nil {
		return err
	}
	has, err := holds(ctx, f.scene)
	if err == nil && len(has.blocks) == 0 {
		err = fmt.Errorf("the cache of %s is empty", f.worker.ID)
	}
	return err
}

func (f *clearFault) inject(ctx context.Context) error {
	f.first = f.watcher.tap.count()
	return f.hookFault.inject(ctx)
}

func (f *clearFault) confirm(ctx context.Context) (p proof, err error) {
	var e record.Evidence
	if f.kind == contract.FaultClear {
		e, err = f.announced(ctx)
	} else {
		e, err = f.silent(ctx)
	}
	if err != nil {
		return p, err
	}
	p, err = f.proven(ctx, e)
	p.healed = &record.Interval{Lo: e.MonoNs, Hi: e.MonoNs}
	return p, err
}

// announced waits for the event, which goes out with the next step: a completion of the lab's own sees to
// that.
func (f *clearFault) announced(ctx context.Context) (e record.Evidence, err error) {
	if _, err := f.canary.complete(ctx); err != nil {
		return e, err
	}
	err = f.watcher.tap.await(ctx, "the lab's own subscription sees no AllBlocksCleared", func(_ bool, all []batch) (bool, error) {
		for _, b := range all[f.first:] {
			if b.anyEvent(func(e wireEvent) bool { return e.kind == wireCleared }) {
				e = seen(b.monoNs, "the lab's own subscription to %s sees AllBlocksCleared in batch %d", f.worker.ID, b.seq)
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return e, err
	}
	g, _, err := f.watcher.ghosts(ctx, f.scene)
	if err == nil && len(g) > 0 {
		err = fmt.Errorf("after AllBlocksCleared %s lacks %d blocks that it has announced since", f.worker.ID, len(g))
	}
	return e, err
}

// silent waits until the lab's subscription holds what the engine has lost.
func (f *clearFault) silent(ctx context.Context) (e record.Evidence, err error) {
	err = poll(ctx, ghostPoll, "the engine has every block that it has announced", func() (bool, error) {
		g, has, err := f.watcher.ghosts(ctx, f.scene)
		e = seen(clock.MonoNs(), "at batch %d the lab's own subscription holds %d blocks that %s has lost", has.seq, len(g), f.worker.ID)
		return len(g) > 0, err
	})
	return e, err
}

func (f *clearFault) check(context.Context) ([]record.Evidence, error)         { return nil, errEndsItself }
func (f *clearFault) confirmHealed(context.Context) ([]record.Evidence, error) { return nil, nil }
func (f *clearFault) close()                                                   { f.watcher.closeIf(); f.canary.closeIf() }

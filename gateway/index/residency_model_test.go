package index_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/chain"
	"fleetdrill/gateway/index/maptree"
	"fleetdrill/gateway/index/sharded"
	"fleetdrill/internal/leaks"
	"fleetdrill/internal/tokens"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	modelHolders = 3
	modelHashes  = 12 // few, so that they move, come again and name evicted parents
	modelTiers   = 3  // device, host, kept
	mostCopies   = 8
)

// copied is a block of the model: the contents from the root to it, and its copies per tier.
type copied struct {
	chain  string
	copies [modelTiers]int
}

// model is what one holder has, by engine hash. It counts by looking at everything.
type model map[uint64]*copied

func (m model) store(tier index.Tier, parent uint64, hasParent bool, hashes, contents []uint64) (res index.StoreResult) {
	path := ""
	if hasParent {
		p := m[parent]
		if p == nil {
			return index.StoreResult{UnknownParent: true}
		}
		path = p.chain
	}
	for i, hash := range hashes {
		path += string(rune(contents[i]))
		b := m[hash]
		switch {
		case b == nil:
			b = &copied{}
			m[hash] = b
			res.Stored++
		case b.chain == path:
			res.Duplicate++
			res.Known = append(res.Known, hash)
		default:
			res.Moved++
			res.Known = append(res.Known, hash)
		}
		b.chain = path
		b.copies[tier] = min(b.copies[tier]+1, mostCopies)
	}
	return res
}

// remove lists the hashes whose membership ended, and those without a copy in the tier.
func (m model) remove(tier index.Tier, hashes []uint64) (ended, unknown []uint64) {
	for _, hash := range hashes {
		b := m[hash]
		if b == nil || b.copies[tier] == 0 {
			unknown = append(unknown, hash)
			continue
		}
		if b.copies[tier]--; b.copies == [modelTiers]int{} {
			delete(m, hash)
			ended = append(ended, hash)
		}
	}
	return ended, unknown
}

func (m model) attach(tier index.Tier, hashes []uint64) (unknown []uint64) {
	for _, hash := range hashes {
		if b := m[hash]; b != nil {
			b.copies[tier] = min(b.copies[tier]+1, mostCopies)
		} else {
			unknown = append(unknown, hash)
		}
	}
	return unknown
}

// score is the leading blocks of a chain.
func (m model) score(contents []uint64) (n uint32) {
	has := map[string]bool{}
	for _, b := range m {
		has[b.chain] = true
	}
	path := ""
	for _, c := range contents {
		if path += string(rune(c)); !has[path] {
			break
		}
		n++
	}
	return n
}

// life is one holder beside its model. Only one goroutine drives it.
type life struct {
	*index.Residency
	h     index.Holder
	model model
	draw  func(n int) int
	shed  int64 // as counted when the model was last told
}

// event makes one event of random kind and reports a result that is not the model's.
func (l *life) event() error {
	tier := index.Tier(l.draw(modelTiers))
	hashes := make([]uint64, 1+l.draw(4))
	for i := range hashes { // one may come twice
		hashes[i] = 1 + uint64(l.draw(modelHashes))
	}
	switch kind := l.draw(20); kind {
	case 0:
		l.Clear(l.h)
		clear(l.model)
	case 1:
		l.Drop(l.h)
		clear(l.model)
		l.shed = 0
	case 2, 3, 4, 5, 6, 7:
		list := slices.Clone(hashes)
		wantEnded, wantUnknown := l.model.remove(tier, hashes)
		removed, unknown := l.RemoveTier(l.h, tier, list)
		if removed != len(wantEnded) || unknown != len(wantUnknown) {
			return fmt.Errorf("removal of %v from tier %d: %d ended and %d unknown, want %v and %v", hashes, tier, removed, unknown, wantEnded, wantUnknown)
		}
		if got := list[:removed+unknown]; !sameSet(got[:removed], wantEnded) || !sameSet(got[removed:], wantUnknown) {
			return fmt.Errorf("removal of %v from tier %d left %v, want %v then %v", hashes, tier, got, wantEnded, wantUnknown)
		}
	case 8, 9, 10:
		want := l.model.attach(tier, hashes)
		if got := l.Attach(l.h, tier, slices.Clone(hashes)); !slices.Equal(got, want) {
			return fmt.Errorf("attaching %v to tier %d: %v are unknown, want %v", hashes, tier, got, want)
		}
	default:
		contents := make([]uint64, len(hashes))
		for i := range contents {
			contents[i] = 1 + uint64(l.draw(3))
		}
		parent, hasParent := 1+uint64(l.draw(modelHashes)), l.draw(2) == 0
		want := l.model.store(tier, parent, hasParent, hashes, contents)
		if got := l.StoreTier(l.h, tier, parent, hasParent, hashes, contents); !cmp.Equal(got, want) {
			return fmt.Errorf("store of %v as %v under %d (%v) in tier %d: %+v, want %+v", contents, hashes, parent, hasParent, tier, got, want)
		}
	}
	return nil
}

func sameSet(a, b []uint64) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// forget takes what was shed since out of the model: as many blocks as were counted, with all their copies.
func (l *life) forget() error {
	held := map[uint64]bool{}
	l.Index().Each(l.h, func(m index.Membership) bool { held[m.Hash] = true; return true })
	gone := int64(0)
	for hash := range l.model {
		if !held[hash] {
			delete(l.model, hash)
			gone++
		}
	}
	shed := l.Shed(l.h)
	if shed-l.shed != gone {
		return fmt.Errorf("holder %d: %d blocks are gone, %d were counted as shed", l.h, gone, shed-l.shed)
	}
	l.shed = shed
	return nil
}

// compare holds every count of the holder against the model.
func (l *life) compare() error {
	if got := l.Index().Count(l.h); got != len(l.model) {
		return fmt.Errorf("holder %d: %d memberships, want %d", l.h, got, len(l.model))
	}
	want := map[uint64][2]bool{}
	for tier := range modelTiers {
		blocks, digest := 0, uint64(0)
		for hash, b := range l.model {
			if b.copies[tier] > 0 {
				blocks++
				digest += tokens.DigestTerm(hash)
			}
			if device, host := b.copies[index.Device] > 0, b.copies[index.Host] > 0; device || host {
				want[hash] = [2]bool{device, host}
			}
		}
		if n, d := l.Sums(l.h, index.Tier(tier)); n != blocks || d != digest {
			return fmt.Errorf("holder %d, tier %d: %d blocks and %x, want %d and %x", l.h, tier, n, d, blocks, digest)
		}
	}
	got := map[uint64][2]bool{}
	l.EachTier(l.h, func(m index.Membership, device, host bool) bool {
		got[m.Hash] = [2]bool{device, host}
		return true
	})
	if !maps.Equal(got, want) {
		return fmt.Errorf("holder %d: tiers %v, want %v", l.h, got, want)
	}
	return nil
}

func (l *life) scores(contents []uint64) error {
	if got := append(l.Index().Lookup(contents, nil), make(index.Scores, modelHolders)...)[l.h]; got != l.model.score(contents) {
		return fmt.Errorf("holder %d scores %d on %v, want %d", l.h, got, contents, l.model.score(contents))
	}
	return nil
}

// Tiers, copies, copies that only keep a membership, dropped and reused holders, and a bound that sheds: after every
// event all counts and scores equal those of maps that are looked at whole.
func TestResidencyEqualsAModel(t *testing.T) {
	shed := int64(0)
	for name, fresh := range map[string]func() index.Index{
		"chain": func() index.Index { return chain.New() }, "maptree": func() index.Index { return maptree.New() },
		"two shards": func() index.Index { return sharded.New(2, func() index.Index { return chain.New() }) },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
				ix := fresh()
				if b, ok := ix.(index.Bounded); ok && draw(2) == 0 {
					b.SetMaxBytes(int64(200 + draw(1000)))
				}
				r := index.NewResidency(ix)
				lives := make([]*life, modelHolders)
				for h := range lives {
					lives[h] = &life{Residency: r, h: index.Holder(h), model: model{}, draw: draw}
				}
				for range rapid.IntRange(1, 40).Draw(t, "events") {
					err := lives[draw(modelHolders)].event()
					contents := make([]uint64, 1+draw(4))
					for i := range contents {
						contents[i] = 1 + uint64(draw(3))
					}
					for _, l := range lives {
						for _, check := range []func() error{l.forget, l.compare, func() error { return l.scores(contents) }} {
							if err == nil {
								err = check()
							}
						}
						shed += l.shed
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
	if shed == 0 {
		t.Error("no history shed a block")
	}
}

// The same with one writer per holder and readers beside them. Without a bound each writer's holder equals its model
// after every event. With one, others may shed from it at any time: what was stored and neither removed nor shed is
// what is held, and the sums are those of what is listed.
func TestResidencyUnderReaders(t *testing.T) {
	events := 20_000
	if testing.Short() {
		events = 2000
	}
	for _, bound := range []int64{0, 700} {
		t.Run(fmt.Sprint("bound ", bound), func(t *testing.T) {
			ix := chain.New()
			ix.SetMaxBytes(bound)
			r := index.NewResidency(ix)
			var stop atomic.Bool
			var readers, writers sync.WaitGroup
			for n := range 2 {
				readers.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(n), 1))
					var scores index.Scores
					for !stop.Load() {
						contents := []uint64{1 + rng.Uint64N(3), 1 + rng.Uint64N(3), 1 + rng.Uint64N(3)}
						scores = ix.Lookup(contents, scores)
						for h, score := range scores {
							if h >= modelHolders || int(score) > len(contents) {
								t.Errorf("holder %d scores %d of %d", h, score, len(contents))
							}
						}
						h := index.Holder(rng.IntN(modelHolders))
						r.EachTier(h, func(m index.Membership, device, host bool) bool {
							if !device && !host {
								t.Errorf("block %d of holder %d is listed in no tier", m.Hash, h)
							}
							return true
						})
						if n, _ := r.Sums(h, index.Tier(rng.IntN(modelTiers))); n < 0 || n > modelHashes {
							t.Errorf("%d blocks of %d names in a tier", n, modelHashes)
						}
					}
				})
			}
			for h := range index.Holder(modelHolders) {
				rng := rand.New(rand.NewPCG(uint64(h), 2))
				l := &life{Residency: r, h: h, model: model{}, draw: rng.IntN}
				writers.Go(func() {
					if err := l.live(events, bound > 0); err != nil {
						t.Error(err)
					}
				})
			}
			writers.Wait()
			stop.Store(true)
			readers.Wait()
			// Which holders have to give up how much is up to who runs beside whom, but all do not fit.
			shed := int64(0)
			for h := range index.Holder(modelHolders) {
				shed += r.Shed(h)
			}
			if (shed > 0) != (bound > 0) {
				t.Errorf("%d blocks were shed", shed)
			}
		})
	}
}

// live makes events. If blocks may be shed meanwhile, it makes stores and removals only and counts what came of them.
func (l *life) live(events int, bounded bool) error {
	held := int64(0)
	for range events {
		if !bounded {
			if err := l.event(); err != nil {
				return err
			}
			if err := l.compare(); err != nil {
				return err
			}
			continue
		}
		hash, tier := 1+uint64(l.draw(modelHashes)), index.Tier(l.draw(modelTiers))
		if l.draw(3) == 0 {
			removed, _ := l.RemoveTier(l.h, tier, []uint64{hash})
			held -= int64(removed)
		} else {
			held += int64(l.StoreTier(l.h, tier, 1+uint64(l.draw(modelHashes)), l.draw(2) == 0, []uint64{hash}, []uint64{1 + uint64(l.draw(3))}).Stored)
		}
	}
	if !bounded {
		return nil
	}
	return l.conserved(held)
}

// conserved compares, while nobody sheds from the holder, what was stored less what was removed with what is held and
// what was shed.
func (l *life) conserved(held int64) error {
	for {
		before := l.Shed(l.h)
		count := int64(l.Index().Count(l.h))
		var listed [2]int
		l.EachTier(l.h, func(_ index.Membership, device, host bool) bool {
			for tier, has := range []bool{device, host} {
				if has {
					listed[tier]++
				}
			}
			return true
		})
		device, _ := l.Sums(l.h, index.Device)
		host, _ := l.Sums(l.h, index.Host)
		if l.Shed(l.h) != before {
			continue // another writer shed meanwhile
		}
		if held != count+before || device != listed[index.Device] || host != listed[index.Host] {
			return fmt.Errorf("holder %d: %d stored and not removed, %d held and %d shed; %d and %d in tiers, %v listed", l.h, held, count, before, device, host, listed)
		}
		return nil
	}
}

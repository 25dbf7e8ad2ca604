package recovery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/kinds"
	"fleetdrill/gateway/lanes"
	"fleetdrill/internal/tokens"
)

// story is the teller of a path that runs in a goroutine of its own.
type story struct {
	lines  []string
	failed bool
}

func (s *story) Helper() {}

func (s *story) Logf(format string, args ...any) {
	const kept = 100
	if s.lines = append(s.lines, fmt.Sprintf(format, args...)); len(s.lines) > 2*kept {
		s.lines = append(s.lines[:0], s.lines[kept:]...)
	}
}

// Fatalf ends the goroutine.
func (s *story) Fatalf(format string, args ...any) {
	s.failed = true
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Ranks of different engines apply at the same time, on fewer lanes than there are ranks, while others read;
// holders leave and their ids are used again. Each rank is right all the time and in the end.
func TestEventPathsOnLanes(t *testing.T) {
	const ranks, steps = 6, 250
	for n, kind := range pathKinds {
		t.Run(kind, func(t *testing.T) {
			ix, err := kinds.New(kind)
			if err != nil {
				t.Fatal(err)
			}
			r, pool := index.NewResidency(ix), lanes.New(2)
			var paths, readers sync.WaitGroup
			done := make(chan struct{})
			for i := range 2 {
				readers.Go(func() { readOn(done, ix, uint64(i)) })
			}
			stories, last := make([]story, ranks), make([]*path, ranks)
			for h := range ranks {
				paths.Go(func() {
					d := randDice{rand.New(rand.NewPCG(uint64(n), uint64(h)))}
					for life := range 2 {
						if life > 0 {
							r.Drop(index.Holder(h))
						}
						p := drawPath(&stories[h], d, index.Holder(h), 2, kind, r)
						p.turn = func(f func()) { pool.Turn(context.Background(), f) }
						for range steps {
							p.step()
						}
						p.calm()
						last[h] = p
					}
				})
			}
			paths.Wait()
			close(done)
			readers.Wait()
			for h := range stories {
				if s := &stories[h]; s.failed {
					t.Fatalf("rank %d:\n%s", h, strings.Join(s.lines, "\n"))
				}
			}
			var figures pathFigures
			for _, p := range last {
				p.teller = t
				p.look()
				figures.sum(p.pathFigures)
			}
			t.Log(figures)
			if figures.claims == 0 || figures.scores == 0 {
				t.Fatalf("nothing happened: %s", figures)
			}
		})
	}
}

// readOn looks up chains until done.
func readOn(done chan struct{}, ix index.Index, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var scores index.Scores
	for {
		select {
		case <-done:
			return
		default:
		}
		var ids []uint32
		for i := range 30 {
			ids = append(ids, tokens.FirstWord+uint32(1000*rng.IntN(3)+i))
		}
		chain := tokens.AppendChain(nil, ids, 2, 0)
		scores = ix.Lookup(chain, scores)
		for h, s := range scores {
			if int(s) > len(chain) {
				panic(fmt.Sprintf("holder %d scores %d of %d", h, s, len(chain)))
			}
		}
	}
}

package sim

import (
	"context"
	"sync"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/replayer/plan"
)

// prompt is what is known of a request before it comes.
type prompt struct {
	tokens []uint32
	// chain are the content hashes of its full blocks, hashes the engines' own.
	chain  []uint64
	hashes []blockhash.Digest
	// pooled and unbounded are the tokens that the model caches would have reused.
	pooled, unbounded int
}

// maker makes prompts.
type maker struct {
	hasher    *blockhash.Hasher
	blockSize int
}

// fill makes q's prompt in p, reusing its memory.
func (m maker) fill(p *prompt, q *plan.Request) {
	p.tokens = q.Tokens(p.tokens[:0])
	p.chain = tokens.AppendChain(p.chain[:0], p.tokens, m.blockSize, 0)
	p.hashes = p.hashes[:0]
	parent := m.hasher.NoneHash()
	for left := p.tokens; len(left) >= m.blockSize; left = left[m.blockSize:] {
		parent = m.hasher.Next(parent, left[:m.blockSize], blockhash.Extra{})
		p.hashes = append(p.hashes, parent)
	}
}

// ahead is how many prompts may be ready and not yet asked for. A long one takes 800 KB.
const ahead = 64

// prompts makes the prompts of a plan, in order and ahead of time, on a goroutine of its own. Prompts and
// model caches depend on the plan alone, so nothing here can change a decision.
type prompts struct {
	ready chan *prompt
	spare chan *prompt
	wg    sync.WaitGroup
}

// startPrompts makes all prompts of p until ctx ends; poolBlocks is the size of the fleet's memory.
func startPrompts(ctx context.Context, m maker, p *plan.Plan, poolBlocks int) *prompts {
	s := &prompts{ready: make(chan *prompt, ahead), spare: make(chan *prompt, 2*ahead)}
	s.wg.Go(func() {
		caches := newReuse(m.blockSize, poolBlocks)
		for i := range p.Requests {
			q := &p.Requests[i]
			made := s.blank()
			m.fill(made, q)
			made.pooled, made.unbounded = caches.serve(q, made)
			select {
			case s.ready <- made:
			case <-ctx.Done():
				return
			}
		}
	})
	return s
}

func (s *prompts) blank() *prompt {
	select {
	case p := <-s.spare:
		return p
	default:
		return new(prompt)
	}
}

// next is the next request's prompt.
func (s *prompts) next() *prompt { return <-s.ready }

// done gives a prompt's memory back.
func (s *prompts) done(p *prompt) {
	select {
	case s.spare <- p:
	default:
	}
}

// wait returns when the goroutine is gone; its context must have ended.
func (s *prompts) wait() { s.wg.Wait() }

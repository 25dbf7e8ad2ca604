package corpus

import (
	"math"

	"fleetdrill/internal/tokens"
	"fleetdrill/replayer/bench/lru"
)

// The offline engine serves the rows of one worker in virtual time. It schedules as vLLM does where that
// shows in events (first come first served, prompts before answers in a pass, blocks cached when they are
// full, least recently used leaves evicted first) and is otherwise as plain as can be: no cap on tokens or
// sequences of a pass, prompts of whole blocks, one token per pass and answer.

// Pace of a pass, in ns: that of the replay-default engine profile (6 ms, 18 us per prompt token, 30 us per
// answer under way), divided by the speed-up.
const (
	passNs    = 6_000_000
	prefillNs = 18_000
	decodeNs  = 30_000
)

// job is one request.
type job struct {
	arrival int64
	// chain and contents are the engine and content hashes of its blocks; full blocks of the answer are
	// appended as they come to be.
	chain, contents []uint64
	prompt          int // blocks
	output          int // tokens
	given           int
	// blocks are the pool's blocks that it holds, one per hash of chain.
	blocks []int32
	number uint64
}

// event is what a pass announces.
type event struct {
	at        int64
	parent    uint64
	hasParent bool
	position  int
	// hashes are stored when contents are there, else removed.
	hashes, contents []uint64
}

// offline is one engine.
type offline struct {
	blockSize, speedUp int
	emit               func(event)

	pool *lru.Pool

	now              int64 // when the pass under way ends
	waiting, running []*job
	removed          []uint64
	stored           []event
	// refused counts jobs that the whole pool would not hold.
	refused uint64
}

func newOffline(blocks, blockSize, speedUp int, emit func(event)) *offline {
	return &offline{blockSize: blockSize, speedUp: speedUp, emit: emit, pool: lru.New(blocks)}
}

// serve runs all jobs, which are sorted by arrival, to their ends.
func (e *offline) serve(jobs []*job) {
	now, next := int64(math.MinInt64), 0
	for next < len(jobs) || len(e.waiting)+len(e.running) > 0 {
		if len(e.waiting)+len(e.running) == 0 {
			now = max(now, jobs[next].arrival)
		}
		for ; next < len(jobs) && jobs[next].arrival <= now; next++ {
			e.waiting = append(e.waiting, jobs[next])
		}
		now = e.pass(now)
	}
}

// pass is one step of the engine: it admits what fits, gives every answer under way a token and announces
// what changed. It returns when it ends.
func (e *offline) pass(now int64) int64 {
	decoding := len(e.running)
	prefill := e.admit()
	took := passNs + int64(prefill)*prefillNs + int64(decoding)*decodeNs
	e.now = now + max(took/int64(e.speedUp), 1)
	// Jobs are put back from the end of the list, so an index stays right or is past the end.
	for i := 0; i < len(e.running); i++ {
		if j := e.running[i]; j.given < j.output {
			if j.given++; j.given%e.blockSize == 0 {
				e.grow(j)
			}
		}
	}
	e.finish()
	e.announce()
	return e.now
}

// announce emits what the pass removed, then what it stored.
func (e *offline) announce() {
	if len(e.removed) > 0 {
		e.emit(event{at: e.now, hashes: e.removed})
	}
	for i := range e.stored {
		e.stored[i].at = e.now
		e.emit(e.stored[i])
	}
	e.removed, e.stored = e.removed[:0], e.stored[:0]
}

// admit takes waiting jobs, in order, for as long as their blocks fit, and returns the tokens to compute.
func (e *offline) admit() (prefill int) {
	for len(e.waiting) > 0 {
		j := e.waiting[0]
		if len(j.chain) > e.pool.Size() {
			e.refused++
			e.waiting = e.waiting[1:]
			continue
		}
		hit, idle := e.pool.Match(j.chain)
		if len(j.chain)-hit > e.pool.Room()-idle {
			return prefill
		}
		e.waiting = e.waiting[1:]
		e.take(j, hit)
		e.running = append(e.running, j)
		prefill += (len(j.chain) - hit) * e.blockSize
	}
	return prefill
}

// take gives a job its cached blocks and new ones for the rest.
func (e *offline) take(j *job, hit int) {
	for _, hash := range j.chain[:hit] {
		j.blocks = append(j.blocks, e.pool.Hold(hash))
	}
	for _, hash := range j.chain[hit:] {
		j.blocks = append(j.blocks, e.fill(hash))
	}
	if hit < len(j.chain) {
		e.store(j, hit)
	}
}

// store notes that the blocks of j from that position on are new.
func (e *offline) store(j *job, from int) {
	ev := event{position: from, hashes: j.chain[from:], contents: j.contents[from:]}
	if from > 0 {
		ev.parent, ev.hasParent = j.chain[from-1], true
	}
	e.stored = append(e.stored, ev)
}

// grow caches the block that an answer has just filled. Without room the newest job is put back in front of
// the queue, which may be j itself.
func (e *offline) grow(j *job) {
	parent := j.chain[len(j.chain)-1]
	content := answerContent(j.number, len(j.chain)-j.prompt)
	j.chain, j.contents = append(j.chain, tokens.PrefixNext(parent, content)), append(j.contents, content)
	for e.pool.Room() == 0 {
		// The blocks it gives up may be evicted in this pass, in which they may have been stored.
		e.announce()
		last := e.running[len(e.running)-1]
		e.running = e.running[:len(e.running)-1]
		e.release(last)
		e.waiting = append([]*job{last}, e.waiting...)
		if last == j {
			return
		}
	}
	j.blocks = append(j.blocks, e.fill(j.chain[len(j.chain)-1]))
	e.store(j, len(j.chain)-1)
}

// finish releases the jobs whose answers are complete.
func (e *offline) finish() {
	kept := e.running[:0]
	for _, j := range e.running {
		if j.given < j.output {
			kept = append(kept, j)
		} else {
			e.release(j)
		}
	}
	e.running = kept
}

// release gives the blocks of a job back.
func (e *offline) release(j *job) {
	e.pool.Release(j.blocks)
	j.blocks = nil
}

// fill takes a block for a new hash and notes what that evicted.
func (e *offline) fill(hash uint64) int32 {
	id, gone, evicted := e.pool.Fill(hash)
	if evicted {
		e.removed = append(e.removed, gone)
	}
	return id
}

package trace

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"fleetdrill/internal/rng"
)

const (
	// maxWaiting is how many conversations of one client may wait for their next turn; the oldest goes.
	maxWaiting = 64
	// keepOpen is how many of 100 turns are followed by another one.
	keepOpen = 34
	// fork is how many of 100 turns leave the state before them open too, for a second and different next
	// turn: a question asked again in other words. That makes trees of conversations.
	fork = 10
	// withHead is how many of 100 conversations begin with one of nHeads shared heads.
	withHead = 12
	nHeads   = 48
)

// What a draw is between, as 1,000 ths of all draws. Lengths of first prompts and of answers, the growth
// from turn to turn and its distance in time are those of the public conversation trace.
var (
	firstPrompt = quantiles{{0, 891}, {100, 905}, {250, 1336}, {500, 5264}, {750, 13_056}, {900, 25_561}, {950, 38_538}, {990, 89_869}, {999, 121_471}, {1000, 126_195}}
	question    = quantiles{{0, 8}, {250, 30}, {500, 300}, {750, 3_000}, {900, 9_700}, {950, 14_300}, {990, 26_600}, {1000, 90_000}}
	answer      = quantiles{{0, 1}, {10, 3}, {50, 10}, {100, 24}, {250, 156}, {500, 350}, {750, 472}, {900, 597}, {950, 698}, {990, 1_120}, {1000, 2_000}}
	pauseSlots  = quantiles{{0, 1}, {10, 4}, {50, 10}, {100, 14}, {250, 22}, {500, 41}, {750, 88}, {900, 161}, {950, 206}, {990, 494}, {1000, 1_010}}
	headBlocks  = quantiles{{0, 1}, {500, 4}, {900, 16}, {1000, 48}}
)

// talks makes the rows of all clients' conversations.
type talks struct {
	draw     *rand.Rand
	maxInput int
	waiting  [][]talk // by client, the oldest first
	heads    [nHeads][]uint64
	lastID   uint64
	sessions int
	row      Row
}

// talk is a conversation after a turn.
type talk struct {
	session string
	ids     []uint64 // the full blocks of the last prompt
	length  int      // of the last prompt and its answer, in tokens
	ready   int      // the slot from which on the next turn may come
}

func newTalks(s Shape) *talks {
	return &talks{draw: rng.Stream(s.Seed, "trace/rows"), maxInput: s.MaxInput, waiting: make([][]talk, s.Clients)}
}

// next is the row that a client sends in a slot: the next turn of a conversation that is ready for it, or
// a new conversation. The row is valid until the next call.
func (t *talks) next(client, slot int) *Row {
	t.row.Output = answer.draw(t.draw)
	if before, ok := t.take(client, slot); ok {
		t.row.Session = before.session
		t.fill(before.ids, before.length+question.draw(t.draw))
		if chance(t.draw, fork) {
			t.wait(client, slot, before)
		}
	} else {
		t.sessions++
		t.row.Session = "s" + strconv.Itoa(t.sessions)
		t.begin()
	}
	// Only full blocks are kept: the last, partial one is another block once the answer follows it.
	if chance(t.draw, keepOpen) {
		full := t.row.IDs[:t.row.Input/BlockTokens]
		t.wait(client, slot, talk{session: t.row.Session, ids: slices.Clone(full), length: t.row.Input + t.row.Output})
	}
	return &t.row
}

// take is the client's first conversation that is ready for a turn, off the list. One that has no room for
// a longer prompt is given up.
func (t *talks) take(client, slot int) (talk, bool) {
	list := t.waiting[client]
	i := slices.IndexFunc(list, func(w talk) bool { return w.ready <= slot })
	if i < 0 {
		return talk{}, false
	}
	found := list[i]
	t.waiting[client] = slices.Delete(list, i, i+1)
	return found, found.length < t.maxInput
}

// wait puts a conversation on the client's list.
func (t *talks) wait(client, slot int, w talk) {
	w.ready = slot + pauseSlots.draw(t.draw)
	list := t.waiting[client]
	if len(list) == maxWaiting {
		list = slices.Delete(list, 0, 1)
	}
	t.waiting[client] = append(list, w)
}

// begin makes the first prompt of a conversation, behind block 0 and maybe a shared head.
func (t *talks) begin() {
	if !chance(t.draw, withHead) {
		t.fill([]uint64{0}, firstPrompt.draw(t.draw))
		return
	}
	head := t.head()
	t.fill(head, len(head)*BlockTokens+question.draw(t.draw))
}

// head is a shared head with block 0 before it. Head r is picked with a chance of about 1/(1+r), and made
// when it is first picked.
func (t *talks) head() []uint64 {
	const scale = 1000
	total := 0
	for r := range nHeads {
		total += scale / (1 + r)
	}
	r := 0
	for rest := t.draw.IntN(total); rest >= scale/(1+r); r++ {
		rest -= scale / (1 + r)
	}
	if t.heads[r] == nil {
		t.heads[r] = []uint64{0}
		for range min(headBlocks.draw(t.draw), t.maxInput/BlockTokens-1) {
			t.heads[r] = append(t.heads[r], t.newID())
		}
	}
	return t.heads[r]
}

// fill makes the row's prompt: full blocks that exist, then new ones up to its length. The last block, if
// partial, is always new, since it ends where no other prompt goes on.
func (t *talks) fill(prefix []uint64, input int) {
	t.row.Input = min(input, t.maxInput)
	keep := min(len(prefix), t.row.Input/BlockTokens)
	t.row.IDs = append(t.row.IDs[:0], prefix[:keep]...)
	for len(t.row.IDs) < blocks(t.row.Input) {
		t.row.IDs = append(t.row.IDs, t.newID())
	}
}

// newID gives ids in the order of their first appearance, as the public traces have them.
func (t *talks) newID() uint64 {
	t.lastID++
	return t.lastID
}

// quantiles is a distribution: values at thousandths of all draws, straight lines between them.
type quantiles []struct{ thousandths, value int }

// draw is a value of the distribution.
func (q quantiles) draw(draw *rand.Rand) int {
	const fine = 1000 // steps of a thousandth
	u := draw.IntN(1000 * fine)
	i := 1
	for u >= q[i].thousandths*fine {
		i++
	}
	low, high := q[i-1], q[i]
	return low.value + (high.value-low.value)*(u-low.thousandths*fine)/((high.thousandths-low.thousandths)*fine)
}

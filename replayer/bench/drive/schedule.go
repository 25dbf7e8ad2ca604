package drive

import (
	"fmt"
	"math"
	"math/bits"

	"fleetdrill/gateway/index"
	"fleetdrill/replayer/bench/corpus"
)

// Spec is one trial.
type Spec struct {
	// Corpus is the path of a cache file, Index the name of the index.
	Corpus string `json:"corpus"`
	Index  string `json:"index"`
	// Lanes apply events. Whole holders belong to a lane.
	Lanes int `json:"lanes"`
	// Offered is the rate in block ops per second that the deadlines are scaled to.
	Offered float64 `json:"offered"`
	// MaxNs bounds the window, in ns: only the first part of the timeline is replayed, as much as it has room
	// for; 0 = whole.
	MaxNs int64 `json:"max_ns"`
	// Workers leaves out the operations of workers from that number on; 0 = none.
	Workers int `json:"workers"`
	// QuietNs is how long the process is still before it starts; PatienceNs how long it goes on behind the
	// window before it gives up.
	QuietNs    int64 `json:"quiet_ns"`
	PatienceNs int64 `json:"patience_ns"`
}

// Check says which field is out of its bounds.
func (s Spec) Check() error {
	switch {
	case s.Lanes < 1 || s.Lanes > 1024:
		return fmt.Errorf("%d lanes: want 1 to 1024", s.Lanes)
	case !(s.Offered >= 1 && s.Offered <= 1e12):
		return fmt.Errorf("%g block ops offered per second: want 1 to 1e12", s.Offered)
	case s.MaxNs < 0 || s.QuietNs < 0 || s.PatienceNs < 0 || s.Workers < 0:
		return fmt.Errorf("a bound of trial %+v is negative", s)
	}
	return nil
}

// schedule is what a trial issues, in order.
type schedule struct {
	// windowNs is the length of the trial, blockOps what it offers.
	windowNs int64
	blockOps uint64
	// at is the deadline of each issue, ops which operation it is and lane who applies it; the lane of a
	// query is -1.
	at   []int64
	ops  []uint32
	lane []int32
	// holders is the holder of each operation's (worker, rank).
	holders []index.Holder
	// perLane counts the issues of each lane; queries those of the issuer.
	perLane []int
	queries int
}

// plan lays a trial out. The window is the block ops over the offered rate. When that is longer than MaxNs,
// only so many operations are taken as MaxNs has room for at that rate, and the last of them is due at its end:
// a timeline is not equally dense everywhere, and what is offered should be what was asked for.
func plan(c *corpus.Corpus, s Spec) (*schedule, error) {
	p := &schedule{perLane: make([]int, s.Lanes)}
	room, last := uint64(math.MaxUint64), uint64(0)
	if s.MaxNs > 0 {
		room = uint64(s.Offered * float64(s.MaxNs) / 1e9)
	}
	type key struct{ worker, rank uint32 }
	known := map[key]index.Holder{}
	for i := range c.Ops {
		op := &c.Ops[i]
		if s.Workers > 0 && int(op.Worker) >= s.Workers {
			continue
		}
		if len(p.ops) > 0 && p.blockOps+uint64(op.Length) > room {
			last = c.Ops[p.ops[len(p.ops)-1]].Deadline
			break
		}
		holder, lane := index.Holder(0), int32(-1)
		if op.Kind == corpus.Query {
			p.queries++
		} else {
			k := key{op.Worker, op.Rank}
			h, seen := known[k]
			if !seen {
				// Lanes take holders in turn, in the order they first appear in.
				h = index.Holder(len(known))
				known[k] = h
			}
			holder, lane = h, int32(int(h)%s.Lanes)
			p.perLane[lane]++
		}
		p.ops, p.lane, p.holders = append(p.ops, uint32(i)), append(p.lane, lane), append(p.holders, holder)
		p.blockOps += uint64(op.Length)
	}
	if len(p.ops) == 0 {
		return nil, fmt.Errorf("planning a trial of %d workers: no operation is left", s.Workers)
	}
	if last == 0 {
		last = c.WindowNs // all of it, or its very beginning
	}
	p.windowNs = max(int64(float64(p.blockOps)/s.Offered*1e9), 1)
	for _, i := range p.ops {
		p.at = append(p.at, scale(c.Ops[i].Deadline, uint64(p.windowNs), last))
	}
	return p, nil
}

// scale moves an instant of the reference window to a window of another length, without rounding up.
func scale(at, window, reference uint64) int64 {
	hi, lo := bits.Mul64(at, window)
	q, _ := bits.Div64(hi, lo, reference) // hi < reference, because at <= reference and window < 2^63
	return int64(q)
}

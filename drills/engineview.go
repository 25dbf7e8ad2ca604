package drills

import (
	"context"
	"sync"
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
)

// readTimeout bounds one reading of an engine. A frozen engine answers late or never; it must not keep
// a connection for good.
const readTimeout = 2 * time.Second

// engineView reads one engine's truth, one reading at a time. An engine that does not answer delays
// nobody else: its samples have no truth until it does.
type engineView struct {
	worker *lab.Worker
	line   *lab.Line   // of the reading that is out, as are the ranks
	ranks  []announced // by rank

	mu   sync.Mutex // guards all below
	busy bool
	k    int // the sample that the last reading was for
	last engineReading
}

// engineReading is one engine at one sample.
type engineReading struct {
	truth lab.Glance
	// at holds for each rank what it had announced at the gateway's sequence number; nil when that is
	// not known.
	at []*contract.TruthDigest
}

func newEngineView(w *lab.Worker) (*engineView, error) {
	line, err := lab.NewLine(w.Admin)
	return &engineView{worker: w, line: line, k: -1}, err
}

// begin reserves the view for a reading; false while the last one is still out.
func (v *engineView) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy {
		return false
	}
	v.busy = true
	return true
}

// read asks the engine and keeps its answer as that of sample k. gateway are the sequence numbers at
// which the gateway stands, by rank.
func (v *engineView) read(ctx context.Context, k int, gateway []int64) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	truth, err := v.line.Glance(ctx)
	e := engineReading{truth: truth}
	if err == nil {
		e.at, err = v.atGateway(ctx, truth, gateway)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.busy = false
	if err == nil {
		v.k, v.last = k, e
	}
}

// atGateway looks up what each rank had announced when the gateway's number was its next. Most of the
// time the two are at the same number and the truth has said it.
func (v *engineView) atGateway(ctx context.Context, t lab.Glance, gateway []int64) ([]*contract.TruthDigest, error) {
	if len(v.ranks) != len(t.Ranks) {
		v.ranks = make([]announced, len(t.Ranks))
	}
	out := make([]*contract.TruthDigest, len(t.Ranks))
	for i, r := range t.Ranks {
		if i >= len(gateway) {
			break
		}
		if r.NextSeq == gateway[i] {
			out[i] = &contract.TruthDigest{Seq: r.NextSeq - 1, Blocks: r.AnnouncedBlocks, Digest: r.Digest}
			continue
		}
		if from, ok := v.ranks[i].missing(t.Epoch, r.NextSeq, gateway[i]); ok {
			rows, err := v.worker.Admin.Digests(ctx, r.Rank, from)
			if err != nil {
				return nil, err
			}
			v.ranks[i].add(rows)
		}
		if d, ok := v.ranks[i].at(gateway[i]); ok {
			out[i] = &d
		}
	}
	return out, nil
}

// reading is the view's answer for sample k, if it came.
func (v *engineView) reading(k int) (engineReading, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last, v.k == k
}

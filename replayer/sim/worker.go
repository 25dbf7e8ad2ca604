package sim

import (
	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/recovery"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/late"
)

// worker is a mock worker: an engine core and what its process does around it. Letters are read between
// steps and a load record is as old as the last step, as in the live worker.
type worker struct {
	n       int // place in the fleet
	id      string
	eng     *engine.Engine
	batcher *batcher
	late    *late.Removals
	full    bool // load records have every field

	mail     []letter
	stepping bool
	step     engine.StepResult // of the pass under way
	began    int64
	record   fleet.Record
	rate     float64 // tokens/s, smoothed

	// What is under way, each kind in the order it was sent, because its delay is constant.
	letters fifo[letter]
	batches fifo[published]
	outputs fifo[[]output]
	asks    fifo[ask]
	answers fifo[ask]
	pings   fifo[int64] // instants at which they were sent
	asked   int64       // instant at which the open poll was sent
	polled  fleet.Record

	// kept are the batches that a call for replay could ask for: the last one applied and those under way.
	kept []recovery.Batch
	free [][]output
}

// letter is a request or, without a prompt, the news that its client hung up.
type letter struct {
	ref    int
	prompt *prompt
}

// published is a batch under way, with the load record of its instant, or the record alone.
type published struct {
	alone  bool
	batch  recovery.Batch
	memory *decoded // of batch
	record fleet.Record
	at     int64
}

// output is what a client sees of one engine output, or the refusal of its request.
type output struct {
	ref   int
	index int
	stats *engine.RequestStats // of the last one
	err   error
}

// ask is a call for replay: from a number on, up to one that the worker had not published yet.
type ask struct{ id, from, upTo int64 }

// rateShare is the weight of the newest step in the reported generation rate.
const rateShare = 0.3

// look takes the load record of a step boundary. given are the decoded tokens of the pass that ended, took
// its length in ns.
func (w *worker) look(given int, took int64) {
	l := w.eng.Load()
	w.record = fleet.Record{
		Running: int64(l.Running), Waiting: int64(l.Waiting), Usage: l.KVUsage, Steps: l.Steps, HasSteps: true,
		Pool: w.record.Pool,
	}
	if !w.full {
		return
	}
	if given > 0 && took > 0 {
		rate := float64(given) * 1e9 / float64(took)
		// Each product is rounded on its own, so that no machine fuses them.
		w.rate = float64(rateShare*rate) + float64((1-rateShare)*w.rate)
	}
	w.record.Uncached, w.record.HasUncached, w.record.Rate = l.WaitingUncachedTokens, true, w.rate
}

// buffer is an empty list of outputs.
func (w *worker) buffer() []output {
	if n := len(w.free); n > 0 {
		b := w.free[n-1]
		w.free = w.free[:n-1]
		return b
	}
	return nil
}

// applied says that the gateway has applied all batches below next. Of the last of them a replay needs the
// hash alone, by which the gateway knows it again.
func (w *worker) applied(next int64) {
	n := 0
	for n < len(w.kept) && w.kept[n].Seq < next-1 {
		n++
	}
	left := copy(w.kept, w.kept[n:])
	clear(w.kept[left:])
	w.kept = w.kept[:left]
	if left > 0 && w.kept[0].Seq < next {
		w.kept[0].Events, w.kept[0].Payload = nil, nil
	}
}

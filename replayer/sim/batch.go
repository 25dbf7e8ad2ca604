package sim

import (
	"github.com/zeebo/xxh3"

	"fleetdrill/gateway/events"
	"fleetdrill/gateway/recovery"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/wire"
)

// wireProfile is the engine version whose encoding Config.Wire uses.
const wireProfile = "vllm-0.25"

// batcher numbers the batches of one worker.
type batcher struct {
	worker  uint64
	next    int64
	encoder *wire.Encoder // nil without a wire
}

func newBatcher(worker int, onWire bool) (*batcher, error) {
	b := &batcher{worker: uint64(worker)}
	var err error
	if onWire {
		b.encoder, err = wire.New(wireProfile, wire.Options{IntHashes: true})
	}
	return b, err
}

// batch makes the next batch of a worker, collected at ts in seconds. It keeps nothing of list but the
// tokens, which an engine never changes.
func (b *batcher) batch(ts float64, list []engine.Event) recovery.Batch {
	seq := b.next
	b.next++
	if b.encoder != nil {
		payload := b.encoder.AppendBatch(nil, ts, list)
		return recovery.Batch{Seq: seq, Hash: xxh3.Hash(payload), Payload: payload}
	}
	// Two batches of one run never have one place and number, so these can stand for the content.
	return recovery.Batch{Seq: seq, Hash: tokens.DigestTerm(b.worker<<40 | uint64(seq)), Events: decoded(ts, list)}
}

// decoded is list as the gateway's decoder gives it. The requests of a replay have neither adapter nor salt,
// so no event has an extra key.
func decoded(ts float64, list []engine.Event) *events.Batch {
	n := 0
	for i := range list {
		n += len(list[i].Hashes)
	}
	hashes := make([]uint64, 0, n)
	b := &events.Batch{TS: ts, Events: make([]events.Event, len(list))}
	for i := range list {
		from := len(hashes)
		for j := range list[i].Hashes {
			hashes = append(hashes, list[i].Hashes[j].EventInt())
		}
		decodeEvent(&b.Events[i], &list[i], hashes[from:len(hashes):len(hashes)])
	}
	return b
}

func decodeEvent(to *events.Event, from *engine.Event, hashes []uint64) {
	switch from.Kind {
	case engine.Cleared:
		to.Kind = events.Cleared
		return
	case engine.Removed:
		to.Kind = events.Removed
	default:
		to.Kind = events.Stored
		to.Tokens, to.BlockSize = from.Tokens, from.BlockSize
		to.SpecKind, to.Window = from.SpecKind, int64(from.SpecWindow)
		if from.Parent != nil {
			to.HasParent, to.Parent = true, from.Parent.EventInt()
		}
	}
	to.Hashes, to.Medium = hashes, from.Medium
	to.HasGroup, to.Group = from.Group >= 0, int64(max(from.Group, 0))
}

package sim

import (
	"slices"

	"github.com/zeebo/xxh3"

	"fleetdrill/gateway/events"
	"fleetdrill/gateway/recovery"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/wire"
)

// wireProfile is the engine version whose encoding Config.Wire uses.
const wireProfile = "vllm-0.25"

// batcher numbers the batches of one worker and puts them into the gateway's words.
type batcher struct {
	worker  uint64
	next    int64
	encoder *wire.Encoder // nil without a wire
	spare   []*decoded
}

// decoded is a batch as the gateway's decoder gives it, in memory that is used again.
type decoded struct {
	batch  events.Batch
	hashes []uint64
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
// tokens, which an engine never changes. memory is to be given to done once the batch is applied, nil when
// it came by wire.
func (b *batcher) batch(ts float64, list []engine.Event) (out recovery.Batch, memory *decoded) {
	out.Seq = b.next
	b.next++
	if b.encoder != nil {
		out.Payload = b.encoder.AppendBatch(nil, ts, list)
		out.Hash = xxh3.Hash(out.Payload)
		return out, nil
	}
	// Two batches of one run never have one place and number, so these can stand for the content.
	out.Hash = tokens.DigestTerm(b.worker<<40 | uint64(out.Seq))
	memory = b.blank()
	memory.decode(ts, list)
	out.Events = &memory.batch
	return out, memory
}

func (b *batcher) blank() *decoded {
	if n := len(b.spare); n > 0 {
		d := b.spare[n-1]
		b.spare = b.spare[:n-1]
		return d
	}
	return new(decoded)
}

// done takes the memory of an applied batch back.
func (b *batcher) done(memory *decoded) {
	if memory != nil {
		b.spare = append(b.spare, memory)
	}
}

// decode makes d what the decoder gives for list, but for one thing: an engine announces each removed hash
// alone, and the normaliser puts them together again, so runs of them are one event from the start. The
// requests of a replay have neither adapter nor salt, so no event has an extra key.
func (d *decoded) decode(ts float64, list []engine.Event) {
	n := 0
	for i := range list {
		n += len(list[i].Hashes)
	}
	// Events point into it, so it must not grow under them.
	d.hashes = slices.Grow(d.hashes[:0], n)
	d.batch = events.Batch{TS: ts, Events: d.batch.Events[:0]}
	for i := 0; i < len(list); {
		from, first := len(d.hashes), &list[i]
		for more := true; more; more = i < len(list) && first.Kind == engine.Removed && sameTier(first, &list[i]) {
			for j := range list[i].Hashes {
				d.hashes = append(d.hashes, list[i].Hashes[j].EventInt())
			}
			i++
		}
		d.batch.Events = append(d.batch.Events, decodeEvent(first, d.hashes[from:len(d.hashes):len(d.hashes)]))
	}
}

func sameTier(a, b *engine.Event) bool {
	return a.Kind == b.Kind && a.Group == b.Group && a.Medium == b.Medium
}

func decodeEvent(from *engine.Event, hashes []uint64) events.Event {
	to := events.Event{Hashes: hashes, Medium: from.Medium, HasGroup: from.Group >= 0, Group: int64(max(from.Group, 0))}
	switch from.Kind {
	case engine.Cleared:
		return events.Event{Kind: events.Cleared}
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
	return to
}

package wire

import (
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
)

// Options are what of a batch does not come from its events.
type Options struct {
	// Rank is the data-parallel rank stamped on every batch.
	Rank int
	// IntHashes sends a hash as its 64-bit event integer, which is the engine's default; otherwise as
	// its full bytes (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0), which vllm-0.9 and SGLang do not have.
	IntHashes bool
}

// Encoder writes the batches of one publisher. It is not safe for concurrent use.
type Encoder struct {
	profile profile
	opts    Options
	out     sliceWriter
	m       *msgpack.Encoder
}

// New makes the encoder of a profile. It fails on an unknown name, listing the known ones, and on byte
// hashes where the engine has none.
func New(name string, o Options) (*Encoder, error) {
	p, err := lookup(name)
	if err != nil {
		return nil, err
	}
	if p.hashes != anyHash && !o.IntHashes {
		return nil, fmt.Errorf("wire profile %s has integer hashes only", name)
	}
	e := &Encoder{profile: p, opts: o}
	e.m = msgpack.NewEncoder(&e.out)
	return e, nil
}

// ReplayHasTopic says whether replay replies of this engine version carry the topic frame.
func (e *Encoder) ReplayHasTopic() bool { return e.profile.replayTopic }

// AppendBatch appends the payload of one batch to dst: a msgpack array of ts (unix seconds), the events
// and, since vLLM 0.9.1, the rank. It allocates only to grow dst.
func (e *Encoder) AppendBatch(dst []byte, ts float64, events []engine.Event) []byte {
	e.out.b = dst
	if e.profile.ranked {
		e.m.EncodeArrayLen(3) // no call of e.m can fail: its writer never does
	} else {
		e.m.EncodeArrayLen(2)
	}
	e.m.EncodeFloat64(ts)
	e.m.EncodeArrayLen(len(events))
	for i := range events {
		e.putEvent(&events[i])
	}
	if e.profile.ranked {
		e.m.EncodeUint(uint64(e.opts.Rank))
	}
	dst, e.out.b = e.out.b, nil
	return dst
}

// putEvent writes one event, its type first. Events of an unknown kind do not exist.
func (e *Encoder) putEvent(ev *engine.Event) {
	switch ev.Kind {
	case engine.Stored:
		e.putFields("BlockStored", e.profile.stored, ev)
	case engine.Removed:
		e.putFields("BlockRemoved", e.profile.removed, ev)
	default:
		e.putFields("AllBlocksCleared", nil, ev)
	}
}

func (e *Encoder) putFields(kind string, fields []field, ev *engine.Event) {
	if e.profile.mapped {
		e.putMap(kind, fields, ev)
	} else {
		e.putArray(kind, fields, ev)
	}
}

func (e *Encoder) putMap(kind string, fields []field, ev *engine.Event) {
	n := 1
	for i := range fields {
		if fields[i].on(ev) {
			n++
		}
	}
	e.m.EncodeMapLen(n)
	e.m.EncodeString("type")
	e.m.EncodeString(kind)
	for i := range fields {
		if fields[i].on(ev) {
			e.m.EncodeString(fields[i].key)
			fields[i].put(e, ev)
		}
	}
}

func (e *Encoder) putArray(kind string, fields []field, ev *engine.Event) {
	n := 1 + len(fields)
	for i := range fields {
		if fields[i].extra && !fields[i].on(ev) {
			n--
		}
	}
	e.m.EncodeArrayLen(n)
	e.m.EncodeString(kind)
	for i := range fields {
		switch on := fields[i].on(ev); {
		case on:
			fields[i].put(e, ev)
		case !fields[i].extra:
			e.m.EncodeNil()
		}
	}
}

func (f *field) on(ev *engine.Event) bool { return f.has == nil || f.has(ev) }

// putHash writes a hash in the form asked for. One that is only an integer stays one.
func (e *Encoder) putHash(d *blockhash.Digest) {
	switch {
	case e.profile.hashes == signedHash:
		e.m.EncodeInt(int64(d.EventInt()))
	case e.opts.IntHashes || d.IsInt():
		e.m.EncodeUint(d.EventInt())
	default:
		e.m.EncodeBytes(d.Bytes())
	}
}

func (e *Encoder) putHashes(ev *engine.Event) {
	e.m.EncodeArrayLen(len(ev.Hashes))
	for i := range ev.Hashes {
		e.putHash(&ev.Hashes[i])
	}
}

func (e *Encoder) putParent(ev *engine.Event) {
	if ev.Parent == nil {
		e.m.EncodeNil()
		return
	}
	e.putHash(ev.Parent)
}

func (e *Encoder) putTokens(ev *engine.Event) {
	if ev.Bigram {
		e.putPairs(ev.Tokens)
		return
	}
	e.m.EncodeArrayLen(len(ev.Tokens))
	for _, t := range ev.Tokens {
		e.m.EncodeUint(uint64(t))
	}
}

// putPairs writes each token with the one behind it.
func (e *Encoder) putPairs(text []uint32) {
	e.m.EncodeArrayLen(len(text) - 1)
	for i, t := range text[1:] {
		e.m.EncodeArrayLen(2)
		e.m.EncodeUint(uint64(text[i]))
		e.m.EncodeUint(uint64(t))
	}
}

func (e *Encoder) putBlockSize(ev *engine.Event)  { e.m.EncodeInt(int64(ev.BlockSize)) }
func (e *Encoder) putMedium(ev *engine.Event)     { e.putText(ev.Medium) }
func (e *Encoder) putLoRAName(ev *engine.Event)   { e.putText(ev.LoRAName) }
func (e *Encoder) putGroup(ev *engine.Event)      { e.m.EncodeInt(int64(ev.Group)) }
func (e *Encoder) putSpecKind(ev *engine.Event)   { e.putText(ev.SpecKind) }
func (e *Encoder) putSpecWindow(ev *engine.Event) { e.m.EncodeInt(int64(ev.SpecWindow)) }

func (e *Encoder) putLocality(ev *engine.Event)  { e.putText(ev.Locality) }
func (e *Encoder) putOwnership(ev *engine.Event) { e.putText(ev.Ownership) }
func (e *Encoder) putSession(ev *engine.Event)   { e.putText(ev.SessionID) }
func (e *Encoder) putSalt(ev *engine.Event)      { e.putText(ev.CacheSalt) }
func (e *Encoder) putNil(*engine.Event)          { e.m.EncodeNil() }

// putMetadata writes the map that SGLang's array events grew in place of a field.
func (e *Encoder) putMetadata(ev *engine.Event) {
	e.m.EncodeMapLen(1)
	e.m.EncodeString("cache_salt")
	e.putSalt(ev)
}

func (e *Encoder) putLoRAID(ev *engine.Event) {
	if ev.LoRAID == nil {
		e.m.EncodeNil()
		return
	}
	e.m.EncodeInt(int64(*ev.LoRAID))
}

// putExtraKeys writes one entry per block: nil, or an array of texts and (item hash, offset) pairs.
func (e *Encoder) putExtraKeys(ev *engine.Event) {
	e.m.EncodeArrayLen(len(ev.ExtraKeys))
	for _, key := range ev.ExtraKeys {
		if key == nil {
			e.m.EncodeNil()
			continue
		}
		e.m.EncodeArrayLen(len(key))
		for _, item := range key {
			if item.IsItem {
				e.m.EncodeArrayLen(2)
			}
			e.m.EncodeString(item.Text)
			if item.IsItem {
				e.m.EncodeInt(int64(item.Offset))
			}
		}
	}
}

// putText writes a text, nil when empty: no required text of an event is ever empty.
func (e *Encoder) putText(s string) {
	if s == "" {
		e.m.EncodeNil()
		return
	}
	e.m.EncodeString(s)
}

// sliceWriter appends to b. It has the WriteByte that msgpack would otherwise wrap a writer for.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

func (w *sliceWriter) WriteByte(c byte) error {
	w.b = append(w.b, c)
	return nil
}

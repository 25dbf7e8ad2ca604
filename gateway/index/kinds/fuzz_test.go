package kinds

import (
	"maps"
	"slices"
	"testing"

	"fleetdrill/gateway/events"
	"fleetdrill/gateway/index"
	"fleetdrill/oracle"
)

// every is one index of each kind, with copies counted above it, and the reference beside them.
type every struct {
	*testing.T
	names []string
	all   []*index.Residency
	ref   *oracle.Reference
	// chains are those that were stored, from the root.
	chains [][]uint64
}

func newEvery(t *testing.T) *every {
	e := &every{T: t, ref: oracle.NewReference(8)}
	for _, name := range []string{Chain, MapTree, Positional, CRTC, "sharded:2"} {
		ix, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		e.names, e.all = append(e.names, name), append(e.all, index.NewResidency(ix))
	}
	return e
}

func (e *every) store(h index.Holder, parent uint64, hasParent bool, hashes, contents []uint64) {
	chain := []uint64{}
	if hasParent {
		chain = e.ref.Chain(uint32(h), parent)
	}
	want := e.ref.Store(uint32(h), parent, hasParent, hashes, contents)
	for i, r := range e.all {
		got := r.Store(h, parent, hasParent, hashes, contents)
		if got.Stored != want.Stored || got.Duplicate != want.Duplicate || got.Moved != want.Moved || got.UnknownParent != want.UnknownParent {
			e.Fatalf("%s stored %+v, want %+v", e.names[i], got, want)
		}
	}
	if !want.UnknownParent {
		e.chains = append(e.chains, append(slices.Clone(chain), contents...))
	}
}

func (e *every) remove(h index.Holder, hashes []uint64) {
	want, wantUnknown := e.ref.Remove(uint32(h), hashes)
	for i, r := range e.all {
		if got, unknown := r.Remove(h, slices.Clone(hashes)); got != want || unknown != wantUnknown {
			e.Fatalf("%s: %d removed, %d unknown; want %d, %d", e.names[i], got, unknown, want, wantUnknown)
		}
	}
}

func (e *every) clear(h index.Holder) {
	e.ref.Clear(uint32(h))
	for _, r := range e.all {
		r.Clear(h)
	}
}

func (e *every) drop(h index.Holder) {
	e.ref.Drop(uint32(h))
	for _, r := range e.all {
		r.Drop(h)
	}
}

// compare compares the holders below n.
func (e *every) compare(n index.Holder) {
	for h := range n {
		want := e.ref.Blocks(uint32(h))
		for i, r := range e.all {
			got := map[uint64]oracle.Block{}
			r.Index().Each(h, func(m index.Membership) bool {
				got[m.Hash] = oracle.Block{Hash: m.Hash, Position: m.Position, Content: m.Content}
				return true
			})
			if !maps.Equal(got, want) || r.Index().Count(h) != len(want) {
				e.Fatalf("%s: holder %d has %v, want %v", e.names[i], h, got, want)
			}
		}
	}
	for _, chain := range e.chains[max(0, len(e.chains)-20):] {
		for i, r := range e.all {
			scores := append(r.Index().Lookup(chain, nil), make(index.Scores, n)...)
			for h := range n {
				want := uint32(e.ref.Score(uint32(h), chain))
				if scores[h] != want && (e.names[i] != CRTC || scores[h] > want) {
					e.Fatalf("%s: score of %d for %v is %d, want %d", e.names[i], h, chain, scores[h], want)
				}
			}
		}
	}
}

// FuzzHistory reads bytes as a history of events over a small alphabet:
//
//	go test ./gateway/index/kinds -run '^$' -fuzz FuzzHistory
func FuzzHistory(f *testing.F) {
	f.Add([]byte{0x80, 3, 0x11, 0x22, 0x33, 0x40, 1, 0x22, 0x80, 2, 0x11, 0x22})
	f.Add([]byte{0x81, 4, 0x10, 0x21, 0x32, 0x43, 0xa1, 0x21, 2, 0x54, 0x65, 0x41, 1, 0x21, 0x01, 0x81, 1, 0x10})
	f.Fuzz(func(t *testing.T, data []byte) {
		e := newEvery(t)
		next := func() (b byte) {
			if len(data) > 0 {
				b, data = data[0], data[1:]
			}
			return b
		}
		for events := 0; len(data) > 0 && events < 64; events++ {
			// kind: 3 bits, holder: 2 bits.
			op := next()
			h := index.Holder(op & 3)
			switch op >> 5 {
			case 0:
				e.clear(h)
			case 1:
				e.drop(h)
			case 2, 3:
				hashes, _ := blocks(next)
				e.remove(h, hashes)
			default:
				var parent uint64
				hasParent := op&0x20 != 0
				if hasParent {
					parent = uint64(next() >> 4)
				}
				hashes, contents := blocks(next)
				e.store(h, parent, hasParent, hashes, contents)
			}
		}
		e.compare(4)
		for h := range index.Holder(4) {
			e.drop(h)
		}
		for i, r := range e.all {
			if s := r.Index().Stats(); s != (index.Stats{}) {
				t.Fatalf("%s: with every holder dropped, %+v is left", e.names[i], s)
			}
		}
	})
}

// blocks are up to seven, of 16 hashes and 16 contents.
func blocks(next func() byte) (hashes, contents []uint64) {
	for range next() % 8 {
		b := next()
		hashes, contents = append(hashes, uint64(b>>4)), append(contents, uint64(b&15)+100)
	}
	return hashes, contents
}

// FuzzPayload takes a message off the wire, decoded and normalized, into every index:
//
//	go test ./gateway/index/kinds -run '^$' -fuzz FuzzPayload
func FuzzPayload(f *testing.F) {
	// [ts, [[BlockStored, [1, 2], null, [5, 6, 7, 8], 2, null], [BlockRemoved, [2]]]]
	seed := []byte("\x92\xcb\x41\xda\x00\x00\x00\x00\x00\x00\x92" +
		"\x96\xabBlockStored\x92\x01\x02\xc0\x94\x05\x06\x07\x08\x02\xc0" + "\x92\xacBlockRemoved\x91\x02")
	var b events.Batch
	if err := b.Decode(seed); err != nil || len(b.Events) != 2 {
		f.Fatalf("the seed is no batch of two events: %+v, %v", b, err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, norm := newEvery(t), events.NewNormalizer(0)
		for range 2 { // what comes twice is counted twice
			var b events.Batch
			if err := b.Decode(payload); err != nil {
				return
			}
			for _, op := range norm.Normalize(&b) {
				switch op.Kind {
				case events.Stored:
					e.store(1, op.Parent, op.HasParent, op.Hashes, op.Contents)
				case events.Removed:
					e.remove(1, op.Hashes)
				case events.Cleared:
					e.clear(1)
				}
			}
		}
		e.compare(2)
	})
}

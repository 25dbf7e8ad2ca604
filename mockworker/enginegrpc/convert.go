package enginegrpc

import (
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	pb "fleetdrill/internal/protos/smgcommon"
)

// groups are the cache groups of one rank, as far as its stores told: whether each is of a main attention
// kind. The published servicer forwards only those; the blocks of a window group bear the same hashes, and
// a subscriber that counts copies would keep what only the window still has.
type groups struct {
	mu   sync.Mutex // guards what follows
	main map[uint32]bool
	any  bool // a main group is known: a rank with none forwards what it has
}

// mainKinds are the attention kinds whose groups hold the whole prefix.
var mainKinds = []string{"full_attention", "mla_attention", "sink_full_attention"}

// learn takes the groups of a batch before any of its events is judged: a window's store may come first.
func (g *groups) learn(b *batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range b.events {
		e := &b.events[i]
		if e.group == nil || e.spec == nil {
			continue
		}
		if g.main == nil {
			g.main = map[uint32]bool{}
		}
		is := slices.Contains(mainKinds, *e.spec)
		g.main[*e.group] = is
		g.any = g.any || is
	}
}

// forwards says whether the events of e's group are for subscribers. A group whose kind is unknown is main.
func (g *groups) forwards(e *event) bool {
	if e.group == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	is, known := g.main[*e.group]
	return is || !known || !g.any
}

// converter makes the messages of one rank's stream.
type converter struct {
	rank   int32
	groups *groups
	id     uint64 // of the last event, told or not
}

// message is the batch that was published under seq. A payload that is no batch becomes an empty one under
// its number, so that nobody takes it for a gap. err says what was wrong with it.
func (c *converter) message(seq int64, payload []byte) (_ *pb.KvEventBatch, err error) {
	b, err := decode(payload)
	rank := c.rank
	if b.rank != nil {
		rank = *b.rank
	}
	out := &pb.KvEventBatch{SequenceNumber: uint64(seq) + 1, Timestamp: b.ts, DpRank: &rank}
	if err != nil {
		return out, err
	}
	c.groups.learn(&b)
	out.Events = make([]*pb.KvCacheEvent, 0, len(b.events))
	for i := range b.events {
		c.id++
		if ev := c.event(&b.events[i]); ev != nil {
			ev.EventId = c.id
			out.Events = append(out.Events, ev)
		}
	}
	return out, nil
}

// event is the message of an event, nil for one that is for nobody or that no message can tell.
func (c *converter) event(e *event) *pb.KvCacheEvent {
	if !e.valid() {
		return nil
	}
	if e.kind == cleared {
		return &pb.KvCacheEvent{Data: &pb.KvCacheEvent_Cleared{Cleared: &pb.KvCacheCleared{Ownership: e.ownership}}}
	}
	tier, known := tierOf(e.medium)
	if !known || !local(e.locality) || !c.groups.forwards(e) {
		return nil
	}
	switch e.kind {
	case removed:
		return &pb.KvCacheEvent{Data: &pb.KvCacheEvent_Removed{Removed: e.removal(tier)}}
	case stored:
		if s := e.store(tier); s != nil {
			return &pb.KvCacheEvent{Data: &pb.KvCacheEvent_Stored{Stored: s}}
		}
	}
	return nil
}

func (e *event) removal(tier pb.KvCacheTier) *pb.KvBlocksRemoved {
	return &pb.KvBlocksRemoved{
		BlockHashes: e.hashes, CacheLevel: levelOf(tier), Tier: tier, Medium: e.medium, GroupIdx: e.group,
		Locality: pb.KvCacheLocality_KV_CACHE_LOCALITY_LOCAL, Ownership: e.ownership,
	}
}

// store is nil for a store whose tokens are not those of its blocks: a tier's placeholder, or one that
// passes over blocks and does not say which.
func (e *event) store(tier pb.KvCacheTier) *pb.KvBlocksStored {
	n := len(e.hashes)
	if n == 0 || e.blockSize < 1 || e.blockSize > math.MaxInt32 || int64(len(e.tokens)) != int64(n)*e.blockSize {
		return nil
	}
	out := &pb.KvBlocksStored{
		Blocks: make([]*pb.KvBlock, n), ParentBlockHash: e.parent, Tier: tier, Medium: e.medium, GroupIdx: e.group,
		KvCacheSpecKind: e.spec, KvCacheSpecSlidingWindow: e.window, Locality: pb.KvCacheLocality_KV_CACHE_LOCALITY_LOCAL,
		Ownership: e.ownership, SessionId: e.session, LoraName: optional(e.loraName), CacheSalt: optional(e.saltOf()),
	}
	blocks := make([]pb.KvBlock, n)
	size, level := int(e.blockSize), levelOf(tier)
	for i := range blocks {
		b := &blocks[i]
		b.BlockHash, b.TokenIds, b.BlockSize = e.hashes[i], e.tokens[i*size:(i+1)*size:(i+1)*size], int32(size)
		b.LoraId, b.CacheLevel = e.loraID, level
		if i < len(e.extraKeys) {
			b.ExtraKeys = e.extraKeys[i]
		}
		out.Blocks[i] = b
	}
	return out
}

// saltOf is the request's salt: a field of its own, or the text among the first block's extra keys that is
// not the adapter's name.
func (e *event) saltOf() string {
	if e.salt != "" || len(e.extraKeys) == 0 {
		return e.salt
	}
	for _, k := range e.extraKeys[0] {
		if t := k.GetText(); t != "" && t != e.loraName {
			return t
		}
	}
	return ""
}

// valid says whether the texts can go into a message, which refuses what is no UTF-8.
func (e *event) valid() bool {
	for _, s := range []*string{e.medium, e.spec, e.ownership, e.session, &e.loraName, &e.salt} {
		if s != nil && !utf8.ValidString(*s) {
			return false
		}
	}
	for _, keys := range e.extraKeys {
		for _, k := range keys {
			if !utf8.ValidString(k.GetText()) || !utf8.ValidString(k.GetMultimodal().GetIdentifier()) {
				return false
			}
		}
	}
	return true
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// tierOf is the tier that engines call so; no name is the device.
func tierOf(medium *string) (pb.KvCacheTier, bool) {
	if medium == nil {
		return pb.KvCacheTier_KV_CACHE_TIER_DEVICE, true
	}
	switch strings.ToUpper(*medium) {
	case "GPU", "DEVICE":
		return pb.KvCacheTier_KV_CACHE_TIER_DEVICE, true
	case "CPU", "CPU_PINNED", "CPU_TIER1":
		return pb.KvCacheTier_KV_CACHE_TIER_HOST, true
	case "CPU_TIER2", "DISK", "NVME", "STORAGE":
		return pb.KvCacheTier_KV_CACHE_TIER_DISK, true
	case "EXTERNAL", "NETWORK", "REMOTE", "SHARED":
		return pb.KvCacheTier_KV_CACHE_TIER_EXTERNAL, true
	}
	return pb.KvCacheTier_KV_CACHE_TIER_UNSPECIFIED, false
}

// levelOf is the tier as older readers know it: absent for the device, then 1, 2 and 3.
func levelOf(t pb.KvCacheTier) *int32 {
	if t == pb.KvCacheTier_KV_CACHE_TIER_DEVICE {
		return nil
	}
	level := int32(t - pb.KvCacheTier_KV_CACHE_TIER_DEVICE)
	return &level
}

func local(locality *string) bool { return locality == nil || strings.EqualFold(*locality, "LOCAL") }

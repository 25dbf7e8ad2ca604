package tail

import (
	"cmp"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"fleetdrill/gateway/events"
	pb "fleetdrill/internal/protos/smgcommon"
)

// front is what a message says about itself.
type front struct {
	seq  uint64
	rank int
	load []byte // an EngineLoad, nil without one
}

var errFront = errors.New("no message of numbered fields")

// frontOf reads the front of a KvEventBatch without reading its events.
func frontOf(b []byte) (f front, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeField(b)
		if n < 0 {
			return f, errFront
		}
		field := b[:n]
		b = b[n:]
		_, _, tag := protowire.ConsumeTag(field)
		value := field[tag:]
		switch {
		case num == 1 && typ == protowire.VarintType:
			f.seq, _ = protowire.ConsumeVarint(value)
		case num == 4 && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			f.rank = int(int32(v))
		case num == 8 && typ == protowire.BytesType:
			f.load, _ = protowire.ConsumeBytes(value)
		}
	}
	return f, nil
}

// pushed takes a message that came over a gRPC subscription.
func (t *tailer) pushed(now int64, message []byte) {
	f, err := frontOf(message)
	if err != nil || f.rank < 0 || f.rank >= maxRanks {
		t.sum.Unreadable++
		t.say(now, KindMalformed, fmt.Sprintf("%d bytes: %v", len(message), cmp.Or(err, errRank)))
		return
	}
	var load pb.EngineLoad
	if f.load != nil && proto.Unmarshal(f.load, &load) == nil && load.GetLoadOnly() {
		t.say(now, KindLoad, loadText(&load))
		return
	}
	t.ranks.turn(&t.cursor, f.rank)
	t.live(now, f.seq, message)
}

var errRank = fmt.Errorf("its rank is not from 0 to %d", maxRanks-1)

// formMessage is the form of events that come over gRPC.
const formMessage = "grpc"

// messageLayout is what of the interface an engine's messages use; it tells how new it is.
type messageLayout struct {
	tiers, keys, loads, snapshots, foreign bool
}

func (l messageLayout) with(b messageLayout) messageLayout {
	return messageLayout{
		tiers: l.tiers || b.tiers, keys: l.keys || b.keys, loads: l.loads || b.loads,
		snapshots: l.snapshots || b.snapshots, foreign: l.foreign || b.foreign,
	}
}

// sentence tells what there is beyond the first interface.
func (l messageLayout) sentence() string {
	more := ""
	for _, f := range []struct {
		on   bool
		name string
	}{{l.tiers, "tiers"}, {l.keys, "extra keys"}, {l.loads, "loads"}, {l.snapshots, "snapshots"}, {l.foreign, "unknown fields"}} {
		if f.on {
			more += ", " + f.name
		}
	}
	if more == "" {
		return "gRPC messages, hashes as signed integers; as the first interface"
	}
	return "gRPC messages with" + more[1:] + ", hashes as signed integers; as the interface with relays"
}

// readMessage reads the bytes of a KvEventBatch.
func readMessage(payload []byte, b *events.Batch) (layout, error) {
	var m pb.KvEventBatch
	if err := proto.Unmarshal(payload, &m); err != nil {
		return layout{}, fmt.Errorf("no KvEventBatch: %w", err)
	}
	*b = events.Batch{TS: m.GetTimestamp(), Rank: rankOf(&m), Events: b.Events[:0]}
	l := layout{batch: formMessage, events: formMessage}
	l.message = messageLayout{loads: m.Load != nil, snapshots: m.Snapshot != nil, foreign: len(m.ProtoReflect().GetUnknown()) > 0}
	for _, e := range m.Events {
		ev, seen, ok := eventOf(e)
		if !ok {
			b.UnknownType++
			continue
		}
		l.message = l.message.with(seen)
		b.Events = append(b.Events, ev)
	}
	return l, nil
}

func rankOf(m *pb.KvEventBatch) int {
	if m.DpRank == nil {
		return -1
	}
	return int(m.GetDpRank())
}

func eventOf(e *pb.KvCacheEvent) (ev events.Event, seen messageLayout, ok bool) {
	switch d := e.Data.(type) {
	case *pb.KvCacheEvent_Stored:
		ev, seen = storedOf(d.Stored)
	case *pb.KvCacheEvent_Removed:
		ev = events.Event{Kind: events.Removed, Hashes: hashesOf(d.Removed.GetBlockHashes()), Medium: d.Removed.GetMedium()}
		ev.HasGroup, ev.Group = d.Removed.GroupIdx != nil, int64(d.Removed.GetGroupIdx())
		seen.tiers = d.Removed.GetTier() != 0
	case *pb.KvCacheEvent_Cleared:
		ev = events.Event{Kind: events.Cleared, Owner: d.Cleared.GetOwnership()}
	default:
		return ev, seen, false
	}
	return ev, seen, true
}

func storedOf(s *pb.KvBlocksStored) (events.Event, messageLayout) {
	seen := messageLayout{tiers: s.GetTier() != 0}
	ev := events.Event{
		Kind: events.Stored, Parent: uint64(s.GetParentBlockHash()), HasParent: s.ParentBlockHash != nil,
		LoRAName: s.GetLoraName(), Salt: s.GetCacheSalt(), SpecKind: s.GetKvCacheSpecKind(), Window: int64(s.GetKvCacheSpecSlidingWindow()),
		Medium: s.GetMedium(), HasGroup: s.GroupIdx != nil, Group: int64(s.GetGroupIdx()), Owner: s.GetOwnership(),
	}
	for i, block := range s.Blocks {
		ev.Hashes = append(ev.Hashes, uint64(block.GetBlockHash()))
		ev.Tokens = append(ev.Tokens, block.GetTokenIds()...)
		if i == 0 {
			ev.BlockSize, ev.LoRAID = int(block.GetBlockSize()), block.GetLoraId()
		}
		if len(block.ExtraKeys) > 0 {
			seen.keys = true
			for len(ev.ExtraKeys) < len(s.Blocks) {
				ev.ExtraKeys = append(ev.ExtraKeys, nil)
			}
			ev.ExtraKeys[i] = keysOf(block.ExtraKeys)
		}
	}
	return ev, seen
}

func keysOf(keys []*pb.KvBlockExtraKey) []events.Key {
	out := make([]events.Key, len(keys))
	for i, k := range keys {
		switch d := k.Key.(type) {
		case *pb.KvBlockExtraKey_Text:
			out[i].Text = d.Text
		case *pb.KvBlockExtraKey_Multimodal:
			out[i] = events.Key{Text: d.Multimodal.GetIdentifier(), HasOffset: true, Offset: d.Multimodal.GetOffset()}
		case *pb.KvBlockExtraKey_Blob:
			out[i].Bytes = d.Blob
		case *pb.KvBlockExtraKey_Number:
			out[i].Bytes = fmt.Append(nil, d.Number) // no text and none that hashes are known of
		}
	}
	return out
}

func hashesOf(in []int64) []uint64 {
	out := make([]uint64, len(in))
	for i, h := range in {
		out[i] = uint64(h)
	}
	return out
}

// loadText is a load record in words.
func loadText(l *pb.EngineLoad) string {
	s := fmt.Sprintf("%d running, %d waiting", l.GetRunning(), l.GetWaiting())
	if l.WaitingUncachedTokens != nil {
		s += fmt.Sprintf(", %d uncached tokens waiting", l.GetWaitingUncachedTokens())
	}
	return s + fmt.Sprintf(", tokens used %.3f, %.0f tokens/s", l.GetTokenUsage(), l.GetGenThroughput())
}

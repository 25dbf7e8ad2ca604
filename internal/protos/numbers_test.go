package protos

import (
	"encoding/hex"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"fleetdrill/internal/protos/smgcommon"
	"fleetdrill/internal/protos/vllmengine"
)

// wire builds a message by hand, from the published numbers.
type wire []byte

func (w wire) num(field protowire.Number, v uint64) wire {
	return protowire.AppendVarint(protowire.AppendTag(w, field, protowire.VarintType), v)
}

func (w wire) double(field protowire.Number, v float64) wire {
	return protowire.AppendFixed64(protowire.AppendTag(w, field, protowire.Fixed64Type), math.Float64bits(v))
}

func (w wire) float(field protowire.Number, v float32) wire {
	return protowire.AppendFixed32(protowire.AppendTag(w, field, protowire.Fixed32Type), math.Float32bits(v))
}

func (w wire) bytes(field protowire.Number, b []byte) wire {
	return protowire.AppendBytes(protowire.AppendTag(w, field, protowire.BytesType), b)
}

func (w wire) text(field protowire.Number, s string) wire { return w.bytes(field, []byte(s)) }

// list packs numbers, as proto3 does.
func (w wire) list(field protowire.Number, vs ...uint64) wire {
	var packed []byte
	for _, v := range vs {
		packed = protowire.AppendVarint(packed, v)
	}
	return w.bytes(field, packed)
}

// minus is a negative number's varint.
func minus(n int64) uint64 { return uint64(-n) }

// Every message that a mock engine sends or reads, against bytes made from the published numbers by hand.
func TestPublishedNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		message proto.Message
		want    wire
	}{
		"subscribe": {&smgcommon.SubscribeKvEventsRequest{StartSequenceNumber: 7}, wire{}.num(1, 7)},
		"batch": {
			&smgcommon.KvEventBatch{SequenceNumber: 5, Timestamp: 1.5, DpRank: proto.Int32(0),
				Events:   []*smgcommon.KvCacheEvent{{EventId: 9, Data: &smgcommon.KvCacheEvent_Cleared{Cleared: &smgcommon.KvCacheCleared{Ownership: proto.String("o")}}}},
				Snapshot: &smgcommon.KvSnapshotChunk{Index: 1, Count: 2, Blocks: 3, UnknownBefore: 4},
				Load:     &smgcommon.EngineLoad{Running: 1}},
			wire{}.num(1, 5).double(2, 1.5).bytes(3, wire{}.num(1, 9).bytes(4, wire{}.text(1, "o"))).num(4, 0).
				bytes(7, wire{}.num(1, 1).num(2, 2).num(3, 3).num(4, 4)).bytes(8, wire{}.num(1, 1)),
		},
		"stored": {
			&smgcommon.KvCacheEvent{EventId: 1, Data: &smgcommon.KvCacheEvent_Stored{Stored: &smgcommon.KvBlocksStored{
				Blocks: []*smgcommon.KvBlock{{BlockHash: -2, TokenIds: []uint32{300, 1}, BlockSize: 2, LoraId: proto.Int64(4), CacheLevel: proto.Int32(1),
					ExtraKeys: []*smgcommon.KvBlockExtraKey{
						{Key: &smgcommon.KvBlockExtraKey_Text{Text: "salt"}}, {Key: &smgcommon.KvBlockExtraKey_Blob{Blob: []byte{9}}},
						{Key: &smgcommon.KvBlockExtraKey_Number{Number: -1}},
						{Key: &smgcommon.KvBlockExtraKey_Multimodal{Multimodal: &smgcommon.KvMultimodalKey{Identifier: "img", Offset: -11}}},
					}}},
				ParentBlockHash: proto.Int64(-1), Tier: smgcommon.KvCacheTier_KV_CACHE_TIER_HOST, Medium: proto.String("CPU"),
				GroupIdx: proto.Uint32(0), KvCacheSpecKind: proto.String("mamba"), KvCacheSpecSlidingWindow: proto.Uint32(128),
				Locality: smgcommon.KvCacheLocality_KV_CACHE_LOCALITY_LOCAL, Ownership: proto.String("o"), SessionId: proto.String("s"),
				LoraName: proto.String("l"), CacheSalt: proto.String("c")}}},
			wire{}.num(1, 1).bytes(2, wire{}.
				bytes(1, wire{}.num(1, minus(2)).list(2, 300, 1).num(3, 2).num(4, 4).num(5, 1).
					bytes(6, wire{}.text(1, "salt")).bytes(6, wire{}.bytes(2, []byte{9})).bytes(6, wire{}.num(3, minus(1))).
					bytes(6, wire{}.bytes(4, wire{}.text(1, "img").num(2, minus(11))))).
				num(2, minus(1)).num(3, 2).text(4, "CPU").num(5, 0).text(6, "mamba").num(7, 128).num(8, 1).text(9, "o").text(10, "s").
				text(11, "l").text(12, "c")),
		},
		"removed": {
			&smgcommon.KvCacheEvent{Data: &smgcommon.KvCacheEvent_Removed{Removed: &smgcommon.KvBlocksRemoved{
				BlockHashes: []int64{3, -2}, CacheLevel: proto.Int32(3), Tier: smgcommon.KvCacheTier_KV_CACHE_TIER_EXTERNAL,
				Medium: proto.String("EXTERNAL"), GroupIdx: proto.Uint32(2), Locality: smgcommon.KvCacheLocality_KV_CACHE_LOCALITY_REMOTE, Ownership: proto.String("o")}}},
			wire{}.bytes(3, wire{}.list(1, 3, minus(2)).num(2, 3).num(3, 4).text(4, "EXTERNAL").num(5, 2).num(6, 2).text(7, "o")),
		},
		"load": {
			&smgcommon.EngineLoad{Running: 1, Waiting: 2, WaitingUncachedTokens: proto.Uint64(3), TokenUsage: 0.5, GenThroughput: 2, MaxRunning: 6, AgeMs: 7,
				Sample: 8, LoadOnly: true, CacheHitRate: proto.Float64(1), NumUsedTokens: proto.Uint64(11), MaxTotalNumTokens: proto.Uint64(12),
				Memory:         &smgcommon.EngineMemory{TokenCapacity: 4},
				Queues:         &smgcommon.EngineQueues{Waiting: 1, Grammar: 2, Paused: 3, Retracted: 4},
				Speculative:    &smgcommon.EngineSpeculative{AcceptRate: 2},
				Lora:           &smgcommon.EngineLora{SlotsUsed: 1, SlotsTotal: 2},
				Disaggregation: &smgcommon.EngineDisaggregation{Mode: "m", DecodeRetracted: 6, KvTransferLatencyMs: 8}, ActiveTokenUsage: proto.Float64(1),
				EngineSilenceMs: proto.Uint64(19), EngineReportsSteps: proto.Bool(true), PrefillPendingTokens: proto.Uint64(21)},
			wire{}.num(1, 1).num(2, 2).num(3, 3).double(4, 0.5).double(5, 2).num(6, 6).num(7, 7).num(8, 8).num(9, 1).double(10, 1).num(11, 11).num(12, 12).
				bytes(13, wire{}.num(4, 4)).bytes(14, wire{}.num(1, 1).num(2, 2).num(3, 3).num(4, 4)).bytes(15, wire{}.double(2, 2)).
				bytes(16, wire{}.num(1, 1).num(2, 2)).bytes(17, wire{}.text(1, "m").num(6, 6).double(8, 8)).double(18, 1).num(19, 19).num(20, 1).num(21, 21),
		},
		"tokenizer": {&smgcommon.GetTokenizerChunk{Data: []byte{1}, Sha256: "s"}, wire{}.bytes(1, []byte{1}).text(2, "s")},
		"generate": {
			&vllmengine.GenerateRequest{RequestId: "r", Input: &vllmengine.GenerateRequest_Tokenized{Tokenized: &vllmengine.TokenizedInput{OriginalText: "t", InputIds: []uint32{1, 300}}},
				SamplingParams: &vllmengine.SamplingParams{Temperature: proto.Float32(0), TopP: 1, MaxTokens: proto.Uint32(5), MinTokens: 1, Stop: []string{"x"},
					StopTokenIds: []uint32{2}, IgnoreEos: true, N: 2, TruncatePromptTokens: proto.Int32(27)},
				Stream: true, KvTransferParamsJson: proto.String("{}"), DataParallelRank: proto.Int32(1)},
			wire{}.text(1, "r"). // the order is free: this is the encoder's
						bytes(4, wire{}.float(1, 0).float(2, 1).num(8, 5).num(9, 1).text(10, "x").list(11, 2).num(14, 1).num(15, 2).num(27, 27)).
						num(5, 1).text(8, "{}").num(9, 1).bytes(2, wire{}.text(1, "t").list(2, 1, 300)),
		},
		"generate text": {&vllmengine.GenerateRequest{Input: &vllmengine.GenerateRequest_Text{Text: "t"}}, wire{}.text(3, "t")},
		"chunk": {
			&vllmengine.GenerateResponse{Response: &vllmengine.GenerateResponse_Chunk{Chunk: &vllmengine.GenerateStreamChunk{TokenIds: []uint32{9}, PromptTokens: 2, CompletionTokens: 3, CachedTokens: 4, Index: 7}}},
			wire{}.bytes(1, wire{}.list(1, 9).num(2, 2).num(3, 3).num(4, 4).num(7, 7)),
		},
		"complete": {
			&vllmengine.GenerateResponse{Response: &vllmengine.GenerateResponse_Complete{Complete: &vllmengine.GenerateComplete{OutputIds: []uint32{9}, FinishReason: "stop",
				PromptTokens: 3, CompletionTokens: 4, CachedTokens: 5, Index: 8, MatchedStop: &vllmengine.GenerateComplete_MatchedTokenId{MatchedTokenId: 10}}}},
			wire{}.bytes(2, wire{}.list(1, 9).text(2, "stop").num(3, 3).num(4, 4).num(5, 5).num(8, 8).num(10, 10)),
		},
		"health": {&vllmengine.HealthCheckResponse{Healthy: true, Message: "Health"}, wire{}.num(1, 1).text(2, "Health")},
		"abort":  {&vllmengine.AbortRequest{RequestIds: []string{"a", "b"}}, wire{}.text(1, "a").text(1, "b")},
		"model": {
			&vllmengine.GetModelInfoResponse{ModelPath: "m", IsGeneration: true, MaxContextLength: 3, VocabSize: 4, SupportsVision: true, ServedModelName: "s", TokenizerPath: "t",
				ModelType: "y", Architectures: []string{"A"}, EosTokenIds: []int32{2}, PadTokenId: 11, BosTokenId: 12, MaxReqInputLen: 13, DefaultSamplingParamsJson: "{}"},
			wire{}.text(1, "m").num(2, 1).num(3, 3).num(4, 4).num(5, 1).text(6, "s").text(7, "t").text(8, "y").text(9, "A").list(10, 2).num(11, 11).num(12, 12).num(13, 13).text(14, "{}"),
		},
		"server": {
			&vllmengine.GetServerInfoResponse{ActiveRequests: 1, IsPaused: true, LastReceiveTimestamp: 3, UptimeSeconds: 4, ServerType: "vllm-grpc", KvConnector: "c", KvRole: "r",
				KvEngineId: "e", DataParallelSize: 9, ShmNamespaceId: "n"},
			wire{}.num(1, 1).num(2, 1).double(3, 3).double(4, 4).text(5, "vllm-grpc").text(6, "c").text(7, "r").text(8, "e").num(9, 9).text(10, "n"),
		},
		"get loads": {&vllmengine.GetLoadsRequest{DpRank: proto.Int32(0), Include: []string{"core"}}, wire{}.num(1, 0).text(2, "core")},
		"loads": {
			&vllmengine.GetLoadsResponse{Timestamp: "t", Version: "v", DpRankCount: 3, Loads: []*vllmengine.SchedulerLoad{{DpRank: 1, NumRunningReqs: 2, NumWaitingReqs: 3, NumTotalReqs: 4,
				NumUsedTokens: 5, MaxTotalNumTokens: 6, TokenUsage: 7, GenThroughput: 8, CacheHitRate: 9, Utilization: 10, MaxRunningRequests: 11}}},
			wire{}.text(1, "t").text(2, "v").num(3, 3).bytes(4, wire{}.num(1, 1).num(2, 2).num(3, 3).num(4, 4).num(5, 5).num(6, 6).double(7, 7).double(8, 8).double(9, 9).double(10, 10).num(11, 11)),
		},
		"embed": {&vllmengine.EmbedRequest{RequestId: "r", Tokenized: &vllmengine.TokenizedInput{}}, wire{}.text(1, "r").bytes(2, nil)},
	} {
		got, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.message)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(c.want) {
			t.Errorf("%s:\n got %s\nwant %s", name, hex.EncodeToString(got), hex.EncodeToString(c.want))
		}
	}
}

// Fields of another line of the interface are passed over.
func TestForeignFieldsAreSkipped(t *testing.T) {
	var b smgcommon.KvEventBatch
	if err := proto.Unmarshal(wire{}.num(1, 5).num(5, 1).bytes(6, wire{}.num(1, 2)).num(99, 1), &b); err != nil || b.SequenceNumber != 5 {
		t.Errorf("%v, %v", &b, err)
	}
}

// The services answer under their published names.
func TestServiceNames(t *testing.T) {
	if got := vllmengine.VllmEngine_SubscribeKvEvents_FullMethodName; got != "/vllm.grpc.engine.VllmEngine/SubscribeKvEvents" {
		t.Error(got)
	}
	if got := (&smgcommon.KvEventBatch{}).ProtoReflect().Descriptor().FullName(); got != "smg.grpc.common.KvEventBatch" {
		t.Error(got)
	}
}

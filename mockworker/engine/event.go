package engine

import "fleetdrill/mockworker/blockhash"

// EventKind is what an Event says.
type EventKind uint8

// The kinds of event.
const (
	// Stored announces blocks that entered the prefix cache.
	Stored EventKind = iota + 1
	// Removed announces that one physical copy of each hash left it.
	Removed
	// Cleared announces that the whole cache is empty.
	Cleared
)

// NoGroup in Event.Group leaves the group out of the event, as events of an offload tier do.
const NoGroup = -1

// MediumGPU is the device in events.
const MediumGPU = "GPU"

// Event is one KV-cache event as the scheduler queued it. Fields beside Hashes, Group and Medium belong
// to Stored; Cleared has none. Slices and pointers alias the engine's memory: they may be read until the
// next Step and must not be written.
type Event struct {
	Kind EventKind
	// Hashes are the blocks in chain order; exactly one for Removed on the device. A sparse store names only
	// some of the blocks that Tokens span, perhaps none.
	Hashes []blockhash.Digest
	// Parent precedes Hashes[0], nil at position 0.
	Parent *blockhash.Digest
	// Tokens are the ids of all blocks, BlockSize for each. A host tier's store tells neither unless
	// Config.HostDescribed asks for it.
	Tokens    []uint32
	BlockSize int
	// Bigram blocks are made of pairs of neighbouring tokens: Tokens are then the text that the pairs cover,
	// one more than BlockSize for each block. Only SGLang has them.
	Bigram bool
	// LoRAID and LoRAName are nil and empty without an adapter.
	LoRAID   *int
	LoRAName string
	// ExtraKeys holds one entry per hash; an empty slice leaves the field out.
	ExtraKeys []ExtraKey
	Group     int
	// SpecKind is the attention kind of the group, empty to leave it out; SpecWindow its window in
	// tokens, 0 without one.
	SpecKind   string
	SpecWindow int
	// Medium is the tier, "GPU" for the device.
	Medium string
	// Reused marks a store of blocks that were in the cache before and got no further copy.
	Reused bool
	// CacheSalt is the request's salt. vLLM's wires tell it in ExtraKeys, SGLang's here.
	CacheSalt string
	// Locality ("LOCAL", "REMOTE"), Ownership (a secondary tier's id) and SessionID are empty for the
	// device tier of an engine by itself.
	Locality, Ownership, SessionID string
}

// ExtraKey is what besides tokens went into one block's hash, in order: adapter name, multimodal items,
// cache salt (block 0 only). nil is no extra key.
type ExtraKey []ExtraItem

// ExtraItem is one element of an ExtraKey: a text, or with IsItem a multimodal item's hash and the
// offset of its start from the block's, negative when it began in an earlier block.
type ExtraItem struct {
	Text   string
	IsItem bool
	Offset int
}

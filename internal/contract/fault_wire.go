package contract

// Kinds of the fault hooks of an engine's event stream and replay socket.
const (
	FaultDuplicate      = "duplicate"
	FaultReorder        = "reorder"
	FaultCorrupt        = "corrupt"
	FaultTruncate       = "truncate"
	FaultUnknownEvent   = "unknown_event"
	FaultUnknownField   = "unknown_field"
	FaultUnknownParent  = "unknown_parent"
	FaultMaskedStore    = "masked_store"
	FaultStaleStore     = "stale_store"
	FaultMuteStores     = "mute_stores"
	FaultMuteRemovals   = "mute_removals"
	FaultLateRemovals   = "late_removals"
	FaultReplayHang     = "replay_hang"
	FaultReplayEmpty    = "replay_empty"
	FaultReplayTruncate = "replay_truncate"
)

// Kinds of the fault hooks of the engine and the process around it.
const (
	FaultSilentClear = "silent_clear"
	FaultClear       = "clear"
	FaultSlow        = "slow"
	FaultLeak        = "leak"
)

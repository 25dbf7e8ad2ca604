package contract

// Kinds of the fault hooks of a mock worker, as POST /admin/faults takes them.
const (
	FaultPause            = "pause"
	FaultWedge            = "wedge"
	FaultDropBatches      = "drop_batches"
	FaultDelayPublisher   = "delay_publisher"
	FaultMutePublisher    = "mute_publisher"
	FaultRestartPublisher = "restart_publisher"
	FaultExit             = "exit"
)

// States of a fault hook. Armed has not acted yet; done has ended by itself, healed was ended by DELETE.
const (
	FaultArmed  = "armed"
	FaultActing = "acting"
	FaultDone   = "done"
	FaultHealed = "healed"
)

// FaultArmedReply answers POST /admin/faults.
type FaultArmedReply struct {
	ID string `json:"id"`
}

// FaultList answers GET /admin/faults.
type FaultList struct {
	MonoNs int64        `json:"mono_ns"`
	Wall   string       `json:"wall"`
	Faults []TruthFault `json:"faults"`
}

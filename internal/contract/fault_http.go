package contract

// Kinds of the fault hooks of a mock worker's HTTP port. They act on the whole worker and take no rank.
const (
	FaultHealth    = "health"
	FaultListener  = "listener"
	FaultCutStream = "cut_stream"
	FaultErrors    = "errors"
	FaultStaleLoad = "stale_load"
)

package contract

// Kinds of process that write a ready file.
const (
	KindWorker  = "worker"
	KindGateway = "gateway"
)

// ReadyFile says where a process serves. It is written atomically (temporary file, rename) once every
// socket in it answers, so that its existence is the start signal.
type ReadyFile struct {
	PID int `json:"pid"`
	// StartTime is field 22 of /proc/PID/stat, clock ticks since boot: with the pid it names a process
	// for good, even after the pid is reused.
	StartTime uint64 `json:"start_time"`
	Kind      string `json:"kind"`
	// Workers are the mock workers of a worker process, in id order; empty for other kinds.
	Workers []ReadyWorker `json:"workers,omitempty"`
	// Gateway is set for a gateway process.
	Gateway *ReadyGateway `json:"gateway,omitempty"`
}

// ReadyWorker is one mock worker: base URLs as http://host:port, grpc as host:port or empty.
type ReadyWorker struct {
	ID    string      `json:"id"`
	HTTP  string      `json:"http"`
	Admin string      `json:"admin"`
	GRPC  string      `json:"grpc"`
	Ranks []ReadyRank `json:"ranks"`
}

// ReadyRank is one data-parallel rank's event endpoints, as tcp://host:port; empty when events are off.
type ReadyRank struct {
	Rank   int    `json:"rank"`
	Events string `json:"events"`
	Replay string `json:"replay"`
}

// ReadyGateway holds the base URLs of a gateway's proxy port and admin port.
type ReadyGateway struct {
	HTTP  string `json:"http"`
	Admin string `json:"admin"`
}

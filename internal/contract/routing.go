package contract

// Veto reasons: why a worker may not be placed on although it is registered and ready.
const (
	VetoDead        = "dead"
	VetoPartitioned = "partitioned"
	VetoWedged      = "wedged"
)

// VetoReasons is the closed list.
var VetoReasons = []string{VetoDead, VetoPartitioned, VetoWedged}

// Phases of a worker in the gateway's registry.
const (
	PhaseStarting = "starting" // registered or dead, no 200 from /health since
	PhaseReady    = "ready"
	PhaseDraining = "draining" // refuses new connections while ours stay open, or /health 503 after a 200
)

// Phases is the closed list.
var Phases = []string{PhaseStarting, PhaseReady, PhaseDraining}

// Breaker states.
const (
	BreakerClosed   = "closed"
	BreakerOpen     = "open"
	BreakerHalfOpen = "half-open"
)

// Stream states of a rank's event subscription.
const (
	StreamLive      = "live"
	StreamReplaying = "replaying"
	StreamDown      = "down"
)

// Streams is the closed list.
var Streams = []string{StreamLive, StreamReplaying, StreamDown}

// Quality of a rank's index.
const (
	QualityExact    = "exact"
	QualityPartial  = "partial"
	QualityDegraded = "degraded"
	QualityStale    = "stale"
)

// Qualities is the closed list.
var Qualities = []string{QualityExact, QualityPartial, QualityDegraded, QualityStale}

// Causes of a resync: why a rank's memberships were rebuilt.
const (
	ResyncFirst   = "first_contact"
	ResyncRestart = "restart"
	ResyncGap     = "gap_cleared"
)

// ResyncCauses is the closed list.
var ResyncCauses = []string{ResyncFirst, ResyncRestart, ResyncGap}

// Rules by which a publisher restart was recognised.
const (
	RestartPayload   = "payload"   // seq at or below the cursor with another payload than the one held
	RestartClear     = "clear"     // a batch at or below the cursor carries the engine's own clear
	RestartZero      = "zero"      // seq 0 or 1 below the cursor
	RestartFarBelow  = "far_below" // seq + 1,024 <= cursor
	RestartReplay    = "replay"    // the replayed batch at the cursor has another payload
	RestartEmpty     = "empty"     // after a reconnect the replay had nothing at the cursor, twice
	RestartReconnect = "reconnect" // no replay source: a reconnect after dead
)

// RestartRules is the closed list.
var RestartRules = []string{RestartPayload, RestartClear, RestartZero, RestartFarBelow, RestartReplay, RestartEmpty, RestartReconnect}

// Reasons for dropping an event or a payload.
const (
	DropUnknownType     = "unknown_type"
	DropMalformed       = "malformed"
	DropOwnership       = "unsupported_ownership"
	DropLocality        = "non_local_locality"
	DropMedium          = "unknown_medium"
	DropGroup           = "non_main_attention_group"
	DropPlaceholder     = "placeholder"
	DropUnaligned       = "unaligned_blocks"
	DropSelfReferencing = "self_referencing_hashes"
	DropNamespace       = "namespace"
	DropBlockSize       = "wrong_block_size"
	DropTier            = "tier_not_indexed"
	DropBadFrames       = "bad_frames"
)

// DropReasons is the closed list.
var DropReasons = []string{DropUnknownType, DropMalformed, DropOwnership, DropLocality, DropMedium, DropGroup, DropPlaceholder,
	DropUnaligned, DropSelfReferencing, DropNamespace, DropBlockSize, DropTier, DropBadFrames}

// Handicaps a gateway can be started with, for negative controls.
const (
	HandicapLivenessOff    = "liveness-off"       // no path to unroutable works: ping, stall, wedge, breaker, connect errors
	HandicapGapRecoveryOff = "gap-recovery-off"   // a gap is skipped: what is missing is never asked for
	HandicapRestartBlind   = "restart-blind"      // a lower sequence is stale, a restarted publisher's old memberships stay
	HandicapNoThinSlice    = "no-thin-slice"      // thin workers get nothing
	HandicapLagBlind       = "lag-blind"          // apply lag is reported as zero
	HandicapLoadAgeOff     = "load-age-off"       // a load record counts however old it is, and own dispatches correct none
	HandicapCleanEnd       = "clean-end-trusting" // an answer whose connection ends in good order is whole, whatever it lacks
	HandicapHairTrigger    = "hair-trigger"       // one late or failed ping vetoes at once
)

// Handicaps is the closed list.
var Handicaps = []string{HandicapLivenessOff, HandicapGapRecoveryOff, HandicapRestartBlind, HandicapNoThinSlice,
	HandicapLagBlind, HandicapLoadAgeOff, HandicapCleanEnd, HandicapHairTrigger}

// RoutingState is GET /routing/state of a gateway.
type RoutingState struct {
	MonoNs    int64           `json:"mono_ns"`
	Wall      string          `json:"wall"`
	Policy    string          `json:"policy"`
	KVIndex   string          `json:"kv_index"`
	Handicaps []string        `json:"handicaps"`
	Counters  RoutingCounters `json:"counters"`
	Workers   []RoutingWorker `json:"workers"`
}

// RoutingCounters are fleet-wide counts since the gateway started.
type RoutingCounters struct {
	Requests int64 `json:"requests"`
	Lookups  int64 `json:"lookups"`
	Hits     int64 `json:"hits"`   // placed with predicted credit > 0, or diverted from a holder to a thin worker
	Misses   int64 `json:"misses"` // no routable holder had anything
	Retries  int64 `json:"retries"`
}

// RoutingWorker is one worker as the gateway sees it.
type RoutingWorker struct {
	ID       string `json:"id"`
	URL      string `json:"url"`
	Routable bool   `json:"routable"`
	Veto     *Veto  `json:"veto"`
	Phase    string `json:"phase"`
	Breaker  string `json:"breaker"`
	// Inflight are requests placed and not ended, Dispatches placements since registration.
	Inflight   int64 `json:"inflight"`
	Dispatches int64 `json:"dispatches"`
	// Failures are upstream failures charged to this worker.
	Failures int64 `json:"failures"`
	// Thin says that the worker is routable and its index far emptier than the fleet's. Diverted are
	// requests placed there although another worker held their prefix, to fill it, since registration.
	Thin     bool  `json:"thin"`
	Diverted int64 `json:"diverted"`
	// Load is the last load record; null before the first.
	Load          *RoutingLoad  `json:"load"`
	LastContactMs float64       `json:"last_contact_ms"`
	Ranks         []RoutingRank `json:"ranks"`
}

// Veto says why and since when a worker may not be placed on.
type Veto struct {
	Reason      string `json:"reason"`
	SinceMonoNs int64  `json:"since_mono_ns"`
}

// RoutingLoad is a worker's load record as the policy uses it.
type RoutingLoad struct {
	AgeMs                 float64 `json:"age_ms"`
	Running               int64   `json:"running"`
	Waiting               int64   `json:"waiting"`
	WaitingUncachedTokens int64   `json:"waiting_uncached_tokens"`
	TokenUsage            float64 `json:"token_usage"`
}

// RoutingRank is one rank's event stream and index.
type RoutingRank struct {
	Rank    int    `json:"rank"`
	Stream  string `json:"stream"`
	Quality string `json:"quality"`
	// Epoch counts publisher incarnations seen, from 1.
	Epoch   int64 `json:"epoch"`
	NextSeq int64 `json:"next_seq"`
	// Blocks and Digest are of what the device has, in the main group, as in TruthRank; HostBlocks and
	// HostDigest of what host memory has. A block may be in both.
	Blocks     int `json:"blocks"`
	Digest     U64 `json:"digest"`
	HostBlocks int `json:"host_blocks"`
	HostDigest U64 `json:"host_digest"`
	// ApplyLagMs is the time from the last applied batch's own ts to its application.
	ApplyLagMs float64 `json:"apply_lag_ms"`
	// Queued are batches and replies that arrived and wait to be applied.
	Queued   int          `json:"queued"`
	Counters RankCounters `json:"counters"`
}

// RankCounters count what happened on a rank's stream since it was registered.
type RankCounters struct {
	Batches    int64 `json:"batches"`
	Gaps       int64 `json:"gaps"`
	Duplicates int64 `json:"duplicates"`
	// Stale are batches below the cursor that nothing could be concluded from.
	Stale       int64 `json:"stale"`
	Replayed    int64 `json:"replayed"`
	Refilled    int64 `json:"refilled"`
	Unrecovered int64 `json:"unrecovered"`
	// Orphans are stores under a parent that the index does not have, and host blocks that were named and
	// have no place in it.
	Orphans int64 `json:"orphans"`
	// Shed are memberships that the gateway gave up to stay below --index-max-bytes; QueueFull are arrivals
	// that found the queue full, so that the stream was not read for a while.
	Shed         int64            `json:"shed"`
	QueueFull    int64            `json:"queue_full"`
	HashMismatch int64            `json:"hash_mismatch"`
	Resyncs      map[string]int64 `json:"resyncs"`
	Restarts     map[string]int64 `json:"restarts"`
	Drops        map[string]int64 `json:"drops"`
}

// Kinds of transition that GET /routing/events tells.
const (
	EventRegistry = "registry" // "" or "added"
	EventPhase    = "phase"    // one of Phases
	EventVeto     = "veto"     // one of VetoReasons, "" = none
	EventBreaker  = "breaker"  // a breaker state
)

// RoutingEvent is the data of one server-sent event of GET /routing/events: what of a worker changed.
type RoutingEvent struct {
	MonoNs int64  `json:"mono_ns"`
	Worker string `json:"worker"`
	Kind   string `json:"kind"`
	From   string `json:"from"`
	To     string `json:"to"`
}

// RoutingHandicaps is the body of PUT /routing/handicaps, which replaces the whole set, and its answer.
type RoutingHandicaps struct {
	Handicaps []string `json:"handicaps"`
}

// DumpHead is the first JSON line of GET /routing/dump; DumpBlock lines follow.
type DumpHead struct {
	MonoNs int64  `json:"mono_ns"`
	Wall   string `json:"wall"`
	Worker string `json:"worker"`
	Rank   int    `json:"rank"`
	Epoch  int64  `json:"epoch"`
	// Seq is the last sequence number applied, -1 before the first.
	Seq        int64 `json:"seq"`
	Blocks     int   `json:"blocks"`
	Digest     U64   `json:"digest"`
	HostBlocks int   `json:"host_blocks"`
	HostDigest U64   `json:"host_digest"`
	// Shed are memberships given up since registration to stay below --index-max-bytes, Orphans stores under
	// unknown parents and host blocks of unknown place since then.
	Shed    int64 `json:"shed"`
	Orphans int64 `json:"orphans"`
}

// Tiers of TruthSet, TruthBlock and DumpBlock that an index credits.
const (
	TierDevice = "device"
	TierHost   = "host"
)

// DumpBlock is one block in one tier: Position and Content place it in its chain.
type DumpBlock struct {
	Hash     U64    `json:"hash"`
	Position int    `json:"position"`
	Content  U64    `json:"content"`
	Tier     string `json:"tier"`
}

// WorkerSpec registers a worker: POST /workers, an entry of a workers file, or --worker.
type WorkerSpec struct {
	ID          string            `json:"id" yaml:"id"`
	URL         string            `json:"url" yaml:"url"`
	Models      []string          `json:"models,omitempty" yaml:"models"`
	Labels      map[string]string `json:"labels,omitempty" yaml:"labels"`
	Runtime     string            `json:"runtime,omitempty" yaml:"runtime"`
	KVBlockSize int               `json:"kv_block_size,omitempty" yaml:"kv_block_size"`
	KVEvents    *KVEventsSpec     `json:"kv_events,omitempty" yaml:"kv_events"`
}

// KVEventsSpec says where a worker's events come from. Endpoints are tcp://host:port of rank 0; rank r
// adds r to the port, as the engines do.
type KVEventsSpec struct {
	Endpoint       string `json:"endpoint" yaml:"endpoint"`
	ReplayEndpoint string `json:"replay_endpoint,omitempty" yaml:"replay_endpoint"`
	Ranks          int    `json:"ranks,omitempty" yaml:"ranks"`
}

package contract

// Truth is GET /admin/truth of a mock worker: what the engine itself says is resident and running.
//
// Three sets exist per rank, tier and class of cache groups: resident (what the pool holds), announced (the
// fold of every batch this publisher incarnation sent, so what a subscriber that lost nothing must hold), and
// their two differences: unannounced (resident minus announced) and ghost (announced minus resident).
type Truth struct {
	MonoNs int64  `json:"mono_ns"`
	Wall   string `json:"wall"`
	Worker string `json:"worker"`
	// Epoch names the publisher incarnation of rank 0; it changes when the process or its publisher
	// restarts. TruthRank has each rank's own.
	Epoch     int64            `json:"epoch"`
	Profile   string           `json:"profile"`
	Wire      string           `json:"wire"`
	HashAlgo  string           `json:"hash_algo"`
	BlockSize int              `json:"block_size"`
	NumBlocks int              `json:"num_blocks"`
	Ranks     []TruthRank      `json:"ranks"`
	Counters  map[string]int64 `json:"counters"`
	Faults    []TruthFault     `json:"faults"`
}

// TruthRank is one rank's share of Truth. Blocks are counts of distinct engine hashes.
//
// Epoch, NextSeq, AnnouncedBlocks and Digest belong to one instant. ResidentBlocks, Unannounced, Ghost and
// Sets are of ResidentMonoNs, as of the step boundary before it, which is the same instant unless the engine
// is kept from answering: that is not waited for. All but Sets are of the device's main set.
type TruthRank struct {
	Rank            int   `json:"rank"`
	Epoch           int64 `json:"epoch"`
	NextSeq         int64 `json:"next_seq"`
	ResidentMonoNs  int64 `json:"resident_mono_ns"`
	ResidentBlocks  int   `json:"resident_blocks"`
	AnnouncedBlocks int   `json:"announced_blocks"`
	Unannounced     int   `json:"unannounced"`
	Ghost           int   `json:"ghost"`
	// Digest is the sum modulo 2^64 of the splitmix64 finaliser over the distinct announced hashes
	// (tokens.Digest).
	Digest                U64     `json:"digest"`
	Running               int     `json:"running"`
	Waiting               int     `json:"waiting"`
	WaitingUncachedTokens int64   `json:"waiting_uncached_tokens"`
	KVUsage               float64 `json:"kv_usage"`
	Steps                 int64   `json:"steps"`
	LastStepMonoNs        int64   `json:"last_step_mono_ns"`
	// Sets are the same figures for each tier and class that has ever had a block, the device's main one,
	// which the figures above are of, first.
	Sets []TruthSet `json:"sets"`
}

// TruthSet is the block counts of one tier ("device", "host", "disk", "external") and class of cache groups:
// "main" holds the whole context, "window" a part of it.
type TruthSet struct {
	Tier        string `json:"tier"`
	Class       string `json:"class"`
	Resident    int    `json:"resident"`
	Announced   int    `json:"announced"`
	Unannounced int    `json:"unannounced"`
	Ghost       int    `json:"ghost"`
	Digest      U64    `json:"digest"`
}

// TruthFault is one armed or past fault hook: its kind (FaultPause and so on), every parameter with the
// value in force, its state, when it acted first (0: not yet), how often, and on what: texts such as
// "seq 41..60" or "request cmpl-1".
type TruthFault struct {
	ID               string         `json:"id"`
	Kind             string         `json:"kind"`
	Params           map[string]any `json:"params"`
	State            string         `json:"state"`
	FirstActedMonoNs int64          `json:"first_acted_mono_ns"`
	Acted            int64          `json:"acted"`
	Evidence         []string       `json:"evidence"`
}

// TruthBlocksHead is the first JSON line of GET /admin/truth/blocks; TruthBlock lines follow.
type TruthBlocksHead struct {
	MonoNs int64  `json:"mono_ns"`
	Wall   string `json:"wall"`
	Worker string `json:"worker"`
	Rank   int    `json:"rank"`
	Epoch  int64  `json:"epoch"`
	Set    string `json:"set"`
	// Seq is the last sequence number folded into the set, -1 before the first batch.
	Seq    int64 `json:"seq"`
	Blocks int   `json:"blocks"`
	Digest U64   `json:"digest"`
}

// TruthBlock is one block. Parent is empty for position 0. Content is the chain's content hash
// (namespace mixed into position 0), Copies the physical copies, of all groups of the class. Position is -1,
// and Parent and Content mean nothing, where no event told them: in the host tier and beside holes.
type TruthBlock struct {
	Hash     U64    `json:"hash"`
	Parent   *U64   `json:"parent"`
	Position int    `json:"position"`
	Content  U64    `json:"content"`
	Copies   int    `json:"copies"`
	Tier     string `json:"tier"`
	// Class is "main" or "window", Group the first cache group that holds the block, -1 in a tier without
	// groups.
	Class string `json:"class"`
	Group int    `json:"group"`
	// Use is "in_use" or "free" for resident blocks, empty for sets that do not know.
	Use string `json:"use,omitempty"`
}

// TruthDigest is one JSON line of GET /admin/truth/digests: announced after batch Seq.
type TruthDigest struct {
	Seq    int64 `json:"seq"`
	MonoNs int64 `json:"mono_ns"`
	Blocks int   `json:"blocks"`
	Digest U64   `json:"digest"`
}

// TruthJournal is one JSON line of GET /admin/truth/journal: what batch Seq changed. Stored and Removed are
// of the device's main set, Others of the sets beside it. Cleared empties all.
type TruthJournal struct {
	Seq     int64        `json:"seq"`
	MonoNs  int64        `json:"mono_ns"`
	Stored  []TruthStore `json:"stored"`
	Removed []U64        `json:"removed"`
	Cleared bool         `json:"cleared"`

	Others []TruthJournalSet `json:"others,omitempty"`
}

// TruthJournalSet is what a batch changed in the set of one tier and class.
type TruthJournalSet struct {
	Tier    string       `json:"tier"`
	Class   string       `json:"class"`
	Stored  []TruthStore `json:"stored"`
	Removed []U64        `json:"removed"`
}

// TruthStore is one stored block of a journal line.
type TruthStore struct {
	Hash     U64  `json:"hash"`
	Parent   *U64 `json:"parent"`
	Position int  `json:"position"`
	Content  U64  `json:"content"`
}

// TruthMatchRequest is the body of POST /admin/truth/match.
type TruthMatchRequest struct {
	TokenIDs  []uint32 `json:"token_ids"`
	LoRAName  string   `json:"lora_name,omitempty"`
	CacheSalt string   `json:"cache_salt,omitempty"`
}

// TruthMatch answers it: leading blocks resident now, per rank.
type TruthMatch struct {
	MonoNs int64            `json:"mono_ns"`
	Wall   string           `json:"wall"`
	Ranks  []TruthMatchRank `json:"ranks"`
}

// TruthMatchRank is one rank's match.
type TruthMatchRank struct {
	Rank   int `json:"rank"`
	Blocks int `json:"blocks"`
}

// Outcomes of an engine request.
const (
	OutcomeStop   = "stop"
	OutcomeLength = "length"
	OutcomeAbort  = "abort"
	OutcomeError  = "error"
)

// TruthRequest is one JSON line of GET /admin/truth/requests. Times are 0 for what never happened.
type TruthRequest struct {
	N                int64  `json:"n"`
	ID               string `json:"id"`
	Rank             int    `json:"rank"`
	ArrivalMonoNs    int64  `json:"arrival_mono_ns"`
	PromptTokens     int    `json:"prompt_tokens"`
	CachedTokens     int    `json:"cached_tokens"`
	OutputTokens     int    `json:"output_tokens"`
	ScheduledMonoNs  int64  `json:"scheduled_mono_ns"`
	FirstTokenMonoNs int64  `json:"first_token_mono_ns"`
	LastTokenMonoNs  int64  `json:"last_token_mono_ns"`
	Outcome          string `json:"outcome"`
}

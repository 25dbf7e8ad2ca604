package contract

import (
	"slices"
	"time"
)

// HookForm is how a parameter of a fault hook is written.
type HookForm uint8

// Forms of parameters.
const (
	HookWhole    HookForm = iota // a whole number in [Min, Max]
	HookNumber                   // a number in [Min, Max]
	HookShare                    // a number above 0 and up to 1
	HookDuration                 // "1.5s", above 0 and up to Longest
	HookWord                     // one of Words
)

// HookParam is one parameter of a fault hook.
type HookParam struct {
	Name     string
	Form     HookForm
	Min, Max float64
	Longest  time.Duration
	Words    []string
	// Default is what a missing one means, as it would be written; "" is nothing, or what Doc says.
	Default string
	// Required says what would not be known without it; "" is a parameter that may be left out.
	Required string
	// Doc is a few words for a reference.
	Doc string
}

// HookEnd is how a fault hook comes to its end, unless it is healed before.
type HookEnd uint8

// Ends of hooks.
const (
	HookHealed  HookEnd = iota // when it is healed, or its `for` or its count is over
	HookCounted                // with the last of its `count` batches
	HookOnce                   // in the moment it acts
	HookExits                  // with the process
)

// Hook is one kind of fault that a mock engine can be armed with: a row of the table that POST
// /admin/faults and the scenario language are read by.
type Hook struct {
	Kind string
	// Doc is what it does, in a few words.
	Doc  string
	Ends HookEnd
	// HTTP hooks act on the whole worker; every other kind takes a rank as well.
	HTTP bool
	// Events hooks need a worker that publishes KV events.
	Events bool
	// Params are its own parameters but for the rank, in the order of the documentation.
	Params []HookParam
}

// Bounds of parameters: far above what a drill needs, low enough that a slip of the keyboard is refused.
const (
	hookLongest  = 24 * time.Hour
	hookLatest   = time.Hour
	hookMost     = 1_000_000
	hookMaxAhead = 100_000 // batches made at once, about 300 bytes each
	hookMaxToken = 1 << 30
	hookMaxLeak  = 64 << 20
)

// Hooks is the closed list.
var Hooks = []Hook{
	{Kind: FaultPause, Doc: "the engine's step loop stands still, its health check answers", Params: []HookParam{hookFor}},
	{Kind: FaultWedge, Doc: "as pause, and the engine takes nothing in", Params: []HookParam{hookFor}},

	{Kind: FaultDropBatches, Ends: HookCounted, Events: true, Doc: "the publisher leaves out batches; their sequence numbers are used up", Params: []HookParam{
		{Name: "count", Form: HookWhole, Min: 1, Max: hookMost, Required: "how many batches to drop", Doc: "how many"},
		word("replay", "whether the replay buffer has them", "keep", "lose")}},
	{Kind: FaultDelayPublisher, Events: true, Doc: "batches leave later, in order", Params: []HookParam{
		{Name: "by", Form: HookDuration, Longest: hookLatest, Required: "how much later batches leave", Doc: "how much later"}, hookFor}},
	{Kind: FaultMutePublisher, Events: true, Doc: "the engine serves and publishes nothing; no number is used up", Params: []HookParam{hookFor}},
	{Kind: FaultRestartPublisher, Ends: HookOnce, Events: true, Doc: "a new publisher: sequence from 0, empty replay buffer, new epoch", Params: []HookParam{
		word("cache", "what becomes of the engine's cache", "keep", "empty"),
		{Name: "socket", Form: HookWord, Words: []string{"keep", "rebind"}, Doc: "whether subscribers stay connected; keep, but rebind with ahead"},
		{Name: "ahead", Form: HookWhole, Max: hookMaxAhead, Default: "0", Doc: "batches it publishes before anyone can subscribe again"}}},

	surprise(FaultDuplicate, "batches have something twice",
		word("of", "the batch on the wire, its first store, or a hash in that", "batch", "store", "hash")),
	surprise(FaultReorder, "batches are overtaken by the one behind"),
	surprise(FaultCorrupt, "batches have a wrong field",
		word("field", "which", "payload", "seq", "topic", "hash", "parent", "tokens")),
	surprise(FaultTruncate, "batches are cut in the middle"),
	surprise(FaultUnknownEvent, "batches have an event of a type that no version has"),
	surprise(FaultUnknownField, "batches have a field that no version has", word("in", "each event, or the batch", "event", "batch")),
	surprise(FaultUnknownParent, "stores stand behind a block that was never announced"),
	surprise(FaultStaleStore, "batches store once more a block that they remove"),
	surprise(FaultMaskedStore, "stores leave blocks out of their hashes and not out of their tokens", word("mask", "half of the blocks, or all", "part", "all")),

	{Kind: FaultMuteStores, Events: true, Doc: "stores are never announced", Params: []HookParam{hookTier, hookFor}},
	{Kind: FaultMuteRemovals, Events: true, Doc: "evictions are never announced", Params: []HookParam{hookTier, hookFor}},
	{Kind: FaultLateRemovals, Events: true, Doc: "evictions are announced late", Params: []HookParam{
		{Name: "steps", Form: HookWhole, Min: 1, Max: hookMost, Doc: "by so many steps"},
		{Name: "by", Form: HookDuration, Longest: hookLatest, Doc: "or by so long"}, hookFor}},
	{Kind: FaultReplayHang, Events: true, Doc: "a replay request gets no answer", Params: []HookParam{hookFor}},
	{Kind: FaultReplayEmpty, Events: true, Doc: "a replay request gets the end marker only", Params: []HookParam{hookFor}},
	{Kind: FaultReplayTruncate, Events: true, Doc: "a replay ends early", Params: []HookParam{
		{Name: "after", Form: HookWhole, Max: hookMost, Default: "0", Doc: "behind so many batches"},
		word("end", "whether its end marker is lost", "lose", "keep"), hookFor}},

	{Kind: FaultSilentClear, Ends: HookOnce, Doc: "the cache is empty and nobody is told"},
	{Kind: FaultClear, Ends: HookOnce, Doc: "the cache is cleared as by an operator, and AllBlocksCleared published"},
	{Kind: FaultSlow, Doc: "steps take longer", Params: []HookParam{
		// A factor below 1 makes an engine faster than its profile.
		{Name: "factor", Form: HookNumber, Min: 0.01, Max: 1000, Default: "1", Doc: "so many times as long"},
		{Name: "jitter", Form: HookNumber, Max: 0.99, Default: "0", Doc: "each longer or shorter by up to this share"}, hookFor}},
	{Kind: FaultLeak, Doc: "every request that ends leaves memory behind", Params: []HookParam{
		{Name: "bytes_per_request", Form: HookWhole, Min: 1, Max: hookMaxLeak, Required: "how much memory each request leaves behind", Doc: "how much"}, hookFor}},
	{Kind: FaultExit, Ends: HookExits, Doc: "the process exits on its own", Params: []HookParam{
		{Name: "code", Form: HookWhole, Max: 255, Default: "1", Doc: "its exit code"},
		{Name: "after_tokens", Form: HookWhole, Max: hookMaxToken, Default: "0", Doc: "in place of the token after so many"},
		{Name: "at", Form: HookDuration, Longest: hookLongest, Doc: "or so long after the arming"},
		word("on", "what it dies of: a token that is due, or a request for a full report", "token", "full_report")}},

	{Kind: FaultHealth, HTTP: true, Doc: "only the health paths lie", Params: []HookParam{
		word("mode", "503, late answers, or 503 and 200 in turn", "error", "delay", "flap"),
		{Name: "by", Form: HookDuration, Longest: hookLatest, Doc: "how late, or how long each turn is"}, hookFor}},
	{Kind: FaultListener, HTTP: true, Doc: "the HTTP port takes no connections", Params: []HookParam{
		word("mode", "refuses them, never answers them, or resets them", "closed", "blackhole", "reset"),
		word("existing", "what becomes of open connections", "keep", "close"), hookFor}},
	{Kind: FaultErrors, HTTP: true, Doc: "requests get an error status before the first byte", Params: []HookParam{
		{Name: "status", Form: HookWhole, Min: 400, Max: 599, Default: "500", Doc: "which"},
		{Name: "share", Form: HookShare, Default: "1", Doc: "of so many requests"},
		{Name: "first", Form: HookWhole, Min: 1, Max: hookMost, Doc: "until so many have got it"},
		{Name: "every", Form: HookWhole, Min: 1, Max: hookMost, Doc: "or each so-many-th"}, hookFor}},
	{Kind: FaultCutStream, HTTP: true, Doc: "streams end in the middle", Params: []HookParam{
		word("how", "closed, reset, silent, or ended as if whole", "fin", "rst", "silence", "clean_end"),
		{Name: "after_tokens", Form: HookWhole, Max: hookMaxToken, Default: "1", Doc: "behind so many tokens"},
		{Name: "share", Form: HookShare, Default: "1", Doc: "of so many streams"},
		{Name: "count", Form: HookWhole, Min: 1, Max: hookMost, Doc: "until so many were cut"}, hookFor}},
	{Kind: FaultStaleLoad, HTTP: true, Doc: "what the engine tells of its load lies", Params: []HookParam{
		word("mode", "as at the first look, zero, or not told", "freeze", "zero", "absent"), hookFor}},
}

// hookFor is the parameter of every hook that lasts.
var hookFor = HookParam{Name: "for", Form: HookDuration, Longest: hookLongest, Doc: "how long"}

// hookTier is whose events are muted.
var hookTier = word("tier", "of every tier, or of one", "all", "device", "host")

// word is a parameter that is one of some words, the first without it.
func word(name, doc string, words ...string) HookParam {
	return HookParam{Name: name, Form: HookWord, Words: words, Default: words[0], Doc: doc}
}

// surprise is a hook that makes batches which surprise their readers.
func surprise(kind, doc string, params ...HookParam) Hook {
	count := HookParam{Name: "count", Form: HookWhole, Min: 1, Max: hookMost, Default: "1", Doc: "how many batches"}
	return Hook{Kind: kind, Doc: doc, Ends: HookCounted, Events: true, Params: append([]HookParam{count}, params...)}
}

// HookOf finds a row of the table.
func HookOf(kind string) (Hook, bool) {
	i := slices.IndexFunc(Hooks, func(h Hook) bool { return h.Kind == kind })
	if i < 0 {
		return Hook{}, false
	}
	return Hooks[i], true
}

// HookConflict is what is wrong with parameters that are each right: Problem is said of Params.
type HookConflict struct {
	Params  []string
	Problem string
}

// HookValues are the parameters of a hook with their values in force, defaults included: int64, float64,
// time.Duration or string by their form. A parameter without a value has no key.
type HookValues map[string]any

// Conflict is what no single parameter tells; the zero value is nothing wrong.
func (h Hook) Conflict(v HookValues) HookConflict {
	for _, p := range h.Params {
		if _, ok := v[p.Name]; p.Required != "" && !ok {
			return HookConflict{[]string{p.Name}, "is missing: " + p.Required}
		}
	}
	_, by := v["by"]
	_, steps := v["steps"]
	_, every := v["every"]
	_, at := v["at"]
	tokens, _ := v["after_tokens"].(int64)
	ahead, _ := v["ahead"].(int64)
	switch mode, _ := v["mode"].(string); {
	case h.Kind == FaultHealth && mode != "error" && !by:
		return HookConflict{[]string{"by"}, "is missing: how long a " + mode + " of the health paths takes"}
	case h.Kind == FaultHealth && mode == "error" && by:
		return HookConflict{[]string{"by"}, "needs mode delay or flap"}
	case h.Kind == FaultErrors && every && v["share"] != 1.0:
		return HookConflict{[]string{"share", "every"}, "are both given: one of them says which requests fail"}
	case h.Kind == FaultExit && v["on"] == "full_report" && (at || tokens > 0):
		return HookConflict{[]string{"on"}, "is full_report: at and after_tokens say otherwise when the process exits"}
	case h.Kind == FaultExit && at && tokens > 0:
		return HookConflict{[]string{"at", "after_tokens"}, "are both given: one of them says when the process exits"}
	case h.Kind == FaultLateRemovals && steps && by:
		return HookConflict{[]string{"steps", "by"}, "are both given: one of them says how late removals are"}
	case h.Kind == FaultLateRemovals && !steps && !by:
		return HookConflict{[]string{"steps", "by"}, "are missing: one of them says how late removals are"}
	case h.Kind == FaultSlow && v["factor"] == 1.0 && v["jitter"] == 0.0:
		return HookConflict{[]string{"factor", "jitter"}, "are missing: how slow or uneven steps are"}
	case h.Kind == FaultRestartPublisher && ahead > 0 && v["socket"] == "keep":
		return HookConflict{[]string{"ahead"}, "needs socket rebind: a subscriber of a socket that stays receives every batch"}
	}
	return HookConflict{}
}

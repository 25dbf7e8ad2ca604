package scenario

import (
	"slices"
	"strings"
	"time"

	"fleetdrill/internal/contract"
)

// The tables of the language. A key is written once, here; what it means is its Go field's comment in
// model.go, in full, and its doc here, in short.

var scenarioShape = &shape{name: "scenario", what: "a scenario", doc: "One drill: a fleet, a load, faults and the rules that give the verdict.", keys: []key{
	{name: "version", value: value{form: formVersion}, required: true, doc: "version of the language"},
	{name: "name", value: value{form: formID}, required: true, doc: "the drill's name, that of its file"},
	{name: "summary", value: value{form: formText}, doc: "one sentence: what must hold"},
	{name: "tags", value: value{form: formTexts}, doc: "words to choose drills by; core drills are the smoke tier"},
	{name: "source", value: value{form: formMapping, of: sourceShape}, doc: "where an incident comes from"},
	{name: "topology", value: value{form: formWords, words: []string{"direct"}, soon: []string{"relay"}}, def: "direct", doc: "how the gateway hears the engines: direct subscribes to each"},
	{name: "place", value: value{form: formWords, words: []string{"process"}, soon: []string{"netns", "docker", "attach", "sim"}}, def: "process", doc: "where the fleet runs: child processes on loopback"},
	{name: "fleet", value: value{form: formMapping, of: fleetShape}, doc: "the engines"},
	{name: "relay", soon: true},
	{name: "gateway", value: value{form: formMapping, of: gatewayShape}, doc: "the system under test"},
	{name: "load", value: value{form: formList, of: loadShape}, required: true, doc: "the requests"},
	{name: "observe", value: value{form: formMapping, of: observeShape}, doc: "how the fleet is sampled"},
	{name: "steady", value: value{form: formMapping, of: steadyShape}, doc: "what must hold before anything is broken"},
	{name: "timeline", value: value{form: formSteps}, doc: "faults and waits, in order"},
	{name: "symptom", soon: true},
	{name: "expect", value: value{form: formList, of: expectationShape}, required: true, doc: "the rules"},
	{name: "control", value: value{form: formNames, words: contract.Handicaps}, doc: "handicaps of the gateway with which the drill must fail"},
	{name: "repeat", value: value{form: formMapping, of: repeatShape}, doc: "how often tiers run it"},
	{name: "budget", value: value{form: formMapping, of: budgetShape}, doc: "what a run may take at most"},
}}

var sourceShape = &shape{name: "source", what: "source", doc: "Where an incident drill comes from.", keys: []key{
	{name: "issue", value: value{form: formText}, doc: "owner/repository#number"},
	{name: "url", value: value{form: formText}, doc: "a page about it"},
}}

var fleetShape = &shape{name: "fleet", what: "fleet", doc: "The engines, named w1 to wN.", keys: []key{
	{name: "workers", value: value{form: formWhole, min: 1, max: 256}, def: "8", doc: "how many"},
	{name: "profile", value: value{form: formText}, def: "drill", doc: "timing profile, a name or a file"},
	{name: "kv_blocks", value: value{form: formWhole, min: 16, max: 1 << 24}, def: "16384", doc: "blocks of the KV cache of each"},
	{name: "block_size", value: value{form: formWhole, min: 1, max: 1024}, def: "16", doc: "tokens per block"},
	{name: "wire", value: value{form: formWordList, words: contract.Wires}, def: contract.DefaultWire, doc: "engine version whose events and HTTP surface they have; of a list, each worker the next"},
	{name: "ranks", soon: true},
}}

var gatewayShape = &shape{name: "gateway", what: "gateway", doc: "The system under test.", keys: []key{
	{name: "target", value: value{form: formWord, words: []string{"fleetdrill"}, soon: []string{"command", "attach"}}, def: "fleetdrill", doc: "which gateway"},
	{name: "args", value: value{form: formTexts}, doc: "its further arguments"},
	{name: "count", soon: true},
}}

var loadShape = &shape{name: "load", what: "a load", doc: "An open loop of requests. Marks: ID.start, ID.end.", keys: []key{
	{name: "id", value: value{form: formID}, required: true, doc: "names the load and its marks"},
	{name: "synth", value: value{form: formMapping, of: synthShape}, doc: "generated requests"},
	{name: "trace", soon: true},
	{name: "phases", value: value{form: formList, of: phaseShape}, doc: "each takes over from the one before it"},
	{name: "to", value: value{form: formWorker}, def: "gateway", doc: "where it goes: gateway, or a worker such as w2, past the gateway"},
	{name: "start", value: value{form: formMark}, doc: "the mark at which it starts; without it, when the fleet is up"},
	{name: "stop", value: value{form: formMark}, doc: "the mark at which it sends no more; without it, at the end of the run"},
	{name: "seed", value: value{form: formSeed}, def: "$run.seed", doc: "what its requests are drawn from"},
	{name: "overload", value: value{form: formBool}, def: "false", doc: "it may keep workers more than 60 % busy"},
	{name: "abort", soon: true},
}, needs: []string{"synth"}, unless: []string{"trace"}}

var phaseShape = &shape{name: "phase", what: "a phase", doc: "A change of what a load sends. Marks: ID.start, ID.end.", keys: []key{
	{name: "id", value: value{form: formID}, required: true, doc: "names the phase and its marks"},
	{name: "at", value: value{form: formMark}, required: true, doc: "the mark at which it takes over, such as hits.start + 20s"},
	{name: "synth", value: value{form: formMapping, of: synthShape}, required: true, doc: "what it sends"},
}}

var synthShape = &shape{name: "synth", what: "synth", doc: "Generated requests.", keys: []key{
	{name: "rate", value: value{form: formRate}, doc: "requests per second"},
	{name: "input", value: value{form: formRange}, doc: "prompt tokens after the head"},
	{name: "output", value: value{form: formRange}, doc: "tokens to generate"},
	{name: "heads", value: value{form: formWhole, max: 1 << 16}, def: "0", doc: "shared beginnings of prompts, the same for all loads of one seed"},
	{name: "head_tokens", value: value{form: formWhole, max: 1 << 20}, def: "0", doc: "tokens of a head"},
	{name: "new_prefix", value: value{form: formShare}, def: "0%", doc: "share of requests with a beginning of their own in place of a head"},
	{name: "hits_only", value: value{form: formBool}, def: "false", doc: "a fixed set of prompts, one per head, over and over"},
	{name: "trickle", value: value{form: formBool}, def: "false", doc: "10 unique prompts a second behind one head of four blocks; what is written beside it wins"},
	{name: "concurrency", soon: true},
	{name: "sessions", soon: true},
}, needs: []string{"input", "output", "rate"}, unless: []string{"trickle", "concurrency"}}

var observeShape = &shape{name: "observe", what: "observe", doc: "How routing state and engine truth are sampled.", keys: []key{
	{name: "period", value: value{form: formDuration, least: 10 * time.Millisecond}, def: "100ms", doc: "time between samples"},
	{name: "max_gap", value: value{form: formDuration, least: time.Millisecond}, doc: "the longest hole a deciding window may have; three periods"},
}}

var steadyShape = &shape{name: "steady", what: "steady", doc: "The state before any fault. Marks: steady.start, steady.end.", keys: []key{
	{name: "hold", value: value{form: formDuration}, def: "3s", doc: "how long all must hold at every sample"},
	{name: "timeout", value: value{form: formDuration, least: time.Second}, def: "30s", doc: "not reached in this time: the run is invalid"},
	{name: "require", value: value{form: formPredicates}, doc: "the conditions"},
}}

var repeatShape = &shape{name: "repeat", what: "repeat", doc: "Repeats in a tier.", keys: []key{
	{name: "runs", value: value{form: formWhole, min: 1, max: 10000}, def: "1", doc: "how many runs"},
	{name: "seed", value: value{form: formWhole, max: 1 << 62}, def: "1", doc: "what the seeds of the runs are drawn from"},
}}

var budgetShape = &shape{name: "budget", what: "budget", doc: "Bounds of a run.", keys: []key{
	{name: "fault", value: value{form: formDuration}, doc: "the longest a fault may last"},
	{name: "run", value: value{form: formDuration}, doc: "the longest the run may take"},
}}

var waitShape = &shape{name: "wait", what: "a wait", doc: "Time passes until a mark. Marks: ID.start, ID.end.", keys: []key{
	{name: "wait", value: value{form: formID}, required: true, doc: "its id; settle is the one that ends a run"},
	{name: "until", value: value{form: formMark}, required: true, doc: "the mark, which may not have come yet"},
}}

var targetShape = &shape{name: "target", what: "target", doc: "What a fault hits.", keys: []key{
	{name: "pick", value: value{form: formWord, words: []string{"one"}}, doc: "one: a worker drawn from the run's seed"},
	{name: "worker", value: value{form: formWorker}, doc: "a worker by name"},
}, forms: [][]string{{"pick"}, {"worker"}}}

var atShape = &shape{name: "at", what: "at", doc: "A moment with a condition: the first sample after from at which when is true.", keys: []key{
	{name: "when", value: value{form: formPredicate}, required: true, doc: "the condition"},
	{name: "from", value: value{form: formMark}, required: true, doc: "from when it is looked for"},
	{name: "within", value: value{form: formDuration, least: time.Millisecond}, required: true, doc: "not met in this time: the run is invalid"},
}}

var healShape = &shape{name: "heal", what: "heal", doc: "How a fault ends.", keys: []key{
	{name: "after", value: value{form: formDuration}, doc: "so long after it took effect; for: 8s is short for it"},
	{name: "when", value: value{form: formPredicate}, doc: "at the first sample at which this is true"},
	{name: "timeout", value: value{form: formDuration, least: time.Millisecond}, doc: "with when: not met in this time, the run is invalid"},
}, forms: [][]string{{"after"}, {"when", "timeout"}}}

var allowShape = &shape{name: "allow", what: "allow", doc: "What always tolerates.", keys: []key{
	{name: "streak", value: value{form: formDuration}, doc: "how long the rule may be false at a stretch"},
}}

var expectationShape = &shape{name: "expectation", what: "an expectation", doc: "A rule. after and at_least_once give the mark ID.seen.", keys: []key{
	{name: "id", value: value{form: formID}, required: true, doc: "names the rule"},
	{name: "after", value: value{form: formMark}, doc: "the mark from which a reaction is due"},
	{name: "within", value: value{form: formDuration, least: time.Millisecond}, doc: "with after: the bound"},
	{name: "that", value: value{form: formPredicate}, doc: "what must become true, or be true of the window as a whole"},
	{name: "hold", value: value{form: formDuration}, doc: "with after: and stay true so long"},
	{name: "over", value: value{form: formMarks}, doc: "the window, mark..mark"},
	{name: "always", value: value{form: formPredicate}, doc: "true at every sample"},
	{name: "never", value: value{form: formPredicate}, doc: "true at no sample"},
	{name: "at_least_once", value: value{form: formPredicate}, doc: "true at some sample"},
	{name: "allow", value: value{form: formMapping, of: allowShape}, doc: "with always: what is tolerated"},
	{name: "window", value: value{form: formDuration, least: time.Millisecond}, doc: "with over: judge each stretch of this length"},
}, forms: [][]string{{"after", "within", "that"}, {"over", "that"}, {"over", "always"}, {"over", "never"}, {"over", "at_least_once"}}}

// shapes lists the mappings in the order of the reference; those of faults come from the table of kinds.
func shapes() []*shape {
	return []*shape{scenarioShape, sourceShape, fleetShape, gatewayShape, loadShape, phaseShape, synthShape, observeShape, steadyShape,
		waitShape, targetShape, atShape, healShape, expectationShape, allowShape, repeatShape, budgetShape}
}

// healing says how a kind of fault ends.
type healing int

const (
	healNever  healing = iota // what was killed stays dead
	healTimed                 // by the timeline: for or heal
	healItself                // when what it was told to do is done
)

// kind is a row of the table of faults: what a scenario may ask for.
type kind struct {
	name string
	// supported kinds can be injected by this version.
	supported bool
	heals     healing
	// within is how soon it is proven if the file does not say.
	within string
	doc    string
	params []key
	// hook is the engine's side of it, nil for what is done from outside.
	hook *contract.Hook
}

// How soon a fault is proven at the latest, unless the file says otherwise.
const (
	withinNow     = "500ms" // what can be seen at once
	withinTraffic = "5s"    // what shows in batches or in requests of the lab's own
)

// kinds lists every fault of the language. An entry that is not supported gives an error that says so, and
// not the misleading "unknown".
var kinds = slices.Concat([]kind{
	{name: FaultKill, supported: true, heals: healNever, within: withinNow, doc: "SIGKILL: the process is gone, the kernel resets its connections"},
	{name: FaultStop, supported: true, heals: healTimed, within: withinNow, doc: "SIGSTOP: the process is there and nothing in it runs"},
	{name: FaultPartition, supported: true, heals: healTimed, within: withinNow, doc: "links of the worker fall silent: bytes are held, connections stay, new ones wait", params: []key{
		{name: "link", value: oneOf("http", "events", "replay", "all").later("gateway-relay", "engine-relay"), required: true, doc: "which links"},
		{name: "direction", value: oneOf("both").later("to_engine", "from_engine"), def: "both", doc: "which way"},
		{name: "mode", value: oneOf("drop").later("refuse", "reset"), def: "drop", doc: "how"},
	}},
}, hookKinds(), []kind{
	{name: "term"},
	{name: "restart"},
	{name: "starve"},
	{name: "half_open"},
	{name: "link_slow"},
	{name: "link_cut"},
	{name: "gateway"},
	{name: "relay"},
	{name: "discovery"},
	{name: "clients"},
})

// hookKinds are the kinds that an engine is armed with.
func hookKinds() []kind {
	var out []kind
	for _, h := range contract.Hooks {
		k := kind{name: h.Kind, supported: true, within: withinTraffic, doc: h.Doc, hook: &h}
		switch h.Ends {
		case contract.HookCounted, contract.HookOnce:
			k.heals = healItself
		case contract.HookExits:
			k.heals = healNever
		default:
			k.heals = healTimed
		}
		if h.Kind == contract.FaultPause || h.Kind == contract.FaultWedge {
			k.within = withinNow
		}
		for _, p := range h.Params {
			if key, ok := hookKey(h, p); ok {
				k.params = append(k.params, key)
			}
		}
		if !h.HTTP {
			k.params = append(k.params, key{name: "rank", soon: true})
		}
		out = append(out, k)
	}
	return out
}

// hookKey is a parameter of a hook as a key of a fault; false for one that the language says otherwise: how
// long a fault lasts is told to the lab, which heals it, and when a process exits is when it is injected.
func hookKey(h contract.Hook, p contract.HookParam) (key, bool) {
	k := key{name: p.Name, required: p.Required != "", def: p.Default, doc: p.Doc}
	switch p.Form {
	case contract.HookWhole:
		k.value = value{form: formWhole, min: int(p.Min), max: int(p.Max)}
	case contract.HookNumber:
		k.value = value{form: formNumber, low: p.Min, high: p.Max}
	case contract.HookShare:
		k.value = value{form: formPart}
	case contract.HookDuration:
		k.value = value{form: formDuration, least: 1, most: p.Longest}
	case contract.HookWord:
		k.value = oneOf(p.Words...)
	}
	switch {
	case p.Name == "for", h.Kind == contract.FaultExit && p.Name == "at":
		return key{}, false
	case h.Kind == contract.FaultExit && p.Name == "after_tokens":
		k.def, k.doc = "", k.doc+"; without it at once, busy or not"
	}
	return k, true
}

// shape is the mapping of a fault of the kind.
func (k kind) shape() *shape {
	keys := []key{
		{name: "fault", value: value{form: formWord, words: []string{k.name}}, required: true, doc: "the kind"},
		{name: "id", value: value{form: formID}, required: true, doc: "names the fault and its marks"},
		{name: "target", value: value{form: formEither, alt: formWorker, of: targetShape}, required: true, doc: "what it hits: w3, {worker: w3} or {pick: one}"},
		{name: "at", value: value{form: formEither, alt: formMark, of: atShape}, required: true, doc: "when: a mark, or a condition"},
		{name: "confirm", value: value{form: formMapping, of: &shape{name: "confirm-" + k.name, what: "confirm", doc: "The proof that it acted.", keys: []key{
			{name: "within", value: value{form: formDuration, least: time.Millisecond}, def: k.within, doc: "not proven in this time: the run is invalid"},
		}}}, doc: "how soon the lab must have seen it act"},
	}
	keys = append(keys, k.params...)
	if k.heals == healTimed {
		keys = append(keys,
			key{name: "for", value: value{form: formDuration, least: time.Millisecond}, doc: "how long it lasts"},
			key{name: "heal", value: value{form: formMapping, of: healShape}, doc: "or what ends it; without either it lasts to the end of the run"})
	}
	return &shape{name: "fault-" + k.name, what: k.a() + " fault", doc: k.doc, keys: keys, refused: k.refused()}
}

// a is the kind with its article.
func (k kind) a() string {
	if strings.ContainsRune("aeiou", rune(k.name[0])) {
		return "an " + k.name
	}
	return "a " + k.name
}

// refused says why a fault that the timeline cannot heal has no such keys.
func (k kind) refused() map[string]string {
	why := ""
	switch k.heals {
	case healNever:
		why = k.a() + " is not healed: what was killed stays dead"
	case healItself:
		why = k.a() + " ends by itself and gives the mark healed then"
	}
	return map[string]string{"for": why, "heal": why}
}

// oneOf is a value that is one of the given words.
func oneOf(ws ...string) value { return value{form: formWord, words: ws} }

// later adds words that the language has and this version does not.
func (v value) later(ws ...string) value {
	v.soon = slices.Clone(ws)
	return v
}

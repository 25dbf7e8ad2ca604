package predicate

import (
	"slices"

	"fleetdrill/internal/contract"
)

// Kind is how a series behaves over time.
type Kind string

// Kinds. A gauge has a value at every sample. A counter grows; under a window it means its increase there.
// A stream is a set of events that a reducer (p99, count, share...) turns into a number.
const (
	KindGauge   Kind = "gauge"
	KindCounter Kind = "counter"
	KindStream  Kind = "stream"
)

// What a series exists once for.
const (
	PerFleet  = "fleet"
	PerWorker = "worker"
	PerRank   = "rank"
)

// Series is one entry of the catalogue: what predicates may name.
type Series struct {
	Name string
	// Per is PerFleet, PerWorker or PerRank. A stream is fleet-wide; `X of w` narrows it to a worker.
	Per  string
	Kind Kind
	// Source says where the lab reads it.
	Source string
	Unit   Unit
	// Bool marks a gauge that is 0 or 1. Text marks one whose values are words, from Words when that is
	// not empty.
	Bool       bool
	Text       bool
	Words      []string
	Definition string
	// fold says how ranks combine when a worker is named: sum, min or max.
	fold string
	// Every is how many samples pass between two readings; 0 and 1 mean that each sample has one. In
	// between the last reading stands, for at most three of these periods.
	Every int
	// derived series are computed from requests and links; the others are read from the samples.
	derived bool
}

// MemoryEvery is how many samples pass between two looks at process memory: it moves slowly and each look
// costs several reads of /proc.
const MemoryEvery = 10

// VetoNone is the word of the veto series while there is none.
const VetoNone = "none"

// Catalogue lists every series, in the order of the documentation. The caller owns the slice.
func Catalogue() []Series {
	const state, truth, client, proxy = "/routing/state", "truth", "client", "link proxy"
	gauge := func(name, per, source string, unit Unit, def string) Series {
		return Series{Name: name, Per: per, Kind: KindGauge, Source: source, Unit: unit, Definition: def, fold: "sum"}
	}
	flag := func(name, per, source, def string) Series {
		return Series{Name: name, Per: per, Kind: KindGauge, Source: source, Bool: true, Definition: def, fold: "max"}
	}
	text := func(name, per, source, def string, words ...string) Series {
		return Series{Name: name, Per: per, Kind: KindGauge, Source: source, Text: true, Words: words, Definition: def}
	}
	counter := func(name, per, source, def string) Series {
		return Series{Name: name, Per: per, Kind: KindCounter, Source: source, Definition: def, fold: "sum"}
	}
	stream := func(name, source string, unit Unit, def string) Series {
		return Series{Name: name, Per: PerFleet, Kind: KindStream, Source: source, Unit: unit, Definition: def, derived: true}
	}
	fold := func(s Series, how string) Series { s.fold = how; return s }
	derive := func(s Series) Series { s.derived = true; return s }
	slow := func(s Series) Series { s.Every = MemoryEvery; return s }

	all := []Series{
		flag("routable", PerWorker, state, "may a request be placed on it now"),
		text("veto", PerWorker, state, "why it may not be placed on; none when there is no veto", append([]string{VetoNone}, contract.VetoReasons...)...),
		text("phase", PerWorker, state, "phase in the gateway's registry", contract.Phases...),
		text("breaker", PerWorker, state, "state of its breaker", contract.BreakerClosed, contract.BreakerOpen, contract.BreakerHalfOpen),
		flag("thin", PerWorker, state, "routable and its index far emptier than the fleet's"),
		gauge("inflight", PerWorker, state, UnitNone, "requests placed and not ended"),
		gauge("gateway_load", PerWorker, state, UnitNone, "running and waiting in the load record that the policy uses"),
		gauge("last_contact", PerWorker, state, UnitTime, "time since the gateway last heard of it"),
		counter("dispatches", PerWorker, state, "placements by the gateway"),
		counter("failures", PerWorker, state, "upstream failures charged to it"),
		counter("diverted", PerWorker, state, "requests placed on it, while thin, although another worker held their prefix"),
		counter("requests_seen", PerFleet, state, "requests that reached the gateway"),
		counter("lookups", PerFleet, state, "index lookups"),
		counter("hits", PerFleet, state, "requests placed with predicted credit, or diverted from a holder to a thin worker"),
		counter("misses", PerFleet, state, "requests without a routable holder; as a stream in share(misses of w): requests with no predicted credit"),
		counter("retries", PerFleet, state, "attempts after the first"),
		gauge("engine_running", PerWorker, truth, UnitNone, "requests the engine runs"),
		gauge("engine_waiting", PerWorker, truth, UnitNone, "requests waiting in the engine"),
		gauge("epoch", PerWorker, truth, UnitNone, "publisher incarnation"),
		counter("attempts", PerWorker, proxy, "non-health requests that reached its port"),
		counter("probes", PerWorker, proxy, "health requests (GET) that reached its port"),
		derive(gauge("open_requests", PerWorker, proxy, UnitNone, "requests forwarded to it and not ended; at a mark: forwarded before its end and unfinished at its beginning")),

		text("stream", PerRank, state, "event stream", contract.Streams...),
		text("quality", PerRank, state, "quality of the index", contract.Qualities...),
		gauge("blocks", PerRank, state, UnitNone, "memberships in the gateway's index"),
		gauge("announced", PerRank, truth, UnitNone, "blocks the engine has announced and not removed"),
		text("digest", PerRank, state, "digest of the memberships, a decimal number"),
		gauge("seq", PerRank, state, UnitNone, "next sequence number expected"),
		fold(gauge("apply_lag", PerRank, state, UnitTime, "from the last batch's own time stamp to its application"), "max"),
		fold(flag("index_equal", PerRank, "both", "the digests of gateway and engine match at one sequence number"), "min"),
		fold(gauge("count_error", PerRank, "both", UnitNone, "difference of block counts / max(1, announced): a lower bound of the true error"), "max"),
		flag("degraded", PerRank, state, "quality is degraded"),
		flag("partial", PerRank, state, "quality is partial"),
		flag("stale", PerRank, state, "quality is stale"),
		counter("gaps", PerRank, state, "sequence gaps seen"),
		counter("duplicates", PerRank, state, "batches seen twice"),
		counter("replayed", PerRank, state, "batches recovered by replay"),
		counter("refilled", PerRank, state, "batches refilled by a relay"),
		counter("unrecovered", PerRank, state, "batches lost for good"),
		counter("resyncs", PerRank, state, "times the memberships were rebuilt, all causes"),
		counter("restarts", PerRank, state, "publisher restarts recognised, all rules"),
		counter("batches_published", PerRank, truth, "batches the engine has published"),

		stream("requests", client, UnitNone, "requests that ended; of w: served by w"),
		stream("failed", client, UnitNone, "requests that failed; client aborts are not failures"),
		stream("aborted", client, UnitNone, "requests that the client hung up on purpose"),
		stream("retried", client, UnitNone, "requests that took more than one attempt"),
		stream("new_prefix", client, UnitNone, "requests with a fresh prefix, at their send"),
		stream("hit_fraction", client, UnitNone, "cached / prompt tokens of a request that succeeded, as the engine's usage tells them"),
		stream("ttft", client, UnitTime, "scheduled send to first token"),
		stream("latency", client, UnitTime, "scheduled send to the end of a request that succeeded"),
		stream("gap", client, UnitTime, "pauses between successive chunks of a stream"),
		stream("send_lag", "generator", UnitTime, "actual minus scheduled send"),
		derive(gauge("requests_per_s", PerWorker, client, UnitNone, "completions in the trailing 10 s / 10")),
		derive(gauge("error_rate", PerFleet, client, UnitNone, "failed / ended since load start, or in the window")),
		derive(gauge("retry_amplification", PerFleet, "link proxy, client", UnitNone, "attempts that reached an engine's port / requests sent, since load start, or in the window")),
		derive(gauge("hung_streams", PerFleet, client, UnitNone, "streams silent for longer than max(5 s, 20x steady p99 gap) after the first byte; before it for longer than max(10 s, 5x steady p99 TTFT) and in no engine; or open 10 s after the load ended. Time in which a declared fault pauses the serving engine does not count")),

		slow(gauge("gateway_rss", PerFleet, "gopsutil", UnitBytes, "resident memory of the gateway")),
		slow(gauge("worker_rss", PerWorker, "gopsutil", UnitBytes, "resident memory of the worker's process")),
	}
	for _, cause := range contract.ResyncCauses {
		all = append(all, counter("resyncs."+cause, PerRank, state, "resyncs of this cause"))
	}
	for _, rule := range contract.RestartRules {
		all = append(all, counter("restarts."+rule, PerRank, state, "restarts recognised by this rule"))
	}
	return all
}

// catalogue indexes Catalogue by name.
var catalogue = func() map[string]Series {
	m := map[string]Series{}
	for _, s := range Catalogue() {
		m[s.Name] = s
	}
	return m
}()

// eventNames are the streams of which `share(X of w)` may be taken: those that count requests.
var eventNames = []string{"requests", "failed", "aborted", "retried", "new_prefix", "misses"}

// functions are the names that take a predicate or a stream.
var functions = []string{"all", "any", "count", "sum", "max", "min", "mean", "spread", "abs", "p50", "p90", "p99", "p999", "rate", "share"}

// quantiles maps a reducer to its rank and to the number of events below which it says nothing: a p99 of
// fifty requests is their maximum under another name.
var quantiles = map[string]struct {
	q   float64
	min int
}{"p50": {0.5, 5}, "p90": {0.9, 20}, "p99": {0.99, 100}, "p999": {0.999, 1000}}

// names lists what a value may be called, for suggestions.
func names() []string {
	out := append([]string{"fair_share"}, functions...)
	for name := range catalogue {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

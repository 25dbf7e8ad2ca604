package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"fleetdrill/drills/predicate"
	"fleetdrill/internal/contract"
)

// Scenario is one drill file, decoded, defaulted and checked.
type Scenario struct {
	// Path is the name the file was read under, for messages and the reproduce command.
	Path    string
	Name    string
	Summary string
	Tags    []string
	// Source says where an incident comes from; empty for the matrix.
	Source Source
	// Topology is how the gateway hears the engines; "direct" is the one supported.
	Topology string
	// Place is where the fleet runs; "process" is the one supported.
	Place    string
	Fleet    Fleet
	Gateway  Gateway
	Loads    []Load
	Observe  Observe
	Steady   Steady
	Timeline []Step
	Expect   []Expectation
	// Control lists the gateway handicaps with which the drill must fail.
	Control []string
	Repeat  Repeat
	Budget  Budget
}

// Source is the origin of an incident drill.
type Source struct {
	Issue string
	URL   string
}

// Fleet is the engines: Workers of them, named w1..wN, each with KVBlocks blocks of BlockSize tokens. Wires
// are the engine versions that they speak like, in turn when there are fewer than workers; empty is the mock
// engine's own choice.
type Fleet struct {
	Workers   int
	Profile   string
	KVBlocks  int
	BlockSize int
	Wires     []string
}

// Gateway is the system under test. Target "fleetdrill" is ours; Args are its extra flags.
type Gateway struct {
	Target string
	Args   []string
}

// Load is one open-loop load. To is "gateway" or a worker id. A zero Start mark means: when the fleet is
// up; a zero Stop mark: at the end of the run. Marks: ID.start, and ID.end when it sends no more.
//
// A load with phases in the file is one Load per phase here: the first has the load's own id, each other
// one its phase's, starts at the phase's mark and shares destination and seed; each stops where the next
// one starts. PhaseOf is then the id of the load in the file, empty otherwise.
type Load struct {
	ID       string
	PhaseOf  string
	Synth    Synth
	To       string
	Start    predicate.Mark
	Stop     predicate.Mark
	Seed     Seed
	Overload bool
}

// Synth describes generated requests. Rate is requests per second; Input counts tokens after the head,
// Output tokens generated; NewPrefix is the share in [0, 1] of requests with a fresh prefix instead of
// one of Heads heads of HeadTokens tokens; HitsOnly repeats a fixed set of prompts. Trickle is shorthand
// for 10 unique prompts a second behind one head of four blocks: with it, what is zero takes the value that
// synth.Spec gives it.
type Synth struct {
	Rate       float64
	Input      IntRange
	Output     IntRange
	Heads      int
	HeadTokens int
	NewPrefix  float64
	HitsOnly   bool
	Trickle    bool
}

// IntRange is an inclusive range.
type IntRange struct {
	Min, Max int
}

// Seed is a fixed value, or the seed of the run when Run is set (`$run.seed`, the default).
type Seed struct {
	Run   bool
	Value uint64
}

// Observe is how routing state and truth are sampled. MaxGap is the longest hole a deciding window may
// have; it defaults to three periods.
type Observe struct {
	Period time.Duration
	MaxGap time.Duration
}

// Steady is the state that must hold for Hold, within Timeout of the load's start, before any fault.
type Steady struct {
	Hold    time.Duration
	Timeout time.Duration
	Require []*predicate.Expr
}

// Step is one entry of the timeline: exactly one of Fault and Wait is set. Steps run in order.
type Step struct {
	Fault *Fault
	Wait  *Wait
}

// Fault kinds that are not hooks of an engine; those have contract's names.
const (
	FaultKill      = "kill"      // SIGKILL; never heals
	FaultStop      = "stop"      // SIGSTOP until the heal
	FaultPartition = "partition" // links of the target hold everything until the heal
)

// Fault is one injection. Marks: ID.inject and ID.effective; with a Heal also ID.heal and ID.healed. A
// fault that SelfHeals has ID.healed and no ID.heal: it is the instant of the first batch that the lab's
// own tap receives after the dropped ones, or of the new publisher, or from which the lab has seen it over.
type Fault struct {
	Kind    string
	ID      string
	Target  Target
	Params  Params
	At      At
	Confirm Confirm
	// Heal is nil for a fault that the timeline does not heal; `for: 8s` is Heal.After.
	Heal *Heal
	Line int
}

// SelfHeals reports whether the fault ends by itself, without an act of the lab.
func (f *Fault) SelfHeals() bool {
	h, _ := contract.HookOf(f.Kind)
	return h.Ends == contract.HookCounted || h.Ends == contract.HookOnce || f.Heal == nil && (f.Params.Has("first") || f.Params.Has("count"))
}

// Params are a fault's own parameters in the order of the table, defaults filled in. One that was not given
// and has no default is not there.
type Params []Param

// Param is a parameter and its value: an int64, a float64, a time.Duration or a string.
type Param struct {
	Name  string
	Value any
}

// of is the value of a parameter, the zero value when it is not there.
func of[T any](p Params, name string) T {
	for _, x := range p {
		if v, ok := x.Value.(T); ok && x.Name == name {
			return v
		}
	}
	var none T
	return none
}

// Has says whether a parameter has a value.
func (p Params) Has(name string) bool {
	return slices.ContainsFunc(p, func(x Param) bool { return x.Name == name })
}

// Whole, Number, Duration and Word are the value of a parameter of that form, zero when it is not there.
func (p Params) Whole(name string) int64            { return of[int64](p, name) }
func (p Params) Number(name string) float64         { return of[float64](p, name) }
func (p Params) Duration(name string) time.Duration { return of[time.Duration](p, name) }
func (p Params) Word(name string) string            { return of[string](p, name) }

// String is the parameters on one line.
func (p Params) String() string {
	parts := make([]string, len(p))
	for i, x := range p {
		parts[i] = fmt.Sprintf("%s %v", x.Name, x.Value)
	}
	return strings.Join(parts, ", ")
}

// Target is what a fault hits: a named Worker, or one drawn from the run's seed when Pick is "one".
type Target struct {
	Pick   string
	Worker string
}

// At is when a fault is injected: at the mark From, or, when When is set, at the first sample after From
// at which it is true; not met Within that long of From makes the run invalid.
type At struct {
	When   *predicate.Expr
	From   predicate.Mark
	Within time.Duration
}

// Confirm bounds the proof that a fault acted.
type Confirm struct {
	Within time.Duration
}

// Heal ends a fault After that long from its effective mark, or When a predicate is true (a Timeout makes
// the run invalid).
type Heal struct {
	After   time.Duration
	When    *predicate.Expr
	Timeout time.Duration
}

// Wait lets time pass Until a mark. Marks: ID.start, ID.end.
type Wait struct {
	ID    string
	Until predicate.Mark
	Line  int
}

// Operators of an expectation.
const (
	OpAfter       = "after"         // after/within/that/hold
	OpAlways      = "always"        // over/always/allow
	OpNever       = "never"         // over/never
	OpThat        = "that"          // over/that
	OpAtLeastOnce = "at_least_once" // over/at_least_once
)

// Expectation is one rule. After, Within and Hold belong to OpAfter; Over, Window and Streak to the
// others. Mark ID.seen is the sample at which OpAfter or OpAtLeastOnce first saw its predicate true.
type Expectation struct {
	ID     string
	Op     string
	That   *predicate.Expr
	After  predicate.Mark
	Within time.Duration
	Hold   time.Duration
	Over   predicate.Range
	Window time.Duration
	Streak time.Duration
	Line   int
}

// Repeat is how often tiers run the drill, and the seed that run seeds are drawn from.
type Repeat struct {
	Runs int
	Seed uint64
}

// Budget bounds a run; zero means no bound.
type Budget struct {
	Fault time.Duration
	Run   time.Duration
}

// WorkerIDs are the ids of the fleet's workers, w1..wN.
func (s *Scenario) WorkerIDs() []string {
	out := make([]string, s.Fleet.Workers)
	for i := range out {
		out[i] = "w" + strconv.Itoa(i+1)
	}
	return out
}

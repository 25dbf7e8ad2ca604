package fleet

import (
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds every wait for a condition: only what never comes takes so long.
const patience = time.Minute

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s was waited for in vain", what)
		}
	}
}

// handicapped is a stream that remembers what it was last told.
type handicapped struct {
	mu     sync.Mutex
	on     []string
	blocks int
}

func (h *handicapped) Handicap(on []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on = on
}

func (h *handicapped) told() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.on
}

func (h *handicapped) State(int64) contract.RoutingRank {
	return contract.RoutingRank{Stream: contract.StreamLive, Blocks: h.blocks}
}
func (*handicapped) WriteDump(io.Writer) error { return nil }
func (*handicapped) Nudge()                    {}
func (*handicapped) WorkerDead()               {}
func (*handicapped) Close()                    {}

// Every handicap of the core's is switched by its own name, and off with the set.
func TestHandicapsReachTheCore(t *testing.T) {
	picker, err := policy.New(policy.CacheAware, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := New(Options{Timing: DefaultTiming(), Picker: picker})
	defer f.Close()
	read := func() map[string]bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return map[string]bool{contract.HandicapLivenessOff: f.core.livenessOff, contract.HandicapNoThinSlice: f.core.warmup.Starve,
			contract.HandicapLoadAgeOff: f.core.loadAgeOff, contract.HandicapHairTrigger: f.core.hairTrigger}
	}
	for name := range read() {
		f.SetHandicaps([]string{name})
		for other, on := range read() {
			if on != (other == name) {
				t.Errorf("with %s alone %s is %v", name, other, on)
			}
		}
	}
	f.SetHandicaps(nil)
	for name, on := range read() {
		if on {
			t.Errorf("%s is still on", name)
		}
	}
}

// Handicaps reach the streams that run and those that are started later.
func TestHandicapsReachEveryStream(t *testing.T) {
	picker, err := policy.New(policy.CacheAware, 1)
	if err != nil {
		t.Fatal(err)
	}
	streams := map[string]*handicapped{}
	f := New(Options{Timing: DefaultTiming(), Picker: picker,
		Subscribe: func(spec contract.WorkerSpec, _ int, _ index.Holder, _ Hooks) Stream {
			streams[spec.ID] = &handicapped{blocks: 2000}
			return streams[spec.ID]
		}})
	defer f.Close()
	add := func(id string) {
		// Nothing listens on port 1; the stream is what matters.
		if err := f.Add(contract.WorkerSpec{ID: id, URL: "http://127.0.0.1:1"}); err != nil {
			t.Fatal(err)
		}
	}
	add("w1")
	f.SetHandicaps([]string{contract.HandicapRestartBlind})
	add("w2")
	for id, s := range streams {
		if !slices.Equal(s.told(), []string{contract.HandicapRestartBlind}) {
			t.Errorf("%s was told %v", id, s.told())
		}
	}
	f.SetHandicaps(nil)
	for id, s := range streams {
		if len(s.told()) > 0 {
			t.Errorf("%s is still told %v", id, s.told())
		}
	}
}

// The shell weighs its workers by what their streams hold, without being asked.
func TestStreamsAreWeighed(t *testing.T) {
	picker, err := policy.New(policy.CacheAware, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := New(Options{Timing: DefaultTiming(), Picker: picker,
		Subscribe: func(contract.WorkerSpec, int, index.Holder, Hooks) Stream { return &handicapped{blocks: 2000} }})
	defer f.Close()
	if err := f.Add(contract.WorkerSpec{ID: "w1", URL: "http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	weighed := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		m := f.core.workers[0].warmth
		return m.known && m.blocks == 2000
	}
	until(t, "the weighing", weighed)
}

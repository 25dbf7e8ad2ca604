package mockworker

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"fleetdrill/internal/contract"
)

// match is the number of leading blocks of a prompt that the engine has.
func (f *fleet) match(ids []uint32) string {
	f.t.Helper()
	_, _, body := f.do("POST", f.worker().Admin+"/admin/truth/match", `{"token_ids":`+jsonOf(f.t, ids)+`}`)
	return body[strings.Index(body, `"ranks":`):]
}

// A cache that is lost without a word is a ghost to whoever listens: announced and not there. What is
// computed anew is announced anew.
func TestSilentClear(t *testing.T) {
	f := start(t, func(c *Config) { c.Profile = "drill" })
	ids := prompt(1, 160)
	f.complete(ids, 1, "")
	sc, body := f.openStream(100)
	defer body.Close()
	before := f.truth().Ranks[0]
	id := f.arm(`{"kind":"silent_clear"}`)
	v := f.fault(id)
	if v.State != contract.FaultDone || v.Acted != 1 || !strings.HasSuffix(v.Evidence[0], " blocks lost") {
		t.Errorf("the answer comes when it has happened: %+v", v)
	}
	row := f.truth().Ranks[0]
	if row.Ghost < 10 || row.AnnouncedBlocks < before.AnnouncedBlocks || f.match(ids) != `"ranks":[{"rank":0,"blocks":0}]}` {
		t.Errorf("truth %+v, before %+v, match %s", row, before, f.match(ids))
	}
	rest(t, sc) // who was running is computed anew and loses nothing
	f.complete(ids, 1, "")
	if row := f.truth().Ranks[0]; row.Unannounced != 0 || !strings.Contains(f.match(ids), `"blocks":10`) {
		t.Errorf("afterwards %+v, match %s", row, f.match(ids))
	}
}

// A cache that is cleared is announced as such, with the next step, and streams go on.
func TestClear(t *testing.T) {
	f := start(t, func(c *Config) { c.Profile = "drill" })
	f.complete(prompt(1, 160), 1, "")
	id := f.arm(`{"kind":"clear"}`)
	if v := f.fault(id); v.State != contract.FaultDone || v.Evidence[0] != "10 blocks cleared" || v.Evidence[1] != "announced from seq 1 on, with the next step" {
		t.Errorf("%+v", v)
	}
	if row := f.truth().Ranks[0]; row.ResidentBlocks != 0 || row.Ghost != 10 {
		t.Errorf("before a step: %+v", row)
	}
	sc, body := f.openStream(400)
	defer body.Close()
	f.arm(`{"kind":"clear"}`)
	rest(t, sc)
	f.complete(prompt(2, 16), 1, "") // if the stream ended before the clear, this is the next step
	cleared := 0
	for _, j := range jsonLines[contract.TruthJournal](f, "/admin/truth/journal", nil) {
		if j.Cleared {
			cleared++
		}
	}
	if row := f.truth().Ranks[0]; cleared != 2 || row.Ghost != 0 || row.Unannounced != 0 {
		t.Errorf("%d clears announced, truth %+v", cleared, row)
	}
	f.foldAll(f.replayed(), f.truth().Ranks[0].NextSeq)
}

// A slow engine's steps are longer by the factor, exactly, and as before when it is over.
func TestSlow(t *testing.T) {
	const step = 2e6
	path := stepProfile(t, step)
	f := start(t, func(c *Config) { c.Profile = path })
	n := 0
	decode := func() int64 { // of ten tokens behind the first
		f.complete(prompt(n, 20), 11, "")
		log := jsonLines[contract.TruthRequest](f, fmt.Sprintf("/admin/truth/requests?from=%d", n), nil)
		n++
		return log[0].LastTokenMonoNs - log[0].FirstTokenMonoNs
	}
	// Never sooner than the steps take; later by what a busy machine is late, which begins a new count.
	if d := decode(); d < 10*step {
		t.Errorf("ten steps took %d ns", d)
	}
	id := f.arm(`{"kind":"slow","factor":8}`)
	if d := decode(); d < 80*step {
		t.Errorf("ten slow steps took %d ns", d)
	}
	v := f.fault(id)
	if v.State != contract.FaultActing || v.Acted < 11 || !strings.HasPrefix(v.Evidence[0], "request cmpl-") {
		t.Errorf("%+v", v)
	}
	f.heal(id)
	f.eventually("steps as before", func() bool { return decode() < 60*step })
	id = f.arm(`{"kind":"slow","factor":8,"for":"50ms"}`)
	f.complete(prompt(n, 20), 20, "")
	n++
	f.awaitFault(id, contract.FaultDone)
	f.eventually("steps as before", func() bool { return decode() < 60*step })
}

// rss is the resident memory of this process in bytes.
func rss(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// A leak is memory that the process has, until it is healed.
func TestLeak(t *testing.T) {
	f := start(t, nil)
	f.complete(prompt(0, 20), 1, "")
	debug.FreeOSMemory() // what others left shall not shrink beside the leak
	before := rss(t)
	id := f.arm(`{"kind":"leak","bytes_per_request":8388608}`)
	for i := range 16 {
		f.complete(prompt(i, 20), 1, "")
	}
	most := rss(t)
	if most-before < 100<<20 {
		t.Errorf("16 requests that leave 8 MB each grew the process by %d bytes", most-before)
	}
	if v := f.fault(id); v.State != contract.FaultActing || v.Acted != 16 || v.Evidence[0] != "134217728 bytes" || !strings.HasPrefix(v.Evidence[1], "request cmpl-") {
		t.Errorf("%+v", v)
	}
	f.heal(id)
	f.eventually("the memory to be given back", func() bool { return most-rss(t) > 100<<20 })
}

// A publisher whose queue is full stops the engine, as in vLLM: streams stand still although nothing else is
// wrong, and go on when there is room.
func TestFullQueueStopsTheSteps(t *testing.T) {
	f := start(t, func(c *Config) {
		c.Profile = "drill"
		c.KVEventsConfig = `{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "max_queue_size": 2}`
	})
	id := f.arm(`{"kind":"delay_publisher","by":"1h"}`)
	sc, body := f.openStream(200) // a batch every 16 tokens
	defer body.Close()
	var steps int64
	f.eventually("the steps to stop", func() bool {
		before := f.summary().Ranks[0].Steps
		time.Sleep(50 * time.Millisecond) // ten steps
		steps = f.summary().Ranks[0].Steps
		return steps > 0 && steps == before
	})
	if steps > 16*4 {
		t.Errorf("the engine stopped after %d steps, with a queue of two batches of 16 each", steps)
	}
	f.heal(id)
	rest(t, sc)
}

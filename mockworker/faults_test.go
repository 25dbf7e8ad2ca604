package mockworker

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/zsock"
	"fleetdrill/mockworker/truth"
)

// arm posts a fault and returns its id.
func (f *fleet) arm(body string) (id string) {
	f.t.Helper()
	status, _, text := f.do("POST", f.worker().Admin+"/admin/faults", body)
	var r contract.FaultArmedReply
	if err := json.Unmarshal([]byte(text), &r); status != 200 || err != nil || r.ID == "" {
		f.t.Fatalf("arming %s: %d %s", body, status, text)
	}
	return r.ID
}

func (f *fleet) heal(id string) {
	f.t.Helper()
	if status, _, text := f.do("DELETE", f.worker().Admin+"/admin/faults/"+id, ""); status != 200 {
		f.t.Fatalf("healing %s: %d %s", id, status, text)
	}
}

// fault is what the list says of one fault.
func (f *fleet) fault(id string) contract.TruthFault {
	f.t.Helper()
	_, _, text := f.do("GET", f.worker().Admin+"/admin/faults", "")
	var list contract.FaultList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		f.t.Fatal(err)
	}
	for _, v := range list.Faults {
		if v.ID == id {
			return v
		}
	}
	f.t.Fatalf("no fault %s in %s", id, text)
	return contract.TruthFault{}
}

func (f *fleet) awaitFault(id, state string) contract.TruthFault {
	f.t.Helper()
	f.eventually("fault "+id+" to be "+state, func() bool { return f.fault(id).State == state })
	return f.fault(id)
}

// openStream starts a streaming completion and reads its first chunk.
func (f *fleet) openStream(tokens int) (*bufio.Scanner, io.Closer) {
	f.t.Helper()
	resp, err := f.client.Post(f.worker().HTTP+"/v1/completions", "application/json",
		strings.NewReader(fmt.Sprintf(`{"prompt":"a","max_tokens":%d,"stream":true}`, tokens)))
	if err != nil {
		f.t.Fatal(err)
	}
	sc := bufio.NewScanner(resp.Body)
	if !sc.Scan() {
		f.t.Fatalf("no first chunk: %v", sc.Err())
	}
	return sc, resp.Body
}

// rest counts the remaining chunks of a stream, which must end whole.
func rest(t *testing.T, sc *bufio.Scanner) (chunks int) {
	t.Helper()
	last := ""
	for sc.Scan() {
		if sc.Text() != "" {
			chunks, last = chunks+1, sc.Text()
		}
	}
	if sc.Err() != nil || last != "data: [DONE]" {
		t.Errorf("stream ends with %q, %v", last, sc.Err())
	}
	return chunks
}

// While an engine is frozen everything about it looks healthy: the health paths answer, new requests are
// accepted. The truth tells at once, and resuming serves everybody.
func TestFrozenEngineLooksHealthy(t *testing.T) {
	for _, kind := range []string{contract.FaultPause, contract.FaultWedge} {
		t.Run(kind, func(t *testing.T) {
			f := start(t, func(c *Config) { c.Profile = "drill" })
			sc, body := f.openStream(50_000)
			defer body.Close()
			id := f.arm(`{"kind":"` + kind + `"}`)
			f.awaitFault(id, contract.FaultActing)
			before := f.truth()
			late, lateBody := make(chan int, 1), make(chan error, 1)
			go func() {
				resp, err := f.client.Post(f.worker().HTTP+"/v1/completions", "application/json",
					strings.NewReader(`{"prompt":"b","max_tokens":2,"stream":true}`))
				if err != nil {
					lateBody <- err
					return
				}
				defer resp.Body.Close()
				late <- resp.StatusCode // the header comes although no token does
				_, err = io.Copy(io.Discard, resp.Body)
				lateBody <- err
			}()
			if status := <-late; status != 200 {
				t.Errorf("a new request: %d", status)
			}
			for _, path := range []string{"/health", "/v1/models", "/metrics"} {
				if status, text := f.api("GET", path, ""); status != 200 {
					t.Errorf("%s of a frozen engine: %d %s", path, status, text)
				}
			}
			f.eventually("the late request to be counted", func() bool { return f.truth().Ranks[0].Waiting == 1 })
			after := f.truth()
			if a, b := after.Ranks[0], before.Ranks[0]; a.Steps != b.Steps || a.Running != 1 || a.ResidentMonoNs <= b.ResidentMonoNs {
				t.Errorf("frozen truth %+v, then %+v", b, a)
			}
			if len(after.Faults) != 1 || after.Faults[0].State != contract.FaultActing || len(after.Faults[0].Evidence) != 1 {
				t.Errorf("faults in truth: %+v", after.Faults)
			}
			f.heal(id)
			for range 20 {
				if !sc.Scan() {
					t.Fatalf("the open stream: %v", sc.Err())
				}
			}
			if err := <-lateBody; err != nil {
				t.Errorf("the late request: %v", err)
			}
			if got := f.fault(id); got.State != contract.FaultHealed || got.Acted != 1 {
				t.Errorf("healed: %+v", got)
			}
		})
	}
}

// Termination of a worker that hangs ends with the grace, and healing within the grace ends it sooner.
func TestTerminationWhileFrozen(t *testing.T) {
	f := start(t, func(c *Config) { c.Profile = "drill" })
	_, body := f.openStream(200)
	defer body.Close()
	f.awaitFault(f.arm(`{"kind":"wedge"}`), contract.FaultActing)
	f.awaitFault(f.arm(`{"kind":"pause","for":"1h"}`), contract.FaultActing)
	f.stop()

	f = start(t, func(c *Config) { c.Profile, c.ShutdownGrace = "drill", patience })
	id := f.arm(`{"kind":"wedge"}`)
	f.awaitFault(id, contract.FaultActing)
	resp, err := f.client.Post(f.worker().HTTP+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a","max_tokens":5,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	f.cancel()
	f.heal(id) // the admin port is there as long as the request is
	rest(t, bufio.NewScanner(resp.Body))
	f.stop()
}

// apart splits what a follower received at the places where a number does not follow the one before.
func apart(live []message) (runs [][2]int64) {
	for i, m := range live {
		if i == 0 || m.seq != live[i-1].seq+1 {
			runs = append(runs, [2]int64{m.seq, m.seq})
		}
		runs[len(runs)-1][1] = m.seq
	}
	return runs
}

// awaitLive waits until a follower has batch seq, sent since it had from messages.
func (f *fleet) awaitLive(fl *follower, from int, seq int64) []message {
	f.t.Helper()
	f.eventually(fmt.Sprintf("live batch %d", seq), func() bool {
		live := fl.received()
		return len(live) > from && live[len(live)-1].seq == seq
	})
	return fl.received()
}

// arrive publishes until the follower receives, and returns how much it has then.
func (f *fleet) arrive(fl *follower) int {
	f.t.Helper()
	n := 0
	f.eventually("the follower to be subscribed", func() bool {
		n++
		f.complete(prompt(5000+n, 16), 1, "")
		return len(fl.received()) > 0
	})
	row := f.truth().Ranks[0]
	return len(f.awaitLive(fl, 0, row.NextSeq-1))
}

// foldAll folds batches, the ones of lost being nowhere, and compares every digest with what is told.
func (f *fleet) foldAll(batches map[int64][]byte, next int64) *truth.Fold {
	f.t.Helper()
	fold := truth.NewFold(16)
	for seq := range next {
		if payload, ok := batches[seq]; !ok {
			fold.Lost(seq, 0)
		} else if err := fold.Apply(seq, 0, payload); err != nil {
			f.t.Fatal(err)
		}
	}
	got := jsonLines[contract.TruthDigest](f, "/admin/truth/digests", nil)
	want := fold.Digests(0, make([]contract.TruthDigest, 0, next))
	if len(got) != len(want) {
		f.t.Fatalf("%d digests told, %d folded", len(got), len(want))
	}
	for i := range want {
		if want[i].MonoNs = got[i].MonoNs; want[i] != got[i] {
			f.t.Fatalf("told %+v, folded %+v", got[i], want[i])
		}
	}
	return fold
}

func (f *fleet) replayed() map[int64][]byte {
	f.t.Helper()
	out := map[int64][]byte{}
	for _, frames := range f.replay(0) {
		out[int64(binary.BigEndian.Uint64(frames[1]))] = frames[2]
	}
	return out
}

// Dropped batches are a gap of exactly the numbers that the evidence names. Kept, they are in the replay and
// count as announced; lost, they are nowhere and count for nobody.
func TestDroppedBatches(t *testing.T) {
	for _, replay := range []string{"keep", "lose"} {
		t.Run(replay, func(t *testing.T) {
			f := start(t, nil)
			fl := f.follow()
			f.arrive(fl)
			id := f.arm(`{"kind":"drop_batches","count":5,"replay":"` + replay + `"}`)
			if v := f.fault(id); v.State != contract.FaultArmed || v.Acted != 0 || v.FirstActedMonoNs != 0 {
				t.Errorf("before any batch: %+v", v)
			}
			first := f.truth().Ranks[0].NextSeq
			for i := range 7 {
				f.complete(prompt(i, 16), 1, "")
			}
			v := f.awaitFault(id, contract.FaultDone)
			evidence := fmt.Sprintf("seq %d..%d", first, first+4)
			if v.Acted != 5 || len(v.Evidence) != 1 || v.Evidence[0] != evidence || v.FirstActedMonoNs == 0 {
				t.Errorf("afterwards %+v, want evidence %s", v, evidence)
			}
			live := f.awaitLive(fl, 0, first+6)
			if runs := apart(live); len(runs) != 2 || runs[0][1] != first-1 || runs[1][0] != first+5 {
				t.Errorf("a subscriber sees %v, the gap should be %s", runs, evidence)
			}
			batches := f.replayed()
			row := f.truth().Ranks[0]
			lost := 0
			if replay == "lose" {
				lost = 5
			}
			if len(batches) != int(row.NextSeq)-lost || row.NextSeq != first+7 || row.Unannounced != lost || row.Ghost != 0 {
				t.Errorf("%d batches replayed, truth %+v", len(batches), row)
			}
			if head := f.foldAll(batches, row.NextSeq).Head(); uint64(row.Digest) != head.Digest {
				t.Errorf("told %+v, folded %+v", row, head)
			}
		})
	}
}

// A publisher restarted on its socket starts its numbers over before the eyes of its subscribers. The
// engine kept its cache, so most of what it has nobody was told of.
func TestRestartWithCacheAndSocketKept(t *testing.T) {
	f := start(t, nil)
	fl := f.follow()
	n := f.arrive(fl)
	f.complete(prompt(1, 160), 1, "")
	before := f.truth()
	id := f.arm(`{"kind":"restart_publisher"}`)
	v := f.fault(id)
	if v.State != contract.FaultDone || v.Acted != 1 || len(v.Evidence) != 1 {
		t.Errorf("the answer comes when it has happened: %+v", v)
	}
	mid := f.truth()
	if row := mid.Ranks[0]; mid.Epoch <= before.Epoch || row.Epoch != mid.Epoch || row.NextSeq != 0 || row.AnnouncedBlocks != 0 ||
		row.Digest != 0 || row.Unannounced != row.ResidentBlocks || row.ResidentBlocks != before.Ranks[0].ResidentBlocks {
		t.Errorf("truth before %+v, after %+v", before.Ranks[0], row)
	}
	if got := f.replay(0); len(got) != 0 {
		t.Errorf("%d batches of the old incarnation are replayed", len(got))
	}
	f.complete(append(prompt(1, 160), prompt(2, 32)...), 1, "") // behind blocks that are not announced
	f.complete(prompt(3, 32), 1, "")
	live := f.awaitLive(fl, n+1, 1)
	if runs := apart(live); len(runs) != 2 || runs[1] != [2]int64{0, 1} {
		t.Errorf("a subscriber sees %v", runs)
	}
	row := f.truth().Ranks[0]
	head := f.foldAll(f.replayed(), 2).Head()
	if row.AnnouncedBlocks != 2 || uint64(row.Digest) != head.Digest || row.Unannounced != row.ResidentBlocks-2 || row.Ghost != 0 {
		t.Errorf("truth %+v, folded %+v", row, head)
	}
	f.heal(id) // of what is over: no error, no change
	if v := f.fault(id); v.State != contract.FaultDone {
		t.Errorf("healed when it was over: %+v", v)
	}
}

// Restarted with new sockets and far ahead: subscribers are thrown out, and when they are back the new
// incarnation has long passed where they were. With an empty cache, resident and announced agree, and the
// stream that was running goes on.
func TestRestartAheadWithNewSockets(t *testing.T) {
	f := start(t, func(c *Config) { c.Profile = "drill" })
	sub, err := zsock.DialSub(f.worker().Ranks[0].Events, zsock.SubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	next := func(kind zsock.SubKind) zsock.SubEvent {
		t.Helper()
		for {
			ev, err := sub.Recv(ctx)
			if err != nil {
				t.Fatalf("waiting for event %v: %v", kind, err)
			}
			if ev.Kind == kind {
				return ev
			}
		}
	}
	next(zsock.SubUp)
	sc, body := f.openStream(400)
	defer body.Close()
	id := f.arm(`{"kind":"restart_publisher","cache":"empty","ahead":300}`)
	next(zsock.SubDown)
	next(zsock.SubUp)
	f.complete(prompt(1, 40), 1, "")
	if ev := next(zsock.SubMessage); binary.BigEndian.Uint64(ev.Frames[1]) < 300 {
		t.Errorf("the first batch after the restart is %d", binary.BigEndian.Uint64(ev.Frames[1]))
	}
	rest(t, sc)
	if v := f.fault(id); v.State != contract.FaultDone || len(v.Evidence) < 2 || v.Evidence[1] != "seq 0..299 went out before the socket opened" {
		t.Errorf("%+v", v)
	}
	row := f.truth().Ranks[0]
	if row.Unannounced != 0 || row.Ghost != 0 || row.ResidentBlocks == 0 || row.NextSeq < 302 {
		t.Errorf("truth %+v", row)
	}
	batches := f.replayed()
	if head := f.foldAll(batches, row.NextSeq).Head(); uint64(row.Digest) != head.Digest || len(batches) != int(row.NextSeq) {
		t.Errorf("truth %+v, folded %+v from %d batches", row, head, len(batches))
	}
	f.checkResident()
}

// Delayed batches keep their order, their numbers and the time they were collected at, and what waits is
// not announced. The truth does not wait for them. Healed, they leave at once.
func TestDelayedPublisher(t *testing.T) {
	f := start(t, nil)
	fl := f.follow()
	n := f.arrive(fl)
	id := f.arm(`{"kind":"delay_publisher","by":"1h"}`)
	for i := range 3 {
		f.complete(prompt(i, 32), 1, "")
	}
	v := f.awaitFault(id, contract.FaultActing)
	row := f.truth().Ranks[0]
	if row.Unannounced != 6 || len(fl.received()) != n || len(f.replayed()) != int(row.NextSeq) {
		t.Errorf("while three batches wait: %+v, %+v, %d received", row, v, len(fl.received())-n)
	}
	f.heal(id)
	live := f.awaitLive(fl, n, row.NextSeq+2)
	if runs := apart(live); len(runs) != 1 || len(live) != n+3 {
		t.Errorf("a subscriber sees %v", runs)
	}
	if row := f.truth().Ranks[0]; row.Unannounced != 0 || row.Ghost != 0 {
		t.Errorf("afterwards: %+v", row)
	}
}

// A delay that is short shows between the batch's own time and its arrival.
func TestDelayShowsAsLag(t *testing.T) {
	f := start(t, nil)
	fl := f.follow()
	n := f.arrive(fl)
	sent := f.truth().Ranks[0].NextSeq
	id := f.arm(`{"kind":"delay_publisher","by":"1s"}`)
	f.complete(prompt(1, 32), 1, "")
	f.awaitLive(fl, n, sent)
	journal := jsonLines[contract.TruthJournal](f, fmt.Sprintf("/admin/truth/journal?from=%d", sent), nil)
	last := jsonLines[contract.TruthRequest](f, "/admin/truth/requests", nil)
	if lag := journal[0].MonoNs - last[len(last)-1].LastTokenMonoNs; lag < 1e9 {
		t.Errorf("announced %d ns after its step, by 1s", lag)
	}
	if v := f.fault(id); v.Acted != 1 || v.Evidence[0] != fmt.Sprintf("seq %d", sent) {
		t.Errorf("%+v", v)
	}
}

// A mute publisher serves and says nothing; afterwards its numbers go on as if nothing had happened.
func TestMutePublisher(t *testing.T) {
	f := start(t, nil)
	fl := f.follow()
	n := f.arrive(fl)
	before := f.truth().Ranks[0]
	id := f.arm(`{"kind":"mute_publisher"}`)
	f.complete(prompt(1, 32), 1, "")
	v := f.awaitFault(id, contract.FaultActing)
	row := f.truth().Ranks[0]
	if row.NextSeq != before.NextSeq || row.Unannounced != 2 || v.Evidence[0] != fmt.Sprintf("before seq %d", row.NextSeq) {
		t.Errorf("mute: %+v, %+v", row, v)
	}
	f.heal(id)
	f.complete(prompt(2, 32), 1, "")
	live := f.awaitLive(fl, n, before.NextSeq)
	if runs := apart(live); len(runs) != 1 || len(live) != n+1 {
		t.Errorf("a subscriber sees %v", runs)
	}
}

func TestFaultsAreRefusedClearly(t *testing.T) {
	f := start(t, func(c *Config) { c.AdminToken = "sesame" })
	ask := func(method, path, body, token string) (int, string) {
		status, _, text := f.do(method, f.worker().Admin+path, body, "Authorization", "Bearer "+token)
		return status, text
	}
	for _, c := range []struct {
		method, path, body, token string
		status                    int
		part                      string
	}{
		{"POST", "/admin/faults", `{"kind":"pause"}`, "", 401, "token"},
		{"GET", "/admin/faults", "", "", 401, "token"},
		{"DELETE", "/admin/faults/f1", "", "", 401, "token"},
		{"POST", "/admin/faults", `{"kind":"explode"}`, "sesame", 400, `must be one of pause`},
		{"POST", "/admin/faults", `{"kind":"pause","for":"soon"}`, "sesame", 400, "parameter for"},
		{"POST", "/admin/faults", `{"kind":"pause","rank":1}`, "sesame", 400, "parameter rank"},
		{"POST", "/admin/faults", strings.Repeat(" ", 100_000), "sesame", 400, "at most 65536 bytes"},
		{"GET", "/admin/faults", "", "sesame", 200, `"faults":[]`},
		{"POST", "/admin/faults", `{"kind":"drop_batches","count":2}`, "sesame", 200, `{"id":"f1"}`},
		{"POST", "/admin/faults", `{"kind":"drop_batches","count":3}`, "sesame", 409, "heal f1"},
		{"GET", "/admin/faults", "", "sesame", 200, `"state":"armed","first_acted_mono_ns":0,"acted":0,"evidence":[]`},
		{"DELETE", "/admin/faults/f2", "", "sesame", 404, `no fault`},
		{"DELETE", "/admin/faults/f1", "", "sesame", 200, `"state":"healed"`},
		{"POST", "/admin/faults", `{"kind":"drop_batches","count":3}`, "sesame", 200, `{"id":"f2"}`},
		{"PUT", "/admin/faults", "", "sesame", 405, "not allowed"},
	} {
		if status, text := ask(c.method, c.path, c.body, c.token); status != c.status || !strings.Contains(text, c.part) {
			t.Errorf("%s %s %.60s: %d %s, want %d with %s", c.method, c.path, c.body, status, text, c.status, c.part)
		}
	}
}

// exitVar makes the test binary a worker process instead; its value is the ready file.
const exitVar = "FLEETDRILL_TEST_WORKER"

// serveUntilExit is what such a process does.
func serveUntilExit(ready string) {
	c := defaults()
	c.ReadyFile = ready
	fmt.Fprintln(os.Stderr, Run(context.Background(), c))
}

// The process dies of itself, with its code, after so many tokens or of one kind of request; a client sees
// its answer never come.
func TestExit(t *testing.T) {
	for _, c := range []struct{ body, last string }{
		{`{"kind":"exit","code":7,"after_tokens":3}`, `{"prompt":"a","max_tokens":5}`},
		{`{"kind":"exit","code":7,"on":"full_report"}`, `{"prompt":"a","max_tokens":5,"vllm_xargs":{"kv_cache_report_mode":"full"}}`},
	} {
		t.Run(c.body, func(t *testing.T) { exits(t, c.body, c.last) })
	}
}

func exits(t *testing.T, body, last string) {
	ready := t.TempDir() + "/ready.json"
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), exitVar+"="+ready)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	f := &fleet{t: t, client: &http.Client{Transport: &http.Transport{}}}
	defer f.client.CloseIdleConnections()
	f.eventually("the ready file", func() bool {
		b, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(b, &f.ready) == nil
	})
	f.arm(body)
	f.complete(prompt(1, 20), 3, "")
	resp, err := f.client.Post(f.worker().HTTP+"/v1/completions", "application/json", strings.NewReader(last))
	if err == nil {
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		t.Errorf("what it dies of was answered: %d %s, %v", resp.StatusCode, b, err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the process lives on")
	}
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d\n%s", code, stderr.String())
	}
}

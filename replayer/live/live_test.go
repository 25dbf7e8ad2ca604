package live_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fleetdrill/internal/cli"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
	"fleetdrill/internal/leaks"
	"fleetdrill/replayer/live"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/result"
	"fleetdrill/replayer/trace"
)

// The test binary is fleetdrill too: the lab starts it as worker and gateway.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	leaks.Main(m)
}

// rows plans rows of the built-in trace with prompts of up to 8,000 tokens, 20 times faster.
func rows(t *testing.T, n int) *plan.Plan {
	t.Helper()
	r, err := trace.Default(trace.Options{Rows: trace.Rows{Count: n}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Read(r, plan.Options{Speed: 20, MaxInput: 8000, MaxOutput: 16, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// patience bounds a test; it only says when to give up.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func fleet(workers int) lab.FleetSpec {
	return lab.FleetSpec{Workers: workers, Profile: "fast", BlockSize: 16, Seed: 1, Direct: true}
}

// check holds what is true of every replay whose requests all finished.
func check(t *testing.T, out *live.Outcome, requests int, truth bool) result.Summary {
	t.Helper()
	s := result.Summarize(out.Info, out.Requests)
	if s.Requests != requests || s.OK != requests || s.Errors != 0 {
		t.Fatalf("%d requests, %d ok, errors %v, want %d", s.Requests, s.OK, s.ByError, requests)
	}
	reused := 0
	for _, r := range out.Requests {
		if truth != (r.Best >= 0 && r.Held >= 0 && r.PlacedNs >= 0) {
			t.Errorf("%s: best %d, held %d, placed %d, truth known: %v", r.ID, r.Best, r.Held, r.PlacedNs, truth)
		}
		if truth && (r.Held > r.Best || r.Cached > r.Unbounded || r.EngineNs < r.PlacedNs || r.TTFTNs < r.EngineNs) {
			t.Errorf("%s: held %d, best %d, cached %d, unbounded %d; placed %d, engine %d, first token %d",
				r.ID, r.Held, r.Best, r.Cached, r.Unbounded, r.PlacedNs, r.EngineNs, r.TTFTNs)
		}
		if r.Cached > 0 {
			reused++
		}
	}
	// Every row of the trace begins with the same block.
	if reused == 0 {
		t.Error("no request reused anything")
	}
	return s
}

func TestReplayOnAFleetOfItsOwn(t *testing.T) {
	p := rows(t, 30)
	var told []live.Progress
	out, err := live.Run(patience(t), live.Options{
		Plan: p, Info: result.Info{Policy: "cache_aware", SLO: result.DefaultSLO()}, Dir: t.TempDir(), Fleet: fleet(2),
		GatewayArgs: []string{"--policy", "cache_aware"}, Progress: func(now live.Progress) { told = append(told, now) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := check(t, out, len(p.Requests), true)
	if s.Mode != result.Live || s.Policy != "cache_aware" || s.Profile != "fast" || s.Hash != "sha256" || s.Workers != 2 || s.BlockSize != 16 || s.Partial {
		t.Errorf("%+v", s.Info)
	}
	if s.HitOverBest == nil || *s.HitOverBest <= 0 || s.OracleKnown != s.OK {
		t.Errorf("hit over best holder %v of %d", s.HitOverBest, s.OracleKnown)
	}
	if last := told[len(told)-1]; last.Ended != len(p.Requests) || last.Planned != last.Ended {
		t.Errorf("the last progress is %+v", last)
	}
}

// gateways are the gateways among this process's children.
func gateways(t *testing.T) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		args, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil || !bytes.Contains(args, []byte("\x00gateway\x00")) {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		var parent int
		if err != nil {
			continue
		}
		if _, err := fmt.Sscanf(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " %1s %d", new(string), &parent); err == nil && parent == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestTheGatewayDies(t *testing.T) {
	p := rows(t, 400)
	var kill sync.Once
	out, err := live.Run(patience(t), live.Options{
		Plan: p, Dir: t.TempDir(), Fleet: fleet(1),
		Progress: func(now live.Progress) {
			if now.Ended < 3 {
				return
			}
			kill.Do(func() {
				for _, pid := range gateways(t) {
					if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
						t.Error(err)
					}
				}
			})
		},
	})
	if err == nil || !strings.Contains(err.Error(), "the gateway ended during the replay") || out == nil {
		t.Fatalf("outcome %v, error %v", out != nil, err)
	}
	s := result.Summarize(out.Info, out.Requests)
	if !s.Partial || s.Valid || s.OK < 3 || s.Requests >= len(p.Requests) || !strings.Contains(s.Reasons[0], "it ended after") {
		t.Errorf("partial %v, valid %v %q, %d of %d requests ok", s.Partial, s.Valid, s.Reasons, s.OK, s.Requests)
	}
}

func TestInterrupted(t *testing.T) {
	p := rows(t, 400)
	ctx, cancel := context.WithCancel(patience(t))
	defer cancel()
	out, err := live.Run(ctx, live.Options{Plan: p, Dir: t.TempDir(), Fleet: fleet(1), Progress: func(now live.Progress) {
		if now.Ended >= 3 {
			cancel()
		}
	}})
	if err == nil || out == nil || !out.Info.Partial || out.Requests[0].Worker != "w1" {
		t.Fatalf("outcome %v, error %v", out != nil, err)
	}
}

// A fleet that runs already may have served the same ids before and hold blocks: neither may be taken for
// this replay's.
func TestReplayAgainstARunningGateway(t *testing.T) {
	ctx := patience(t)
	l, err := lab.New(lab.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	f, err := l.StartFleet(ctx, fleet(2))
	if err != nil {
		t.Fatal(err)
	}
	gw, err := l.StartGateway(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	if err := gw.AwaitRoutable(ctx, 2); err != nil {
		t.Fatal(err)
	}
	var engines []contract.ReadyWorker
	for _, w := range f.Workers {
		engines = append(engines, w.Ready)
	}
	p := rows(t, 12)
	for _, c := range []struct {
		what    string
		workers []contract.ReadyWorker
	}{{"truth unknown", nil}, {"truth known, on a warm fleet", engines}} {
		out, err := live.Run(ctx, live.Options{Plan: p, URL: gw.URL, Workers: c.workers})
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if len(c.workers) == 0 {
			check(t, out, len(p.Requests), false)
			continue
		}
		s := result.Summarize(out.Info, out.Requests)
		for _, r := range out.Requests {
			// Somebody held everything before, and still does.
			if r.Best != (r.PromptTokens-1)/16*16 || r.PlacedNs < 0 || r.PlacedNs > int64(time.Minute) {
				t.Errorf("%s: best %d of %d, placed %d", r.ID, r.Best, r.PromptTokens, r.PlacedNs)
			}
		}
		if s.Errors != 0 || s.HitOverBest == nil {
			t.Errorf("%s: %+v", c.what, s)
		}
	}
}

func TestNoGatewayThere(t *testing.T) {
	for url, want := range map[string]string{"localhost": "want a base URL", ":": "want a base URL"} {
		if _, err := live.Run(patience(t), live.Options{Plan: rows(t, 1), URL: url}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
	}
	out, err := live.Run(patience(t), live.Options{Plan: rows(t, 3), URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if s := result.Summarize(out.Info, out.Requests); s.Errors != s.Requests || s.Requests == 0 {
		t.Errorf("%d errors of %d", s.Errors, s.Requests)
	}
}

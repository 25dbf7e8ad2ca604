package api

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/loop"
	"fleetdrill/mockworker/metrics"
)

// busyServer is a port over one engine in a step that lasts for an hour.
func busyServer(t *testing.T) (srv *httptest.Server, l *loop.Loop) {
	t.Helper()
	hasher, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{
		BlockSize: 4, NumBlocks: 33, MaxNumSeqs: 8, MaxNumBatchedTokens: 512, MaxModelLen: 256, EnablePrefixCaching: true,
		Hasher: hasher, Seed: 1, Timing: engine.Timing{A: float64(time.Hour)},
	})
	if err != nil {
		t.Fatal(err)
	}
	set := metrics.New(metrics.Options{Model: "mock-8b", BlockSize: 4, NumBlocks: 33, MaxModelLen: 256})
	if l, err = loop.Start(loop.Options{Engine: e, Observer: set.Rank(0)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	l.Submit(engine.Request{ID: "r", Tokens: []uint32{1, 2, 3}, MaxTokens: 4}, true)
	for end := time.Now().Add(time.Minute); l.Unread() > 0; time.Sleep(time.Millisecond) { // a pause would leave it at the gate
		if time.Now().After(end) {
			t.Fatal("the engine takes no request in")
		}
	}
	srv = testServer(t, 0, func(o *Options) { o.Ranks, o.DevMode = []*loop.Loop{l}, true })
	return srv, l
}

// A resume is not kept waiting by a pause that waits for requests, nor a wake-up by a sleep: it breaks it off.
// And whether the engine sleeps can be asked meanwhile.
func TestResumeBreaksOffAPause(t *testing.T) {
	for _, c := range []struct{ stop, start string }{
		{"/pause?mode=wait", "/resume"},
		{"/sleep?mode=wait", "/wake_up"},
		{"/sleep?mode=wait", "/resume"},
	} {
		srv, l := busyServer(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		send := func(method, path string) (int, string) {
			req, err := http.NewRequestWithContext(ctx, method, srv.URL+path, nil)
			if err != nil {
				t.Error(err)
				return 0, ""
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Errorf("%s while %s waits: %v", path, c.stop, err)
				return 0, ""
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			return res.StatusCode, string(body)
		}
		stopped := make(chan int)
		go func() {
			status, _ := send("POST", c.stop)
			stopped <- status
		}()
		for !l.Paused() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if status, body := send("GET", "/is_sleeping"); status != 200 || body != `{"is_sleeping":false}` {
			t.Errorf("is_sleeping while %s waits: %d %s", c.stop, status, body)
		}
		if status, body := send("POST", c.start); status != 200 {
			t.Errorf("%s while %s waits: %d %s", c.start, c.stop, status, body)
		}
		if status := <-stopped; status != http.StatusInternalServerError {
			t.Errorf("%s that was broken off answers %d", c.stop, status)
		}
		if l.Paused() {
			t.Errorf("%s, then %s: still paused", c.stop, c.start)
		}
	}
}

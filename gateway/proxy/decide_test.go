package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fleetdrill/gateway/fleet"
)

func TestClassifyAndCharge(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	here := context.Background()
	dial := func(err error) error { return fmt.Errorf("round trip: %w", &net.OpError{Op: "dial", Err: err}) }
	for name, c := range map[string]struct {
		err, cause error
		client     context.Context
		want       failure
		charged    fleet.Outcome
	}{
		"veto":                  {context.Canceled, &fleet.VetoedError{Worker: "w1", Reason: "dead"}, here, vetoed, fleet.Declined},
		"veto, client gone too": {context.Canceled, &fleet.VetoedError{Worker: "w1", Reason: "dead"}, gone, vetoed, fleet.Declined},
		"ttft":                  {context.Canceled, errTTFT, here, timedOut, fleet.Failed},
		"stall":                 {context.Canceled, errStall, here, timedOut, fleet.Failed},
		"client gone":           {context.Canceled, context.Canceled, gone, clientGone, fleet.Declined},
		"client does not read":  {syscall.EPIPE, errClient, here, clientGone, fleet.Declined},
		"refused":               {dial(syscall.ECONNREFUSED), nil, here, refused, fleet.Refused},
		"connect timeout":       {dial(context.DeadlineExceeded), nil, here, timedOut, fleet.Failed},
		"reset":                 {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, nil, here, broken, fleet.Refused},
		"cut":                   {io.ErrUnexpectedEOF, nil, here, broken, fleet.Refused},
		"garbage":               {errors.New("malformed HTTP response"), nil, here, broken, fleet.Failed},
		"short":                 {errShort, nil, here, broken, fleet.Failed},
	} {
		got := classify(c.err, c.cause, c.client)
		if got != c.want || got.outcome(c.err) != c.charged {
			t.Errorf("%s: %v charged as %v, want %v charged as %v", name, got, got.outcome(c.err), c.want, c.charged)
		}
	}
}

func TestRetryRules(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	for name, c := range map[string]struct {
		f        failure
		begun    bool
		attempts int
		draw     func() bool
		want     bool
	}{
		"broken before the first byte": {broken, false, 1, yes, true},
		"no budget":                    {broken, false, 1, no, false},
		"veto needs no budget":         {vetoed, false, 1, no, true},
		"refusal needs no budget":      {refused, false, 2, no, true},
		"after the first byte":         {vetoed, true, 1, yes, false},
		"third retry":                  {refused, false, 3, yes, false},
		"client gone":                  {clientGone, false, 1, yes, false},
	} {
		if got := mayRetry(c.f, c.begun, c.attempts, 2, c.draw); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Whatever the arrivals, the retries granted in any ten seconds stay within a fifth of the requests of
// the longest window that could count them, or ten.
func TestBudgetProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b budget
		var requests, grants []int64
		now := int64(time.Hour)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "gap")
			second := now / int64(time.Second)
			for range rapid.IntRange(0, 60).Draw(t, "requests") {
				b.request(now)
				requests = append(requests, second)
			}
			if b.retry(now) {
				grants = append(grants, second)
			}
			in := func(list []int64) (n int) {
				for _, s := range list {
					if second-s < budgetSeconds {
						n++
					}
				}
				return n
			}
			// The last grant was given below the bound, so it may have reached it, rounded up.
			if limit := max(budgetMin, budgetShare*float64(in(requests))); len(grants) > 0 && grants[len(grants)-1] == second &&
				float64(in(grants)) > limit+1 {
				t.Fatalf("%d retries granted within ten seconds, bound %.1f", in(grants), limit)
			}
		}
	})
}

func TestTailKeepsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x tail
		all := ""
		for _, piece := range rapid.SliceOf(rapid.StringN(0, 40, 40)).Draw(t, "pieces") {
			x.add([]byte(piece))
			all += piece
		}
		if want := all[max(0, len(all)-len(x.buf)):]; string(x.buf[:x.n]) != want {
			t.Fatalf("tail %q, want %q", x.buf[:x.n], want)
		}
	})
}

func TestPredictedLeavesTheLastTokenOut(t *testing.T) {
	for _, c := range []struct{ overlap, n, want int }{{0, 0, 0}, {32, 40, 32}, {32, 32, 16}, {48, 33, 32}, {16, 1, 0}} {
		if got := Predicted(c.overlap, c.n, 16); got != c.want {
			t.Errorf("Predicted(%d, %d) = %d, want %d", c.overlap, c.n, got, c.want)
		}
	}
}

package result

import (
	"fmt"
	"testing"
)

// The sample of TestSummaryOfASample by the other conventions: the late request was sent 1 ms late and so is
// on time, the failed one leaves the denominators, goodput is over 11.16 s and counts the warm-up, and the
// idle worker leaves the balance.
func TestPublished(t *testing.T) {
	_, requests := sample()
	p := Publish(DefaultSLO(), requests)
	got := fmt.Sprintf("%+v goodput %.4f, slo %.3f strict %.3f, reuse %.4f of %.4f, hit %.4f, balance %.3f", p.TTFT, p.Goodput, p.WithinSLO, p.Strict, p.Reuse,
		*p.OracleReuse, *p.HitOverOracle, p.Balance)
	want := "{Mean:199.25 P50:99 P90:500 P99:500} goodput 0.4480, slo 1.000 strict 0.750, reuse 0.4440 of 0.6800, hit 0.6529, balance 1.000"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if p := Publish(DefaultSLO(), nil); p != (Published{}) {
		t.Errorf("of nothing: %+v", p)
	}
}

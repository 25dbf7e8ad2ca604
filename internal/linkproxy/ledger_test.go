package linkproxy

import "testing"

// A ledger that is full forgets its older half, and keeps counting what it forgot.
func TestLedgerForgetsTheOldest(t *testing.T) {
	var l ledger
	const extra = 10
	for i := range ledgerSize + extra {
		if n := l.begin(change{begin: true, now: int64(i), method: "POST"}); n != i {
			t.Fatalf("request %d got number %d", i, n)
		}
	}
	kept := l.since(0)
	if len(kept) != ledgerSize/2+extra || kept[0].N != ledgerSize/2 || kept[0].StartMonoNs != ledgerSize/2 {
		t.Errorf("%d kept from %d on", len(kept), kept[0].N)
	}
	l.end(3, false, change{now: 99, outcome: OutcomeOK}) // forgotten, but it was open
	last := ledgerSize + extra - 1
	l.end(last, false, change{now: 100, outcome: OutcomeCut, status: 200})
	if got := l.since(last); len(got) != 1 || got[0].Outcome != OutcomeCut || got[0].EndMonoNs != 100 || got[0].Status != 200 {
		t.Errorf("the last one is %+v", got)
	}
	if l.open != ledgerSize+extra-2 || l.attempts != ledgerSize+extra || l.probes != 0 {
		t.Errorf("open %d, attempts %d, probes %d", l.open, l.attempts, l.probes)
	}
	if got := l.since(last + 1); len(got) != 0 {
		t.Errorf("behind the last one: %v", got)
	}
}

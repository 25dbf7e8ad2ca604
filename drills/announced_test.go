package drills

import (
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/internal/contract"
)

// TestAnnouncedAgainstTheEngine holds the lab's window on an engine's history to the whole of it: what
// the lab says was announced at a number is what the engine had announced there in its present epoch,
// and asking as told always makes an existing number known.
func TestAnnouncedAgainstTheEngine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a announced
		var engine []contract.TruthDigest
		epoch, value := int64(1), 0
		for range rapid.IntRange(1, 40).Draw(t, "looks") {
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				epoch, engine = epoch+1, nil
			}
			for range rapid.IntRange(0, 5).Draw(t, "batches") {
				value++
				engine = append(engine, contract.TruthDigest{Seq: int64(len(engine)), Blocks: value, Digest: contract.U64(value)})
			}
			next := int64(len(engine))
			gateway := rapid.Int64Range(0, next+3).Draw(t, "gateway")
			if from, ok := a.missing(epoch, next, gateway); ok {
				a.add(engine[from:])
			}
			got, known := a.at(gateway)
			switch {
			case gateway == 0:
				if !known || got.Blocks != 0 {
					t.Fatalf("before the first batch %+v was announced", got)
				}
			case gateway < next && (!known || got != engine[gateway-1]):
				t.Fatalf("at %d of %d: %+v (known %v), want %+v", gateway, next, got, known, engine[gateway-1])
			case gateway > next && known:
				t.Fatalf("at %d, which the engine has not reached: %+v", gateway, got)
			}
		}
	})
}

// TestAnnouncedAsksOnce: a gateway that is cut off stands still, and so does what the lab asks for.
func TestAnnouncedAsksOnce(t *testing.T) {
	var a announced
	from, ok := a.missing(1, 10, 6)
	if !ok || from != 5 {
		t.Fatalf("asks from %d (%v), want 5", from, ok)
	}
	for seq := from; seq < 10; seq++ {
		a.add([]contract.TruthDigest{{Seq: seq}})
	}
	if from, ok := a.missing(1, 200, 6); ok {
		t.Errorf("asks again from %d for a number that it knows", from)
	}
	for seq := int64(10); seq < 10+3*announcedKept; seq++ {
		a.add([]contract.TruthDigest{{Seq: seq}})
	}
	if len(a.rows) > 2*announcedKept {
		t.Errorf("keeps %d numbers", len(a.rows))
	}
}

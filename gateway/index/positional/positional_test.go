package positional

import (
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/indextest"
	"fleetdrill/gateway/index/maptree"
)

func TestEqualsTheReference(t *testing.T) {
	indextest.Index(t, func() index.Index { return New() })
}

func TestEqualsTheReferenceWithCopies(t *testing.T) {
	indextest.Residency(t, func() index.Index { return New() })
}

// On the hole corpus the jump search is exact with its check. What it gets wrong without is printed, because
// that is what the published design gets wrong, and must not be nothing.
func TestJumpsOverHoles(t *testing.T) {
	truth := func() index.Index { return maptree.New() }
	if s := indextest.Holes(t, func() index.Index { return New() }, truth); s.Low+s.High > 0 {
		t.Errorf("with the check for orphans: %+v", s)
	}
	t.Log("without the check for orphans:")
	s := indextest.Holes(t, func() index.Index {
		x := New()
		x.trusting = true
		return x
	}, truth)
	if s.High == 0 || s.Low > 0 {
		t.Errorf("%+v: a jump over a hole overstates, and the corpus has none that it would miss", s)
	}
}

func TestLanesAndReaders(t *testing.T) {
	indextest.Lanes(t, 4, 150, false, func() index.Index { return New() })
}

func TestFollowsEngines(t *testing.T) {
	indextest.Engines(t, func() index.Index { return New() })
}

func TestHostile(t *testing.T) {
	indextest.Hostile(t, false, func() index.Index { return New() })
}

func TestCorpusAgainstTheReference(t *testing.T) {
	indextest.Corpus(t, New(), 3, 30_000)
}

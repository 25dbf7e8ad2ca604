package chain

import (
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/indextest"
)

func TestEqualsTheReference(t *testing.T) {
	indextest.Index(t, func() index.Index { return New() })
}

func TestEqualsTheReferenceWithCopies(t *testing.T) {
	indextest.Residency(t, func() index.Index { return New() })
}

func TestFollowsEngines(t *testing.T) {
	indextest.Engines(t, func() index.Index { return New() })
}

func TestHostile(t *testing.T) {
	indextest.Hostile(t, false, func() index.Index { return New() })
}

package report

import (
	"path/filepath"
	"testing"

	"fleetdrill/drills/report/pagetest"
)

// TestPagesInABrowser: golden pages, which a reader may open anywhere, in a real browser. Between them they
// show every verdict and every part of the picture.
func TestPagesInABrowser(t *testing.T) {
	b := pagetest.Start(t)
	for _, name := range []string{"fail", "hole", "healed"} {
		t.Run(name, func(t *testing.T) {
			pagetest.Check(t, b, filepath.Join("testdata", name, PageFile), 60)
		})
	}
}

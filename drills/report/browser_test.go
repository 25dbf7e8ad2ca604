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
	for name, eyes := range map[string][]pagetest.Eye{"healed": pagetest.Everyone(), "fail": pagetest.Diagonal(), "hole": pagetest.Diagonal()} {
		t.Run(name, func(t *testing.T) {
			pagetest.Check(t, b, filepath.Join("testdata", name, PageFile), 60, eyes)
		})
	}
}

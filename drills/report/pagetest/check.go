package pagetest

import (
	_ "embed"
	"fmt"
	"testing"
)

// probe is the script that measures a page from within; its result is a View.
//
//go:embed probe.js
var probe string

// Check looks at a page on a desk and on a phone, in light and in dark, and fails the test for whatever a
// reader would run into. leastTexts guards against measuring an empty page.
func Check(t *testing.T, b *Browser, path string, leastTexts int) {
	t.Helper()
	for _, width := range []int64{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprintf("%d-%s", width, scheme), func(t *testing.T) {
				v, err := b.Look(path, width, scheme)
				if err != nil {
					t.Fatal(err)
				}
				v.check(t, leastTexts)
			})
		}
	}
}

func (v View) check(t *testing.T, leastTexts int) {
	t.Helper()
	for _, wrong := range []struct {
		is   bool
		what string
	}{
		{len(v.Console) > 0, fmt.Sprintf("complaints: %q", v.Console)},
		{len(v.Requests) > 0, fmt.Sprintf("requests: %q", v.Requests)},
		{v.Scripts > 0, fmt.Sprintf("%d scripts", v.Scripts)},
		{v.PageWidth > v.ScreenWidth, fmt.Sprintf("the body is %g px wide on a screen of %g px", v.PageWidth, v.ScreenWidth)},
		{len(v.Faint) > 0, fmt.Sprintf("text with a contrast below 4.5: %q", v.Faint)},
		{v.Texts < leastTexts, fmt.Sprintf("%d texts, want %d or more", v.Texts, leastTexts)},
		{v.Drawings == 0 || v.Pictures < v.Drawings, fmt.Sprintf("%d of %d pictures are visible", v.Pictures, v.Drawings)},
		{len(v.Struck) > 0, fmt.Sprintf("text upon text: %q", v.Struck)},
	} {
		if wrong.is {
			t.Error(wrong.what)
		}
	}
}

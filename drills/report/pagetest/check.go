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

// Eye is how a reader looks at a page: the width of the screen in CSS pixels, and the scheme.
type Eye struct {
	Width  int64
	Scheme string
}

// Everyone is a desk and a phone, in light and in dark. Diagonal is the two of them that between them see
// each width and each scheme once: enough for further pages of one kind.
func Everyone() []Eye { return []Eye{{1280, "light"}, {1280, "dark"}, {390, "light"}, {390, "dark"}} }
func Diagonal() []Eye { return []Eye{{1280, "light"}, {390, "dark"}} }

// Check looks at a page and fails the test for whatever a reader would run into. leastTexts guards against
// measuring an empty page.
func Check(t *testing.T, b *Browser, path string, leastTexts int, eyes []Eye) {
	t.Helper()
	for _, eye := range eyes {
		t.Run(fmt.Sprintf("%d-%s", eye.Width, eye.Scheme), func(t *testing.T) {
			v, err := b.Look(path, eye)
			if err != nil {
				t.Fatal(err)
			}
			v.check(t, leastTexts)
		})
	}
}

// check reports everything that is wrong at once: mending one thing may not hide another.
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

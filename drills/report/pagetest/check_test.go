package pagetest

import (
	"os"
	"path/filepath"
	"testing"
)

// TestNothingStaysBehind: when the test that started a browser is over, none of its processes is left.
func TestNothingStaysBehind(t *testing.T) {
	var profile string
	t.Run("inner", func(t *testing.T) {
		b := Start(t)
		profile = b.profile
		if left := processesOf(profile); left == 0 {
			t.Fatal("the browser that should be running cannot be found, so its end could not be seen either")
		}
	})
	if left := processesOf(profile); left > 0 {
		t.Errorf("%d processes of the browser are left", left)
	}
}

// TestLookFindsWhatIsWrong: a page with every fault shows every one of them, or the checks of the real pages
// would prove nothing.
func TestLookFindsWhatIsWrong(t *testing.T) {
	b := Start(t)
	path := filepath.Join(t.TempDir(), "bad.html")
	page := `<!doctype html><body style="background: #fff"><p style="color: #aaa">faint</p><p style="opacity: 0.5">half there</p>
<div style="width: 900px">wide</div><img src="missing.png" alt=""><script>console.error("oh"); undefined.x</script>
<svg width="100" height="40"><text x="0" y="20">one</text><text x="4" y="20">two</text></svg><svg style="display: none"></svg></body>`
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	v, err := b.Look(path, Eye{390, "light"})
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Requests) != 1 || len(v.Console) < 2 || v.Scripts != 1 || v.PageWidth < 900 || v.ScreenWidth != 390 ||
		len(v.Faint) != 2 || v.Texts != 5 || v.Drawings != 2 || v.Pictures != 1 || len(v.Struck) != 1 {
		t.Errorf("%+v", v)
	}
}

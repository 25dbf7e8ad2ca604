package kinds

import (
	"strings"
	"testing"
)

func TestNew(t *testing.T) {
	for _, name := range []string{Default, Chain, Run, MapTree, Positional, CRTC, "sharded:1", "sharded:64"} {
		ix, err := New(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ix.Store(2, 0, false, []uint64{1}, []uint64{10})
		if got := ix.Lookup([]uint64{10}, nil); len(got) != 3 || got[2] != 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, name := range []string{"", "tree", "sharded:", "sharded:0", "sharded:65", "sharded:x"} {
		if _, err := New(name); err == nil || !strings.Contains(err.Error(), "chain") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestBound(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes int64
		wrong string
	}{
		{Chain, 0, ""}, {MapTree, 0, ""}, {Chain, 1 << 20, ""},
		{Chain, 1000, "at least"}, {Chain, -1, "at least"}, {MapTree, 1 << 20, "cannot be bounded"},
	} {
		ix, err := New(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if err := Bound(ix, c.bytes); (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s, %d bytes: %v", c.name, c.bytes, err)
		}
	}
}

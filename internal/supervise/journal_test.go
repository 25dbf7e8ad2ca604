package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func openTestJournal(t *testing.T) *Journal {
	t.Helper()
	j, err := OpenJournal(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func addFile(t *testing.T, j *Journal, path string) int {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	id, err := j.Add(Undo{Kind: UndoRemove, Path: path, Why: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func ids(undos []Undo) []int {
	var out []int
	for _, u := range undos {
		out = append(out, u.ID)
	}
	return out
}

func TestDirtyJournalIsReported(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	j, err := OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	addFile(t, j, filepath.Join(dir, "a"))
	if err := j.Strike(addFile(t, j, filepath.Join(dir, "b"))); err != nil {
		t.Fatal(err)
	}
	addFile(t, j, filepath.Join(dir, "c"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	_, err = OpenJournal(path)
	if !errors.Is(err, ErrDirty) || !strings.Contains(err.Error(), "2 entries, the last remove "+filepath.Join(dir, "c")) {
		t.Errorf("opening a dirty journal: %v", err)
	}
	pending, err := ReadJournal(path)
	if err != nil || !cmp.Equal(ids(pending), []int{3, 1}) {
		t.Errorf("pending %v (%v), want 3 and 1, newest first", ids(pending), err)
	}

	done, err := Cleanup(path)
	if err != nil || !cmp.Equal(ids(done), []int{3, 1}) {
		t.Errorf("cleaned up %v (%v), want 3 and 1", ids(done), err)
	}
	for name, stays := range map[string]bool{"a": false, "b": true, "c": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("file %s: %v, stays should be %v", name, err, stays)
		}
	}
	j, err = OpenJournal(path)
	if err != nil {
		t.Fatalf("opening a clean journal: %v", err)
	}
	j.Close()
}

// What cannot be undone stays pending and does not keep the rest from being undone.
func TestCleanupGoesOnAfterAFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	lines := fmt.Sprintf(`{"add":{"id":1,"kind":"remove","path":%q,"why":"first"}}
{"add":{"id":2,"kind":"unheard-of","why":"second"}}
{"add":{"id":3,"kind":"remove","path":"/","why":"third"}}
`, filepath.Join(dir, "a"))
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	done, err := Cleanup(path)
	if err == nil || !cmp.Equal(ids(done), []int{1}) {
		t.Errorf("cleaned up %v (%v), want 1 and an error", ids(done), err)
	}
	pending, err := ReadJournal(path)
	if err != nil || !cmp.Equal(ids(pending), []int{3, 2}) {
		t.Errorf("pending %v (%v), want 3 and 2", ids(pending), err)
	}
}

func TestJournalIsHeldByOneLab(t *testing.T) {
	j := openTestJournal(t)
	addFile(t, j, filepath.Join(t.TempDir(), "a"))
	if _, err := OpenJournal(j.path); !errors.Is(err, ErrInUse) {
		t.Errorf("opening it twice: %v, want ErrInUse", err)
	}
	if _, err := Cleanup(j.path); !errors.Is(err, ErrInUse) {
		t.Errorf("cleaning up under a running lab: %v, want ErrInUse", err)
	}
}

func TestJournalRefusesWhatItCouldNotUndo(t *testing.T) {
	j := openTestJournal(t)
	for _, u := range []Undo{
		{Kind: "unheard-of"},
		{Kind: UndoKillGroup, PID: 1, StartTime: 7},
		{Kind: UndoKillGroup, PID: -5, StartTime: 7},
		{Kind: UndoCont, PID: 5},
		{Kind: UndoRemove, Path: "relative/path"},
		{Kind: UndoRemove, Path: "/"},
		{Kind: UndoRemove, Path: "/usr/.."},
		{Kind: UndoRemove, Path: "/usr"},
	} {
		if _, err := j.Add(u); err == nil {
			t.Errorf("%v was accepted", u)
		}
	}
	if err := j.Strike(9); err == nil {
		t.Error("striking what is not pending was accepted")
	}
}

func TestReadJournal(t *testing.T) {
	if pending, err := ReadJournal(filepath.Join(t.TempDir(), "none")); err != nil || pending != nil {
		t.Errorf("missing file: %v, %v, want nothing", pending, err)
	}
	path := filepath.Join(t.TempDir(), "journal")
	for _, broken := range []string{"{}\n", "x\n{\"strike\":1}\n", "{\"add\":3}\n"} {
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadJournal(path); err == nil {
			t.Errorf("%q was read without an error", broken)
		}
	}
}

// Wherever the lab dies, the journal lists what had been added and not struck off before: a journal cut
// at any byte reads as after its last whole line, and can be written on.
func TestJournalCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "journal")
		os.Remove(path)
		j, err := OpenJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		type state struct {
			size    int64
			pending []int
		}
		states := []state{{}}
		pending := []int{} // newest first
		for range rapid.IntRange(0, 12).Draw(t, "ops") {
			if i := rapid.IntRange(-1, len(pending)-1).Draw(t, "strike"); i >= 0 {
				if err := j.Strike(pending[i]); err != nil {
					t.Fatal(err)
				}
				pending = append(append([]int{}, pending[:i]...), pending[i+1:]...)
			} else {
				why := rapid.String().Draw(t, "why")
				id, err := j.Add(Undo{Kind: UndoRemove, Path: "/no/such/file", Why: why})
				if err != nil {
					t.Fatal(err)
				}
				pending = append([]int{id}, pending...)
			}
			states = append(states, state{j.size, pending})
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		j.Close()

		cut := rapid.IntRange(0, len(data)).Draw(t, "cut")
		if err := os.WriteFile(path, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := states[0]
		for _, s := range states {
			if s.size <= int64(cut) {
				want = s
			}
		}
		got, err := ReadJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(ids(got)) != fmt.Sprint(want.pending) {
			t.Fatalf("cut at %d: pending %v, want %v", cut, ids(got), want.pending)
		}
		if _, err := Cleanup(path); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadJournal(path); err != nil || len(got) > 0 {
			t.Fatalf("after the cleanup: %v, %v", got, err)
		}
	})
}

func FuzzParseJournal(f *testing.F) {
	f.Add([]byte("{\"add\":{\"id\":1,\"kind\":\"cont\",\"pid\":7,\"start_time\":9,\"why\":\"x\"}}\n{\"strike\":1}\n{\"ad"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pending, _, whole, err := parseJournal(data)
		if err != nil {
			return
		}
		again, _, _, err := parseJournal(data[:whole])
		if err != nil || !cmp.Equal(pending, again) {
			t.Errorf("the torn tail changed what is pending: %v, %v (%v)", pending, again, err)
		}
	})
}

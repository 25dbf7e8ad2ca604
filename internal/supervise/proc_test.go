package supervise

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const statTail = " -1 4194560 106 0 0 0 0 0 0 0 20 0 1 0 %START 2703360 300 18446744073709551615"

func statLine(head, start string) string {
	return head + strings.ReplaceAll(statTail, "%START", start) + "\n"
}

func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		line string
		want ProcInfo
	}{
		{
			statLine("4711 (fleetdrill) S 1 4711 99 0", "5150"),
			ProcInfo{ProcID{4711, 5150}, "fleetdrill", 'S', 1, 4711, 99},
		},
		{
			statLine("7 (a b) T 3) Z 1 7 2 0", "9"),
			ProcInfo{ProcID{7, 9}, "a b) T 3", 'Z', 1, 7, 2},
		},
		{
			statLine("7 (line\nend) t 0 0 0 0", "18446744073709551615"),
			ProcInfo{ProcID{7, 18446744073709551615}, "line\nend", 't', 0, 0, 0},
		},
	} {
		got, err := parseStat([]byte(tt.line))
		if err != nil {
			t.Errorf("%q: %v", tt.line, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q: (-want +got)\n%s", tt.line, diff)
		}
	}
}

func TestParseStatRefuses(t *testing.T) {
	for _, line := range []string{
		"", "7", "7 )x(", "7 (x", "7 (x) S 1 2 3",
		statLine("seven (x) S 1 7 2 0", "9"),
		statLine("7 (x) SS 1 7 2 0", "9"),
		statLine("7 (x) S one 7 2 0", "9"),
		statLine("7 (x) S 1 7 2 0", "-9"),
	} {
		if info, err := parseStat([]byte(line)); err == nil {
			t.Errorf("%q: parsed as %+v, want an error", line, info)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(statLine("4711 (fleetdrill) S 1 4711 99 0", "5150")))
	f.Add([]byte(statLine("7 (a b) T 3) Z 1 7 2 0", "9")))
	f.Fuzz(func(t *testing.T, line []byte) {
		info, err := parseStat(line)
		if err == nil && !strings.Contains(string(line), "("+info.Comm+")") {
			t.Errorf("name %q is not in %q", info.Comm, line)
		}
	})
}

func TestReadProcOfSelf(t *testing.T) {
	info := proc(t, os.Getpid())
	if info.PID != os.Getpid() || info.PPID != os.Getppid() || info.Group != syscall.Getpgrp() || info.StartTime == 0 {
		t.Errorf("own state is %+v", info)
	}
	if !info.Alive() {
		t.Error("own process is not alive")
	}
}

// A reused pid is one that lives with another start time than the one recorded: nothing may reach it.
func TestReusedPidIsNotSignalled(t *testing.T) {
	stranger := outsider(t)
	old := ProcID{PID: stranger.PID, StartTime: stranger.StartTime - 1}
	if old.Alive() {
		t.Error("the old process counts as alive")
	}
	if err := old.Signal(syscall.SIGSTOP); !errors.Is(err, ErrGone) {
		t.Errorf("signalling the old process: %v, want ErrGone", err)
	}
	for _, kind := range []UndoKind{UndoKillGroup, UndoCont} {
		u := Undo{Kind: kind, PID: old.PID, StartTime: old.StartTime, Session: proc(t, old.PID).Session, Why: "test"}
		if err := u.Run(); err != nil {
			t.Errorf("%v: %v, want no error for what is gone", u, err)
		}
	}
	// A signal that had been sent would be seen by now: it would come before the next one.
	if err := stranger.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stranger lives and is stopped", func() bool { return proc(t, stranger.PID).State == 'T' })
}

func TestSignalOfAnEndedProcess(t *testing.T) {
	s := startSupervisor(t, Options{})
	c, _ := startHelper(t, s, "exit3", 0)
	<-c.Done()
	if err := c.ID().Signal(syscall.SIGCONT); !errors.Is(err, ErrGone) {
		t.Errorf("signal by id: %v, want ErrGone", err)
	}
	if err := c.Signal(syscall.SIGCONT); !errors.Is(err, ErrGone) {
		t.Errorf("signal by child: %v, want ErrGone", err)
	}
	if err := c.Kill(); err != nil {
		t.Errorf("killing an ended child: %v, want nil", err)
	}
}

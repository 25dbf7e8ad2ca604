package supervise

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

// labRun is a lab helper that runs, and what it has done.
type labRun struct {
	cmd           *exec.Cmd
	report        labReport
	outsider      ProcID
	journal, file string
}

func startLab(t *testing.T) labRun {
	t.Helper()
	dir := t.TempDir()
	lab := labRun{outsider: outsider(t), journal: filepath.Join(dir, "journal"), file: filepath.Join(dir, "file")}
	id, err := json.Marshal(lab.outsider)
	if err != nil {
		t.Fatal(err)
	}
	lab.cmd = helperCommand("lab", "LAB_JOURNAL="+lab.journal, "LAB_FILE="+lab.file, "LAB_OUTSIDER="+string(id))
	lab.cmd.Stderr = os.Stderr
	// A group of its own, as a shell gives every job: the test can kill it without killing itself.
	lab.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := lab.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// A background job of a script inherits that SIGINT is ignored. What this process catches, its children
	// have at its default.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT)
	err = lab.cmd.Start()
	signal.Stop(caught)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.cmd.Process.Kill() })
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&lab.report); err != nil {
		t.Fatal(err)
	}
	if !lab.report.Child.Alive() || !lab.report.Grandchild.Alive() {
		t.Fatalf("not all processes of the lab run: %+v", lab.report)
	}
	eventually(t, "the outsider is stopped", func() bool { return proc(t, lab.outsider.PID).State == 'T' })
	return lab
}

// However the lab ends, nothing of it stays: no child, no grandchild, no watchdog, no stopped process, no
// file, no journal entry.
func TestNothingOutlivesTheLab(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(lab labRun) error
		code int
	}{
		{"killed", func(lab labRun) error { return syscall.Kill(lab.cmd.Process.Pid, syscall.SIGKILL) }, -1},
		{"killed with its group", func(lab labRun) error { return syscall.Kill(-lab.cmd.Process.Pid, syscall.SIGKILL) }, -1},
		{"interrupted by ctrl-C without a handler", func(lab labRun) error { return syscall.Kill(-lab.cmd.Process.Pid, syscall.SIGINT) }, -1},
		{"terminated", func(lab labRun) error { return syscall.Kill(lab.cmd.Process.Pid, syscall.SIGTERM) }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lab := startLab(t)
			if err := tt.end(lab); err != nil {
				t.Fatal(err)
			}
			lab.cmd.Wait()
			if code := lab.cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("the lab's exit code is %d, want %d", code, tt.code)
			}
			eventually(t, "the child is gone", func() bool { return !lab.report.Child.Alive() })
			eventually(t, "the grandchild is gone", func() bool { return !lab.report.Grandchild.Alive() })
			eventually(t, "the outsider runs again", func() bool { return proc(t, lab.outsider.PID).State != 'T' })
			eventually(t, "the watchdog is gone", func() bool {
				info, err := ReadProc(lab.report.Watchdog)
				return errors.Is(err, ErrGone) || info.Ended()
			})
			if !lab.outsider.Alive() {
				t.Error("the outsider was killed")
			}
			if _, err := os.Stat(lab.file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file: %v, want it removed", err)
			}
			if pending, err := ReadJournal(lab.journal); err != nil || len(pending) > 0 {
				t.Errorf("the journal still lists %v (%v)", pending, err)
			}
		})
	}
}

// Without its leader a group is told from a stranger's by its session and age.
func TestLeaderlessGroup(t *testing.T) {
	start := func(t *testing.T) (leader ProcInfo, member ProcID) {
		t.Helper()
		cmd := helperCommand("parent")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := json.NewDecoder(out).Decode(&member); err != nil {
			t.Fatal(err)
		}
		leader = proc(t, cmd.Process.Pid)
		cmd.Process.Kill()
		cmd.Wait()
		t.Cleanup(func() { syscall.Kill(-leader.PID, syscall.SIGKILL) })
		return leader, member
	}
	for _, tt := range []struct {
		name  string
		wrong func(u *Undo)
		dies  bool
	}{
		{"ours", func(*Undo) {}, true},
		{"another session", func(u *Undo) { u.Session++ }, false},
		{"older than the leader", func(u *Undo) { u.StartTime += 1 << 40 }, false},
		{"another boot", func(u *Undo) { u.Boot = "earlier" }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leader, member := start(t)
			u := Undo{Kind: UndoKillGroup, PID: leader.PID, StartTime: leader.StartTime, Session: leader.Session, Boot: bootID(), Why: "test"}
			tt.wrong(&u)
			if err := u.Run(); err != nil {
				t.Fatal(err)
			}
			if tt.dies {
				eventually(t, "the member is gone", func() bool { return !member.Alive() })
			} else if !member.Alive() {
				t.Error("a process of another group was killed")
			}
		})
	}
}

func TestRunWatchdog(t *testing.T) {
	for _, tt := range []struct {
		name, said string
		undone     bool
	}{
		{"orderly end", "end\n", false},
		{"end of the pipe", "", true},
		{"half a word", "en", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path, file := filepath.Join(dir, "journal"), filepath.Join(dir, "file")
			j, err := OpenJournal(path)
			if err != nil {
				t.Fatal(err)
			}
			addFile(t, j, file)
			j.Close()
			if err := RunWatchdog(iotest.OneByteReader(strings.NewReader(tt.said)), path); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(file); (err != nil) != tt.undone {
				t.Errorf("the file: %v, undone should be %v", err, tt.undone)
			}
		})
	}
}

func TestWatchdogThatDiedIsReported(t *testing.T) {
	dog, err := StartWatchdog(os.Args[0], filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(dog.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := dog.Close(); err == nil {
		t.Error("closing a dead watchdog gave no error")
	}
}

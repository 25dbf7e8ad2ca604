package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the built fleetdrill, one for all tests of this package.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fleetdrill-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "fleetdrill")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building the binary under test:", err)
		return 1
	}
	return m.Run()
}

// patience bounds every wait of these tests. It only says when to give up; nothing is measured.
const patience = 60 * time.Second

// command is fleetdrill with a state folder of its own, in its own process group as a shell would start
// it.
func command(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "FLEETDRILL_STATE_DIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// processes are the pids that run the binary under test, whatever their parent.
func processes(t *testing.T) []int {
	t.Helper()
	exes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, exe := range exes {
		// A link that cannot be read belongs to a process that has just ended.
		if target, err := os.Readlink(exe); err != nil || target != binary {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(exe, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func awaitNone(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left := processes(t)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, pid := range left {
				cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				t.Errorf("still running: %d %q", pid, bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}))
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			t.FailNow()
		}
	}
}

// awaitLine reads until a line contains text.
func awaitLine(t *testing.T, lines *bufio.Scanner, text string) {
	t.Helper()
	var seen []string
	for lines.Scan() {
		seen = append(seen, lines.Text())
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("no line with %q in:\n%s", text, strings.Join(seen, "\n"))
}

const drill = "scenarios/matrix/engine-killed.yaml"

// A lab that is interrupted, or killed, in the middle of a drill takes its whole fleet with it.
func TestLabLeavesNothingBehind(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		code   int
	}{
		{"ctrl-C", syscall.SIGINT, 130},
		{"termination", syscall.SIGTERM, 143},
		{"killed", syscall.SIGKILL, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := command(t, "drill", "run", drill, "--out", t.TempDir())
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stderr)
			// Fleet, gateway, proxies, load and sampler are all up by then.
			awaitLine(t, lines, "waiting for a steady state")
			if n := len(processes(t)); n < 10 {
				t.Errorf("%d processes in mid-drill, want the lab, its watchdog, a gateway and 8 workers", n)
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, stderr)
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			awaitNone(t)
			// What is left must not stop the next lab either.
			again := exec.Command(binary, "drill", "cleanup")
			again.Env = cmd.Env
			if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "nothing to clean up") {
				t.Errorf("drill cleanup afterwards: %v\n%s", err, out)
			}
		})
	}
}

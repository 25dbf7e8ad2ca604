package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fleetdrill/drills"
	"fleetdrill/drills/judge"
	"fleetdrill/internal/supervise"
)

// asFleetdrill makes the test binary behave as fleetdrill: a lab starts its own executable as workers
// and gateway, and these inherit the variable.
const asFleetdrill = "FLEETDRILL_TEST_AS_FLEETDRILL"

func TestMain(m *testing.M) {
	if os.Getenv(asFleetdrill) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// patience bounds what only a hang makes long.
const patience = time.Minute

// tiny is a drill of two workers that takes a few seconds. TIMELINE and what is expected of it vary. Requests
// go round robin: a worker whose cache is lost must go on publishing, or nobody could see its new batches.
const tiny = `version: 1
name: NAME
summary: A drill for tests.
tags: [core]
topology: [direct]
fleet: {workers: 2, profile: fast, kv_blocks: 2048, block_size: 16}
gateway: {target: fleetdrill, args: [--policy, round_robin]}
load:
  - id: main
    synth: {rate: 20/s, input: 64..128, output: 8..16, heads: 2, head_tokens: 128}
steady: {hold: 300ms, timeout: 30s, require: [count(routable) == 2]}
timeline:
  - TIMELINE
  - {wait: settle, until: f.effective + 500ms}
expect:
  - {id: routable, over: steady.start..steady.end, always: all(routable)}
control: liveness-off
repeat: {runs: 2, seed: 7}
`

const (
	killStep = `{fault: kill, id: f, target: w1, at: steady.end, confirm: {within: 2s}}`
	stopStep = `{fault: stop, id: f, target: w1, at: steady.end, for: 60s, confirm: {within: 2s}}`
)

// bench is a folder for one lab: its state, its scenarios and its run folders.
type bench struct {
	t     *testing.T
	state string
	out   string
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, state: t.TempDir(), out: t.TempDir()}
}

func (b *bench) scenario(name, timeline string) string {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), name+".yaml")
	text := strings.NewReplacer("NAME", name, "TIMELINE", timeline).Replace(tiny)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

func (b *bench) command(args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asFleetdrill+"=1", "FLEETDRILL_STATE_DIR="+b.state)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// run runs a command to its end.
func (b *bench) run(args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	cmd := b.command(args...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	var exit *exec.ExitError
	if e := cmd.Run(); e != nil && !errors.As(e, &exit) {
		b.t.Fatal(e)
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

// runFile reads a file of a drill's latest run folder.
func (b *bench) runFile(drill, name string) string {
	b.t.Helper()
	raw, err := os.ReadFile(filepath.Join(b.out, drill, "latest", name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(raw)
}

// awaitClean waits until no journal and no process of this bench is left.
func (b *bench) awaitClean() {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left := b.processes()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			b.t.Fatalf("still running: %v", left)
		}
	}
}

// processes are the pids that carry this bench's state folder in their environment.
func (b *bench) processes() (pids []int) {
	mine := []byte("FLEETDRILL_STATE_DIR=" + b.state)
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		// What cannot be read belongs to somebody else or has just ended.
		if env, err := os.ReadFile(path); err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return bytes.Equal(v, mine) }) {
			var pid int
			for _, c := range strings.Split(path, "/")[2] {
				pid = 10*pid + int(c-'0')
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// settled are the exit codes of a lab that did its work. On a busy machine the generator's gate makes a
// run invalid, which is no matter here.
var settled = []int{exitPass, exitInvalid, exitUnknown}

func TestTwoLabsAtOnce(t *testing.T) {
	b := newBench(t)
	path := b.scenario("two-labs", killStep)
	type end struct {
		code           int
		stdout, stderr string
	}
	ends := make(chan end, 2)
	for range 2 {
		go func() {
			var e end
			e.code, e.stdout, e.stderr = b.run("drill", "run", path, "--out", b.out, "--json")
			ends <- e
		}()
	}
	folders := map[string]bool{}
	for range 2 {
		e := <-ends
		if !slices.Contains(settled, e.code) {
			t.Errorf("exit code %d\n%s", e.code, e.stderr)
			continue
		}
		var r drillsResult
		if err := json.Unmarshal([]byte(e.stdout), &r); err != nil || len(r.Drills) != 1 {
			t.Fatalf("%v\n%s", err, e.stdout)
		}
		if f := r.Drills[0].Faults; len(f) != 1 || !f[0].Confirmed || len(f[0].Evidence) < 2 {
			t.Errorf("faults %+v", f)
		}
		folders[r.Drills[0].RunDir] = true
	}
	if len(folders) != 2 {
		t.Errorf("run folders %v, want two", folders)
	}
	b.awaitClean()
	if left, _ := filepath.Glob(filepath.Join(b.state, "cleanup-*")); len(left) > 0 {
		t.Errorf("journals left: %v", left)
	}
}

// TestNothingInjectedNothingConfirmed: the run without an injection tries to confirm it all the same.
func TestNothingInjectedNothingConfirmed(t *testing.T) {
	b := newBench(t)
	code, _, stderr := b.run("drill", "run", b.scenario("no-fault", killStep), "--out", b.out, "--no-fault")
	if code != exitInvalid {
		t.Errorf("exit code %d, want %d\n%s", code, exitInvalid, stderr)
	}
	if faults := b.runFile("no-fault", "faults.jsonl"); !strings.Contains(faults, "did not exit") || !strings.Contains(faults, `"confirmed":false`) {
		t.Errorf("faults: %s", faults)
	}
	b.awaitClean()
}

// TestEveryFault injects each kind that heals into real workers: it is confirmed, in force for its time,
// and healed. Without the injection each kind's own eyes must see that nothing happened.
func TestEveryFault(t *testing.T) {
	const at = `id: f, target: w1, at: steady.end`
	for _, c := range []struct{ name, step string }{
		{"stop", `{fault: stop, ` + at + `, for: 1s}`},
		{"pause", `{fault: pause, ` + at + `, for: 1s, confirm: {within: 2s}}`},
		{"wedge", `{fault: wedge, ` + at + `, heal: {when: not routable(f.target), timeout: 20s}, confirm: {within: 2s}}`},
		{"partition", `{fault: partition, link: all, ` + at + `, for: 1s, confirm: {within: 2s}}`},
		{"events", `{fault: partition, link: events, ` + at + `, for: 1s, confirm: {within: 2s}}`},
		{"drop-keep", `{fault: drop_batches, count: 3, ` + at + `, confirm: {within: 1500ms}}`},
		{"drop-lose", `{fault: drop_batches, count: 3, replay: lose, ` + at + `, confirm: {within: 1500ms}}`},
		{"restart-keep", `{fault: restart_publisher, cache: keep, ` + at + `, confirm: {within: 1500ms}}`},
		{"restart-rebind", `{fault: restart_publisher, cache: empty, socket: rebind, ` + at + `, confirm: {within: 1500ms}}`},
		// One of each group of hooks that share a way of proof.
		{"corrupt-hash", `{fault: corrupt, field: hash, ` + at + `, confirm: {within: 3s}}`},
		{"delay", `{fault: delay_publisher, by: 300ms, ` + at + `, for: 1s, confirm: {within: 2s}}`},
		{"silent-clear", `{fault: silent_clear, ` + at + `, confirm: {within: 1500ms}}`},
		{"replay-truncate", `{fault: replay_truncate, after: 2, ` + at + `, for: 1s, confirm: {within: 1500ms}}`},
		{"cut-stream", `{fault: cut_stream, how: rst, ` + at + `, for: 1s, confirm: {within: 1500ms}}`},
		{"leak", `{fault: leak, bytes_per_request: 4000000, ` + at + `, for: 1s, confirm: {within: 3s}}`},
		{"restart-ahead", `{fault: restart_publisher, ahead: 500, socket: rebind, ` + at + `, confirm: {within: 1500ms}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			path := b.scenario(c.name, c.step)
			if code, _, stderr := b.run("drill", "run", path, "--out", b.out); !slices.Contains(settled, code) {
				t.Errorf("exit code %d\n%s", code, stderr)
			}
			faults, marks := b.runFile(c.name, "faults.jsonl"), b.runFile(c.name, "marks.jsonl")
			if !strings.Contains(faults, `"confirmed":true`) || strings.Contains(faults, `"error"`) {
				t.Errorf("faults: %s", faults)
			}
			if !strings.Contains(marks, `"f.effective"`) || !strings.Contains(marks, `"f.healed"`) {
				t.Errorf("marks:\n%s", marks)
			}
			if code, _, stderr := b.run("drill", "run", path, "--out", b.out, "--no-fault"); code != exitInvalid {
				t.Errorf("without the fault: exit code %d, want %d\n%s", code, exitInvalid, stderr)
			}
			faults = b.runFile(c.name, "faults.jsonl")
			if !strings.Contains(faults, `"confirmed":false`) || !strings.Contains(faults, `"error":"confirming`) || strings.Contains(faults, "although nothing was injected") {
				t.Errorf("without the fault: %s", faults)
			}
			b.awaitClean()
		})
	}
}

// interrupt starts a drill, waits for a line and sends signals.
func (b *bench) interrupt(path, line string, signals ...os.Signal) (code int) {
	b.t.Helper()
	cmd := b.command("drill", "run", path, "--out", b.out)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), line) {
	}
	for _, s := range signals {
		if err := cmd.Process.Signal(s); err != nil {
			b.t.Fatal(err)
		}
	}
	_, _ = io.Copy(io.Discard, stderr)
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

func TestInterruptHealsWhatIsInForce(t *testing.T) {
	b := newBench(t)
	// "settle" begins when the stop is confirmed: the worker is stopped for a minute to come.
	if code := b.interrupt(b.scenario("interrupted", stopStep), "settle", os.Interrupt); code != exitSIGINT {
		t.Errorf("exit code %d, want %d", code, exitSIGINT)
	}
	var d judge.Drill
	if err := json.Unmarshal([]byte(b.runFile("interrupted", "verdict.json")), &d); err != nil || d.Verdict != drills.Interrupted {
		t.Errorf("verdict %s, %v", d.Verdict, err)
	}
	if marks := b.runFile("interrupted", "marks.jsonl"); !strings.Contains(marks, "f.healed") {
		t.Errorf("not healed:\n%s", marks)
	}
	if clean := b.runFile("interrupted", "cleanup.json"); !strings.Contains(clean, `"complete": true`) {
		t.Errorf("cleanup: %s", clean)
	}
	if junit := b.runFile("interrupted", "junit.xml"); !strings.Contains(junit, "<error") {
		t.Errorf("an interrupted run is green in JUnit:\n%s", junit)
	}
	b.awaitClean()
}

func TestSecondInterruptEndsAtOnce(t *testing.T) {
	b := newBench(t)
	if code := b.interrupt(b.scenario("impatient", stopStep), "settle", os.Interrupt, syscall.SIGTERM); code != exitSIGINT && code != exitSIGTERM {
		t.Errorf("exit code %d", code)
	}
	b.awaitClean()
	// The watchdog ran the journal, so nothing is left to do.
	if code, stdout, stderr := b.run("drill", "cleanup"); code != exitPass || !strings.Contains(stdout, "nothing to clean up") {
		t.Errorf("drill cleanup: %d\n%s%s", code, stdout, stderr)
	}
}

func TestDirtyJournalStopsARun(t *testing.T) {
	b := newBench(t)
	left := filepath.Join(b.t.TempDir(), "left-behind")
	if err := os.WriteFile(left, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// A lab that cannot run any more: no process has this start time.
	j, err := supervise.OpenJournal(filepath.Join(b.state, "cleanup-1-1-1.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Add(supervise.Undo{Kind: supervise.UndoRemove, Path: left, Why: "a test"}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := b.run("drill", "run", b.scenario("dirty", killStep), "--out", b.out)
	if code != exitHarness || !strings.Contains(stderr, "fleetdrill drill cleanup") {
		t.Errorf("exit code %d, want %d\n%s", code, exitHarness, stderr)
	}
	if _, err := os.Stat(filepath.Join(b.out, "dirty")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something was started on top of a dirty journal")
	}
	if code, stdout, _ := b.run("drill", "cleanup"); code != exitPass || !strings.Contains(stdout, left) {
		t.Errorf("drill cleanup: %d\n%s", code, stdout)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Error("cleanup did not undo the entry")
	}
}

func TestFullDisk(t *testing.T) {
	b := newBench(t)
	// Room for the inputs and some log, not for a record.
	if err := unix.Mount("tmpfs", b.out, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("full disk: mounting a tmpfs of 64 KB needs root: %v", err)
	}
	defer func() {
		if err := unix.Unmount(b.out, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	code, _, stderr := b.run("drill", "run", b.scenario("full-disk", killStep), "--out", b.out)
	if code != exitHarness || !strings.Contains(stderr, "no space left on device") {
		t.Errorf("exit code %d, want %d and the reason\n%s", code, exitHarness, stderr)
	}
	b.awaitClean()
}

func TestDrillRunUsage(t *testing.T) {
	b := newBench(t)
	path := b.scenario("usage", killStep)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"drill", "run", path, "--repeat", "0"}, "at least 1"},
		{[]string{"drill", "run", path, "--repeat=x"}, "at least 1"},
		{[]string{"drill", "run", path, "--tier", "weekly"}, "smoke, release, nightly"},
		{[]string{"drill", "run", path, "--tier", "smoke", "--repeat", "3"}, "exclude each other"},
		{[]string{"drill", "run", path, "--jobs", "0"}, "at least 1"},
		{[]string{"drill", "run", "nowhere.yaml"}, "nowhere.yaml"},
	} {
		if code, _, stderr := b.run(c.args...); code != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit code %d, want %d and %q\n%s", c.args, code, exitUsage, c.want, stderr)
		}
	}
}

func TestTakeRepeat(t *testing.T) {
	for _, c := range []struct {
		repeat string
		args   []string
		want   string
		left   int
	}{
		{"", []string{"a.yaml"}, "", 1},
		{ownRepeat, []string{"a.yaml"}, ownRepeat, 1},
		{ownRepeat, []string{"a.yaml", "3"}, "3", 1},
		{ownRepeat, []string{"3", "a.yaml"}, "3", 1},
		{"5", []string{"3"}, "5", 1},
	} {
		if got, left := takeRepeat(c.repeat, c.args); got != c.want || len(left) != c.left {
			t.Errorf("takeRepeat(%q, %v) = %q, %v", c.repeat, c.args, got, left)
		}
	}
}

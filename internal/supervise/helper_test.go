package supervise

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"fleetdrill/internal/leaks"
)

// Processes are tested with this test binary run again: helperEnv names what it plays.
const helperEnv = "SUPERVISE_TEST_HELPER"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "watchdog" {
		if err := RunWatchdog(os.Stdin, os.Args[3]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if play, ok := os.LookupEnv(helperEnv); ok {
		helpers[play]()
		return
	}
	leaks.Main(m)
}

// helpers print one line when they are in the state that their name says.
var helpers = map[string]func(){
	"block": func() {
		fmt.Println("ready")
		forever()
	},
	"stubborn": func() {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		forever()
	},
	"exit3": func() { os.Exit(3) },
	// parent starts a grandchild in its own group, prints it and stays.
	"parent": func() {
		printGrandchild()
		forever()
	},
	// orphaning does the same and exits.
	"orphaning": printGrandchild,
	"lab":       playLab,
}

func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

func helperCommand(play string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), helperEnv+"="+play), env...)
	return cmd
}

// printGrandchild prints the grandchild's id as JSON once it runs.
func printGrandchild() {
	cmd := helperCommand("block")
	out := must(cmd.StdoutPipe())
	check(cmd.Start())
	must(bufio.NewReader(out).ReadString('\n'))
	printJSON(must(ReadProc(cmd.Process.Pid)).ProcID)
}

// labReport is what the lab helper prints: what it has started.
type labReport struct {
	Child, Grandchild ProcID
	Watchdog          int
}

// playLab is a lab in miniature: a watchdog, a journal, a child with a grandchild, an outsider left
// stopped and a file to remove. SIGTERM ends it in order.
func playLab() {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	path := os.Getenv("LAB_JOURNAL")
	dog := must(StartWatchdog(os.Args[0], path))
	j := must(OpenJournal(path))
	s := New(Options{Journal: j})

	var outsider ProcID
	check(json.Unmarshal([]byte(os.Getenv("LAB_OUTSIDER")), &outsider))
	cont := Undo{Kind: UndoCont, PID: outsider.PID, StartTime: outsider.StartTime, Why: "outsider stopped"}
	cont.ID = must(j.Add(cont))
	check(outsider.Signal(syscall.SIGSTOP))
	file := Undo{Kind: UndoRemove, Path: os.Getenv("LAB_FILE"), Why: "a file"}
	file.ID = must(j.Add(file))
	check(os.WriteFile(file.Path, nil, 0o600))

	r, w, err := os.Pipe()
	check(err)
	child := must(s.Start(Spec{Name: "parent", Path: os.Args[0], Env: append(os.Environ(), helperEnv+"=parent"), Stdout: w}))
	report := labReport{Child: child.ID(), Watchdog: dog.cmd.Process.Pid}
	check(json.NewDecoder(r).Decode(&report.Grandchild))
	printJSON(report)

	<-terms
	check(s.Close())
	for _, u := range []Undo{file, cont} {
		check(u.Run())
		check(j.Strike(u.ID))
	}
	check(j.Close())
	check(dog.Close())
}

func printJSON(v any) { fmt.Println(string(must(json.Marshal(v)))) }

func must[T any](v T, err error) T {
	check(err)
	return v
}

// check ends a helper process; tests do not use it.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
}

// startHelper starts a helper under s and returns it with the line that it printed.
func startHelper(t *testing.T, s *Supervisor, play string, grace time.Duration) (*Child, string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c, err := s.Start(Spec{
		Name: play, Path: os.Args[0], Env: append(os.Environ(), helperEnv+"="+play),
		Stdout: w, Stderr: os.Stderr, GraceStop: grace,
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(r).ReadString('\n')
	return c, strings.TrimSpace(line)
}

func startSupervisor(t *testing.T, o Options) *Supervisor {
	t.Helper()
	s := New(o)
	t.Cleanup(func() { s.Close() })
	return s
}

// outsider starts a process that no Supervisor knows, in a group of its own, and reaps it at the end.
func outsider(t *testing.T) ProcID {
	t.Helper()
	cmd := helperCommand("block")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return proc(t, cmd.Process.Pid).ProcID
}

func proc(t *testing.T, pid int) ProcInfo {
	t.Helper()
	info, err := ReadProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// patience bounds what would hang. It is no expectation: a test that needs it has failed.
const patience = time.Minute

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

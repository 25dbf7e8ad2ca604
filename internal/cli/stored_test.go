package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
	"fleetdrill/drills/record/recordtest"
	"fleetdrill/drills/report"
	"fleetdrill/drills/scenario"
)

// storedScenario is a drill of two workers whose only rule is one bound.
const storedScenario = `version: 1
name: stored
fleet: {workers: 2}
gateway: {args: [--policy, cache_aware]}
load:
  - id: main
    synth: {rate: 20/s, input: 256..1024, output: 64..128}
timeline:
  - {fault: kill, id: death, target: w2, at: steady.end, confirm: {within: 500ms}}
  - {wait: settle, until: death.effective + 7s}
expect:
  - {id: out-of-routing, after: death.effective, within: 2.5s, that: not routable(death.target)}
  - {id: none-failed, over: death.effective..settle.end, that: count(failed) == 0}
`

// storedStory is a run of it: w2 is out 2.1 s after the kill.
const storedStory = `workers w1 w2
target death w2
mark steady.end 8
mark death.effective 10..10.01
mark settle.end 17
fault death kill w2
gate steady ok
samples 0..18
set 0.. routable(w1) 1
set 0.. routable(w2) 1
set 12.05.. routable(w2) 0
request 10.2 w1 ttft=0.02 end=0.5
`

// storedRun leaves a run folder OUT/stored/1 with a `latest` link, as a run does, and returns OUT/stored.
func storedRun(t *testing.T) string {
	t.Helper()
	rec, err := recordtest.Parse(storedStory)
	if err != nil {
		t.Fatal(err)
	}
	rec.Drill, rec.Seed = "stored", 42
	s, err := scenario.Parse("stored.yaml", []byte(storedScenario))
	if err != nil {
		t.Fatal(err)
	}
	drill, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(drill, "1")
	for _, step := range []func() error{
		func() error { return os.Mkdir(dir, 0o755) },
		func() error { return os.Symlink("1", filepath.Join(drill, "latest")) },
		func() error { return record.Write(dir, rec) },
		func() error {
			return report.Write(dir, report.Run{Drill: judge.Judge(s, rec, judge.Options{}), Scenario: s, Record: rec})
		},
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(dir, report.ScenarioFile), storedScenario)
	writeFile(t, filepath.Join(dir, "plan.json"), `{"drill": "stored", "seed": 42, "gateway_args": ["--policy", "cache_aware", "--handicap=liveness-off"]}`)
	return drill
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// call runs the command line as main does.
func call(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(args, &out, &errs)
	return code, out.String(), errs.String()
}

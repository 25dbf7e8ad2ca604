package scenario

import (
	"testing"

	"github.com/cockroachdb/datadriven"
)

// base is the valid head of a scenario, for stories about one part of it.
const base = `version: 1
name: story
fleet: {workers: 3}
load: [{id: main, synth: {rate: 24/s, input: 256..1024, output: 64}}]
`

// rest completes it.
const rest = `timeline:
  - {fault: kill, id: death, target: w3, at: steady.end}
expect:
  - {id: out, after: death.effective, within: 2s, that: not routable(death.target)}
`

// TestStories runs testdata/*.txt: `parse` reads its input as a whole file; `with-base` puts a valid head
// before it, `with-rest` a valid timeline and expectation as well. Lines count from the first line of the
// whole text, so a message of with-base is four lines further down than in the input.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			src := d.Input + "\n"
			switch d.Cmd {
			case "with-base":
				src = base + src
			case "with-rest":
				src = base + rest + src
			}
			s, err := Parse("s.yaml", []byte(src))
			if err != nil {
				return err.Error() + "\n"
			}
			return dump(s)
		})
	})
}

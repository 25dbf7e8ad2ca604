package zsock

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// TestOutboxScript runs the stories of testdata/outbox.txt. Commands:
//
//	new hwm=N          an empty outbox
//	push N             N messages, numbered on from the last; prints what became of them
//	command NAME       a command
//	write N            the writer takes and writes up to N messages, and every command; prints them
//	close
func TestOutboxScript(t *testing.T) {
	var o *outbox
	pushedSoFar := 0
	datadriven.RunTest(t, "testdata/outbox.txt", func(t *testing.T, d *datadriven.TestData) string {
		var n int
		if len(d.CmdArgs) > 0 && d.Cmd != "new" && d.Cmd != "command" {
			_, _ = fmt.Sscan(d.CmdArgs[0].Key, &n)
		}
		switch d.Cmd {
		case "new":
			var hwm int
			d.ScanArgs(t, "hwm", &hwm)
			o, pushedSoFar = newOutbox(hwm), 0
			return ""
		case "push":
			count := map[pushResult]int{}
			for range n {
				pushedSoFar++
				count[o.push(message{[]byte(fmt.Sprint(pushedSoFar))})]++
			}
			return fmt.Sprintf("queued %d, dropped %d, gone %d\n", count[pushed], count[dropped], count[gone])
		case "command":
			o.command(d.CmdArgs[0].Key, nil)
			return ""
		case "write":
			return writeSome(o, n)
		case "close":
			o.close()
			return ""
		}
		t.Fatalf("unknown command %s", d.Cmd)
		return ""
	})
}

func writeSome(o *outbox, n int) string {
	dst := make([]message, n)
	n, commands := o.take(dst)
	var words []string
	for _, c := range commands {
		words = append(words, c.name)
	}
	for _, m := range dst[:n] {
		words = append(words, string(m[0]))
	}
	o.written.Add(uint64(n))
	if len(words) == 0 {
		return "nothing\n"
	}
	return strings.Join(words, " ") + "\n"
}

// Whatever the interleaving, an outbox is a queue: what was accepted comes out once and in order, never
// more than the mark waits, and an empty one always takes a message.
func TestOutboxIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hwm := rapid.SampledFrom([]int{0, 1, 2, 3, 10, 3000}).Draw(t, "hwm")
		o := newOutbox(hwm)
		var waiting []string // the reference
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "push") {
				for j := range rapid.SampledFrom([]int{1, 2, 5, 1500}).Draw(t, "n") {
					name := fmt.Sprint(i, ".", j)
					if o.push(message{[]byte(name)}) == pushed {
						waiting = append(waiting, name)
					} else if len(waiting) == 0 {
						t.Fatal("an empty outbox dropped a message")
					}
				}
				if hwm > 0 && len(waiting) > hwm {
					t.Fatalf("%d wait at a mark of %d", len(waiting), hwm)
				}
				continue
			}
			dst := make([]message, rapid.SampledFrom([]int{1, 3, batchSize, 2000}).Draw(t, "take"))
			n, _ := o.take(dst)
			if n != min(len(dst), len(waiting)) {
				t.Fatalf("took %d of %d into %d", n, len(waiting), len(dst))
			}
			for k, m := range dst[:n] {
				if string(m[0]) != waiting[k] {
					t.Fatalf("took %s, want %s", m[0], waiting[k])
				}
			}
			waiting = waiting[n:]
			o.written.Add(uint64(n))
		}
	})
}

package recovery

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/zeebo/xxh3"
)

// script is a cursor under a test script. Time moves only by `tick`.
type script struct {
	c   *cursor
	now int64
}

// TestCursor runs the scripts in testdata. Each is a story about one publisher as its subscriber sees it.
//
// A batch is written as PUBLISHER and number: `live a 4..6` brings batches 4 to 6 of publisher a; two
// publishers' batches of one number differ in their payload. Commands:
//
//	new [no-replay]            a cursor at the beginning
//	up | down | dead | nudge   of the subscription; liveness; another path
//	live PUB SEQ[..SEQ] [clear]    batches by subscription, `clear` with the engine's own clear inside
//	replay PUB SEQ[..SEQ]      batches out of the current replay call
//	end | fail                 of the current replay call
//	tick DURATION [busy]       lets time pass
//	handicap [gap-recovery-off] [restart-blind]    what is switched off from now on
//	effect [stored=N] [removed=N] [unknown=N] [count=N] [cleared]   what applying a batch did,
//	       [host-removed=N] [host-unknown=N] [host-count=N]         and in host memory
//	counters
func TestCursor(t *testing.T) {
	datadriven.Walk(t, "testdata/cursor", func(t *testing.T, path string) {
		var s script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "counters" {
				return s.counters()
			}
			if err := s.run(d); err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
			return s.show()
		})
	})
}

func (s *script) run(d *datadriven.TestData) error {
	switch d.Cmd {
	case "new":
		*s = script{c: newCursor(!d.HasArg("no-replay")), now: second}
	case "up":
		s.c.up(s.now)
	case "down":
		s.c.down()
	case "dead":
		s.c.dead()
	case "nudge":
		s.c.nudge(s.now)
	case "end":
		s.c.replayEnd(s.now, s.c.ask.id)
	case "fail":
		s.c.replayFailed(s.now, s.c.ask.id)
	case "tick":
		dur, err := time.ParseDuration(d.CmdArgs[0].Key)
		s.now += int64(dur)
		s.c.tick(s.now, d.HasArg("busy"))
		return err
	case "handicap":
		s.c.handicaps = handicaps{gapRecoveryOff: d.HasArg("gap-recovery-off"), restartBlind: d.HasArg("restart-blind")}
	case "effect":
		s.effect(d)
	case "live", "replay":
		return s.batches(d)
	default:
		return fmt.Errorf("unknown command %s", d.Cmd)
	}
	return nil
}

func (s *script) effect(d *datadriven.TestData) {
	var e effect
	behind := int64(0)
	for _, arg := range d.CmdArgs {
		n := 0
		if len(arg.Vals) > 0 {
			n, _ = strconv.Atoi(arg.Vals[0])
		}
		switch arg.Key {
		case "stored":
			e.stored = n
		case "removed":
			e.removed = n
		case "unknown":
			e.unknown = n
		case "count":
			e.count = n
		case "host-removed":
			e.host.removed = n
		case "host-unknown":
			e.host.unknown = n
		case "host-count":
			e.host.count = n
		case "cleared":
			e.cleared = true
		case "behind": // batches that were accepted after this one
			behind = int64(n)
		}
	}
	s.c.effects = s.c.counters.Batches - behind - 1
	s.c.applied(e)
}

func (s *script) batches(d *datadriven.TestData) error {
	from, to, ranged := strings.Cut(d.CmdArgs[1].Key, "..")
	if !ranged {
		to = from
	}
	first, err := strconv.ParseInt(from, 10, 64)
	if err != nil {
		return err
	}
	last, err := strconv.ParseInt(to, 10, 64)
	for seq := first; seq <= last; seq++ {
		m := scriptMessage(d.CmdArgs[0].Key, seq, d.HasArg("clear"))
		if d.Cmd == "live" {
			s.c.live(s.now, m)
		} else {
			s.c.replayed(s.now, s.c.ask.id, m)
		}
	}
	return err
}

func scriptMessage(publisher string, seq int64, clear bool) message {
	payload := []byte(fmt.Sprintf("%s%d", publisher, seq))
	if clear {
		// ts tells publishers apart, as it does on the wire.
		payload, _ = msgpack.Marshal([]any{float64(publisher[0]), []any{[]any{"AllBlocksCleared"}}, seq})
	}
	return message{seq: seq, hash: xxh3.Hash(payload), payload: payload}
}

// show prints what the cursor asked for since the last command, runs of one kind as one line, and where
// it is now.
func (s *script) show() string {
	var b strings.Builder
	for i := 0; i < len(s.c.out); i++ {
		a := s.c.out[i]
		if a.kind == doContact {
			continue // every new live batch; TestContact looks at it
		}
		j := i
		for ; j+1 < len(s.c.out); j++ {
			if n := s.c.out[j+1]; n.kind != doContact && (n.kind != doApply || a.kind != doApply || n.message.live != a.message.live) {
				break
			}
		}
		for s.c.out[j].kind == doContact {
			j--
		}
		if j > i {
			fmt.Fprintf(&b, "%v .. %d\n", a, s.c.out[j].message.seq)
		} else {
			fmt.Fprintf(&b, "%v\n", a)
		}
		i = j
	}
	s.c.out = s.c.out[:0]
	fmt.Fprintf(&b, "= %s, %s, epoch %d, last %d", s.c.stream, s.c.quality, s.c.epoch, s.c.last)
	if n := len(s.c.held.list); n > 0 {
		fmt.Fprintf(&b, ", %d held", n)
	}
	return b.String() + "\n"
}

func (s *script) counters() string {
	k := s.c.counters
	return fmt.Sprintf("batches %d, gaps %d, duplicates %d, stale %d, replayed %d, refilled %d, unrecovered %d\nresyncs %v, restarts %v\n",
		k.Batches, k.Gaps, k.Duplicates, k.Stale, k.Replayed, k.Refilled, k.Unrecovered, k.Resyncs, k.Restarts)
}

package publish

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/vmihailenco/msgpack/v5"

	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
)

// TestLibzmq holds the publisher against the real libzmq: testdata/libzmq.txt is the table of what was
// shown. Every row starts a publisher and real sockets of its own.
func TestLibzmq(t *testing.T) {
	needLibzmq(t)
	rows := map[string]func(*testing.T) string{
		"frames": showFrames, "topic-filter": showTopicFilter, "late-joiner": showLateJoiner,
		"stopped-subscriber": showStoppedSubscriber, "replay-without-topic": showReplay(false),
		"replay-with-topic": showReplay(true), "req-client": showREQ, "wrong-requests": showWrongRequests,
		"replay-hwm": showReplayHWM, "rebind": showRebind, "heartbeats": showHeartbeats, "hostile-peers": showHostile,
		"surprises": showSurprises, "stale-store": showStaleStore, "muted-stores": showMutedStores, "replay-faults": showReplayFaults,
	}
	datadriven.RunTest(t, "testdata/libzmq.txt", func(t *testing.T, d *datadriven.TestData) string {
		row, ok := rows[d.Cmd]
		if !ok {
			t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
		}
		var shown string
		// Its own test, so that what a row starts ends with it.
		t.Run(d.Cmd, func(t *testing.T) { shown = row(t) })
		return shown
	})
}

// python is the interpreter of the system, whose package python3-zmq is the pyzmq meant here.
const python = "/usr/bin/python3"

func needLibzmq(t *testing.T) {
	t.Helper()
	out, err := exec.Command(python, "-c", "import zmq").CombinedOutput()
	switch {
	case err == nil:
	case os.Getenv("FLEETDRILL_REQUIRE_SHARED") == "1":
		t.Fatalf("no pyzmq and FLEETDRILL_REQUIRE_SHARED=1: %v\n%s", err, out)
	default:
		t.Skipf("no pyzmq (package python3-zmq) for %s: %v", python, err)
	}
}

// libzmq is one real socket in a process of its own.
type libzmq struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
	// last is the number of the last message that seqs returned.
	last int64
}

// answer is what testdata/libzmq.py says to a command.
type answer struct {
	Frames      [][]string
	Seqs        []int64
	Error       string
	Disconnects int
}

func newLibzmq(t *testing.T, args ...string) *libzmq {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, append([]string{"testdata/libzmq.py"}, args...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT) // in case a row ended with it stopped
		_ = stdin.Close()
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
	})
	z := &libzmq{t: t, cmd: cmd, in: json.NewEncoder(stdin), out: json.NewDecoder(bufio.NewReader(stdout)), last: -1}
	var hello struct{ Version string }
	if err := z.out.Decode(&hello); err != nil {
		t.Fatalf("the libzmq peer does not start: %v", err)
	}
	t.Log("libzmq", hello.Version)
	return z
}

func (z *libzmq) do(command map[string]any) (a answer) {
	z.t.Helper()
	if err := z.in.Encode(command); err != nil {
		z.t.Fatalf("the libzmq peer: %v", err)
	}
	if err := z.out.Decode(&a); err != nil {
		z.t.Fatalf("the libzmq peer: %v", err)
	}
	return a
}

func (z *libzmq) send(frames ...[]byte) {
	z.t.Helper()
	var text []string
	for _, f := range frames {
		text = append(text, hex.EncodeToString(f))
	}
	z.do(map[string]any{"send": text})
}

// silence is how many milliseconds nothing must have come for nothing to come.
const silence = 300

// patient is patience in milliseconds.
const patient = int(patience / time.Millisecond)

// frames are the next n messages.
func (z *libzmq) frames(n int) (messages [][][]byte) {
	z.t.Helper()
	a := z.do(map[string]any{"recv": n, "quiet": patient})
	if len(a.Frames) != n {
		z.t.Fatalf("%d messages of %d, error %q", len(a.Frames), n, a.Error)
	}
	for _, m := range a.Frames {
		var frames [][]byte
		for _, f := range m {
			b, _ := hex.DecodeString(f)
			frames = append(frames, b)
		}
		messages = append(messages, frames)
	}
	return messages
}

// seqs are the numbers of up to n messages, until none comes for so many milliseconds.
func (z *libzmq) seqs(n, quiet int) []int64 {
	z.t.Helper()
	got := z.do(map[string]any{"recv": n, "quiet": quiet, "seqs": true}).Seqs
	if len(got) > 0 {
		z.last = got[len(got)-1]
	}
	return got
}

// only are the numbers of the n messages that must come, and of those that must not and come soon.
func (z *libzmq) only(n int) []int64 {
	z.t.Helper()
	return append(z.seqs(n, patient), z.seqs(100, silence)...)
}

// replay are the numbers of a whole replay, its end included.
func (z *libzmq) replay() []int64 {
	z.t.Helper()
	return z.seqs(10_000, patient)
}

// subscribe is a SUB of libzmq that has arrived at a publisher, which has published for that.
func (p *pair) subscribe(t *testing.T, topic string, options ...string) *libzmq {
	t.Helper()
	events, _ := p.pub.Endpoints()
	z := newLibzmq(t, append([]string{"SUB", events, "RCVHWM=0", "SUBSCRIBE=" + topic}, options...)...)
	for range 3000 {
		p.publish(1)
		if len(z.seqs(1, 20)) == 1 {
			p.settle(z)
			return z
		}
	}
	t.Fatal("libzmq's SUB receives nothing")
	return nil
}

// settle is rebase for a subscriber that has arrived: what was sent so far it has read.
func (p *pair) settle(z *libzmq) {
	p.t.Helper()
	for p.rebase(); z.last+1 < int64(p.base); {
		if len(z.seqs(1, patient)) == 0 {
			p.t.Fatalf("libzmq's SUB is at %d, the publisher at %d", z.last, p.base)
		}
	}
}

// rebase makes the next number the first that a row talks of.
func (p *pair) rebase() {
	p.t.Helper()
	if err := p.pub.Flush(p.ctx); err != nil {
		p.t.Fatal(err)
	}
	p.base = uint64(p.pub.Stats().NextSeq)
}

// relative writes numbers as they count from base on, runs of them as such.
func (p *pair) relative(seqs []int64) string {
	var words []string
	for i := 0; i < len(seqs); {
		j := i
		for j+1 < len(seqs) && seqs[j+1] == seqs[j]+1 && seqs[i] >= 0 {
			j++
		}
		switch {
		case seqs[i] == -1:
			words = append(words, "end")
		case j == i:
			words = append(words, fmt.Sprint(seqs[i]-int64(p.base)))
		default:
			words = append(words, fmt.Sprintf("%d..%d", seqs[i]-int64(p.base), seqs[j]-int64(p.base)))
		}
		i = j + 1
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " ")
}

func showFrames(t *testing.T) string {
	p := start(t, nil)
	z := p.subscribe(t, "kv@")
	p.publish(1)
	m := z.frames(1)[0]
	own := [][]byte{[]byte("kv@w1@mock"), seqBytes(int64(p.base)), p.buffered(0)}
	return fmt.Sprintf("%d frames: topic %q, a number of %d bytes, payload; as they were sent: %v", len(m), m[0], len(m[1]), slices.EqualFunc(m, own, bytes.Equal))
}

// buffered is the payload of batch i from base on, as a replay has it.
func (p *pair) buffered(i uint64) []byte {
	return p.replay(p.dealer(), p.base+i)[0][2]
}

func showTopicFilter(t *testing.T) string {
	p := start(t, nil)
	all, prefix := p.subscribe(t, ""), p.subscribe(t, "kv@w1")
	events, _ := p.pub.Endpoints()
	other := newLibzmq(t, "SUB", events, "SUBSCRIBE=kv@w2")
	p.settle(all)
	p.publish(3)
	return fmt.Sprintf("topic kv@w1@mock; subscribed to nothing more: %s; to kv@w1: %s; to kv@w2: %s",
		p.relative(all.seqs(3, patient)), p.relative(prefix.seqs(3, patient)), p.relative(other.seqs(3, silence)))
}

func showLateJoiner(t *testing.T) string {
	p := start(t, nil)
	p.rebase()
	p.publish(3)
	base := p.base
	z := p.subscribe(t, "")
	p.publish(1)
	first := z.seqs(1, patient)[0]
	_, replay := p.pub.Endpoints()
	d := newLibzmq(t, "DEALER", replay)
	d.send(nil, seqFrame(base))
	got := d.replay()
	return fmt.Sprintf("what was sent before it subscribed is not received: %v; a replay has it: %v", first > int64(base)+2, got[0] == int64(base) && got[2] == int64(base)+2)
}

// A healthy subscriber pays nothing for one that is stopped.
func showStoppedSubscriber(t *testing.T) string {
	const batches, step = 3000, 200
	p := start(t, func(o *Options) { o.Config.HWM = 500 })
	p.sub.Close() // nobody reads it here, and its drops would count
	healthy, stopped := p.subscribe(t, "kv@"), p.subscribe(t, "kv@")
	p.settle(healthy)
	if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	big := chain(t, 0, 400) // 11 kB: together far more than the buffers of a socket hold
	var heard []int64
	for range batches / step { // no faster than the healthy one reads
		for range step {
			if err := p.pub.Publish(p.ctx, big); err != nil {
				t.Fatal(err)
			}
		}
		heard = append(heard, healthy.seqs(step, patient)...)
	}
	whole := p.relative(heard)
	p.rebase() // everything is sent, or counted as dropped
	dropped := p.pub.Stats().Dropped
	if err := stopped.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	before := stopped.seqs(batches-int(dropped), patient)
	p.publish(1)
	after := p.relative(stopped.seqs(1, patient))
	t.Logf("%d of %d received by the stopped one, %d dropped", len(before), batches, dropped)
	return fmt.Sprintf("HWM 500, 3000 batches; healthy: %s; stopped: fewer %v, in order %v, the others counted as dropped %v; continued: %s",
		whole, len(before) < batches, slices.IsSorted(before), uint64(batches-len(before)) == dropped, after)
}

func showReplay(topic bool) func(*testing.T) string {
	return func(t *testing.T) string {
		p := start(t, func(o *Options) {
			if topic {
				o.Encoder = topicEncoder{o.Encoder}
			}
		})
		p.rebase()
		p.publish(3)
		_, replay := p.pub.Endpoints()
		z := newLibzmq(t, "DEALER", replay)
		z.send(nil, seqFrame(p.base+1))
		var lines []string
		for _, m := range z.frames(3) {
			var words []string
			for _, f := range m {
				switch {
				case len(f) == 0:
					words = append(words, "empty")
				case string(f) == "kv@w1@mock":
					words = append(words, "topic")
				case bytes.Equal(f, endSeq):
					words = append(words, "-1")
				case len(f) == 8:
					words = append(words, "number")
				default:
					words = append(words, "payload")
				}
			}
			lines = append(lines, strings.Join(words, " "))
		}
		return "DEALER asks for the last 2 of 3:\n" + strings.Join(lines, "\n")
	}
}

func showREQ(t *testing.T) string {
	p := start(t, nil)
	p.rebase()
	p.publish(3)
	_, replay := p.pub.Endpoints()
	z := newLibzmq(t, "REQ", replay)
	z.send(seqFrame(p.base))
	first := z.frames(1)[0]
	more := z.do(map[string]any{"recv": 1, "quiet": silence})
	z.send(seqFrame(1<<64 - 1))
	again := z.frames(1)[0]
	return fmt.Sprintf("receives %d frames, number %d, then %d more; may ask again and gets the end: %v",
		len(first), first[0][7]-byte(p.base), len(more.Frames), bytes.Equal(again[0], endSeq))
}

func showWrongRequests(t *testing.T) string {
	p := start(t, nil)
	p.rebase()
	p.publish(1)
	_, replay := p.pub.Endpoints()
	z := newLibzmq(t, "DEALER", replay)
	for _, frames := range [][][]byte{{seqFrame(0)}, {nil, nil, seqFrame(0)}, {nil, {1, 2}}, {nil}, {nil, seqFrame(0), nil}} {
		z.send(frames...)
	}
	answered := z.seqs(100, silence)
	z.send(nil, seqFrame(p.base))
	return fmt.Sprintf("bare number, two delimiters, short number, no number, a frame too many: %s; a right one behind them: %s",
		p.relative(answered), p.relative(z.replay()))
}

func showReplayHWM(t *testing.T) string {
	const batches = 4000
	var out []string
	for _, hwm := range []int{0, 1000} {
		p := start(t, func(o *Options) { o.ReplayHWM = hwm })
		p.rebase()
		big := chain(t, 0, 200)
		for range batches {
			if err := p.pub.Publish(p.ctx, big); err != nil {
				t.Fatal(err)
			}
		}
		p.rebase()
		p.base -= batches
		_, replay := p.pub.Endpoints()
		z := newLibzmq(t, "DEALER", replay)
		z.send(nil, seqFrame(p.base))
		// A client that is slow to read is what loses: it stands still while the replay is queued.
		p.eventually("the request", func() bool { return p.pub.Stats().ReplayRequests == 1 })
		if err := z.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		p.eventually("the replay to be queued", func() bool { return p.pub.Stats().ReplayBatches == batches })
		if err := z.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if hwm == 0 {
			out = append(out, "4000 batches, none may be lost: "+p.relative(z.replay()))
		} else {
			// Whether the end is lost with them is a matter of instants, in a real engine as well.
			got := append(z.seqs(1, patient), z.seqs(batches, 1000)...)
			got = slices.DeleteFunc(got, func(seq int64) bool { return seq < 0 })
			out = append(out, fmt.Sprintf("HWM 1000 as in a real engine: some are lost %v", len(got) < batches))
		}
	}
	return strings.Join(out, "\n")
}

func showRebind(t *testing.T) string {
	p := start(t, nil)
	z := p.subscribe(t, "")
	if _, err := p.pub.Restart(p.ctx, Restart{Rebind: true}); err != nil {
		t.Fatal(err)
	}
	back := false
	for range 500 {
		p.publish(1)
		if got := z.seqs(1, 20); len(got) > 0 {
			back = true
			break
		}
	}
	return fmt.Sprintf("lost connections %d; receives again at the same endpoint: %v", z.do(map[string]any{"disconnects": true}).Disconnects, back)
}

func showHeartbeats(t *testing.T) string {
	p := start(t, nil)
	z := p.subscribe(t, "", "HEARTBEAT_IVL=100", "HEARTBEAT_TIMEOUT=2000", "HEARTBEAT_TTL=2000")
	z.seqs(1, 3000) // nothing is published: only PONGs keep the connection
	lost := z.do(map[string]any{"disconnects": true}).Disconnects
	p.publish(1)
	return fmt.Sprintf("a PING every 100 ms on an idle stream for 3 s: %d connections lost; then %s", lost, p.relative(z.seqs(1, patient)))
}

func showHostile(t *testing.T) string {
	p := start(t, nil)
	z := p.subscribe(t, "")
	events, replay := p.pub.Endpoints()
	greeting := append(append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0}, "NULL"...), make([]byte, 48)...)
	for _, endpoint := range []string{events, replay} {
		for _, b := range [][]byte{
			{}, []byte("GET / HTTP/1.1\r\n\r\n"), bytes.Repeat([]byte{0xff}, 4096), greeting[:20], greeting,
			append(bytes.Clone(greeting), 0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),         // a message of 2^64-1 bytes
			append(bytes.Clone(greeting), 0x06, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0),                     // a command of 2^63 bytes
			append(bytes.Clone(greeting), append([]byte{0x04, 0x0b}, "\x05READY\x03abc\xff\xff"...)...), // a property longer than its command
		} {
			nc, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "tcp://"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = nc.Write(b)
			defer nc.Close()
		}
	}
	p.rebase()
	p.publish(2)
	live := p.relative(z.seqs(2, patient))
	d := newLibzmq(t, "DEALER", replay)
	d.send(nil, seqFrame(p.base))
	return fmt.Sprintf("16 peers with garbage, half greetings and frames of 2^63 bytes; a subscriber beside them: %s; a replay: %s",
		live, p.relative(d.replay()))
}

func showSurprises(t *testing.T) string {
	var out []string
	for _, c := range []struct {
		body     string
		messages int // that a subscriber gets of four batches
	}{
		{`{"kind":"duplicate"}`, 5},
		{`{"kind":"reorder"}`, 4},
		{`{"kind":"drop_batches","count":2}`, 2},
		{`{"kind":"mute_publisher"}`, 0},
		{`{"kind":"corrupt","field":"topic"}`, 3},
		{`{"kind":"truncate"}`, 4},
	} {
		p := start(t, func(o *Options) { o.Faults = faults.New() })
		z := p.subscribe(t, "kv@")
		p.arm(c.body)
		for i := range 4 {
			p.put([]engine.Event{store(t, i)[0]})
		}
		got := p.relative(z.only(c.messages))
		_, replay := p.pub.Endpoints()
		d := newLibzmq(t, "DEALER", replay)
		d.send(nil, seqFrame(p.base))
		out = append(out, fmt.Sprintf("%s, 4 batches: %s; replay: %s", c.body, got, p.relative(d.replay())))
	}
	return strings.Join(out, "\n")
}

// showStaleStore is the events of a block's life and afterlife as a subscriber decodes them.
func showStaleStore(t *testing.T) string {
	return showEvents(t, `{"kind":"stale_store"}`, chain(t, 0, 3), removal(t, 2, 3), chain(t, 0, 1))
}

func showMutedStores(t *testing.T) string {
	return showEvents(t, `{"kind":"mute_stores"}`, chain(t, 0, 2), append(removal(t, 1, 2), chain(t, 2, 3)...))
}

// showEvents is what a subscriber decodes of steps under a fault, blocks by their place in the chain.
func showEvents(t *testing.T, body string, steps ...[]engine.Event) string {
	p := start(t, func(o *Options) { o.Faults = faults.New() })
	z := p.subscribe(t, "kv@")
	p.arm(body)
	p.put(steps...)
	places := map[uint64]int{}
	for i, h := range chain(t, 0, 9)[0].Hashes {
		places[h.EventInt()] = i
	}
	live := z.frames(int(p.pub.Stats().NextSeq) - int(p.base)) // a batch of which nothing is left has no number
	out := []string{fmt.Sprintf("%s, %d steps, %d batches", body, len(steps), len(live))}
	for _, m := range live {
		var batch struct {
			_msgpack struct{} `msgpack:",as_array"`
			TS       float64
			Events   []struct {
				Type   string   `msgpack:"type"`
				Hashes []uint64 `msgpack:"block_hashes"`
				Parent *uint64  `msgpack:"parent_block_hash"`
			}
			Rank int
		}
		if err := msgpack.Unmarshal(m[len(m)-1], &batch); err != nil {
			t.Fatal(err)
		}
		var events []string
		for _, e := range batch.Events {
			text := strings.TrimPrefix(e.Type, "Block")
			for _, h := range e.Hashes {
				text += fmt.Sprint(" ", places[h])
			}
			if e.Parent != nil {
				text += fmt.Sprint(" after ", places[*e.Parent])
			}
			events = append(events, text)
		}
		out = append(out, strings.Join(events, ", "))
	}
	return strings.Join(out, "\n")
}

func showReplayFaults(t *testing.T) string {
	var out []string
	for _, c := range []struct {
		body     string
		messages int // that are the answer
	}{{`{"kind":"replay_hang"}`, 0}, {`{"kind":"replay_empty"}`, 1}, {`{"kind":"replay_truncate","after":2}`, 2}} {
		p := start(t, func(o *Options) { o.Faults = faults.New() })
		p.rebase()
		p.publish(4)
		p.arm(c.body)
		_, replay := p.pub.Endpoints()
		d := newLibzmq(t, "DEALER", replay)
		d.send(nil, seqFrame(p.base))
		out = append(out, fmt.Sprintf("%s: %s", c.body, p.relative(d.only(c.messages))))
	}
	return strings.Join(out, "\n")
}

package engine

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
)

// TestScripts runs the stories in testdata/stories. Each begins with a paragraph saying what it shows.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &script{labels: map[blockhash.Digest]string{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

// script is an engine driven by a story.
type script struct {
	e      *Engine
	now    int64
	labels map[blockhash.Digest]string
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "engine":
		return s.engine(t, d)
	case "add":
		return s.add(t, d)
	case "abort":
		return s.abort(d)
	case "step":
		return s.step(t, d)
	case "pool":
		return s.pool()
	case "load":
		return s.load()
	case "match":
		return s.match(t, d)
	case "drop-cache":
		s.e.DropCache()
		return "ok"
	case "pace": // Example: pace factor=2 [jitter=0.1]
		var p Pace
		d.MaybeScanArgs(t, "factor", &p.Factor)
		d.MaybeScanArgs(t, "jitter", &p.Jitter)
		s.e.SetPace(p)
		return "ok"
	case "reset": // Example: reset [preempt]
		return strconv.FormatBool(s.e.ResetPrefixCache(d.HasArg("preempt")))
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

// engine makes a new engine; a step takes 1 us plus 1 ns a prefill token unless a story says otherwise.
// Example: engine block-size=4 blocks=9 seqs=4 budget=16 [model-len=100] [cache=off] [policy=priority]
// [threshold=8] [must-fit] [watermark=0.2] [groups=(swa:8,full)] [retention=16] [host=3] [described]
func (s *script) engine(t *testing.T, d *datadriven.TestData) string {
	h, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		BlockSize: 4, NumBlocks: 9, MaxNumSeqs: 4, MaxNumBatchedTokens: 16, MaxModelLen: 1000,
		EnablePrefixCaching: !d.HasArg("cache"), Hasher: h, Timing: Timing{A: 1000, B: 1},
	}
	d.MaybeScanArgs(t, "block-size", &c.BlockSize)
	d.MaybeScanArgs(t, "blocks", &c.NumBlocks)
	d.MaybeScanArgs(t, "seqs", &c.MaxNumSeqs)
	d.MaybeScanArgs(t, "budget", &c.MaxNumBatchedTokens)
	d.MaybeScanArgs(t, "model-len", &c.MaxModelLen)
	d.MaybeScanArgs(t, "policy", &c.SchedulingPolicy)
	d.MaybeScanArgs(t, "threshold", &c.LongPrefillTokenThreshold)
	d.MaybeScanArgs(t, "watermark", &c.Watermark)
	d.MaybeScanArgs(t, "retention", &c.RetentionInterval)
	d.MaybeScanArgs(t, "host", &c.HostBlocks)
	c.ReserveFullISL, c.HostDescribed = d.HasArg("must-fit"), d.HasArg("described")
	if arg, ok := d.Arg("groups"); ok {
		if c.Groups, err = ParseGroups(strings.Join(arg.Vals, ","), c.BlockSize); err != nil {
			return err.Error()
		}
	}
	s.now = 0
	if s.e, err = New(c); err != nil {
		return err.Error()
	}
	return "ok"
}

// add queues a request. A prompt is a sum of runs; a run is a name and a length, and the same name always
// begins with the same tokens.
// Example: add id=b prompt=shared:8+b:3 output=2 [lora=name] [salt=text] [priority=1] [report=full]
func (s *script) add(t *testing.T, d *datadriven.TestData) string {
	var r Request
	var prompt string
	d.ScanArgs(t, "id", &r.ID)
	d.ScanArgs(t, "prompt", &prompt)
	d.ScanArgs(t, "output", &r.MaxTokens)
	d.MaybeScanArgs(t, "lora", &r.LoRAName)
	d.MaybeScanArgs(t, "salt", &r.CacheSalt)
	d.MaybeScanArgs(t, "priority", &r.Priority)
	r.ReportFull = d.HasArg("report")
	if r.LoRAName != "" {
		r.LoRAID = 1
	}
	r.Tokens = promptOf(t, prompt)
	if err := s.e.Add(s.now, r); err != nil {
		return err.Error()
	}
	s.label()
	return "ok"
}

// promptOf is the tokens of runs like "shared:8+b:3".
func promptOf(t *testing.T, runs string) []uint32 {
	var ids []uint32
	for run := range strings.SplitSeq(runs, "+") {
		name, length, ok := strings.Cut(run, ":")
		n, err := strconv.Atoi(length)
		if !ok || err != nil {
			t.Fatalf("run %q is not name:length", run)
		}
		h := fnv.New64a()
		h.Write([]byte(name))
		for i := range n {
			ids = append(ids, tokens.FirstWord+uint32(tokens.DigestTerm(h.Sum64()+uint64(i))%150_000))
		}
	}
	return ids
}

// label names the hashes of every request as id.position; the first to have a hash names it.
func (s *script) label() {
	for _, q := range append(slices.Clone(s.e.running), s.e.waiting.items[s.e.waiting.head:]...) {
		for i, h := range q.hashes {
			if _, ok := s.labels[h]; !ok {
				s.labels[h] = fmt.Sprintf("%s.%d", q.id, i)
			}
		}
	}
}

// Example: abort id
func (s *script) abort(d *datadriven.TestData) string {
	return strconv.FormatBool(s.e.Abort(s.now, d.CmdArgs[0].Key))
}

// step runs steps, each beginning when the one before ended: who computed how many tokens, what came out,
// which events.
// Example: step [3]
func (s *script) step(t *testing.T, d *datadriven.TestData) string {
	n := 1
	if len(d.CmdArgs) > 0 {
		var err error
		if n, err = strconv.Atoi(d.CmdArgs[0].Key); err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
	}
	var b strings.Builder
	for range n {
		r := s.e.Step(s.now)
		s.label()
		s.describe(&b, r)
		s.now = r.Until
	}
	return b.String()
}

func (s *script) describe(b *strings.Builder, r StepResult) {
	if !r.Worked {
		b.WriteString("nothing to do\n")
		return
	}
	fmt.Fprintf(b, "%d..%d ns", s.now, r.Until)
	for _, sch := range s.e.batch {
		fmt.Fprintf(b, " %s+%d", sch.q.id, sch.n)
	}
	b.WriteByte('\n')
	for _, ev := range r.Events {
		fmt.Fprintf(b, "  %s\n", s.event(ev))
	}
	for _, o := range r.Outputs {
		fmt.Fprintf(b, "  %s: token %d%s\n", o.ID, o.Index, finishOf(o))
	}
}

func (s *script) event(ev Event) string {
	where := ""
	if ev.Medium == MediumCPU {
		where = "host "
	}
	switch ev.Kind {
	case Removed:
		return where + "removed " + s.names(ev.Hashes...) + s.group(ev.Group)
	case Cleared:
		return "cleared"
	}
	if ev.BlockSize == 0 {
		return where + "stored " + s.names(ev.Hashes...)
	}
	parent := "nothing"
	if ev.Parent != nil {
		parent = s.names(*ev.Parent)
	}
	text := where + "stored " + s.names(ev.Hashes...) + s.group(ev.Group) + " after " + parent
	if ev.SpecWindow > 0 {
		text += fmt.Sprintf(" (window %d, %d tokens)", ev.SpecWindow, len(ev.Tokens))
	}
	if len(ev.ExtraKeys) > 0 && ev.ExtraKeys[0] != nil {
		text += " keys"
		for _, key := range ev.ExtraKeys {
			text += fmt.Sprint(" ", key.texts())
		}
	}
	return text
}

// group names a cache group where there are several.
func (s *script) group(index int) string {
	if len(s.e.groups) == 1 {
		return ""
	}
	return fmt.Sprint(" g", index)
}

func (k ExtraKey) texts() []string {
	texts := make([]string, len(k))
	for i, item := range k {
		texts[i] = item.Text
	}
	return texts
}

func (s *script) names(hashes ...blockhash.Digest) string {
	names := make([]string, len(hashes))
	for i, h := range hashes {
		names[i] = s.labels[h]
	}
	return strings.Join(names, " ")
}

func finishOf(o Output) string {
	if o.Finish == "" {
		return ""
	}
	return fmt.Sprintf(", %s (cached %d, outputs %d, preempted %d)", o.Finish, o.CachedTokens, o.Stats.Output, o.Stats.Preemptions)
}

// pool shows the free queue from its front, with the hash a block is cached under, and the tables.
func (s *script) pool() string {
	var b strings.Builder
	b.WriteString("free:")
	s.e.pool.free.each(func(id int32) bool {
		fmt.Fprintf(&b, " %s", s.block(id))
		return true
	})
	b.WriteByte('\n')
	for _, q := range s.e.running {
		for g := range q.tables {
			fmt.Fprintf(&b, "%s:", q.id)
			for _, id := range q.tables[g].blocks {
				fmt.Fprintf(&b, " %s", s.block(id))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func (s *script) block(id int32) string {
	state := s.e.pool.blocks[id].state
	switch {
	case id == nullBlock:
		return "-"
	case !state.hashed():
		return strconv.Itoa(int(id))
	}
	return fmt.Sprintf("%d=%s%s", id, s.labels[s.e.pool.hashOf(id)], strings.TrimSpace(s.group(int(state.group()))))
}

// load shows the load and the counters.
func (s *script) load() string {
	return fmt.Sprintf("%+v\n%+v\n", s.e.Load(), s.e.Counters())
}

// match counts the cached leading blocks of a prompt.
// Example: match prompt=shared:8 [lora=name] [salt=text]
func (s *script) match(t *testing.T, d *datadriven.TestData) string {
	var prompt, lora, salt string
	d.ScanArgs(t, "prompt", &prompt)
	d.MaybeScanArgs(t, "lora", &lora)
	d.MaybeScanArgs(t, "salt", &salt)
	return strconv.Itoa(s.e.Match(promptOf(t, prompt), lora, salt))
}

// each yields the queue from the front.
func (q *freeQueue) each(yield func(id int32) bool) {
	for id := q.front; id != nullBlock; id = q.blocks[id].next {
		if !yield(id) {
			return
		}
	}
	for id := q.fresh; int(id) < len(q.blocks); id++ {
		if !yield(id) {
			return
		}
	}
	for id := q.first; id != nullBlock; id = q.blocks[id].next {
		if !yield(id) {
			return
		}
	}
}

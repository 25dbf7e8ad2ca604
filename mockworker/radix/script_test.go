package radix

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
	"fleetdrill/mockworker/engine"
)

// TestScripts runs the stories in testdata. Each begins with a paragraph saying what it shows.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &script{labels: map[blockhash.Digest]string{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
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
	case "abort": // Example: abort id
		return strconv.FormatBool(s.e.Abort(s.now, d.CmdArgs[0].Key))
	case "step":
		return s.step(t, d)
	case "tree":
		return s.tree()
	case "load": // load and counters
		return fmt.Sprintf("%+v\n%+v\n", s.e.Load(), s.e.Counters())
	case "match":
		return s.match(t, d)
	case "drop-cache":
		s.e.DropCache()
		return "ok"
	case "flush": // Example: flush [preempt]
		return strconv.FormatBool(s.e.ResetPrefixCache(d.HasArg("preempt")))
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

// engine makes a new engine; a step takes 1 us plus 1 ns a prefill token.
// Example: engine page=4 pages=8 seqs=4 budget=16 [model-len=100] [policy=lru] [cache=off] [bigram] [host=16 [write=write_back]]
func (s *script) engine(t *testing.T, d *datadriven.TestData) string {
	c := Config{Config: engine.Config{
		BlockSize: 4, NumBlocks: 9, MaxNumSeqs: 4, MaxNumBatchedTokens: 16, MaxModelLen: 1000,
		EnablePrefixCaching: !d.HasArg("cache"), Hasher: blockhash.NewSGLang(), Timing: engine.Timing{A: 1000, B: 1},
	}}
	var policy, write string
	pages := 8
	d.MaybeScanArgs(t, "host", &c.HostBlocks)
	d.MaybeScanArgs(t, "write", &write)
	d.MaybeScanArgs(t, "page", &c.BlockSize)
	d.MaybeScanArgs(t, "pages", &pages)
	d.MaybeScanArgs(t, "seqs", &c.MaxNumSeqs)
	d.MaybeScanArgs(t, "budget", &c.MaxNumBatchedTokens)
	d.MaybeScanArgs(t, "model-len", &c.MaxModelLen)
	d.MaybeScanArgs(t, "policy", &policy)
	c.WritePolicy = WritePolicy(write)
	c.NumBlocks, c.Eviction, c.Bigram = pages+1, Policy(policy), d.HasArg("bigram")
	s.now = 0
	var err error
	if s.e, err = New(c); err != nil {
		return err.Error()
	}
	return "ok"
}

// add queues a request. A prompt is a sum of runs; a run is a name and a length, and the same name always
// begins with the same tokens.
// Example: add id=b prompt=shared:8+b:3 output=2 [lora=name] [salt=text]
func (s *script) add(t *testing.T, d *datadriven.TestData) string {
	var r engine.Request
	var prompt string
	d.ScanArgs(t, "id", &r.ID)
	d.ScanArgs(t, "prompt", &prompt)
	d.ScanArgs(t, "output", &r.MaxTokens)
	d.MaybeScanArgs(t, "lora", &r.LoRAName)
	d.MaybeScanArgs(t, "salt", &r.CacheSalt)
	r.Tokens = promptOf(t, prompt)
	if err := s.e.Add(s.now, r); err != nil {
		return err.Error()
	}
	s.label(s.e.byID[r.ID])
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
func (s *script) label(more ...*request) {
	for _, q := range slices.Concat(s.e.onDevice(), s.e.waiting, more) {
		for i, h := range q.hashes {
			if _, ok := s.labels[h]; !ok {
				s.labels[h] = fmt.Sprintf("%s.%d", q.id, i)
			}
		}
	}
}

// step runs steps, each beginning when the one before ended: who computed how many tokens (decoding with a
// star), which events, what came out.
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
		aborting := slices.Clone(s.e.aborting)
		r := s.e.Step(s.now)
		for _, sch := range s.e.batch {
			s.label(sch.q)
		}
		s.label(aborting...)
		s.describe(&b, r)
		s.now = r.Until
	}
	return b.String()
}

func (s *script) describe(b *strings.Builder, r engine.StepResult) {
	if !r.Worked {
		b.WriteString("nothing to do\n")
		return
	}
	fmt.Fprintf(b, "%d..%d ns", s.now, r.Until)
	for _, sch := range s.e.batch {
		if sch.decode {
			fmt.Fprintf(b, " %s*", sch.q.id)
		} else {
			fmt.Fprintf(b, " %s+%d", sch.q.id, sch.n)
		}
	}
	b.WriteByte('\n')
	for _, ev := range r.Events {
		fmt.Fprintf(b, "  %s\n", s.event(ev))
	}
	for _, o := range r.Outputs {
		fmt.Fprintf(b, "  %s: token %d", o.ID, o.Index)
		if o.Finish != "" {
			fmt.Fprintf(b, ", %s (cached %d, outputs %d, retracted %d)", o.Finish, o.CachedTokens, o.Stats.Output, o.Stats.Preemptions)
		}
		b.WriteByte('\n')
	}
}

func (s *script) event(ev engine.Event) string {
	switch ev.Kind {
	case engine.Removed:
		return "removed " + s.names(ev.Hashes...) + tierOf(ev)
	case engine.Cleared:
		return "cleared"
	}
	parent := "nothing"
	if ev.Parent != nil {
		parent = s.names(*ev.Parent)
	}
	text := "stored " + s.names(ev.Hashes...) + " after " + parent
	if ev.CacheSalt != "" {
		text += " salt " + ev.CacheSalt
	}
	return text + tierOf(ev)
}

// tierOf names the tier of an event unless it is the device.
func tierOf(ev engine.Event) string {
	if ev.Medium == engine.MediumGPU {
		return ""
	}
	return " in " + ev.Medium
}

func (s *script) names(hashes ...blockhash.Digest) string {
	names := make([]string, len(hashes))
	for i, h := range hashes {
		names[i] = s.labels[h]
	}
	return strings.Join(names, " ")
}

// tree shows every adapter's nodes with the number of requests that hold them, children below, and then who
// has how many pages.
func (s *script) tree() string {
	var b strings.Builder
	names := []string{}
	for lora := range s.e.tree.branches {
		names = append(names, lora)
	}
	slices.Sort(names)
	for _, lora := range names {
		branch := s.e.tree.branches[lora]
		if lora != "" {
			fmt.Fprintf(&b, "adapter %s\n", lora)
		}
		s.below(&b, branch, branch.root, "")
	}
	fmt.Fprintf(&b, "%d in the tree, %d free", s.e.tree.pages, s.e.free)
	if h := s.e.tree.host; h != nil {
		fmt.Fprintf(&b, ", %d of the host's %d free", h.free, h.size)
	}
	for _, q := range s.e.onDevice() {
		fmt.Fprintf(&b, ", %d of %s", q.own, q.id)
	}
	return b.String() + "\n"
}

func (s *script) below(b *strings.Builder, branch *branch, parent *node, indent string) {
	var children []*node
	for _, n := range branch.nodes {
		if n.parent == parent {
			children = append(children, n)
		}
	}
	slices.SortFunc(children, func(x, y *node) int { return strings.Compare(s.labels[x.pages[0].hash], s.labels[y.pages[0].hash]) })
	for _, n := range children {
		var hashes []blockhash.Digest
		for i := range n.pages {
			hashes = append(hashes, n.pages[i].hash)
		}
		fmt.Fprintf(b, "%s%s", indent, s.names(hashes...))
		switch {
		case n.evicted:
			b.WriteString(" (host only)")
		case n.backed:
			b.WriteString(" (host, too)")
		case n.writing != nil:
			b.WriteString(" (on its way to the host)")
		}
		if n.locks > 0 {
			fmt.Fprintf(b, " (held by %d)", n.locks)
		}
		b.WriteByte('\n')
		s.below(b, branch, n, indent+"  ")
	}
}

// match counts the cached leading pages of a prompt.
// Example: match prompt=shared:8 [lora=name] [salt=text]
func (s *script) match(t *testing.T, d *datadriven.TestData) string {
	var prompt, lora, salt string
	d.ScanArgs(t, "prompt", &prompt)
	d.MaybeScanArgs(t, "lora", &lora)
	d.MaybeScanArgs(t, "salt", &salt)
	return strconv.Itoa(s.e.Match(promptOf(t, prompt), lora, salt))
}

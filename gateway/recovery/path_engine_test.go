package recovery

import (
	"fmt"
	"slices"

	"fleetdrill/gateway/index"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
	mock "fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/late"
	"fleetdrill/mockworker/radix"
	"fleetdrill/mockworker/wire"
)

// dice decide what happens next: rapid's, or a seeded generator where goroutines run.
type dice interface {
	// pick is a number from lo to hi, both included; lo is the simplest.
	pick(label string, lo, hi int) int
}

// chance is one in n.
func chance(d dice, label string, n int) bool { return d.pick(label, 0, n-1) == n-1 }

func oneOf[T any](d dice, label string, list ...T) T { return list[d.pick(label, 0, len(list)-1)] }

// maxPathModel is the longest request, in tokens.
const maxPathModel = 64

// pathEngine is a real engine core with its encoder and what holds removals back, driven by random requests.
type pathEngine struct {
	dice
	profile string
	cfg     mock.Config
	policy  radix.Policy
	bigram  bool
	sglang  bool // the core is the radix tree
	algo    string
	ints    bool // hashes are integers on the wire

	core mock.Core
	enc  *wire.Encoder
	late *late.Removals
	now  int64
	ids  int
	live []string
	// asked are the latest requests, with their outputs so far.
	asked []*pathPrompt
	// places are where blocks belong, by the stores of the engine itself before anything happens to them.
	places map[uint64]pathPlace
}

// pathPrompt is a text whose blocks may be cached.
type pathPrompt struct {
	id         string
	ids        []uint32
	lora, salt string
}

// pathPlace is a block's place: key is the prefix hash of its chain.
type pathPlace struct {
	position int
	content  uint64
	key      uint64
}

// under is the place of a block behind another.
func (p pathPlace) under(content uint64) pathPlace {
	return pathPlace{p.position + 1, content, tokens.PrefixNext(p.key, content)}
}

func firstPlace(content uint64) pathPlace { return pathPlace{0, content, content} }

// drawPathEngine makes an engine with blocks of size tokens and a pool that is too small for what is asked.
func drawPathEngine(d dice, size int) (*pathEngine, error) {
	e := &pathEngine{dice: d, profile: oneOf(d, "wire profile", wire.Names()...), places: map[uint64]pathPlace{}}
	onSGLang := wire.IsSGLang(e.profile)
	e.sglang = onSGLang && !chance(d, "a vLLM core behind SGLang's wire", 6)
	e.ints = onSGLang || e.profile == "vllm-0.9" || chance(d, "integer hashes", 2)
	e.algo = "sglang"
	if !onSGLang {
		e.algo = oneOf(d, "hash algorithm", "xxhash_cbor", "sha256_cbor", "xxhash", "sha256")
	}
	e.cfg = mock.Config{
		BlockSize: size, NumBlocks: d.pick("blocks", 3, 24), MaxNumSeqs: d.pick("seqs", 1, 5),
		MaxNumBatchedTokens: d.pick("budget", 1, 30), MaxModelLen: maxPathModel, EnablePrefixCaching: true,
		Timing: mock.Timing{A: 1000, B: 7, C: 3, D: 0.5, E: 0.25, Overhead: oneOf(d, "overhead", int64(0), 0, 2500)}, Seed: uint64(d.pick("seed", 0, 1000)),
	}
	if e.sglang {
		e.policy = radix.Policy(oneOf(d, "eviction", radix.Policies()...))
		e.bigram = chance(d, "bigram", 5)
	} else {
		e.drawScheduler()
	}
	var err error
	if e.enc, err = wire.New(e.profile, wire.Options{IntHashes: e.ints}); err != nil {
		return nil, err
	}
	return e, e.boot("0")
}

func (e *pathEngine) drawScheduler() {
	e.cfg.SchedulingPolicy = oneOf(e.dice, "policy", mock.PolicyFCFS, mock.PolicyPriority)
	e.cfg.LongPrefillTokenThreshold = oneOf(e.dice, "long prefill threshold", 0, 0, 3, 7)
	e.cfg.ReserveFullISL = chance(e.dice, "whole prompt must fit", 3)
	e.cfg.Watermark = oneOf(e.dice, "watermark", 0, 0, 0.1)
	switch kind := e.pick("cache: plain, host tier or groups", 0, 9); {
	case kind < 3:
	case kind < 7:
		e.cfg.HostBlocks = e.pick("host blocks", 1, 12)
		e.cfg.HostDescribed = chance(e.dice, "described offloads", 2)
	case wire.HasGroups(e.profile):
		e.drawGroups()
	}
}

// drawGroups draws a group that holds everything, and windows before or behind it.
func (e *pathEngine) drawGroups() {
	e.cfg.NumBlocks += e.pick("more blocks", 0, 60)
	size := e.cfg.BlockSize
	for range e.pick("window groups", 0, 2) {
		e.cfg.Groups = append(e.cfg.Groups, mock.Group{Kind: mock.KindSlidingWindow, Window: e.pick("window", 1, 14),
			BlockSize: oneOf(e.dice, "window's block size", size, 2*size, 1)})
	}
	main := mock.Group{Kind: oneOf(e.dice, "main kind", mock.KindFullAttention, mock.KindMLAAttention, mock.KindSinkFullAttention), BlockSize: size}
	e.cfg.Groups = slices.Insert(e.cfg.Groups, e.pick("place of the main group", 0, len(e.cfg.Groups)), main)
	if chance(e.dice, "a second main group", 4) {
		e.cfg.Groups = append(e.cfg.Groups, main)
	}
}

// boot starts the engine process anew, with an empty cache.
func (e *pathEngine) boot(seed string) (err error) {
	e.live = nil
	e.late = late.New(oneOf(e.dice, "late removals", late.Options{}, late.Options{}, late.Options{Steps: 2}, late.Options{By: 3000}))
	if e.algo == "sglang" {
		e.cfg.Hasher = blockhash.NewSGLang()
	} else if e.cfg.Hasher, err = blockhash.New(e.algo, seed); err != nil {
		return err
	}
	if e.sglang {
		e.core, err = radix.New(radix.Config{Config: e.cfg, Eviction: e.policy, Bigram: e.bigram})
	} else {
		e.core, err = mock.New(e.cfg)
	}
	return err
}

func (e *pathEngine) String() string {
	kind := "vLLM"
	if e.sglang {
		kind = fmt.Sprintf("SGLang (%s, bigram %v)", e.policy, e.bigram)
	}
	return fmt.Sprintf("%s on %s, integer hashes %v, %s; blocks of %d, %d of them, %d seqs, %d tokens a step; groups %+v; host %d, described %v",
		kind, e.profile, e.ints, e.algo, e.cfg.BlockSize, e.cfg.NumBlocks, e.cfg.MaxNumSeqs, e.cfg.MaxNumBatchedTokens, e.cfg.Groups, e.cfg.HostBlocks, e.cfg.HostDescribed)
}

// add asks for a prompt of one of few families, so that heads are shared.
func (e *pathEngine) add() string {
	e.ids++
	p := &pathPrompt{id: fmt.Sprint("r", e.ids)}
	most := min(maxPathModel, (e.cfg.NumBlocks-1)*e.cfg.BlockSize/max(1, len(e.cfg.Groups))) // tokens that fit, about
	output := e.pick("output", 1, min(12, max(1, most/2)))
	family, shared, own := e.pick("family", 0, 2), e.pick("shared", 0, max(1, min(36, most-output-4))), e.pick("own", 0, 6)
	for i := range shared + own {
		id := 1000*family + i
		if i >= shared {
			id += e.ids * 10_000 % 100_000
		}
		p.ids = append(p.ids, tokens.FirstWord+uint32(id))
	}
	r := mock.Request{ID: p.id, MaxTokens: output, Priority: e.pick("priority", -1, 1), ReportFull: chance(e.dice, "full report", 12)}
	if chance(e.dice, "adapter or salt", 4) {
		p.lora, p.salt = oneOf(e.dice, "lora", "", "adapter", "other"), oneOf(e.dice, "salt", "", "pepper", "adapter")
	}
	if r.Tokens, r.LoRAName, r.CacheSalt = p.ids, p.lora, p.salt; p.lora != "" {
		r.LoRAID = len(p.lora)
	}
	if err := e.core.Add(e.now, r); err != nil {
		return "refused: " + err.Error() // too long for this pool
	}
	e.live = append(e.live, p.id)
	if e.asked = append(e.asked, p); len(e.asked) > 12 {
		e.asked = e.asked[1:]
	}
	return fmt.Sprintf("%s: %d tokens of family %d + %d own, %d to come, lora %q, salt %q", p.id, shared, family, own, r.MaxTokens, p.lora, p.salt)
}

func (e *pathEngine) abort() string {
	if len(e.live) == 0 {
		return "nothing"
	}
	id := oneOf(e.dice, "victim", e.live...)
	e.core.Abort(e.now, id)
	return id
}

// sleep ends every request and empties the cache.
func (e *pathEngine) sleep() []mock.Event {
	for _, id := range e.live {
		e.core.Abort(e.now, id)
	}
	out := e.step()
	e.core.ResetPrefixCache(true)
	return out
}

// step runs one model pass and returns the events that go out with it.
func (e *pathEngine) step() []mock.Event {
	r := e.core.Step(e.now)
	e.now = max(e.now+1, r.Until)
	for _, o := range r.Outputs {
		i := slices.IndexFunc(e.asked, func(p *pathPrompt) bool { return p.id == o.ID })
		if i >= 0 && o.Finish != mock.FinishAbort {
			p := e.asked[i]
			p.ids = append(slices.Clip(p.ids), o.Token)
		}
		if o.Finish != "" {
			e.live = slices.DeleteFunc(e.live, func(id string) bool { return id == o.ID })
		}
	}
	for i := range r.Events {
		e.learn(&r.Events[i])
	}
	return e.late.Filter(e.now, r.Events)
}

// idle lets time pass without a step; removals that wait for one may go out.
func (e *pathEngine) idle(ns int64) []mock.Event {
	e.now += ns
	return e.late.Due(e.now)
}

// learn notes where the blocks of a store belong, as far as the wire can tell it.
func (e *pathEngine) learn(ev *mock.Event) {
	size := e.cfg.BlockSize
	if span := len(ev.Hashes) * size; ev.Kind != mock.Stored || ev.BlockSize != size || len(ev.Tokens) != span && (!ev.Bigram || len(ev.Tokens) != span+1) {
		return
	}
	lora, salt := ev.LoRAName, ev.CacheSalt
	switch e.profile {
	case "vllm-0.9", "vllm-0.11":
		lora, salt = "", ""
	case "vllm-0.15":
		salt = ""
	case "sglang-array", "sglang-map":
		lora = ""
	}
	at, known := pathPlace{position: -1}, true
	if ev.Parent != nil {
		at, known = e.places[ev.Parent.EventInt()]
	}
	for i := 0; known && i < len(ev.Hashes); i++ {
		content := tokens.ContentHash(ev.Tokens[i*size : (i+1)*size])
		if at.position < 0 {
			at = firstPlace(tokens.Root(tokens.Namespace("", lora, salt), content))
		} else {
			at = at.under(content)
		}
		e.places[ev.Hashes[i].EventInt()] = at
	}
}

// chain is a prompt's content hashes.
func (p *pathPrompt) chain(size int) []uint64 {
	return tokens.AppendChain(nil, p.ids, size, tokens.Namespace("", p.lora, p.salt))
}

// scoreOf is what the index says a holder has of a chain.
func scoreOf(ix index.Index, h index.Holder, chain []uint64) int {
	scores := ix.Lookup(chain, nil)
	if int(h) >= len(scores) {
		return 0
	}
	return int(scores[h])
}

package engine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Attention kinds of a cache group, as events name them. The first three hold the whole context, the last
// one a window of it.
const (
	KindFullAttention     = "full_attention"
	KindMLAAttention      = "mla_attention"
	KindSinkFullAttention = "sink_full_attention"
	KindSlidingWindow     = "sliding_window"
)

// Group is a set of layers that share one block table. Groups take their blocks from one pool, and each
// caches and announces its own under the hashes that all of them share.
type Group struct {
	// Kind is one of the Kind constants.
	Kind string
	// Window is how many tokens a sliding window sees, the newest one included.
	Window int
	// BlockSize is in tokens. Groups that hold everything have Config.BlockSize.
	BlockSize int
}

// The short names of kinds in ParseGroups.
var kindNames = []struct{ short, kind string }{
	{"full", KindFullAttention}, {"mla", KindMLAAttention}, {"sink", KindSinkFullAttention}, {"swa", KindSlidingWindow},
}

// ParseGroups reads groups as the command line gives them, in the order of their index: "full", "mla" and
// "sink" hold everything, "swa:1024" sees a window of 1,024 tokens, and "swa:1024@16" has blocks of 16
// tokens where the others have blockSize. Empty text is no group, which Config takes for one of full
// attention.
func ParseGroups(text string, blockSize int) ([]Group, error) {
	if text == "" {
		return nil, nil
	}
	var groups []Group
	for item := range strings.SplitSeq(text, ",") {
		g, err := parseGroup(strings.TrimSpace(item), blockSize)
		if err != nil {
			return nil, fmt.Errorf("cache group %q: %w", item, err)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func parseGroup(item string, blockSize int) (Group, error) {
	g := Group{BlockSize: blockSize}
	item, size, sized := strings.Cut(item, "@")
	name, window, windowed := strings.Cut(item, ":")
	for _, k := range kindNames {
		if k.short == name {
			g.Kind = k.kind
		}
	}
	var errs [2]error
	if windowed {
		g.Window, errs[0] = strconv.Atoi(window)
	}
	if sized {
		g.BlockSize, errs[1] = strconv.Atoi(size)
	}
	switch {
	case g.Kind == "":
		return g, errors.New("must be full, mla, sink or swa:WINDOW")
	case errs[0] != nil || errs[1] != nil:
		return g, errors.New("the window behind : and the block size behind @ must be whole numbers")
	}
	return g, g.validate(blockSize)
}

func (g Group) windowed() bool { return g.Kind == KindSlidingWindow }

func (g Group) validate(blockSize int) error {
	switch {
	case g.windowed() && g.Window < 1:
		return errors.New("a sliding window needs its tokens: swa:1024")
	case !g.windowed() && g.Window != 0:
		return errors.New("only swa has a window")
	case !g.windowed() && g.BlockSize != blockSize:
		return fmt.Errorf("a group that holds everything has the engine's block size, %d tokens", blockSize)
	case g.BlockSize < 1:
		return fmt.Errorf("blocks of %d tokens", g.BlockSize)
	}
	for _, k := range kindNames {
		if k.kind == g.Kind {
			return nil
		}
	}
	return fmt.Errorf("unknown attention kind %q", g.Kind)
}

// group is a Group at work.
type group struct {
	Group
	index int32
	// scale is how many hashes one block spans: hashes are made at the greatest common divisor of all block
	// sizes, and the last one of a block, being chained, stands for it.
	scale int
	// tail is how many blocks before a position a window looks back over: what a hit needs there.
	tail int
	// segment is the distance in blocks of the positions where a hit may end; only the tail before each of
	// them is worth caching. 0 caches every block.
	segment int
}

// layout is the groups and what follows from them.
type layout struct {
	groups []group
	// hashSize is the tokens of one hash, align those that every hit is a multiple of.
	hashSize, align int
	// main is the group that stands for the cache where one answer is asked for: the first that holds
	// everything, else the first.
	main int
}

func newLayout(c Config) layout {
	gs := c.Groups
	if len(gs) == 0 {
		gs = []Group{{Kind: KindFullAttention, BlockSize: c.BlockSize}}
	}
	l := layout{hashSize: gs[0].BlockSize, align: 1, main: -1}
	for i, g := range gs {
		l.hashSize = gcd(l.hashSize, g.BlockSize)
		l.align = l.align / gcd(l.align, g.BlockSize) * g.BlockSize
		if l.main < 0 && !g.windowed() {
			l.main = i
		}
	}
	l.main = max(l.main, 0)
	for i, g := range gs {
		l.groups = append(l.groups, l.group(int32(i), g, c.RetentionInterval))
	}
	return l
}

func (l *layout) group(i int32, g Group, retention int) group {
	out := group{Group: g, index: i, scale: g.BlockSize / l.hashSize}
	if !g.windowed() {
		return out
	}
	out.tail = max(1, ceil(g.Window-1, g.BlockSize))
	if segment := max(l.align, retention) / g.BlockSize; segment > out.tail {
		out.segment = segment
	}
	return out
}

// caches says whether block i of a request is worth caching.
func (g *group) caches(i int) bool { return g.segment == 0 || i%g.segment >= g.segment-g.tail }

// skipped is how many leading blocks the next token of a request with so many computed ones cannot see.
func (g *group) skipped(computed int) int {
	if !g.windowed() {
		return 0
	}
	return max(0, computed-g.Window+1) / g.BlockSize
}

// most is an upper bound of the blocks that a request holds at once until n tokens are computed, when a
// step computes up to chunk of them.
func (g *group) most(n, chunk int) int {
	blocks := ceil(n, g.BlockSize)
	if !g.windowed() {
		return blocks
	}
	return min(blocks, ceil(g.Window-1+chunk, g.BlockSize)+1)
}

// most sums over the groups.
func (l *layout) most(n, chunk int) (blocks int) {
	for i := range l.groups {
		blocks += l.groups[i].most(n, chunk)
	}
	return blocks
}

func ceil(n, size int) int { return (n + size - 1) / size }

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

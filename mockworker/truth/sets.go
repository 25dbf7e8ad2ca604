package truth

// Tiers, as truth calls what events call a medium.
const (
	TierDevice   = "device"
	TierHost     = "host"
	TierDisk     = "disk"
	TierExternal = "external"
)

// Classes of cache groups: a group that holds the whole context can serve a prefix alone, a window cannot.
const (
	ClassMain   = "main"
	ClassWindow = "window"
)

// TierOf is the tier of a medium, empty for one that no engine has.
func TierOf(medium string) string {
	switch medium {
	case "", mediumGPU:
		return TierDevice
	case "CPU", "CPU_PINNED":
		return TierHost
	case "DISK":
		return TierDisk
	case "EXTERNAL":
		return TierExternal
	}
	return ""
}

// ClassOf is the class of an attention kind; without one a group is taken for the main one.
func ClassOf(kind string) string {
	switch kind {
	case "", "full_attention", "mla_attention", "sink_full_attention":
		return ClassMain
	}
	return ClassWindow
}

// NoGroup is the group of a block whose events tell none, and NoPosition the place of one whose store did
// not tell where it belongs.
const (
	NoGroup    = -1
	NoPosition = -1
)

// Entry is one announced block. Parent and Content mean nothing where Position is NoPosition, and Parent
// nothing at 0.
type Entry struct {
	Parent   uint64
	Content  uint64
	Position int32
	// Copies is stores minus removals: engines announce each physical copy, and each group of a class its
	// own.
	Copies uint32
	// Group is the one that announced the block first.
	Group int16
}

// Set is what is announced of one tier and class.
type Set struct {
	Tier, Class string
	Blocks      map[uint64]Entry
}

// SetHead is a set without its blocks.
type SetHead struct {
	Tier, Class string
	Blocks      int
	Digest      uint64
}

// set is a Set that is being folded. The first one of a fold is the device's main one, which heads and
// digests mean unless they say otherwise.
type set struct {
	tier, class string
	blocks      blocks
	digest      uint64
}

func newSet(tier, class string) *set { return &set{tier: tier, class: class} }

// sets are those of one publisher incarnation, and the classes of groups that its stores have told. There
// are few of either, whatever arrives: tiers and classes are a fixed choice, and groups are bounded.
type sets struct {
	all    []*set
	groups []groupClass
}

type groupClass struct {
	group int16
	class string
}

// maxGroups bounds the groups that are told apart; a block notes its own in eight bits.
const maxGroups = 254

func newSets() sets { return sets{all: []*set{newSet(TierDevice, ClassMain)}} }

func (s *sets) heads() (out []SetHead) {
	for _, t := range s.all {
		out = append(out, SetHead{Tier: t.tier, Class: t.class, Blocks: t.blocks.n, Digest: t.digest})
	}
	return out
}

// of is the set that an event belongs to, by its place in all; false for a tier that no engine has. A
// store tells the kind of its group, a removal only the group.
func (s *sets) of(e *event) (int, bool) {
	tier := TierOf(e.medium)
	if tier == "" {
		return 0, false
	}
	class := ClassOf(e.spec)
	if e.kind == kindStored {
		s.learn(e.group, class)
	} else {
		class = s.classOf(e.group)
	}
	for i, have := range s.all {
		if have.tier == tier && have.class == class {
			return i, true
		}
	}
	s.all = append(s.all, newSet(tier, class))
	return len(s.all) - 1, true
}

// learn notes the class of a group. The main one needs no note.
func (s *sets) learn(group int16, class string) {
	if class == s.classOf(group) || len(s.groups) == maxGroups {
		return
	}
	for i := range s.groups {
		if s.groups[i].group == group {
			s.groups[i].class = class
			return
		}
	}
	s.groups = append(s.groups, groupClass{group, class})
}

func (s *sets) classOf(group int16) string {
	for _, g := range s.groups {
		if g.group == group {
			return g.class
		}
	}
	return ClassMain
}

// place is where a store belongs: the position of its first block, NoPosition when nothing tells. In the
// device's main set every parent must be there; a window loses its head before its tail, and a host tier
// may have a block without the one before it.
func (s *sets) place(at int, e *event) (pos int32, ok bool) {
	if !e.hasParent {
		return 0, true
	}
	if p, held := s.all[at].blocks.get(e.parent); held && p.Position != NoPosition {
		return p.Position + 1, true
	}
	if at == 0 {
		return 0, false
	}
	if p, held := s.all[0].blocks.get(e.parent); held && s.all[at].class == ClassMain {
		return p.Position + 1, true
	}
	return NoPosition, true
}

package admin

import (
	"slices"

	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/truth"
)

// A question may come in the middle of a step, when the engine has the step behind it and the subscribers
// have not: its stored blocks would look unannounced and its removed ones like ghosts. So the events that
// are not published yet are taken back from what the engine holds. What remains is the resident set of the
// last step boundary, which is the one to compare with what was announced.

// spot is a block where it is held. Only the group of a removal is told, not the class.
type spot struct {
	tier  string
	group int
	hash  uint64
}

// holding is what an engine held at the last step boundary.
type holding struct {
	fold *truth.Fold
	// net is how many copies the running step added to a spot; negative for what it took away.
	net     map[spot]int
	classes map[int]string // of groups
}

// holdingOf reads the pending events. It is false when they cannot be taken back, because they clear
// everything.
func holdingOf(fold *truth.Fold, pending []engine.Event) (*holding, bool) {
	h := &holding{fold: fold, net: map[spot]int{}, classes: map[int]string{}}
	for i := range pending {
		ev := &pending[i]
		by := 1
		switch {
		case ev.Kind == engine.Cleared:
			return nil, false
		case ev.Kind == engine.Removed:
			by = -1
		case ev.Reused:
			continue
		default:
			h.classes[ev.Group] = truth.ClassOf(ev.SpecKind)
		}
		for j := range ev.Hashes {
			h.net[spot{truth.TierOf(ev.Medium), ev.Group, ev.Hashes[j].EventInt()}] += by
		}
	}
	return h, true
}

// each yields what was held, each hash once a group. A block that the running step removed comes with no more
// than its place: Position is truth.NoPosition.
func (h *holding) each(e engine.Core, yield func(tier, class string, b engine.Block, hash uint64)) {
	e.Blocks(func(b engine.Block) bool {
		tier, class, hash := truth.TierOf(b.Medium), truth.ClassOf(b.SpecKind), b.Hash.EventInt()
		h.classes[b.Group] = class
		if len(h.net) > 0 {
			at := spot{tier, b.Group, hash}
			b.Copies -= h.net[at]
			delete(h.net, at)
		}
		if b.Copies > 0 {
			yield(tier, class, b, hash)
		}
		return true
	})
	for at, n := range h.net {
		if n < 0 {
			yield(at.tier, h.classOf(at.group), engine.Block{Copies: -n, Group: at.group, Position: truth.NoPosition}, at.hash)
		}
	}
}

func (h *holding) classOf(group int) string {
	if class, ok := h.classes[group]; ok {
		return class
	}
	return h.fold.ClassOfGroup(group)
}

// hashes are the distinct hashes held, one list for each tier and class.
func (h *holding) hashes(e engine.Core) (out []truth.Resident) {
	h.each(e, func(tier, class string, b engine.Block, hash uint64) {
		i := slices.IndexFunc(out, func(r truth.Resident) bool { return r.Tier == tier && r.Class == class })
		if i < 0 {
			out, i = append(out, truth.Resident{Tier: tier, Class: class, Group: b.Group}), len(out)
		}
		out[i].Hashes = append(out[i].Hashes, hash)
		out[i].Several = out[i].Several || out[i].Group != b.Group
	})
	for i := range out {
		if r := &out[i]; r.Several { // groups of a class hold the same hashes
			slices.Sort(r.Hashes)
			r.Hashes = slices.Compact(r.Hashes)
		}
	}
	return out
}

// key names a row of the answer.
type key struct {
	tier, class string
	hash        contract.U64
}

func keyOf(b *contract.TruthBlock) key { return key{b.Tier, b.Class, b.Hash} }

// rows are the blocks held, the groups of a class taken together. What the running step removed is told as it
// was announced.
func (h *holding) rows(e engine.Core, announced map[key]contract.TruthBlock) []contract.TruthBlock {
	at := map[key]int{}
	var out []contract.TruthBlock
	h.each(e, func(tier, class string, b engine.Block, hash uint64) {
		row := rowOf(tier, class, &b, hash)
		i, again := at[keyOf(&row)]
		if again {
			out[i].Copies += row.Copies
			out[i].Group = min(out[i].Group, row.Group)
			if row.Use == useInUse {
				out[i].Use = useInUse
			}
			return
		}
		if said, ok := announced[keyOf(&row)]; ok && b.Position == truth.NoPosition {
			row.Position, row.Parent, row.Content = said.Position, said.Parent, said.Content
		}
		at[keyOf(&row)] = len(out)
		out = append(out, row)
	})
	return out
}

// The values of TruthBlock.Use.
const (
	useFree  = "free"
	useInUse = "in_use"
)

func rowOf(tier, class string, b *engine.Block, hash uint64) contract.TruthBlock {
	row := contract.TruthBlock{
		Hash: contract.U64(hash), Position: b.Position, Content: contract.U64(b.Content), Copies: b.Copies,
		Tier: tier, Class: class, Group: b.Group, Use: useFree,
	}
	if tier == truth.TierDevice && row.Group == engine.NoGroup {
		row.Group = 0 // an engine without groups has one
	}
	if b.Position > 0 {
		parent := contract.U64(b.Parent)
		row.Parent = &parent
	}
	if b.InUse {
		row.Use = useInUse
	}
	return row
}

// announcedRows are all announced blocks.
func announcedRows(sets []truth.Set) (out []contract.TruthBlock) {
	for _, s := range sets {
		for h, e := range s.Blocks {
			row := contract.TruthBlock{
				Hash: contract.U64(h), Position: int(e.Position), Content: contract.U64(e.Content), Copies: int(e.Copies),
				Tier: s.Tier, Class: s.Class, Group: int(e.Group),
			}
			if e.Position > 0 {
				parent := contract.U64(e.Parent)
				row.Parent = &parent
			}
			if s.Tier == truth.TierDevice && row.Group == truth.NoGroup {
				row.Group = 0 // the wire tells no groups, so that there is one
			}
			out = append(out, row)
		}
	}
	return out
}

func byKey(rows []contract.TruthBlock) map[key]contract.TruthBlock {
	m := make(map[key]contract.TruthBlock, len(rows))
	for i := range rows {
		m[keyOf(&rows[i])] = rows[i]
	}
	return m
}

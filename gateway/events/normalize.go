package events

import (
	"slices"
	"strings"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
)

// Op is one change of what a holder has, in the order of the batch. A Stored puts Hashes, which name the
// blocks Contents, under Parent (or at the root); a Removed takes one copy of each of Hashes; a Cleared
// takes everything, in every tier; an Attached adds a copy of each of Hashes, wherever its block belongs.
type Op struct {
	Kind Kind
	// Host says that it is about copies in host memory, not on the device.
	Host      bool
	HasParent bool
	Parent    uint64
	Hashes    []uint64
	Contents  []uint64
}

// Normalizer turns the batches of one publisher incarnation into operations. It remembers what only
// earlier batches said: which group is which, the block size, and which hashes of window groups went out.
// It is not safe for concurrent use.
type Normalizer struct {
	blockSize int // tokens; 0 until the first store
	// main says per group whether it is a main one; groups without a kind are not in it.
	main    map[int64]bool
	hasMain bool
	// windowed counts stores of window groups that went out while no main group was known, so that their
	// removals still do when one appears. Group hashes are equal by value, so any other window removal
	// would take a main block away.
	windowed map[uint64]uint32
	drops    map[string]int64

	// ops and contents are reused from batch to batch.
	ops      []Op
	contents []uint64
}

// NewNormalizer expects blocks of blockSize tokens; 0 takes the size of the first store.
func NewNormalizer(blockSize int) *Normalizer {
	n := &Normalizer{blockSize: blockSize, drops: make(map[string]int64)}
	n.Restart(blockSize)
	return n
}

// Restart forgets what the publisher's last incarnation said; the drop counts stay.
func (n *Normalizer) Restart(blockSize int) {
	n.blockSize = blockSize
	n.main = make(map[int64]bool)
	n.hasMain = false
	n.windowed = make(map[uint64]uint32)
}

// Drops copies the counts of dropped events and payloads by reason (contract.DropReasons).
func (n *Normalizer) Drops() map[string]int64 {
	out := make(map[string]int64, len(n.drops))
	for reason, count := range n.drops {
		out[reason] = count
	}
	return out
}

// Drop counts something that was dropped before it got here.
func (n *Normalizer) Drop(reason string) { n.drops[reason]++ }

// Normalize returns what b does to its holder. The operations are valid until the next call or until b is
// decoded into again, and may be changed by the caller.
func (n *Normalizer) Normalize(b *Batch) []Op {
	n.ops, n.contents = n.ops[:0], n.contents[:0]
	n.count(contract.DropMalformed, b.Malformed)
	n.count(contract.DropUnknownType, b.UnknownType)
	// Groups first, for the whole batch: a step publishes the window group's store before the main one's.
	for i := range b.Events {
		n.learn(&b.Events[i])
	}
	for i := range b.Events {
		if reason := n.event(&b.Events[i]); reason != "" {
			n.drops[reason]++
		}
	}
	return n.ops
}

func (n *Normalizer) count(reason string, times int) {
	if times > 0 {
		n.drops[reason] += int64(times)
	}
}

// learn notes the kind of a store's group.
func (n *Normalizer) learn(e *Event) {
	if e.Kind != Stored || e.SpecKind == "" {
		return
	}
	main := mainKind(e.SpecKind)
	n.hasMain = n.hasMain || main
	if e.HasGroup {
		n.main[e.Group] = main
	}
}

// mainKind reports the attention kinds whose blocks make a prefix reusable on their own.
func mainKind(kind string) bool {
	switch kind {
	case "full_attention", "mla_attention", "sink_full_attention":
		return true
	}
	return false
}

// isMain reports whether e belongs to a main group: by its kind, else by its group's, else yes.
func (n *Normalizer) isMain(e *Event) bool {
	if e.SpecKind != "" {
		return mainKind(e.SpecKind)
	}
	main, known := n.main[e.Group]
	return !e.HasGroup || !known || main
}

// tier of a medium; mediums are compared without case.
type tier uint8

const (
	unknownTier tier = iota
	deviceTier
	hostTier
	diskTier
	externalTier
)

func tierOf(medium string) tier {
	if medium == "" || medium == "GPU" {
		return deviceTier
	}
	switch strings.ToUpper(medium) {
	case "GPU", "DEVICE":
		return deviceTier
	case "CPU", "CPU_PINNED", "CPU_TIER1":
		return hostTier
	case "CPU_TIER2", "DISK", "NVME", "STORAGE":
		return diskTier
	case "EXTERNAL", "NETWORK", "REMOTE", "SHARED":
		return externalTier
	}
	return unknownTier
}

// event appends the operations of e, or says why it has none.
func (n *Normalizer) event(e *Event) (dropped string) {
	switch {
	case e.foreignOwner():
		return contract.DropOwnership
	case e.Kind == Cleared:
		clear(n.windowed)
		n.ops = append(n.ops, Op{Kind: Cleared})
		return ""
	case e.Locality != "" && !strings.EqualFold(e.Locality, "LOCAL"):
		return contract.DropLocality
	case tierOf(e.Medium) == unknownTier:
		return contract.DropMedium
	case e.Kind == Removed:
		return n.removed(e)
	}
	return n.stored(e)
}

// removed appends a removal to the one before it, if that is one too: engines announce each hash alone.
func (n *Normalizer) removed(e *Event) (dropped string) {
	switch {
	case len(e.Hashes) == 0:
		return contract.DropPlaceholder
	case !indexed(e):
		return contract.DropTier
	}
	host, hashes := isHost(e), e.Hashes
	if !n.isMain(e) {
		if host && n.hasMain {
			return contract.DropGroup
		}
		if !host {
			hashes = n.takeWindowed(hashes)
		}
		if len(hashes) == 0 {
			return contract.DropGroup
		}
	}
	n.list(Removed, host, hashes)
	return ""
}

// list appends an operation that is a list of hashes, to the one before it if that is of the same kind.
func (n *Normalizer) list(kind Kind, host bool, hashes []uint64) {
	if last := len(n.ops) - 1; last >= 0 && n.ops[last].Kind == kind && n.ops[last].Host == host {
		n.ops[last].Hashes = append(n.ops[last].Hashes, hashes...)
		return
	}
	n.ops = append(n.ops, Op{Kind: kind, Host: host, Hashes: slices.Clip(hashes)})
}

// indexed reports the tiers that the index has; a block further away is not credited.
func indexed(e *Event) bool { return tierOf(e.Medium) == deviceTier || isHost(e) }

func isHost(e *Event) bool { return tierOf(e.Medium) == hostTier }

// takeWindowed returns those of a window group's hashes whose stores went out: all while the rank has no
// main group.
func (n *Normalizer) takeWindowed(hashes []uint64) []uint64 {
	out := hashes[:0:0]
	for _, h := range hashes {
		count := n.windowed[h]
		switch {
		case count > 1:
			n.windowed[h]--
		case count == 1:
			delete(n.windowed, h)
		}
		if count > 0 || !n.hasMain {
			out = append(out, h)
		}
	}
	return out
}

// stored appends the store of e after every check that its blocks can be named by content.
func (n *Normalizer) stored(e *Event) (dropped string) {
	main := n.isMain(e)
	if n.hasMain && !main {
		return contract.DropGroup
	}
	host := isHost(e)
	if host && len(e.Hashes) > 0 && len(e.Tokens) == 0 {
		// An offload names what it copied and does not describe it.
		n.list(Attached, true, e.Hashes)
		return ""
	}
	if reason := misshapen(e); reason != "" {
		return reason
	}
	if !indexed(e) {
		return contract.DropTier
	}
	if n.blockSize == 0 {
		n.blockSize = e.BlockSize
	}
	if e.BlockSize != n.blockSize {
		return contract.DropBlockSize
	}
	ns, clean, ok := namespace(e)
	if !ok || clean == 0 {
		return contract.DropNamespace
	}
	// Offloads name no group, whatever the model has, so a host store tells nothing about groups.
	n.hasMain = n.hasMain || main && !host && e.SpecKind == "" && !e.HasGroup
	if !main && !host {
		for _, h := range e.Hashes {
			n.windowed[h]++
		}
	}
	n.store(e, ns, clean)
	if clean < len(e.Hashes) {
		return contract.DropNamespace
	}
	return ""
}

// misshapen says why a store's hashes and tokens do not fit together.
func misshapen(e *Event) (dropped string) {
	if len(e.Hashes) == 0 || len(e.Tokens) == 0 {
		return contract.DropPlaceholder
	}
	if e.BlockSize <= 0 || len(e.Tokens)%e.BlockSize != 0 || len(e.Hashes) > len(e.Tokens)/e.BlockSize {
		return contract.DropUnaligned
	}
	if selfReferencing(e) {
		return contract.DropSelfReferencing
	}
	return ""
}

// selfReferencing reports a hash that is repeated or is the parent. Short lists are compared pairwise,
// which is the usual case and needs no memory.
func selfReferencing(e *Event) bool {
	if e.HasParent && slices.Contains(e.Hashes, e.Parent) {
		return true
	}
	if len(e.Hashes) <= 32 {
		for i, h := range e.Hashes {
			if slices.Contains(e.Hashes[:i], h) {
				return true
			}
		}
		return false
	}
	seen := make(map[uint64]struct{}, len(e.Hashes))
	for _, h := range e.Hashes {
		seen[h] = struct{}{}
	}
	return len(seen) < len(e.Hashes)
}

// namespace of a store, and how many of its blocks are named by tokens, adapter and salt alone. A block
// with further keys (an image, embeddings) and those behind it are not what a request of the same tokens
// asks for. Not ok: an adapter without a name, as the oldest wires send it. A store with a parent needs
// no namespace: its chain's root has it.
func namespace(e *Event) (ns uint64, clean int, ok bool) {
	salt := e.Salt
	clean = len(e.Hashes)
	for i, keys := range e.ExtraKeys {
		for j, k := range keys {
			switch {
			case k.HasOffset || k.Bytes != nil:
				clean = min(clean, i)
			case j == 0 && k.Text == e.LoRAName: // it comes first: a salt may have the same text
			case k.Text == salt:
			case i == 0 && !e.HasParent && salt == "":
				salt = k.Text
			default:
				clean = min(clean, i)
			}
		}
	}
	if e.HasParent {
		return 0, clean, true
	}
	return tokens.Namespace("", e.LoRAName, salt), clean, e.LoRAID <= 0 || e.LoRAName != ""
}

// store appends the store of the first clean hashes. With fewer hashes than blocks they name the last
// blocks of the span; the blocks in front are stored under names of our own and removed again, so that
// the named ones stand at their true place, behind a hole.
func (n *Normalizer) store(e *Event, ns uint64, clean int) {
	from := len(n.contents)
	ahead := len(e.Tokens)/e.BlockSize - len(e.Hashes)
	span := e.Tokens[:(ahead+clean)*e.BlockSize]
	n.contents = tokens.AppendChain(n.contents, span, e.BlockSize, ns)
	op := Op{Kind: Stored, Host: isHost(e), HasParent: e.HasParent, Parent: e.Parent, Hashes: e.Hashes[:clean:clean]}
	op.Contents = n.contents[from:len(n.contents):len(n.contents)]
	if ahead == 0 {
		n.ops = append(n.ops, op)
		return
	}
	names := make([]uint64, ahead, ahead+clean)
	for i := range names {
		names[i] = tokens.PrefixNext(e.Hashes[0], uint64(i))
	}
	op.Hashes = append(names, op.Hashes...)
	n.ops = append(n.ops, op, Op{Kind: Removed, Host: op.Host, Hashes: slices.Clone(names)})
}

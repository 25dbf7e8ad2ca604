package radix

import (
	"fmt"
	"slices"
	"strings"

	"fleetdrill/mockworker/engine"
)

// MediumHost is the host tier in SGLang's events.
const MediumHost = "CPU_PINNED"

// WritePolicy says when a node is copied to the host tier; names are those of SGLang's --hicache-write-policy.
type WritePolicy string

// The policies.
const (
	WriteThrough          WritePolicy = "write_through"           // at the first hit, its own insert being one
	WriteThroughSelective WritePolicy = "write_through_selective" // at the second
	WriteBack             WritePolicy = "write_back"              // when the device evicts it
)

// WritePolicies are the names of all.
func WritePolicies() []string {
	return []string{string(WriteThrough), string(WriteThroughSelective), string(WriteBack)}
}

// Validate fails on a name that is none; empty is WriteThrough.
func (p WritePolicy) Validate() error {
	if p != "" && !slices.Contains(WritePolicies(), string(p)) {
		return fmt.Errorf("unknown write policy %q: have %s", p, strings.Join(WritePolicies(), ", "))
	}
	return nil
}

// threshold is how many hits a node needs to be copied, 0 for never.
func (p WritePolicy) threshold() int {
	switch p {
	case WriteBack:
		return 0
	case WriteThroughSelective:
		return 2
	}
	return 1
}

// minLoadBack is the fewest tokens for which SGLang reads back from the host; fewer are computed anew.
const minLoadBack = 10

// hostTier is SGLang's HiCache: nodes that have a copy in host memory, and may live on there when the device
// evicts them. What of a node is where stands in the node; a child has a device copy only if its parent has.
// Nodes written to the host are locked until the next step, as during the real transfer.
type hostTier struct {
	policy WritePolicy
	size   int // pages
	free   int
	leaves leaves // host-only nodes without children, the next to go on top
	// writing are the copies under way, in order. A node that is split meanwhile becomes two.
	writing []*writing
}

type writing struct {
	lock  *node
	nodes []*node // parents first
}

func newHostTier(pages int, p Policy, w WritePolicy) *hostTier {
	return &hostTier{policy: w, size: pages, free: pages, leaves: leaves{before: p.order()}}
}

// clear forgets every copy.
func (h *hostTier) clear() { h.free, h.leaves.heap, h.writing = h.size, nil, nil }

// hit copies a node to the host if it has been hit often enough and its parent is there or on its way, so that
// the host holds prefixes without holes.
func (t *tree) hit(n *node) {
	if t.host == nil || n.backed || n.writing != nil {
		return
	}
	least := t.host.policy.threshold()
	if least == 0 || n.hits < least || !n.parent.isRoot() && !n.parent.backed && n.parent.writing == nil {
		return
	}
	if !t.hostRoom(len(n.pages)) {
		return
	}
	t.host.free -= len(n.pages)
	n.writing = &writing{lock: n, nodes: []*node{n}}
	t.host.writing = append(t.host.writing, n.writing)
	t.lock(n)
}

// written ends the copies under way, and only now announces them.
func (t *tree) written() {
	if t.host == nil {
		return
	}
	for _, w := range t.host.writing {
		for _, n := range w.nodes {
			n.writing, n.backed = nil, true
			t.changed.copied(n, MediumHost)
		}
		t.unlock(w.lock)
	}
	t.host.writing = nil
}

// hostRoom makes room in the host for so many pages, if it can.
func (t *tree) hostRoom(pages int) bool {
	h := t.host
	for h.free < pages && len(h.leaves.heap) > 0 {
		n := h.leaves.heap[0]
		h.leaves.drop(n)
		h.free += len(n.pages)
		t.cut(n, MediumHost)
	}
	return h.free >= pages
}

// offload takes the device copy of a leaf away while its host copy stays. Without one it is written first, and
// false says that the host has no room.
func (t *tree) offload(n *node) bool {
	if !n.backed {
		if t.host == nil || t.host.policy != WriteBack || !t.hostRoom(len(n.pages)) {
			return false
		}
		t.host.free -= len(n.pages)
		n.backed = true
		t.changed.copied(n, MediumHost)
	}
	t.changed.removed(n, engine.MediumGPU)
	t.heapOf(n).drop(n)
	n.evicted = true
	n.parent.devices--
	t.settle(n)
	t.settle(n.parent)
	return true
}

// onDevice gives a node a device copy again.
func (t *tree) onDevice(n *node) {
	t.heapOf(n).drop(n)
	n.evicted = false
	n.parent.devices++
	t.pages += len(n.pages)
	if n.locks == 0 {
		t.evictable += len(n.pages)
	}
	t.settle(n)
	t.settle(n.parent)
}

// hostRun is the host-only nodes that end with last, from the first, and how many pages they are.
func hostRun(last *node) (nodes []*node, pages int) {
	for n := last; !n.isRoot() && n.evicted; n = n.parent {
		nodes = append(nodes, n)
		pages += len(n.pages)
	}
	slices.Reverse(nodes)
	return nodes, pages
}

// loadBack brings the host-only end of a match back to the device, all of it or nothing: it returns the last
// node on the device and how many leading pages end there. Both are then locked once.
func (e *Engine) loadBack(last *node) (onDevice *node, hit int) {
	t := e.tree
	nodes, pages := hostRun(last)
	t.lock(last) // neither tier may evict it meanwhile
	if pages > 0 && (pages*e.cfg.BlockSize < minLoadBack || !e.room(pages)) {
		t.unlock(last)
		last = nodes[0].parent
		t.lock(last)
		return last, last.end()
	}
	for _, n := range nodes {
		t.onDevice(n)
		t.changed.copied(n, engine.MediumGPU)
	}
	e.free -= pages
	return last, last.end()
}

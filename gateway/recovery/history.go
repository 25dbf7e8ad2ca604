package recovery

import "sort"

const (
	// keptHashes is how many payload hashes of applied batches are kept to tell a repeated batch from a
	// restarted publisher's.
	keptHashes = 1024
	// coveredHashes bounds those kept beyond that while the live stream still repeats what a replay
	// brought. Engines keep 10,000 batches for replay by default.
	coveredHashes = 1 << 16
)

// history holds the payload hashes of applied batches of this incarnation, by rising sequence number. It
// may have holes, where batches were lost for good.
type history struct{ entries []entry }

type entry struct {
	seq  int64
	hash uint64
}

// add notes the batch just applied, whose sequence number is the highest yet.
func (h *history) add(seq int64, hash uint64) { h.entries = append(h.entries, entry{seq, hash}) }

// get is the payload hash of seq, if it is kept.
func (h *history) get(seq int64) (hash uint64, ok bool) {
	i := sort.Search(len(h.entries), func(i int) bool { return h.entries[i].seq >= seq })
	if i == len(h.entries) || h.entries[i].seq != seq {
		return 0, false
	}
	return h.entries[i].hash, true
}

// trim forgets the oldest hashes beyond keptHashes, but up to coveredHashes none from wanted on.
func (h *history) trim(wanted int64) {
	excess := len(h.entries) - keptHashes
	cut := 0
	for cut < excess && (h.entries[cut].seq < wanted || len(h.entries)-cut > coveredHashes) {
		cut++
	}
	// Moving the rest down costs; doing it once per keptHashes additions makes it free.
	if cut >= keptHashes || cut > 0 && cut == len(h.entries) {
		h.entries = append(h.entries[:0:0], h.entries[cut:]...)
	}
}

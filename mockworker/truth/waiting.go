package truth

// Bounds of what waits to be folded, so that whoever asks waits for a few milliseconds at most.
const (
	maxWaiting      = 64 // batches
	maxWaitingBytes = 512 << 10
)

// sent is a batch that went out.
type sent struct {
	seq, monoNs int64
	payload     []byte
}

// waiting is the batches that went out and are not folded yet, oldest first.
type waiting struct {
	batches    []sent
	bytes      int
	unreadable func(seq int64, err error) // may be nil
}

func (w *waiting) add(s sent) {
	w.batches = append(w.batches, s)
	w.bytes += len(s.payload)
}

func (w *waiting) enough() bool { return len(w.batches) >= maxWaiting || w.bytes >= maxWaitingBytes }

// clear lets go of the payloads and keeps the room.
func (w *waiting) clear() {
	clear(w.batches)
	w.batches, w.bytes = w.batches[:0], 0
}

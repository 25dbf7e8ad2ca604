package tail

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"fleetdrill/gateway/events"
)

// Replay asks an engine's replay for every batch from a number on and hands each to take, until take
// returns false or the answer ends. topic says that the answer carried the topic frame.
type Replay func(from uint64, take func(now int64, seq uint64, payload []byte) bool) (topic bool, err error)

// tailer turns what one subscription delivers into lines. It is for one goroutine.
type tailer struct {
	emit   func(Line)
	replay Replay // nil without a replay endpoint
	// past says that the replay is asked for what came before the first message of a publisher. Over gRPC
	// the subscription itself brings it.
	past bool
	// read reads a payload.
	read func(payload []byte, b *events.Batch) (layout, error)
	// left is how many batch lines are wanted, 0 for all of them; done says that they are out.
	left int
	done bool

	cursor   cursor
	ranks    ranks
	batch    events.Batch
	layout   layout
	detector detector
	topic    string
	asked    bool // the shape of replays is told
	sum      Summary
}

func newTailer(o Options, replay Replay, emit func(Line)) *tailer {
	return &tailer{emit: emit, replay: replay, past: true, read: readPayload, left: o.Count, detector: detector{algorithms: o.Algorithms}}
}

// up says that messages will arrive from here on. With a replay, what was sent before is asked for: from
// the last batch on, because one that both sides have shows whether the publisher is still the same.
func (t *tailer) up(now int64, endpoint string) {
	t.say(now, KindConnected, endpoint)
	if t.replay == nil || !t.past {
		return
	}
	if !t.cursor.placed {
		t.ask(now, 0, math.MaxUint64)
		return
	}
	last := t.cursor.next - 1
	if answered, ok := t.ask(now, last, math.MaxUint64); ok && answered == 0 {
		t.restart(now, fmt.Sprintf("the replay does not know batch %d any more", last))
		t.ask(now, 0, math.MaxUint64)
	}
}

func (t *tailer) down(now int64, err error) { t.say(now, KindDown, fmt.Sprint(err)) }

// message takes the frames of a live message.
func (t *tailer) message(now int64, frames [][]byte) {
	seq, ok := liveSeq(frames)
	if !ok {
		t.sum.Unreadable++
		t.say(now, KindMalformed, lengths(frames)+", want a topic, 8 bytes of sequence number and a payload")
		return
	}
	if topic := string(frames[0]); topic != t.topic {
		t.topic = topic
		t.say(now, KindTopic, fmt.Sprintf("%.64q", topic))
	}
	t.live(now, seq, frames[2])
}

func liveSeq(frames [][]byte) (seq uint64, ok bool) {
	if len(frames) != 3 || len(frames[1]) != 8 {
		return 0, false
	}
	seq = binary.BigEndian.Uint64(frames[1])
	return seq, seq != math.MaxUint64 // which ends replays
}

// shownFrames is how many frames of a message that is none are described.
const shownFrames = 8

// lengths describes frames by their number and the length of the first ones.
func lengths(frames [][]byte) string {
	out := make([]int, 0, shownFrames)
	for _, f := range frames[:min(len(frames), shownFrames)] {
		out = append(out, len(f))
	}
	return fmt.Sprintf("%d frames of %v bytes", len(frames), out)
}

// live puts a message in its place. Whatever the replay brings for it comes first.
func (t *tailer) live(now int64, seq uint64, payload []byte) {
	hash := xxh3.Hash(payload)
	switch t.cursor.judge(seq, hash, true) {
	case first:
		t.refill(now, 0, seq)
	case gapped:
		t.gap(now, t.cursor.next, seq)
	case late:
		t.line(now, KindLate, Line{Seq: &seq, Text: fmt.Sprintf("batch %d, which was missing", seq)})
	case restarted:
		t.restart(now, fmt.Sprintf("batch %d came as another one, behind batch %d", seq, t.cursor.next-1))
		t.refill(now, 0, seq)
	case duplicate:
		t.sum.Duplicates++
		t.line(now, KindDuplicate, Line{Seq: &seq, Text: fmt.Sprintf("batch %d once more", seq)})
		return
	case overlap:
		t.cursor.accept(seq, hash, true)
		return
	}
	if t.done {
		return
	}
	t.take(now, seq, hash, payload, SourceLive)
}

// gap tells that from..to-1 are missing and fetches them.
func (t *tailer) gap(now int64, from, to uint64) {
	n, last := to-from, to-1
	t.sum.Gaps++
	t.sum.Missing += n
	t.line(now, KindGap, Line{From: &from, To: &last, Count: &n, Text: fmt.Sprintf("%s missing", span(from, last))})
	if t.replay == nil {
		return
	}
	got, ok := t.ask(now, from, to)
	t.sum.Refilled += got
	if got > 0 {
		t.line(now, KindRefilled, Line{From: &from, To: &last, Count: &got, Text: fmt.Sprintf("%d of %s", got, span(from, last))})
	}
	if ok && !t.done && t.cursor.next < to {
		t.lost(now, t.cursor.next, last)
	}
}

// lost tells that an answer of the replay had no from..last.
func (t *tailer) lost(now int64, from, last uint64) {
	n := last - from + 1
	t.sum.Lost += n
	t.line(now, KindLost, Line{From: &from, To: &last, Count: &n, Text: span(from, last) + " in no replay"})
}

func span(from, last uint64) string {
	if from == last {
		return fmt.Sprintf("batch %d", from)
	}
	return fmt.Sprintf("batches %d..%d", from, last)
}

// refill fetches what a publisher sent before the first message that was heard of it.
func (t *tailer) refill(now int64, from, to uint64) {
	if t.replay != nil && t.past && to > from {
		t.ask(now, from, to)
	}
}

// restart forgets the publisher's last incarnation. The next one may have drawn another seed, or be another
// engine altogether.
func (t *tailer) restart(now int64, why string) {
	t.sum.Restarts++
	t.say(now, KindRestart, why)
	t.cursor = cursor{}
	t.detector.found, t.detector.looked = "", false
}

// ask takes the batches from..to-1 out of the replay, as far as they are new. answered counts all that came.
// An answer by another publisher than the one so far is taken from its beginning.
func (t *tailer) ask(now int64, from, to uint64) (answered uint64, ok bool) {
	restarts := t.sum.Restarts
	answered, ok = t.askOnce(now, from, to)
	if ok && t.sum.Restarts > restarts {
		answered, ok = t.askOnce(now, 0, to)
	}
	return answered, ok
}

func (t *tailer) askOnce(now int64, from, to uint64) (answered uint64, ok bool) {
	topic, err := t.replay(from, func(now int64, seq uint64, payload []byte) bool {
		if seq >= to || t.done {
			return false
		}
		if seq >= from {
			answered++
			if !t.replayed(now, seq, payload) {
				return false
			}
		}
		return !t.done
	})
	if err != nil {
		t.say(now, KindReplay, fmt.Sprintf("no answer for batch %d and on: %v", from, err))
		return answered, false
	}
	if !t.asked {
		t.asked = true
		t.say(now, KindReplay, shapeOf(topic, answered))
	}
	return answered, true
}

func shapeOf(topic bool, answered uint64) string {
	switch {
	case topic:
		return "answers carry the topic; as vLLM 0.26 or newer"
	case answered == 0:
		return "answers have no topic; or hold no batch"
	}
	return "answers have no topic; as vLLM before 0.26 and SGLang"
}

// replayed puts a batch of the replay in its place. It returns false when that is another publisher's.
func (t *tailer) replayed(now int64, seq uint64, payload []byte) bool {
	hash := xxh3.Hash(payload)
	switch t.cursor.judge(seq, hash, false) {
	case duplicate, overlap:
		return true
	case gapped:
		t.lost(now, t.cursor.next, seq-1)
	case restarted:
		t.restart(now, fmt.Sprintf("the replay has another batch %d", seq))
		return false
	}
	t.take(now, seq, hash, payload, SourceReplay)
	return true
}

// take accepts a batch and shows it.
func (t *tailer) take(now int64, seq, hash uint64, payload []byte, source string) {
	t.cursor.accept(seq, hash, source == SourceLive)
	if source == SourceLive {
		t.sum.Live++
	} else {
		t.sum.Replayed++
	}
	l, err := t.read(payload, &t.batch)
	if err != nil {
		t.sum.Unreadable++
		t.line(now, KindUnreadable, Line{Seq: &seq, Text: fmt.Sprintf("batch %d, %d bytes: %v", seq, len(payload), err)})
	} else {
		t.show(now, seq, payload, l, source)
	}
	if t.left--; t.left == 0 {
		t.done = true
	}
}

func (t *tailer) show(now int64, seq uint64, payload []byte, l layout, source string) {
	t.sum.Events += uint64(len(t.batch.Events))
	merged, news := t.layout.merge(l)
	if t.layout = merged; news && merged.events != "" {
		t.say(now, KindLayout, merged.sentence())
	}
	t.line(now, KindBatch, Line{Seq: &seq, Batch: describe(&t.batch, source, l.short(), len(payload))})
	if t.detector.look(&t.batch) {
		t.say(now, KindHashes, t.detector.sentence())
	}
}

// readPayload reads the msgpack of a ZMQ message.
func readPayload(payload []byte, b *events.Batch) (layout, error) {
	if err := b.Decode(payload); err != nil {
		return layout{}, err
	}
	return sniff(payload), nil
}

// end tells the sum of it all.
func (t *tailer) end(now int64) {
	t.sum.Hashes = t.detector.sentence()
	if t.layout.events != "" {
		t.sum.Layout = t.layout.sentence()
	}
	sum := t.sum
	t.line(now, KindSummary, Line{Sum: &sum, Text: sum.text()})
}

func (t *tailer) say(now int64, k Kind, text string) { t.line(now, k, Line{Text: text}) }

func (t *tailer) line(now int64, k Kind, l Line) {
	l.Kind, l.MonoNs = k, now
	if k.ofOneRank() && t.ranks.several() {
		rank := t.ranks.at
		l.Rank = &rank
	}
	t.emit(l)
}

package drills

import "fleetdrill/internal/contract"

// announcedKept is how many sequence numbers the lab keeps per rank. A gateway that is cut off stays at
// one number while its engine goes on; it is asked for once.
const announcedKept = 4096

// announced is what one rank of an engine said it had announced after batches of its present epoch, for
// comparing a gateway that is not at the engine's own number. The numbers in it are consecutive.
type announced struct {
	epoch int64
	rows  []contract.TruthDigest
}

// missing says from which number on to ask the engine so that nextSeq becomes known; ok is false when
// nothing needs to be asked: it is known, or the engine is not there yet, or at it. Another epoch makes
// everything known void.
func (a *announced) missing(epoch int64, engineNext, nextSeq int64) (from int64, ok bool) {
	if epoch != a.epoch {
		*a = announced{epoch: epoch}
	}
	if _, known := a.at(nextSeq); known || nextSeq >= engineNext {
		return 0, false
	}
	if n := len(a.rows); n > 0 && a.rows[0].Seq < nextSeq {
		return a.rows[n-1].Seq + 1, true
	}
	return nextSeq - 1, true
}

// add appends what the engine answered. A hole in front of it forgets what was before.
func (a *announced) add(rows []contract.TruthDigest) {
	for _, d := range rows {
		if n := len(a.rows); n > 0 && d.Seq != a.rows[n-1].Seq+1 {
			a.rows = a.rows[:0]
		}
		a.rows = append(a.rows, d)
	}
	if len(a.rows) > 2*announcedKept {
		a.rows = append([]contract.TruthDigest(nil), a.rows[len(a.rows)-announcedKept:]...)
	}
}

// at is what was announced when nextSeq was the next number to come; nothing was before number 0.
func (a *announced) at(nextSeq int64) (contract.TruthDigest, bool) {
	if nextSeq == 0 {
		return contract.TruthDigest{Seq: -1}, true
	}
	if len(a.rows) == 0 {
		return contract.TruthDigest{}, false
	}
	i := nextSeq - 1 - a.rows[0].Seq
	if i < 0 || i >= int64(len(a.rows)) {
		return contract.TruthDigest{}, false
	}
	return a.rows[i], true
}

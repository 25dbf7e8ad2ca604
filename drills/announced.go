package drills

import "fleetdrill/internal/contract"

// announcedKept is how many sequence numbers the lab keeps per rank: what a gateway may lag behind and
// still be compared. At the matrix's load it is some minutes.
const announcedKept = 4096

// announced is what one rank of an engine said it had announced after each batch of its present epoch,
// for comparing a gateway that is at any of them. It is a ring of consecutive sequence numbers.
type announced struct {
	epoch int64
	known bool
	rows  []contract.TruthDigest
}

// next is the first sequence number that is not known yet, for a publisher of this epoch; a new epoch
// begins anew.
func (a *announced) next(epoch int64) int64 {
	if !a.known || epoch != a.epoch {
		*a = announced{epoch: epoch, known: true}
	}
	if len(a.rows) == 0 {
		return 0
	}
	return a.rows[len(a.rows)-1].Seq + 1
}

// add appends what came after the last known number. A hole forgets what is before it.
func (a *announced) add(rows []contract.TruthDigest) {
	for _, d := range rows {
		if n := len(a.rows); n > 0 && d.Seq != a.rows[n-1].Seq+1 {
			a.rows = a.rows[:0]
		}
		a.rows = append(a.rows, d)
	}
	if extra := len(a.rows) - 2*announcedKept; extra > 0 {
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

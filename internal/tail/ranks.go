package tail

// ranks keeps the cursors of the ranks that share a stream, each with numbers of its own: over gRPC an
// engine sends all of them in one. The tailer holds the cursor of the rank at hand.
type ranks struct {
	at    int
	other map[int]cursor
}

// turn makes the cursor that of rank.
func (r *ranks) turn(c *cursor, rank int) {
	if rank == r.at {
		return
	}
	if r.other == nil {
		r.other = map[int]cursor{}
	}
	if c.placed {
		r.other[r.at] = *c
	}
	*c = r.other[rank]
	delete(r.other, rank)
	r.at = rank
}

// several says whether more than one rank was heard.
func (r *ranks) several() bool { return len(r.other) > 0 }

// maxRanks bounds the ranks of one stream: a hostile one must not make as many cursors as there are numbers.
const maxRanks = 1024

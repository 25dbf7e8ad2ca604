package linkproxy

// Outcome says how a request ended, as far as the wire shows.
type Outcome string

const (
	// OutcomeOpen: forwarded, the response is not complete.
	OutcomeOpen Outcome = "open"
	// OutcomeOK: the response is complete, whatever its status.
	OutcomeOK Outcome = "ok"
	// OutcomeReset: the upstream reset the connection before the response was complete.
	OutcomeReset Outcome = "reset"
	// OutcomeCut: the upstream closed the connection before the response was complete.
	OutcomeCut Outcome = "cut"
	// OutcomeAborted: the client left before the response was complete.
	OutcomeAborted Outcome = "aborted"
	// OutcomeRefused: the upstream accepted no connection; the request was not forwarded.
	OutcomeRefused Outcome = "refused"
	// OutcomeOpaque: the connection ended after it had left HTTP/1; how the request ended is not known.
	OutcomeOpaque Outcome = "opaque"
	// OutcomeClosed: the proxy was closed before the response was complete.
	OutcomeClosed Outcome = "closed"
)

// ending is what ended a connection.
type ending uint8

const (
	upstreamClosed ending = iota
	upstreamReset
	upstreamRefused
	clientGone
	proxyClosed
)

// change is a request's beginning, with method and path, or its end, with outcome and status. Requests
// of a connection end in the order in which they began.
type change struct {
	begin        bool
	now          int64
	method, path string
	outcome      Outcome
	status       int
}

// dialog follows the requests of one connection. It is pure: it is told what passed, in each direction
// in order, and leaves what happened to requests in changes.
//
// A request's bytes must be told before they are forwarded, a response's may be told after. Then a
// response never comes before its request.
type dialog struct {
	up, down framer
	// waiting are the requests whose response is not complete, in order.
	waiting []expect
	// opaque: the bytes are not followed any more. left: the client has closed its side. ended: the
	// connection is over, nothing more is noted.
	opaque, left, ended bool
	// changes is what happened since the caller last took it.
	changes []change
}

// expect is what a request says about its response: to HEAD it has no body, to CONNECT it is the last.
type expect struct{ head, connect bool }

func newDialog() dialog { return dialog{up: framer{request: true}} }

// request is told bytes from the client.
func (d *dialog) request(now int64, b []byte) {
	for len(b) > 0 && !d.opaque && !d.ended {
		var s step
		b, s = d.up.next(b)
		switch s {
		case stepStart:
			d.waiting = append(d.waiting, expect{d.up.method == "HEAD", d.up.method == "CONNECT"})
			d.changes = append(d.changes, change{begin: true, now: now, method: d.up.method, path: d.up.path})
		case stepHead:
			d.opaque = d.up.frame(false) == stepLost
		case stepLost:
			d.opaque = true
		}
	}
}

// response is told bytes from the upstream.
func (d *dialog) response(now int64, b []byte) {
	for len(b) > 0 && !d.opaque && !d.ended {
		var s step
		b, s = d.down.next(b)
		switch s {
		case stepStart:
			d.opaque = len(d.waiting) == 0 // an answer to nothing, such as a timeout of an idle connection
		case stepHead:
			d.responseHead(now)
		case stepEnd:
			d.endFirst(now, OutcomeOK)
		case stepLost:
			d.opaque = true
		}
	}
}

func (d *dialog) responseHead(now int64) {
	status, first := d.down.status, d.waiting[0]
	switch {
	case status == 101 || first.connect && status/100 == 2:
		d.opaque = true // from here on it is another protocol
	case status/100 == 1:
		d.down.frame(true) // an interim response: the real one follows
		d.down.status = 0
	case d.down.frame(first.head || status == 204 || status == 304) == stepEnd:
		d.endFirst(now, OutcomeOK)
	}
}

// clientLeft is told that the client has closed its side: it may still read.
func (d *dialog) clientLeft() { d.left = true }

// end is told that the connection is over, and why. Only the first call counts.
func (d *dialog) end(now int64, why ending) {
	if d.ended {
		return
	}
	// The end of the connection is the end of a response without a length, and of no other.
	if why == upstreamClosed && !d.opaque && d.down.phase == inRest {
		d.endFirst(now, OutcomeOK)
	}
	for len(d.waiting) > 0 {
		d.endFirst(now, d.outcome(why))
	}
	d.ended = true
}

func (d *dialog) outcome(why ending) Outcome {
	switch {
	case why == proxyClosed:
		return OutcomeClosed
	case why == upstreamRefused:
		return OutcomeRefused
	case d.opaque:
		return OutcomeOpaque
	case why == clientGone || d.left:
		return OutcomeAborted
	case why == upstreamReset:
		return OutcomeReset
	default:
		return OutcomeCut
	}
}

func (d *dialog) endFirst(now int64, o Outcome) {
	d.changes = append(d.changes, change{now: now, outcome: o, status: d.down.status})
	// A status read for the first request says nothing about the ones queued behind it.
	d.down.status = 0
	d.waiting = d.waiting[1:]
}

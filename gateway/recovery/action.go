package recovery

import (
	"fmt"
	"strings"
)

// kind of an action.
type kind uint8

const (
	doApply       kind = iota + 1 // apply message to the index
	doClear                       // end every membership of the holder; note says why
	doAsk                         // ask the engine's replay from seq, as call id
	doCancel                      // end the replay call, if one is open
	doResubscribe                 // drop the subscription and make a new one
	doContact                     // a new live batch arrived
	doNote                        // log a transition
)

// action is something that the shell must do, in order.
type action struct {
	kind kind
	// message of doApply. rebuilt batches are history, whose age says nothing about the stream's delay.
	message message
	rebuilt bool
	// id and from of doAsk; jitter asks the shell to wait a random moment first, because a gap that
	// several gateways saw makes them all ask, and a replay stops the engine's publishing.
	id     int64
	from   int64
	jitter bool
	// note of doNote and doClear: a word for the log, with attributes as key, value, ...
	note  string
	attrs []any
	// restart is set on the doClear of a new publisher incarnation.
	restart bool
}

// String is the action as test scripts show it.
func (a action) String() string {
	var b strings.Builder
	switch a.kind {
	case doApply:
		fmt.Fprintf(&b, "apply %d", a.message.seq)
		if !a.message.live {
			b.WriteString(" (replayed)")
		}
	case doClear:
		b.WriteString("clear")
	case doAsk:
		fmt.Fprintf(&b, "ask replay from %d", a.from)
	case doCancel:
		b.WriteString("cancel replay")
	case doResubscribe:
		b.WriteString("subscribe anew")
	case doContact:
		b.WriteString("contact")
	case doNote:
		b.WriteString("note " + a.note)
		for i := 0; i+1 < len(a.attrs); i += 2 {
			fmt.Fprintf(&b, " %v=%v", a.attrs[i], a.attrs[i+1])
		}
	}
	return b.String()
}

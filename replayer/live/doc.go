// Package live replays a plan against real processes: a fleet of mock workers and a gateway that it starts,
// or a gateway that runs already.
//
// The one idea: the client sees only its half of a request. The other half (when the engine took it, how
// much it had cached, what every engine held at that instant) is read from the engines' truth while the load
// runs, and joined by request id when it is over. The joining is pure; what is counted is package result.
//
// A gateway tells nobody from outside when it placed a request. The nearest instant that can be seen is the
// request's arrival at its engine, a forwarding time later, and that is what the best holder is asked for:
// blocks announced within the forwarding time count as if the gateway could have known them, so the hit ratio
// errs on the low side.
package live

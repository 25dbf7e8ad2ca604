// Package recovery keeps one holder's index equal to what its engine announced, over a wire that drops,
// repeats and restarts.
//
// cursor.go and its neighbours are a pure state machine: connection changes, messages, replayed batches
// and ticks go in with the time, actions come out (apply this batch, clear, ask the engine's replay,
// subscribe anew). subscription.go is the thin shell: one goroutine per (worker, rank) that owns the
// sockets, carries out the actions and applies batches. What a payload means is known in gateway/events,
// what an engine hash stands for in gateway/index.
//
// The one idea to know: a sequence number says nothing about who sent it. Restarted publishers count from
// zero again and may have passed the old cursor before anyone listens. So every join of two streams, live
// to live over a reconnect or live to replay over a gap, goes over one batch that both sides have and
// whose payload hash must agree.
package recovery

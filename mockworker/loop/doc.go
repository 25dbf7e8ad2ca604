// Package loop runs one engine in real time: it takes requests in, sleeps while a step lasts, hands out
// the tokens and gives the events to the publisher.
//
// The one idea to know: one goroutine owns the engine and nobody else touches it. Everybody else leaves
// letters (a request, an abort, a question to ask at a step boundary) in a mailbox, and reads its own
// Stream or a snapshot. An idle loop is blocked on the mailbox and costs nothing.
//
// A frozen loop (pause, wedge) is one that does not step. It goes on answering questions, so that truth can
// be told about an engine that hangs; a paused one also takes requests in, a wedged one leaves them lying.
//
// What a step does and how long it lasts is decided in mockworker/engine, which is pure; how a token looks
// to a client is mockworker/api.
package loop

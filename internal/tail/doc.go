// Package tail follows one engine's KV events and says what it sees: every batch, and every gap,
// duplicate and restart in the moment it shows.
//
// cursor.go judges sequence numbers, layout.go recognises a payload's layout, hashes.go the algorithm
// behind its hashes; all three are pure. tail.go puts them together, with the replay handed in as a
// function. run.go is the thin shell with the sockets and record.go writes a capture. What a batch means
// is read by gateway/events, so that tail shows what the gateway understands.
//
// The one idea to know: nothing here decides anything for anybody. A judgement that could be wrong, such
// as a restart that looks like a late batch, costs a line and no state but the cursor's own.
package tail

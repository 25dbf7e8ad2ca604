// Package admin is a mock worker's admin port: what is resident in its engines, what was announced, which
// requests it served, and what is broken on purpose. Documents are internal/contract's; long ones are JSON
// lines.
//
// The one idea to know: resident and announced are compared only at a step boundary with the publisher
// drained. A question is therefore asked through the loop's mailbox and waits for the end of the running
// step; without that every step in flight would look like unannounced blocks. Only the summary does not
// wait for long, because a sampler would rather have a resident count that is old than none.
package admin

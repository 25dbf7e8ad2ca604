// Package admin is a mock worker's admin port: what is resident in its engines, what was announced, and
// which requests it served. Documents are internal/contract's; long ones are JSON lines.
//
// The one idea to know: resident and announced are compared only at a step boundary with the publisher
// drained. A question is therefore asked through the loop's mailbox and waits for the end of the running
// step; without that every step in flight would look like unannounced blocks.
package admin

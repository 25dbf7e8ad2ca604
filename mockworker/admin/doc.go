// Package admin is a mock worker's admin port: what is resident in its engines, what was announced, which
// requests it served, and what is broken on purpose. Documents are internal/contract's; long ones are JSON
// lines.
//
// The one idea to know: resident and announced are compared as of the last step boundary, with the publisher
// drained; without that every step in flight would look like unannounced blocks. The answer does not wait for
// a boundary: while a step lasts the engine stands still, and what that step stored and removed is taken back
// from what it holds.
package admin

// Package wire writes KV-event batches as a given engine version puts them on the wire, byte for byte.
//
// A profile is a table: the shape of the batch, which fields each event has in which order, and when a
// field is left out. Fields and bytes live here; frames, sequence numbers and sockets do not.
//
// The one idea to know: in map-shaped events a field with a default is left out while it has that
// default, and every other field is always there, nil included. Typed decoders reject an event that
// drops a required nil. Array-shaped events have a fixed length per version: a default is nil there.
package wire

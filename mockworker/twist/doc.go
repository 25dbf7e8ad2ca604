// Package twist turns an event batch into one that surprises its readers: in each way that somebody met in
// the field and reported, and only in that way.
//
// The one idea to know: it works on the payload an engine would send, so every other byte stays what that
// engine version puts on the wire, whatever the version. A batch is a small tree of MessagePack values whose
// leaves are the bytes they were read from.
//
// It is pure. Which batch is to be twisted is mockworker/faults, who sends it is mockworker/publish.
package twist

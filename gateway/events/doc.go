// Package events turns the payload of an engine's KV-event message into ordered operations on an index.
//
// Two steps, both pure. Decode reads bytes of every engine layout (array and map events, two- and
// three-element batches, map-shaped batches, integer and byte hashes, signed and unsigned) into one
// model. A Normalizer, one per (worker, rank), decides which events describe blocks that a request can be
// matched against, and gives each block its content hash. Sequence numbers, gaps and restarts are not
// known here (see gateway/recovery), nor is what a holder has (see gateway/index).
//
// The one idea to know: nothing is fatal. A field that cannot be read costs its event, a payload that
// cannot be read is an empty batch, and each loss is counted under a reason from the closed list in
// internal/contract, so that a sequence never tears because of one strange byte.
package events

// Package badjson says what is wrong with somebody's JSON in the words of JSON, where encoding/json uses those
// of Go types, which mean nothing to who sent it.
//
// Not here: reading JSON, and what a value must be beyond its type.
package badjson

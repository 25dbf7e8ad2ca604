// Package trace reads recorded request traces and turns their rows into prompts and arrival instants. It
// measures them, and it makes new ones of the same shape from a seed.
//
// A row says when a request came, how long prompt and answer were, and which blocks of 512 tokens the
// prompt begins with, by id; what anyone wrote is not in it. The one idea: an id stands for the block and
// for everything before it, so equal leading ids are a shared prefix, and an id always gives the same 512
// token ids. A replay thereby has the trace's sharing at any block size of an engine.
//
// Everything but Reader and the files is pure. Sending is the business of replayer/load, model caches
// that say what reuse was possible are in package oracle.
package trace

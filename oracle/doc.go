// Package oracle says what is right: a reference index that others are tested against, and the comparison
// of a gateway's index with what its engines announced, block for block.
//
// It shares no code with the gateway, because a judge that is built from the judged's parts repeats their
// mistakes. What it needs of a running fleet it reads over HTTP in the words of internal/contract.
//
// The one idea to know: an index under live traffic can only be compared at one instant, and the instant
// that both sides know is a sequence number. The gateway's dump names the last one it applied; the engine
// undoes its journal to that number.
package oracle

// Package api is a mock worker's OpenAI-compatible port, in the shapes of a vLLM server: status codes, error
// JSON, stream chunks and their null fields included.
//
// The one idea to know: a handler never waits for the engine while holding anything the engine needs. It
// submits, then waits for its own stream or for the client to go. Tokens are formatted by hand into one
// buffer and written one by one; the loop's delivery goroutine does that for all streams in turn with calls
// that cannot block (outlet), so that a token costs a copy and a write and a client that does not read
// costs nobody else anything.
//
// With Options.SGLang the port has the routes and shapes of an SGLang server instead (sglang*.go), over the same
// streams.
//
// Documented differences from a real server: usage tells cached tokens by default, token ids stand for short
// words (internal/tokens), log probabilities are made up (logprobs.go), and generations end only at their length.
package api

// Package api is a mock worker's OpenAI-compatible port, in the shapes of a vLLM server: status codes, error
// JSON, stream chunks and their null fields included.
//
// The one idea to know: a handler never waits for the engine while holding anything the engine needs. It
// submits, then waits for its own stream or for the client to go; tokens are formatted by hand into one
// buffer and flushed one by one, so a chunk costs a copy and a write.
//
// Documented differences from a real server: usage tells cached tokens by default, token ids stand for short
// words (internal/tokens), one prompt per request, and generations end only at their length.
package api

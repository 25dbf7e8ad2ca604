// Package mockworker assembles mock workers: each has an OpenAI-compatible port like a vLLM server's, per
// data-parallel rank a KV-event publisher, perhaps vLLM's gRPC port, and an admin port that tells the truth
// about it.
//
// What a worker does is elsewhere: engine decides (pure), loop runs the engine in real time, publish, api,
// enginegrpc and admin are its faces, truth its memory. Here are the configuration, the order in which things
// start and stop, and nothing else. One process holds one or more workers.
package mockworker

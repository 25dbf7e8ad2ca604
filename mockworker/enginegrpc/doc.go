// Package enginegrpc is the gRPC port of a mock worker: vLLM's service VllmEngine, as its published servicer
// answers it, in front of the same engines that the HTTP port has.
//
// generate.go serves Generate and abort.go finds the requests that Abort names; info.go tells models, loads
// and health; subscribe.go streams KV events. msgpack.go, event.go and convert.go are pure: they turn the
// payload of an event batch, the bytes that ZMQ subscribers get, into messages.
//
// The one idea to know: nothing about the cache is known here but what the payloads say. Whatever a fault
// does to a batch, to its bytes or to its place in the stream, it does to gRPC subscribers too, and what a
// version's wire does not tell is in no message either, as behind a real engine.
package enginegrpc

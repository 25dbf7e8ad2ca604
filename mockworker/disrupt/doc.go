// Package disrupt is what is broken on purpose in front of a worker's API port: the listening socket, the
// health paths, requests before their first byte, and the process as a whole.
//
// The one idea to know: nothing here knows the engine, and nothing in the engine knows this. A Port is a
// net.Listener and a Handler an http.Handler, so the steps go on whatever happens to clients. Which fault
// acts on whom is decided in mockworker/faults; streams are cut in mockworker/api, which alone can count
// tokens.
package disrupt

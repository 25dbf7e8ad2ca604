// Package published sets the mock engine beside the published fleet: four vLLM engines of Qwen3-8B on real
// accelerators, of which public figures exist for two pools under two policies.
//
// The one idea to know: only the full pool is fitted. What the same profile then says of the small pool is a
// prediction, and shows what the model does not know.
//
// The published runs replayed a trace of 23,608 rows that is not at hand. Any other trace has other prompts,
// so levels differ where prompts fill the pool, and reuse is the trace's own.
//
// Fits to recorded runs of one engine are mockworker/fit; this package needs a gateway too, so it stands
// beside the simulator that has both.
package published

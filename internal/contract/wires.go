package contract

// Wires are the engine versions that a mock worker can speak like, oldest first: what its --wire takes. An
// SGLang wire comes with SGLang's scheduler, cache and HTTP surface.
var Wires = []string{"vllm-0.9", "vllm-0.11", "vllm-0.15", "vllm-0.23", DefaultWire, "vllm-0.28", "vllm-0.32", "sglang-array", "sglang-map"}

// DefaultWire is that of a mock worker that was told none.
const DefaultWire = "vllm-0.25"

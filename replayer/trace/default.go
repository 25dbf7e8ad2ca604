package trace

import (
	"bytes"
	_ "embed" // for defaultTrace
	"fmt"
)

// defaultTrace is the trace used when no file is named. It is made by
//
//	fleetdrill trace generate --seed 1 --rows 900 --span 270s --clients 32 --max-input 126195 --out replayer/trace/default.jsonl.gz
//
//go:embed default.jsonl.gz
var defaultTrace []byte

// Default opens the trace that is built in: DefaultShape as Generate writes it, so that nothing needs a
// download.
func Default(o Options) (*Reader, error) {
	src, _, err := decompress(bytes.NewReader(defaultTrace), "default.jsonl.gz")
	if err != nil {
		return nil, fmt.Errorf("opening the built-in trace: %w", err)
	}
	return NewReader(src, "built-in", o), nil
}

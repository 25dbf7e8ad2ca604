package mockworker

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Whose load reports a worker's are like.
const (
	loadsFull = "full"
	loadsVLLM = "vllm"
)

// LoadsConfig is what a worker tells of its load.
type LoadsConfig struct {
	// LoadsLike is loadsFull or loadsVLLM.
	LoadsLike string
}

func addLoadsFlags(fs *pflag.FlagSet, c *LoadsConfig) {
	fs.StringVar(&c.LoadsLike, "loads-like", loadsFull, "load reports: full, or vllm, whose reports have no used tokens, generation rate or hit rate")
}

// FullLoads says whether reports tell all that the engine knows.
func (c LoadsConfig) FullLoads() bool { return c.LoadsLike == loadsFull }

func (c LoadsConfig) checkLoads() error {
	if c.LoadsLike != loadsFull && c.LoadsLike != loadsVLLM {
		return fmt.Errorf("--loads-like is %q, must be %s or %s", c.LoadsLike, loadsFull, loadsVLLM)
	}
	return nil
}

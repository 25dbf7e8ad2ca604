package mockworker

import (
	"fmt"

	"github.com/spf13/pflag"

	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/wire"
)

// EngineConfig chooses among what schedulers and caches of vLLM do: how they are set up, and what newer
// versions and other models have.
type EngineConfig struct {
	SchedulingPolicy          string
	LongPrefillTokenThreshold int
	ReserveFullISL            bool
	Watermark                 float64
	KVCacheGroups             string
	RetentionInterval         int
	HostBlocks                int
	HostDescribed             bool
}

func addEngineFlags(fs *pflag.FlagSet, c *EngineConfig) {
	fs.StringVar(&c.SchedulingPolicy, "scheduling-policy", engine.PolicyFCFS, "fcfs, or priority: the lowest priority of a request first, equals as they arrived; the highest and latest is preempted first")
	fs.IntVar(&c.LongPrefillTokenThreshold, "long-prefill-token-threshold", 0, "most tokens of one prompt in a step; 0 = only the step's own limit")
	fs.BoolVar(&c.ReserveFullISL, "scheduler-reserve-full-isl", false, "admit a request only when its whole prompt fits into the free blocks, as newer engines do; otherwise when its first chunk does")
	fs.Float64Var(&c.Watermark, "watermark", 0, "share of the blocks that an admission leaves free while other requests run")
	fs.StringVar(&c.KVCacheGroups, "kv-cache-groups", "", "cache groups of a hybrid model in order of their index: full, mla, sink or swa:WINDOW, a window's block size behind @, as swa:1024,swa:1024@32,full; empty = one of full attention")
	fs.IntVar(&c.RetentionInterval, "kv-cache-retention-interval", 0, "tokens between the places where a window group keeps blocks for hits; 0 = the least common multiple of the block sizes")
	fs.IntVar(&c.HostBlocks, "host-blocks", 0, "blocks of a host tier, which takes what the device evicts and gives it back on a hit; 0 = none")
	fs.BoolVar(&c.HostDescribed, "host-events-described", false, "stores of the host tier tell tokens, block size and parent; otherwise only hashes, as vLLM's do")
}

// lookUpCache adds these choices to the engine of the plan.
func (p *plan) lookUpCache() (err error) {
	c := &p.engine
	c.SchedulingPolicy, c.LongPrefillTokenThreshold = p.SchedulingPolicy, p.LongPrefillTokenThreshold
	c.ReserveFullISL, c.Watermark = p.ReserveFullISL, p.Watermark
	c.RetentionInterval, c.HostBlocks, c.HostDescribed = p.RetentionInterval, p.HostBlocks, p.HostDescribed
	if c.Groups, err = engine.ParseGroups(p.KVCacheGroups, c.BlockSize); err != nil {
		return fmt.Errorf("--kv-cache-groups: %w", err)
	}
	plain := len(c.Groups) == 0 || len(c.Groups) == 1 && c.Groups[0].Window == 0
	if !plain && p.KVEventsConfig != "" && !wire.HasGroups(p.Wire) {
		return fmt.Errorf("--kv-cache-groups with --wire %s: its events do not tell groups apart; the first that do are vllm-0.23's", p.Wire)
	}
	if p.HostBlocks < 0 || p.HostBlocks > 1<<24 {
		return fmt.Errorf("--host-blocks is %d, must be from 0 to %d", p.HostBlocks, 1<<24)
	}
	if err := c.Validate(); err != nil {
		return fmt.Errorf("--scheduling-policy, --kv-cache-groups, --host-blocks and what goes with them: %w", err)
	}
	return nil
}

package mockworker

import (
	"fmt"

	"github.com/spf13/pflag"

	"fleetdrill/mockworker/late"
)

// FaultConfig is how a worker misbehaves from its start on, as engines in the field do all the time. What is
// broken while it runs is on the admin port.
type FaultConfig struct {
	// LateRemovals holds the removals that the engine announces.
	LateRemovals late.Options
}

func addFaultFlags(fs *pflag.FlagSet, c *FaultConfig) {
	fs.DurationVar(&c.LateRemovals.By, "late-removals-by", 0, "announce the removal of a block so much later; 0 = with its step")
	fs.IntVar(&c.LateRemovals.Steps, "late-removals-steps", 0, "announce the removal of a block so many steps later, or a second after the last step; 0 = with its step")
}

func (c *FaultConfig) check() error {
	if err := c.LateRemovals.Validate(); err != nil {
		return fmt.Errorf("--late-removals-by, --late-removals-steps: %w", err)
	}
	return nil
}

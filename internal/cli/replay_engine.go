package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"fleetdrill/mockworker/late"
)

// engineOptions are the flags of a replay that make its engines unlike their profile. They have the names of
// the worker's own.
type engineOptions struct {
	maxNumSeqs, maxBatchedTokens int
	reserveFull                  bool
	late                         late.Options
}

// engineFlags are their names.
var engineFlags = [...]string{"max-num-seqs", "max-num-batched-tokens", "scheduler-reserve-full-isl", "late-removals-by", "late-removals-steps"}

func (o *engineOptions) add(f *pflag.FlagSet) {
	f.IntVar(&o.maxNumSeqs, "max-num-seqs", 0, "sequences that an engine runs at once; 0 = the profile's")
	f.IntVar(&o.maxBatchedTokens, "max-num-batched-tokens", 0, "tokens that an engine computes in a step; 0 = the profile's")
	f.BoolVar(&o.reserveFull, "scheduler-reserve-full-isl", false, "engines admit a request only when its whole prompt fits into the free blocks")
	f.DurationVar(&o.late.By, "late-removals-by", 0, "engines announce the removal of a block so much later")
	f.IntVar(&o.late.Steps, "late-removals-steps", 0, "engines announce the removal of a block so many steps later")
}

func (o *engineOptions) check() error {
	if o.maxNumSeqs < 0 || o.maxBatchedTokens < 0 {
		return fmt.Errorf("--max-num-seqs %d, --max-num-batched-tokens %d: must not be negative", o.maxNumSeqs, o.maxBatchedTokens)
	}
	if err := o.late.Validate(); err != nil {
		return fmt.Errorf("--late-removals-by, --late-removals-steps: %w", err)
	}
	return nil
}

// args are the flags of a live worker.
func (o *engineOptions) args() []string {
	var args []string
	if o.maxNumSeqs > 0 {
		args = append(args, "--max-num-seqs", strconv.Itoa(o.maxNumSeqs))
	}
	if o.maxBatchedTokens > 0 {
		args = append(args, "--max-num-batched-tokens", strconv.Itoa(o.maxBatchedTokens))
	}
	if o.reserveFull {
		args = append(args, "--scheduler-reserve-full-isl")
	}
	if o.late.By > 0 {
		args = append(args, "--late-removals-by", o.late.By.String())
	}
	if o.late.Steps > 0 {
		args = append(args, "--late-removals-steps", strconv.Itoa(o.late.Steps))
	}
	return args
}

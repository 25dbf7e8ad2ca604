package recovery

import (
	"slices"
	"sync/atomic"

	"fleetdrill/internal/contract"
)

// handicaps are the parts of a cursor that are switched off on purpose, so that a drill can show that it
// fails without them.
type handicaps struct {
	// gapRecoveryOff: a gap is passed over and what is missing is never asked for.
	gapRecoveryOff bool
	// restartBlind: a lower sequence is stale, whoever sent it, and the old memberships stay.
	restartBlind bool
}

// wanted is what the shell was told last; the run loop takes it over with the next input.
type wanted struct {
	gapRecoveryOff, restartBlind atomic.Bool
	// lagBlind is none of the cursor's business: the apply lag is shown as zero.
	lagBlind atomic.Bool
}

func (w *wanted) get() handicaps {
	return handicaps{gapRecoveryOff: w.gapRecoveryOff.Load(), restartBlind: w.restartBlind.Load()}
}

// Handicap switches on exactly those handicaps of the list that concern event streams (contract.Handicaps),
// from the next batch on; what is only shown, from now on.
func (s *Subscription) Handicap(on []string) {
	s.wanted.gapRecoveryOff.Store(slices.Contains(on, contract.HandicapGapRecoveryOff))
	s.wanted.restartBlind.Store(slices.Contains(on, contract.HandicapRestartBlind))
	s.wanted.lagBlind.Store(slices.Contains(on, contract.HandicapLagBlind))
}

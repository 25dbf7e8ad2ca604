package state

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"fleetdrill/internal/contract"
)

// handicaps is the set of switched-on handicaps.
type handicaps struct {
	apply func(on []string)
	log   *slog.Logger

	mu sync.Mutex // guards on, and orders apply
	on []string
}

// set replaces the whole set, so that a lab can say what it wants without knowing what was.
func (h *handicaps) set(names []string) error {
	for _, name := range names {
		if !slices.Contains(contract.Handicaps, name) {
			return fmt.Errorf("handicap %q is not one of %s", name, strings.Join(contract.Handicaps, ", "))
		}
	}
	on := slices.Clone(names)
	slices.Sort(on)
	on = slices.Compact(on)
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.on
	h.on = on
	h.apply(on)
	switch {
	case len(on) > 0:
		// Loud, because a gateway that is broken on purpose must never be mistaken for a sound one.
		h.log.Warn("HANDICAPPED: this gateway is broken on purpose", "handicaps", on)
	case len(before) > 0:
		h.log.Warn("no longer handicapped", "handicaps", before)
	}
	return nil
}

func (h *handicaps) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.on...)
}

func (s *Server) putHandicaps(w http.ResponseWriter, r *http.Request) {
	var in contract.RoutingHandicaps
	if !read(w, r, &in) {
		return
	}
	if err := s.handicaps.set(in.Handicaps); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	write(w, http.StatusOK, contract.RoutingHandicaps{Handicaps: s.handicaps.list()})
}

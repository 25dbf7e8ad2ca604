package loop

import (
	"maps"
	"slices"
	"strings"
)

// adapters counts the requests of each LoRA adapter, on the loop goroutine. A worker without adapters pays
// a comparison per request.
type adapters struct {
	counts           map[string]*adapterCount
	running, waiting string
}

type adapterCount struct{ running, waiting int }

func (a *adapters) add(s *Stream) {
	if s.adapter == "" {
		return
	}
	c := a.counts[s.adapter]
	if c == nil {
		if a.counts == nil {
			a.counts = map[string]*adapterCount{}
		}
		c = &adapterCount{}
		a.counts[s.adapter] = c
	}
	c.waiting++
	a.tell()
}

// start moves a request with its first token from the waiting to the running ones.
func (a *adapters) start(s *Stream) {
	if c := a.counts[s.adapter]; c != nil && s.adapter != "" && !s.started {
		s.started = true
		c.waiting, c.running = c.waiting-1, c.running+1
		a.tell()
	}
}

func (a *adapters) drop(s *Stream) {
	c := a.counts[s.adapter]
	if c == nil {
		return
	}
	if s.started {
		c.running--
	} else {
		c.waiting--
	}
	if *c == (adapterCount{}) {
		delete(a.counts, s.adapter)
	}
	a.tell()
}

func (a *adapters) tell() {
	a.running = a.names(func(c *adapterCount) int { return c.running })
	a.waiting = a.names(func(c *adapterCount) int { return c.waiting })
}

func (a *adapters) names(count func(*adapterCount) int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(a.counts)) {
		if count(a.counts[name]) > 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, ",")
}

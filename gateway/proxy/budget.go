package proxy

import "time"

const (
	budgetSeconds = 10
	budgetShare   = 0.2
	budgetMin     = 10
)

// budget bounds retries over the whole fleet: within the last ten seconds no more than a fifth of the
// requests, but at least ten, so that a sick fleet is not asked three times as much. It is a sliding
// window of one-second slots; the zero value is empty. Not safe for concurrent use.
type budget struct {
	slots [budgetSeconds]struct {
		second            int64
		requests, retries int
	}
}

func (b *budget) slot(now int64) *struct {
	second            int64
	requests, retries int
} {
	second := now / int64(time.Second)
	s := &b.slots[second%budgetSeconds]
	if s.second != second {
		s.second, s.requests, s.retries = second, 0, 0
	}
	return s
}

// request counts a request.
func (b *budget) request(now int64) { b.slot(now).requests++ }

// retry takes one retry from the budget, if there is one.
func (b *budget) retry(now int64) bool {
	s := b.slot(now)
	requests, retries := 0, 0
	for _, o := range b.slots {
		if s.second-o.second < budgetSeconds {
			requests += o.requests
			retries += o.retries
		}
	}
	if float64(retries) >= max(budgetMin, budgetShare*float64(requests)) {
		return false
	}
	s.retries++
	return true
}

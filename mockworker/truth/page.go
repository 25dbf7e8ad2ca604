package truth

import (
	"sort"

	"fleetdrill/mockworker/ring"
)

// page copies items of r from the first one for which reached holds, oldest first, into dst[:0] up to its
// capacity. reached must be monotone over the ring.
func page[T any](r *ring.Ring[T], dst []T, reached func(*T) bool) []T {
	dst = dst[:0]
	first := sort.Search(r.Len(), func(i int) bool { return reached(r.At(i)) })
	for i := first; i < r.Len() && len(dst) < cap(dst); i++ {
		dst = append(dst, *r.At(i))
	}
	return dst
}

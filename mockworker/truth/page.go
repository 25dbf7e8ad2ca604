package truth

import "sort"

// page copies items of r from the first one for which reached holds, oldest first, into dst[:0] up to its
// capacity. reached must be monotone over the ring.
func page[T any](r *ring[T], dst []T, reached func(*T) bool) []T {
	dst = dst[:0]
	first := sort.Search(r.n, func(i int) bool { return reached(r.at(i)) })
	for i := first; i < r.n && len(dst) < cap(dst); i++ {
		dst = append(dst, *r.at(i))
	}
	return dst
}

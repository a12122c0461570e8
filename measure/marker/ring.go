package marker

// ring keeps the newest values of a stream; its size is a power of two.
type ring[T any] struct {
	buf []T
	n   int64 // values pushed so far
}

func newRing[T any](least int) ring[T] {
	size := 1
	for size < least {
		size *= 2
	}
	return ring[T]{buf: make([]T, size)}
}

func (r *ring[T]) push(v T) {
	r.buf[r.n&int64(len(r.buf)-1)] = v
	r.n++
}

// at returns value i of the stream, which must not be older than first.
func (r *ring[T]) at(i int64) *T { return &r.buf[i&int64(len(r.buf)-1)] }

// first is the number of the oldest value kept.
func (r *ring[T]) first() int64 { return max(0, r.n-int64(len(r.buf))) }

func (r *ring[T]) clear() { r.n = 0 }

package wire

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// Smallest and largest pooled buffer, as powers of two: 4 KiB and 16 MiB.
const (
	minClass = 12
	maxClass = 24
)

// pool holds receive buffers by powers of two. Unlike gRPC's own it has sizes
// between 32 KiB and 1 MiB, where chunks lie, and does not clear what is
// about to be overwritten.
var pool mem.BufferPool = &dirtyPool{}

type dirtyPool struct {
	classes [maxClass + 1]sync.Pool
}

// Get returns a buffer of length n, with anything in it.
func (p *dirtyPool) Get(n int) *[]byte {
	class := max(minClass, bits.Len(uint(max(n, 1)-1)))
	if class > maxClass {
		b := make([]byte, n)
		return &b
	}
	if b, ok := p.classes[class].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, 1<<class)
	return &b
}

// Put gives a buffer back; what is not of a pooled size is left to the collector.
func (p *dirtyPool) Put(b *[]byte) {
	c := cap(*b)
	class := bits.Len(uint(c)) - 1
	if c == 0 || class < minClass || class > maxClass || c != 1<<class {
		return
	}
	p.classes[class].Put(b)
}

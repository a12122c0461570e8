package cupti

import (
	"bytes"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxName bounds a kernel's name; templates make long ones.
const maxName = 1 << 14

// at is memory that belongs to CUPTI, not to Go.
func at(address uintptr, n int) []byte {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address)) // not Go's: nothing for the collector
	return unsafe.Slice((*byte)(p), n)
}

// cName is the name at an address, without a copy; nil for none.
func cName(address uintptr) []byte {
	if address == 0 {
		return nil
	}
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	n := 0
	for n < maxName && *(*byte)(unsafe.Add(p, n)) != 0 { // no further than its end
		n++
	}
	return at(address, n)
}

func cString(p *byte) string {
	return string(bytes.Clone(cName(uintptr(unsafe.Pointer(p)))))
}

// pool keeps the buffers that CUPTI fills; they are the kernel's pages, not Go's.
// It has a lock of its own: the program's thread, which waits for an empty buffer,
// must not wait until a full one is read.
type pool struct {
	mu   sync.Mutex
	free []uintptr
	size int
	made int
}

// get returns a buffer, 0 where there is no memory.
func (p *pool) get() uintptr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b
	}
	return p.make()
}

// make maps a buffer with its pages in place: each would else be a fault of the
// program's thread.
func (p *pool) make() uintptr {
	b, err := unix.Mmap(-1, 0, p.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		return 0
	}
	p.made++
	return uintptr(unsafe.Pointer(&b[0]))
}

func (p *pool) put(b uintptr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, b)
}

// lent is how many buffers CUPTI holds.
func (p *pool) lent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made - len(p.free)
}

// stock sees to it that n buffers are at hand, off the program's thread.
func (p *pool) stock(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.free) < n {
		b := p.make()
		if b == 0 {
			return
		}
		p.free = append(p.free, b)
	}
}

package cupti

import (
	"bytes"
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
type pool struct {
	free []uintptr
	size int
	made int
}

// get returns a buffer, 0 where there is no memory.
func (p *pool) get() uintptr {
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b
	}
	b, err := unix.Mmap(-1, 0, p.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0
	}
	p.made++
	return uintptr(unsafe.Pointer(&b[0]))
}

func (p *pool) put(b uintptr) { p.free = append(p.free, b) }

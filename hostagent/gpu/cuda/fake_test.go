package cuda

import (
	"context"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
)

// fakeGPU is a driver in Go: it keeps memory, knows the entries of the PTX it
// was given, and runs the product's kernels as far as the host can see them.
type fakeGPU struct {
	mu      sync.Mutex
	log     []string          // calls, in order
	fail    map[string]result // calls that fail
	jitLog  string
	mem     map[uint64][]byte
	next    uint64
	fns     map[uintptr]string
	pinned  []*[8]byte
	skew    time.Duration // of the GPU's clock against the host's
	hang    bool          // timed kernels run until they are told to stop
	running func() bool   // nil when idle
	polls   int
	grids   map[string][3]uint32
	scalars []uint32
	levels  []uintptr                   // of the compiler, one a module
	entries map[string]func(fakeLaunch) // programs: what they do with their 64-bit parameters
	streams []uintptr                   // of launches, where callers is used
	args    int                         // how many these have
}

// fakeLaunch is one launch of a program.
type fakeLaunch struct {
	grid, block [3]uint32
	args        []uint64
}

// open opens a GPU of a driver, attach a program's context there.
func open(ctx context.Context, drv *driver, selector string) (*Device, error) {
	d := Find(selector, gpu.Info{})
	d.drv = drv
	return opened(ctx, d, nil)
}

func opened(ctx context.Context, d *Device, err error) (*Device, error) {
	if err == nil {
		err = d.Open(ctx)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

func attach(ctx context.Context, drv *driver, c Caller) (*Device, error) {
	d, err := findCaller(drv, c)
	return opened(ctx, d, err)
}

func newFakeGPU() *fakeGPU {
	return &fakeGPU{
		fail: map[string]result{}, mem: map[uint64][]byte{}, next: 0x7000_0000_0000,
		fns: map[uintptr]string{}, skew: 12345 * time.Second, grids: map[string][3]uint32{},
	}
}

func (g *fakeGPU) call(name string) result {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log = append(g.log, name)
	return g.fail[name]
}

func (g *fakeGPU) now() uint64 { return uint64(time.Now().Add(g.skew).UnixNano()) }

// bytes returns the memory behind a device address.
func (g *fakeGPU) bytes(p uint64) []byte {
	for _, base := range slices.Sorted(maps.Keys(g.mem)) {
		if b := g.mem[base]; p >= base && p < base+uint64(len(b)) {
			return b[p-base:]
		}
	}
	panic("access outside of any buffer")
}

func put(dst *byte, size int32, s string) {
	copy(unsafe.Slice(dst, size), s+"\x00")
}

var fakeErrors = map[result][2]*byte{
	100: {dl.CString("CUDA_ERROR_NO_DEVICE"), dl.CString("no CUDA-capable device is detected")},
	218: {dl.CString("CUDA_ERROR_INVALID_PTX"), dl.CString("a PTX JIT compilation failed")},
	2:   {dl.CString("CUDA_ERROR_OUT_OF_MEMORY"), dl.CString("out of memory")},
	700: {dl.CString("CUDA_ERROR_ILLEGAL_ADDRESS"), dl.CString("an illegal memory access was encountered")},
}

func (g *fakeGPU) driver() *driver {
	d := &driver{
		Init:             func(uint32) result { return g.call("init") },
		DriverGetVersion: func(v *int32) result { *v = 13000; return g.call("version") },
		ErrorName: func(r result, s **byte) result {
			*s = fakeErrors[r][0]
			return success
		},
		ErrorString: func(r result, s **byte) result {
			*s = fakeErrors[r][1]
			return success
		},
		DeviceCount: func(n *int32) result { *n = 2; return g.call("count") },
		DeviceGet:   func(dev *int32, i int32) result { *dev = 40 + i; return g.call("get") },
		DeviceName:  func(p *byte, n, dev int32) result { put(p, n, "Fake GPU"); return g.call("name") },
		DeviceUUID: func(u *[16]byte, dev int32) result {
			u[0], u[15] = 0xAB, byte(dev-40)
			return g.call("uuid")
		},
		DevicePCIBusID: func(p *byte, n, dev int32) result {
			put(p, n, []string{"0000:3B:00.0", "0000:65:00.0"}[dev-40])
			return g.call("pci")
		},
		DeviceAttribute: func(v *int32, a, dev int32) result {
			*v = map[int32]int32{attrSMs: 4, attrMajor: 9, attrMinor: 0}[a]
			return g.call("attribute")
		},
		PrimaryRetain:  func(c *uintptr, dev int32) result { *c = 0xC; return g.call("retain") },
		PrimaryRelease: func(int32) result { return g.call("release") },
		CtxSetCurrent:  func(uintptr) result { return g.call("current") },
		ModuleUnload:   func(uintptr) result { return g.call("unload") },
		Occupancy:      func(b *int32, _ uintptr, _ int32, _ uintptr) result { *b = 5; return g.call("occupancy") },
		StreamCreate:   func(s *uintptr, _ uint32) result { *s = 0x5; return g.call("stream") },
		StreamDestroy:  func(uintptr) result { return g.call("destroy") },
		MemInfo: func(free, total *uintptr) result {
			*free, *total = 1<<28, 1<<30
			return g.call("info")
		},
	}
	g.memory(d)
	g.execution(d)
	return d
}

func (g *fakeGPU) memory(d *driver) {
	d.MemAlloc = func(p *uint64, n uintptr) result {
		if r := g.call("alloc"); r != success {
			return r
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		*p, g.next = g.next, g.next+uint64(n)+4096
		g.mem[*p] = make([]byte, n)
		return success
	}
	d.MemFree = func(p uint64) result {
		g.mu.Lock()
		delete(g.mem, p)
		g.mu.Unlock()
		return g.call("free")
	}
	d.MemSet = func(p uint64, v uint8, n, _ uintptr) result {
		for i := range g.bytes(p)[:n] {
			g.bytes(p)[i] = v
		}
		return g.call("memset")
	}
	d.CopyToDevice = func(dst uint64, src unsafe.Pointer, n, _ uintptr) result {
		g.mu.Lock()
		copy(g.bytes(dst), unsafe.Slice((*byte)(src), n))
		g.mu.Unlock()
		return g.call("to device")
	}
	d.CopyToHost = func(dst unsafe.Pointer, src uint64, n, _ uintptr) result {
		copy(unsafe.Slice((*byte)(dst), n), g.bytes(src))
		return g.call("to host")
	}
	d.HostAlloc = func(p *unsafe.Pointer, _ uintptr, _ uint32) result {
		b := new([8]byte)
		g.pinned = append(g.pinned, b)
		*p = unsafe.Pointer(b)
		return g.call("host alloc")
	}
	d.HostFree = func(unsafe.Pointer) result { return g.call("host free") }
}

func (g *fakeGPU) execution(d *driver) {
	d.ModuleLoad = func(mod *uintptr, image *byte, n uint32, options *int32, values *uintptr) result {
		r := g.call("load")
		v := unsafe.Slice(values, n)
		for i, o := range unsafe.Slice(options, n) {
			if o == 7 { // CU_JIT_OPTIMIZATION_LEVEL
				g.levels = append(g.levels, v[i])
			}
		}
		if r != success {
			copy(unsafe.Slice(*(**byte)(unsafe.Pointer(&v[0])), v[1]), g.jitLog+"\x00")
			return r
		}
		*mod = 0x30D
		return success
	}
	d.ModuleFunction = func(fn *uintptr, _ uintptr, name *byte) result {
		g.mu.Lock()
		*fn = uintptr(0xF000 + len(g.fns))
		g.fns[*fn] = dl.String(name)
		g.mu.Unlock()
		return g.call("function")
	}
	d.Launch = g.launch
	d.StreamQuery = func(uintptr) result {
		if r := g.call("query"); r != success {
			return r
		}
		g.polls++
		if g.running != nil && g.running() {
			return errNotReady
		}
		g.running = nil
		return success
	}
	d.StreamSync = func(uintptr) result {
		g.running = nil
		return g.call("sync")
	}
}

func (g *fakeGPU) launch(
	fn uintptr, gx, gy, gz, bx, by, bz, shared uint32, _ uintptr, params, _ *unsafe.Pointer,
) result {
	name := g.fns[fn]
	if r := g.call("launch " + name); r != success {
		return r
	}
	g.grids[name] = [3]uint32{gx, bx, shared}
	if f := g.entries[name]; f != nil {
		l := fakeLaunch{[3]uint32{gx, gy, gz}, [3]uint32{bx, by, bz}, nil}
		for _, p := range unsafe.Slice(params, g.args) {
			l.args = append(l.args, *(*uint64)(p))
		}
		f(l)
		return success
	}
	arg := func(i int) uint64 { return *(*uint64)(unsafe.Slice(params, i+1)[i]) }
	switch name {
	case kernels.Clock:
		binary.LittleEndian.PutUint64(g.bytes(arg(0)), g.now())
	case kernels.Fill:
	case kernels.Marker:
		n := *(*uint32)(unsafe.Slice(params, 8)[7])
		g.timed(arg(0), time.Duration(uint64(n)*arg(5)), func(begin uint64) {
			for k := range uint64(n) + 1 {
				binary.LittleEndian.PutUint64(g.bytes(arg(1))[8*k:], begin+arg(6)+k*arg(5))
			}
		})
	case kernels.Memory, kernels.Compute, kernels.Half, kernels.Mix:
		g.timed(arg(0), time.Duration(arg(3)), func(begin uint64) {
			binary.LittleEndian.PutUint64(g.bytes(arg(0))[kernels.CtlBatches:], 1000)
		})
	default:
		g.scalars = nil
		for _, p := range unsafe.Slice(params, 3)[1:] {
			g.scalars = append(g.scalars, *(*uint32)(p))
		}
		g.bytes(arg(0))[0]++
	}
	return success
}

// timed runs a kernel that watches the control words.
func (g *fakeGPU) timed(ctl uint64, length time.Duration, results func(begin uint64)) {
	begin := g.now()
	if !g.hang {
		binary.LittleEndian.PutUint64(g.bytes(ctl)[kernels.CtlBegin:], begin)
		binary.LittleEndian.PutUint64(g.bytes(ctl)[kernels.CtlEnd:], begin+uint64(length))
		results(begin)
	}
	left := 3
	g.running = func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.hang {
			return binary.LittleEndian.Uint32(g.bytes(ctl)[kernels.CtlStop:]) == 0
		}
		left--
		return left > 0
	}
}

// count returns how often a call was made whose name begins so.
func (g *fakeGPU) count(prefix string) int {
	n := 0
	for _, c := range g.log {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

func within(a, b time.Time, d time.Duration) bool {
	return math.Abs(float64(a.Sub(b))) <= float64(d)
}

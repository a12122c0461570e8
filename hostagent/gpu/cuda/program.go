package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
	"github.com/wattmark/wattmark/internal/lists"
)

// Program is a kernel that was compiled from PTX text. Its parameters are 64-bit
// numbers and addresses of buffers.
type Program struct {
	d       *Device
	mod, fn uintptr
}

// Load compiles a kernel at an optimisation level, 0 (-O0) to 4. The text ends
// with a NUL.
func (d *Device) Load(source []byte, entry string, level int) (*Program, error) {
	if level < leastLevel || level > mostLevel {
		return nil, fmt.Errorf("cuda: load %s: optimisation level %d: want %d to %d", entry, level, leastLevel,
			mostLevel)
	}
	return ask(d, "load "+entry, func() (*Program, error) {
		mod, err := d.drv.compile(source, level)
		if err != nil {
			return nil, err
		}
		fn, err := d.drv.function(mod, entry)
		if err != nil {
			return nil, errors.Join(err, d.drv.check("cuModuleUnload", d.drv.ModuleUnload(mod)))
		}
		return &Program{d, mod, fn}, nil
	})
}

// Run launches the kernel and waits for its end. The span is the host's, from the
// launch to the end of the synchronisation. A kernel that does not end cannot be
// stopped: ctx is looked at before the launch only.
func (p *Program) Run(ctx context.Context, grid, block [3]uint32, args ...uint64) (s gpu.Span, err error) {
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	return ask(p.d, "run program", func() (s gpu.Span, err error) {
		list := make([]*uint64, len(args))
		for i := range args {
			list[i] = &args[i]
		}
		s.Start = time.Now()
		if err := p.d.launchIn(p.d.work, p.fn, grid, block, 0, params(list...)); err != nil {
			return s, err
		}
		err = p.d.sync()
		s.End = time.Now()
		return s, err
	})
}

// Blocks is how many blocks of so many threads are resident on the whole GPU.
func (p *Program) Blocks(threads uint32) (n uint32, err error) {
	return ask(p.d, "program", func() (uint32, error) { return p.d.resident(p.fn, threads) })
}

// Close unloads the kernel; a nil Program is closed already.
func (p *Program) Close() error {
	if p == nil {
		return nil
	}
	return p.d.w.do(func() error { return p.d.drv.check("cuModuleUnload", p.d.drv.ModuleUnload(p.mod)) })
}

// Buffer is memory of the GPU.
type Buffer struct {
	d    *Device
	at   uint64
	size uint64
}

// Allocate takes memory, filled with zeros.
func (d *Device) Allocate(size uint64) (*Buffer, error) {
	b := &Buffer{d: d, size: size}
	err := d.w.do(func() (err error) {
		if b.at, err = d.malloc(size); err != nil {
			return err
		}
		if err := d.zero(b.at, size); err != nil {
			return errors.Join(err, d.drv.check("cuMemFree", d.drv.MemFree(b.at)))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return b, nil
}

// Address is the buffer's device address, to be passed as an argument of Program.Run.
func (b *Buffer) Address() uint64 { return b.at }

// Upload copies words into the buffer's begin.
func (b *Buffer) Upload(words []uint64) error {
	return b.move("upload", words, func(p []byte) error {
		if err := b.d.upload(b.at, p); err != nil {
			return err
		}
		return b.d.sync()
	})
}

// Download fills words from the buffer's begin.
func (b *Buffer) Download(words []uint64) error {
	return b.move("download", words, func(p []byte) error { return b.d.download(p, b.at) })
}

// move copies words to or from the begin of the buffer, which must hold them all.
func (b *Buffer) move(what string, words []uint64, f func([]byte) error) error {
	if len(words) == 0 || uint64(8*len(words)) > b.size {
		return fmt.Errorf("cuda: %s %d words: the buffer has %d bytes", what, len(words), b.size)
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
	if err := b.d.w.do(func() error { return f(raw) }); err != nil {
		return fmt.Errorf("cuda: %s: %w", what, err)
	}
	return nil
}

// Close gives the memory back; a nil Buffer is closed already.
func (b *Buffer) Close() error {
	if b == nil {
		return nil
	}
	return b.d.w.do(func() error { return b.d.drv.check("cuMemFree", b.d.drv.MemFree(b.at)) })
}

// Capability is the GPU's compute capability, as 90 for 9.0.
func (d *Device) Capability() (cc int, err error) {
	err = d.w.do(func() error {
		major, minor, err := d.capability()
		cc = 10*major + minor
		return err
	})
	return cc, err
}

// SMs is how many multiprocessors the GPU has.
func (d *Device) SMs() int { return d.sms }

// The JIT options that are set (cuda.h, CUjit_option).
const (
	jitErrorLog     = 5
	jitErrorLogSize = 6
	jitLevel        = 7
	jitLogBytes     = 16 << 10
)

// The optimisation levels of the driver's compiler.
const (
	leastLevel = 0
	mostLevel  = 4 // the default of cuModuleLoadDataEx
)

// compile loads PTX text, NUL-terminated, as a module, at an optimisation level. When the
// driver's compiler refuses it, the error has its log. The log's address travels as a number in
// values, so the log is pinned against a move by the garbage collector.
func (d *driver) compile(src []byte, level int) (uintptr, error) {
	log := make([]byte, jitLogBytes)
	options := []int32{jitErrorLog, jitErrorLogSize, jitLevel}
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log)), uintptr(level)}
	var pin runtime.Pinner
	pin.Pin(&log[0])
	defer pin.Unpin()
	mod := new(uintptr)
	r := d.ModuleLoad(mod, &src[0], uint32(len(options)), &options[0], &values[0])
	if err := d.check("cuModuleLoadDataEx", r); err != nil {
		if said := strings.TrimSpace(dl.Text(log)); said != "" {
			return 0, fmt.Errorf("%w; the driver's compiler says: %s", err, said)
		}
		if r == errInvalidPTX {
			return 0, fmt.Errorf("%w; the PTX may be newer than this driver", err)
		}
		return 0, err
	}
	return *mod, nil
}

// function returns a module's kernel by name.
func (d *driver) function(mod uintptr, name string) (uintptr, error) {
	fn := new(uintptr)
	err := d.check("cuModuleGetFunction "+name, d.ModuleFunction(fn, mod, dl.CString(name)))
	return *fn, err
}

// launch starts one of the product's kernels on the grid that fills the GPU.
func (d *Device) launch(f function, params ...unsafe.Pointer) error {
	return d.launchIn(d.work, f.handle, [3]uint32{f.blocks, 1, 1}, [3]uint32{256, 1, 1}, 0, params)
}

// launchIn queues a kernel on a stream. The parameters are pinned until cuLaunchKernel has
// copied them, which it does before it returns.
func (d *Device) launchIn(stream, fn uintptr, grid, block [3]uint32, shared uint32, params []unsafe.Pointer) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, p := range params {
		pin.Pin(p)
	}
	var first *unsafe.Pointer
	if len(params) > 0 {
		first = &params[0]
		pin.Pin(first)
	}
	r := d.drv.Launch(fn, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, stream, first, nil)
	return d.drv.check("cuLaunchKernel", r)
}

// sync waits for the work stream.
func (d *Device) sync() error {
	return d.drv.check("cuStreamSynchronize", d.drv.StreamSync(d.work))
}

// malloc takes device memory; its content is undefined.
func (d *Device) malloc(size uint64) (uint64, error) {
	p := new(uint64)
	if err := d.drv.check("cuMemAlloc", d.drv.MemAlloc(p, uintptr(size))); err != nil {
		return 0, fmt.Errorf("%d bytes on the GPU: %w", size, err)
	}
	return *p, nil
}

// arena is device memory and modules that live as long as one call.
type arena struct {
	d    *Device
	free []func()
}

// close gives all back, the newest first.
func (a *arena) close() {
	for i := len(a.free) - 1; i >= 0; i-- {
		a.free[i]()
	}
}

// alloc takes zeroed device memory.
func (a *arena) alloc(size uint64) (uint64, error) {
	p, err := a.d.malloc(size)
	if err != nil {
		return 0, err
	}
	a.free = append(a.free, func() { a.d.drv.MemFree(p) })
	return p, a.d.zero(p, size)
}

// load checks and compiles the kernel of a PTX launch, with zeroed buffers; an empty grid, block
// or buffer is refused. launch queues it on the work stream; name is its entry.
func (a *arena) load(l *gpu.PTXLaunch) (launch func() error, name string, err error) {
	e, err := kernels.Find(l.Source, l.Entry)
	if err == nil {
		err = e.CheckLaunch(len(l.Buffers), len(l.Scalars))
	}
	if err == nil && (slices.Contains(l.Grid[:], 0) || slices.Contains(l.Block[:], 0)) {
		err = fmt.Errorf("%w: grid %v, block %v: every dimension must be at least 1", kernels.ErrPTX, l.Grid, l.Block)
	}
	if n := slices.Index(l.Buffers, 0); err == nil && n >= 0 {
		err = fmt.Errorf("%w: buffer %d has no bytes", kernels.ErrPTX, n)
	}
	if err != nil {
		return nil, "", err
	}
	mod, err := a.d.drv.compile(append(slices.Clone(l.Source), 0), mostLevel)
	if err != nil {
		return nil, e.Name, err
	}
	a.free = append(a.free, func() { a.d.drv.ModuleUnload(mod) })
	fn, err := a.d.drv.function(mod, e.Name)
	if err != nil {
		return nil, e.Name, err
	}
	var list []unsafe.Pointer
	for _, size := range l.Buffers {
		p, err := a.alloc(size)
		if err != nil {
			return nil, e.Name, err
		}
		list = append(list, unsafe.Pointer(&p))
	}
	for i := range l.Scalars {
		list = append(list, unsafe.Pointer(&l.Scalars[i]))
	}
	return func() error { return a.d.launchIn(a.d.work, fn, l.Grid, l.Block, l.Shared, list) }, e.Name, nil
}

// upload and download queue copies on the work stream; download waits for its own.
func (d *Device) upload(dst uint64, b []byte) error {
	return d.drv.check("cuMemcpyHtoD", d.drv.CopyToDevice(dst, unsafe.Pointer(&b[0]), uintptr(len(b)), d.work))
}

// download copies from the device on the work stream and waits for it.
func (d *Device) download(b []byte, src uint64) error {
	if err := d.drv.check("cuMemcpyDtoH",
		d.drv.CopyToHost(unsafe.Pointer(&b[0]), src, uintptr(len(b)), d.work)); err != nil {
		return err
	}
	return d.sync()
}

// zero queues a memset on the work stream.
func (d *Device) zero(p, size uint64) error {
	return d.drv.check("cuMemsetD8", d.drv.MemSet(p, 0, uintptr(size), d.work))
}

// params makes a parameter list of device addresses and 64-bit numbers.
func params(v ...*uint64) []unsafe.Pointer {
	return lists.Map(v, func(p *uint64) unsafe.Pointer { return unsafe.Pointer(p) })
}

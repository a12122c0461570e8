// Package cuda is a real GPU: markers, benchmarks and PTX kernels through the
// CUDA driver, found at run time; no toolkit and no C compiler.
//
//	Device ──asks──▶ worker (one locked OS thread, owns the context)
//	   │                 │
//	   │                 └─ driver: a table of libcuda's functions
//	   └─ relation: the GPU's %globaltimer ↔ the host's wall clock
package cuda

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
)

// result is a CUresult.
type result int32

// The results that this package distinguishes (cuda.h).
const (
	success       result = 0
	errNoDevice   result = 100
	errInvalidPTX result = 218
	errNotReady   result = 600
)

// driver is the part of the CUDA driver API that is used here: a table of
// functions, so that tests can put others in their place. The _v2 names are
// the ones with 64-bit device pointers.
type driver struct {
	// the driver itself
	Init             func(flags uint32) result       `c:"cuInit"`
	DriverGetVersion func(version *int32) result     `c:"cuDriverGetVersion"`
	ErrorName        func(r result, s **byte) result `c:"cuGetErrorName"`
	ErrorString      func(r result, s **byte) result `c:"cuGetErrorString"`

	// devices
	DeviceCount     func(n *int32) result                             `c:"cuDeviceGetCount"`
	DeviceGet       func(dev *int32, ordinal int32) result            `c:"cuDeviceGet"`
	DeviceName      func(name *byte, size int32, dev int32) result    `c:"cuDeviceGetName"`
	DeviceUUID      func(uuid *[16]byte, dev int32) result            `c:"cuDeviceGetUuid_v2,cuDeviceGetUuid"`
	DevicePCIBusID  func(id *byte, size int32, dev int32) result      `c:"cuDeviceGetPCIBusId"`
	DeviceAttribute func(v *int32, attribute int32, dev int32) result `c:"cuDeviceGetAttribute"`

	// contexts
	PrimaryRetain  func(ctx *uintptr, dev int32) result `c:"cuDevicePrimaryCtxRetain"`
	PrimaryRelease func(dev int32) result               `c:"cuDevicePrimaryCtxRelease_v2,cuDevicePrimaryCtxRelease"`
	CtxSetCurrent  func(ctx uintptr) result             `c:"cuCtxSetCurrent"`
	CtxCurrent     func(ctx *uintptr) result            `c:"cuCtxGetCurrent"`
	CtxDevice      func(dev *int32) result              `c:"cuCtxGetDevice"`
	CtxSync        func() result                        `c:"cuCtxSynchronize"`

	// modules, and the kernels in them
	ModuleLoad func(
		mod *uintptr, image *byte, n uint32, options *int32, values *uintptr,
	) result `c:"cuModuleLoadDataEx"`
	ModuleUnload   func(mod uintptr) result                          `c:"cuModuleUnload"`
	ModuleFunction func(fn *uintptr, mod uintptr, name *byte) result `c:"cuModuleGetFunction"`
	Occupancy      func(
		blocks *int32, fn uintptr, threads int32, shared uintptr,
	) result `c:"cuOccupancyMaxActiveBlocksPerMultiprocessor"`
	Launch func(
		fn uintptr, gx, gy, gz, bx, by, bz, shared uint32, stream uintptr, params, extra *unsafe.Pointer,
	) result `c:"cuLaunchKernel"`

	// streams
	StreamCreate      func(s *uintptr, flags uint32) result `c:"cuStreamCreate"`
	StreamDestroy     func(s uintptr) result                `c:"cuStreamDestroy_v2"`
	StreamQuery       func(s uintptr) result                `c:"cuStreamQuery"`
	StreamIsCapturing func(s uintptr, status *int32) result `c:"cuStreamIsCapturing?"`
	StreamSync        func(s uintptr) result                `c:"cuStreamSynchronize"`

	// memory of the device, copies in a stream, pinned memory of the host
	MemAlloc     func(p *uint64, size uintptr) result                                 `c:"cuMemAlloc_v2"`
	MemFree      func(p uint64) result                                                `c:"cuMemFree_v2"`
	MemInfo      func(free, total *uintptr) result                                    `c:"cuMemGetInfo_v2"`
	MemSet       func(p uint64, v uint8, size uintptr, s uintptr) result              `c:"cuMemsetD8Async"`
	CopyToDevice func(dst uint64, src unsafe.Pointer, size uintptr, s uintptr) result `c:"cuMemcpyHtoDAsync_v2"`
	CopyToHost   func(dst unsafe.Pointer, src uint64, size uintptr, s uintptr) result `c:"cuMemcpyDtoHAsync_v2"`
	HostAlloc    func(p *unsafe.Pointer, size uintptr, flags uint32) result           `c:"cuMemHostAlloc"`
	HostFree     func(p unsafe.Pointer) result                                        `c:"cuMemFreeHost"`
}

// Sentinel errors, wrapped with the call and the remedy.
var (
	// ErrNoDriver: libcuda cannot be loaded.
	ErrNoDriver = errors.New("no CUDA driver")
	// ErrNoDevice: there is a driver, but not the GPU that is wanted.
	ErrNoDevice = errors.New("no such GPU")
	// ErrCUDA: a call of the driver failed; the text has its CUresult.
	ErrCUDA = errors.New("CUDA call failed")
)

// libraries are the names under which the driver is looked for.
var libraries = []string{"libcuda.so.1", "libcuda.so"}

// load binds the driver's functions from the first of the libraries.
func load(names ...string) (*driver, error) {
	return dl.Load[driver](names, ErrNoDriver, "install NVIDIA's driver on this machine (nvidia-smi must work here)",
		ErrNoDriver, "the driver is older than CUDA 9")
}

// Loads returns nil where the driver's library can be loaded, else ErrNoDriver; it calls
// none of its functions.
func Loads() error {
	_, err := load(libraries...)
	return err
}

// check turns a result into an error with its name and text, or stand-ins for a result that the
// driver does not know: it leaves nil then.
func (d *driver) check(call string, r result) error {
	if r == success {
		return nil
	}
	var name, text *byte
	d.ErrorName(r, &name)
	d.ErrorString(r, &text)
	return fmt.Errorf("%w: %s: %s (%d): %s", ErrCUDA, call, cmp.Or(dl.String(name), "unknown error"), int32(r),
		cmp.Or(dl.String(text), "the driver has no text for it"))
}

// worker runs functions one after another on an OS thread of its own: a CUDA
// context belongs to the thread on which it was made current.
type worker struct {
	jobs chan func()
	done chan struct{}
}

// newWorker starts the thread, which executes jobs in order; close ends it.
func newWorker() *worker {
	w := &worker{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		// The thread is not unlocked: it ends with the goroutine, and the state that the
		// driver attached to it ends too.
		runtime.LockOSThread()
		defer close(w.done)
		for job := range w.jobs {
			job()
		}
	}()
	return w
}

// do runs fn on the worker's thread and blocks until it has returned. Functions that can
// take long watch a context of their own. It is ErrNotOpen on a nil worker.
func (w *worker) do(fn func() error) error {
	if w == nil {
		return ErrNotOpen
	}
	result := make(chan error, 1)
	w.jobs <- func() { result <- fn() }
	return <-result
}

// close ends the thread. It is called once, and do must not follow.
func (w *worker) close() {
	close(w.jobs)
	<-w.done
}

// ask runs fn on the device's thread, blocks until it has returned, and names the operation in
// its error.
func ask[T any](d *Device, operation string, fn func() (T, error)) (out T, err error) {
	err = d.w.do(func() (err error) {
		out, err = fn()
		return err
	})
	if err != nil {
		return out, fmt.Errorf("cuda: %s: %w", operation, err)
	}
	return out, nil
}

// Caller is a program's own context and its streams in there.
type Caller struct {
	Context uintptr // CUcontext
	// Streams (CUstream) carry the work; the markers are played in the first.
	// None means the default stream for the markers, and work anywhere in the context.
	Streams []uintptr
}

// Marks is how many marks a device can hold.
const Marks = 4096

const (
	errNotInitialized result = 3
	// perThread is the handle of the default stream of whatever thread uses it
	// (cuda.h, CU_STREAM_PER_THREAD): here that would be another stream.
	perThread = 2
	// borrowedBuffer leaves most of a program's memory to the program.
	borrowedBuffer = 1 << 28
)

// ErrStream: a stream cannot be used from here.
var ErrStream = errors.New("stream cannot be used")

// CurrentContext returns the context that is current on the calling OS thread,
// 0 for none. It does not initialise the driver.
func CurrentContext() (uintptr, error) {
	var c uintptr
	drv, err := load(libraries...)
	if err == nil {
		c, err = drv.current()
	}
	if err != nil {
		return 0, fmt.Errorf("cuda: current context: %w", err)
	}
	return c, nil
}

// current returns the calling thread's context, 0 for none; it does not initialise CUDA.
func (d *driver) current() (uintptr, error) {
	c := new(uintptr)
	r := d.CtxCurrent(c)
	if r == errNotInitialized {
		return 0, nil
	}
	return *c, d.check("cuCtxGetCurrent", r)
}

// capturing returns the driver's cuStreamIsCapturing, nil where the driver has none.
var capturing = sync.OnceValue(func() func(uintptr, *int32) result {
	drv, err := load(libraries...)
	if err != nil {
		return nil
	}
	return drv.StreamIsCapturing
})

// Capturing reports whether a stream of the current context is being captured into a
// graph, or cannot be used because another is: its launches do not run now. It is false
// with a driver older than CUDA 10, which has no such query. It calls the driver on the
// calling thread and is safe for concurrent use.
func Capturing(stream uintptr) bool {
	ask := capturing()
	if ask == nil {
		return false
	}
	status := new(int32)
	return ask(stream, status) != success || *status != 0
}

// FindCaller makes a Device of a context that a program already has: the method Open loads
// the kernels there, and they are launched into its stream. Neither context nor streams
// are the Device's: they must outlive it, and Close leaves them as they are. It must
// run on a thread on which the context is current.
func FindCaller(c Caller) (*Device, error) {
	drv, err := load(libraries...)
	if err != nil {
		return nil, fmt.Errorf("cuda: attach: %w", err)
	}
	return findCaller(drv, c)
}

// findCaller identifies the GPU of a caller's context, on the calling thread. The per-thread
// default stream is refused: its handle means another stream on the worker's thread.
func findCaller(drv *driver, c Caller) (*Device, error) {
	if slices.Contains(c.Streams, perThread) {
		return nil, fmt.Errorf("cuda: attach: %w: the per-thread default stream is another one in every thread; "+
			"create a stream and name that", ErrStream)
	}
	d := &Device{drv: drv, ctx: c.Context, fns: map[string]function{}, caller: &c}
	err := d.here(func() error {
		if err := drv.check("cuCtxGetDevice", drv.CtxDevice(&d.dev)); err != nil {
			return err
		}
		return d.identify()
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: attach: %w", err)
	}
	return d, nil
}

// Mark queues a reading of the GPU's clock behind the work of a stream, 0 for the device's
// own, and returns the mark's number without waiting; Times returns the instants. It fails
// with ErrStream after Marks marks. It is safe for concurrent use and runs on the calling
// thread: a hand-over to the worker would take longer than the mark.
func (d *Device) Mark(stream uintptr) (n int, err error) {
	next := func() (err error) {
		d.marking.Lock()
		defer d.marking.Unlock()
		if d.marked == Marks {
			return fmt.Errorf("%w: %d marks are the most that one measurement holds", ErrStream, Marks)
		}
		n, err = d.mark(stream)
		return err
	}
	if err = d.here(next); err != nil {
		return 0, fmt.Errorf("cuda: mark: %w", err)
	}
	return n, nil
}

// here runs fn on the calling thread with the device's context current there, and
// leaves the thread as it was.
func (d *Device) here(fn func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := d.drv.current()
	if err != nil {
		return err
	}
	if before == d.ctx {
		return fn()
	}
	if err := d.drv.check("cuCtxSetCurrent", d.drv.CtxSetCurrent(d.ctx)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.drv.check("cuCtxSetCurrent", d.drv.CtxSetCurrent(before))) }()
	return fn()
}

// mark queues mark number d.marked; the caller holds d.marking.
func (d *Device) mark(stream uintptr) (int, error) {
	switch {
	case stream == perThread:
		return 0, fmt.Errorf("%w: the per-thread default stream is another one in every thread", ErrStream)
	case stream == 0:
		stream = d.work
	}
	if err := d.stamp(stream, d.marks+8*uint64(d.marked)); err != nil {
		return 0, err
	}
	d.marked++
	return d.marked - 1, nil
}

// Settle waits until all work that the caller has queued is done, in its
// streams or, where it named none, in its whole context, and returns when that
// was on the host's wall clock. For a whole context the time is the host's own
// after the wait, some microseconds late. ctx cannot end the wait: nothing can
// take a program's kernels off the GPU.
func (d *Device) Settle() (time.Time, error) {
	return ask(d, "wait for the work", func() (time.Time, error) {
		if d.caller == nil || len(d.caller.Streams) == 0 {
			err := d.drv.check("cuCtxSynchronize", d.drv.CtxSync())
			return time.Now(), err
		}
		d.marking.Lock()
		defer d.marking.Unlock()
		// Marks behind the work of every stream first, then the waits: the streams run meanwhile.
		first := d.marked
		for _, s := range d.caller.Streams {
			if _, err := d.mark(s); err != nil {
				return time.Now(), err
			}
		}
		for _, s := range d.caller.Streams {
			if err := d.drv.check("cuStreamSynchronize", d.drv.StreamSync(s)); err != nil {
				return time.Now(), err
			}
		}
		now := time.Now()
		times, err := d.times()
		if err != nil {
			return now, err
		}
		d.marked = first // their slots are free again
		return slices.MaxFunc(times[first:], time.Time.Compare), nil
	})
}

// Times returns when each mark was reached, on the host's wall clock. It waits
// for the device's stream; marks in other streams must be behind them.
func (d *Device) Times() ([]time.Time, error) {
	return ask(d, "read the marks", func() ([]time.Time, error) {
		d.marking.Lock()
		defer d.marking.Unlock()
		return d.times()
	})
}

// times reads the marks and maps them to the host's clock, between the relation of Open
// and a new one. The caller holds d.marking.
func (d *Device) times() ([]time.Time, error) {
	if d.marked == 0 {
		return nil, nil
	}
	raw := make([]byte, 8*d.marked)
	if err := d.download(raw, d.marks); err != nil {
		return nil, err
	}
	now, err := d.relate()
	if err != nil {
		return nil, err
	}
	s := span{d.first, now}
	if d.first.gpu == 0 {
		s.a = now
	}
	out := make([]time.Time, d.marked)
	for i := range out {
		out[i] = s.host(binary.LittleEndian.Uint64(raw[8*i:]))
	}
	return out, nil
}

// Package cuda is a real GPU: markers, benchmarks and PTX kernels through the
// CUDA driver, found at run time; no toolkit and no C compiler.
//
//	Device ──asks──▶ worker (one locked OS thread, owns the context)
//	   │                 │
//	   │                 └─ driver: a table of libcuda's functions
//	   └─ relation: the GPU's %globaltimer ↔ the host's wall clock
package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
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
	lib, err := dl.Open(names...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; install NVIDIA's driver on this machine (nvidia-smi must work here)",
			ErrNoDriver, err)
	}
	d := new(driver)
	if err := dl.Bind(lib, d); err != nil {
		return nil, fmt.Errorf("%w: %w; the driver is older than CUDA 9", ErrNoDriver, err)
	}
	return d, nil
}

// Loads returns nil where the driver's library can be loaded, else ErrNoDriver; it calls
// none of its functions.
func Loads() error {
	_, err := load(libraries...)
	return err
}

// check turns a result into an error with its name and text, or stand-ins for a result that the
// driver does not know.
func (d *driver) check(call string, r result) error {
	if r == success {
		return nil
	}
	name, text := "unknown error", "the driver has no text for it"
	var p *byte
	if d.ErrorName(r, &p) == success && p != nil {
		name = dl.String(p)
	}
	p = nil
	if d.ErrorString(r, &p) == success && p != nil {
		text = dl.String(p)
	}
	return fmt.Errorf("%w: %s: %s (%d): %s", ErrCUDA, call, name, int32(r), text)
}

// worker runs functions one after another on an OS thread of its own: a CUDA
// context belongs to the thread on which it was made current.
type worker struct {
	jobs chan func()
	stop sync.Once
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

// close ends the thread. It is safe to call twice; do must not follow.
func (w *worker) close() {
	w.stop.Do(func() { close(w.jobs) })
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

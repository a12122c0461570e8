package cuda

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"wattmark/hostagent"
	"wattmark/hostagent/kernels"
)

// Device is one GPU with a context on it, once it is open. Calls are made from one goroutine.
type Device struct {
	selector string
	drv      *driver
	w        *worker // nil until it is open
	info     hostagent.Info
	sms      int
	closed   bool
	caller   *Caller // whose context it is; nil for the device's own

	// Owned by the worker's thread.
	dev     int32
	ctx     uintptr
	mods    []uintptr
	fns     map[string]function
	work    uintptr // stream of the kernels
	side    uintptr // stream that reaches a running kernel's stop word
	ctl     uint64
	stamps  uint64 // two u64 that the clock kernel writes
	first   relation
	buf     uint64
	bufSize uint64
	one     unsafe.Pointer // pinned, holds 1

	marking sync.Mutex // marks are set by any thread
	marks   uint64     // Marks u64, made by the first
	marked  int        // of which so many are taken
}

// function is a kernel with the grid that fills the GPU.
type function struct {
	handle uintptr
	blocks uint32
}

var (
	_ hostagent.Device    = (*Device)(nil)
	_ hostagent.PTXRunner = (*Device)(nil)
	_ hostagent.Opener    = (*Device)(nil)
)

// ErrNotOpen: the device was found, and Open has not been called.
var ErrNotOpen = errors.New("the GPU has not been opened")

// Find names a GPU as Open does, without a call to the driver: the method Open makes the
// context. info is what is known of the GPU without the driver.
func Find(selector string, info hostagent.Info) *Device {
	return &Device{selector: selector, info: info, fns: map[string]function{}}
}

// Open makes a context on a GPU: an index, a UUID (GPU-…), a PCI bus id
// (0000:65:00.0), or empty for the first. It compiles the kernels and takes a
// buffer larger than any L2 cache. It fails with ErrNoDriver where there is no
// libcuda, and with ErrNoDevice where the GPU is not found.
func Open(ctx context.Context, selector string) (*Device, error) {
	d := Find(selector, hostagent.Info{})
	if err := d.Open(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

// Open makes the context, as the function Open does. After an error the device is closed.
func (d *Device) Open(ctx context.Context) error {
	if d.w != nil {
		return nil
	}
	if d.drv == nil {
		var err error
		if d.drv, err = load(libraries...); err != nil {
			return fmt.Errorf("cuda: open: %w", err)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cuda: open: %w", err)
	}
	setUp := d.setUp
	if d.caller != nil {
		setUp = d.setUpCaller
	}
	d.w = newWorker()
	if err := d.w.do(setUp); err != nil {
		return errors.Join(fmt.Errorf("cuda: open: %w", err), d.Close())
	}
	return nil
}

// setUp finds the GPU and makes all that lives as long as the device.
func (d *Device) setUp() error {
	if err := d.drv.start(); err != nil {
		return err
	}
	var err error
	if d.dev, err = d.drv.find(d.selector); err != nil {
		return err
	}
	if err := d.identify(); err != nil {
		return err
	}
	var handle uintptr
	if err := d.drv.check("cuDevicePrimaryCtxRetain", d.drv.PrimaryRetain(&handle, d.dev)); err != nil {
		return err
	}
	d.ctx = handle
	if err := d.drv.check("cuCtxSetCurrent", d.drv.CtxSetCurrent(d.ctx)); err != nil {
		return err
	}
	if err := d.loadKernels(); err != nil {
		return err
	}
	return d.allocate()
}

// identify refuses a MIG device: markers on it would not be those of the card.
func (d *Device) identify() error {
	var err error
	known := d.info
	if d.info, err = d.drv.identify(d.dev); err != nil {
		return err
	}
	if known.UUID != "" && !hostagent.SameID(known.UUID, d.info.UUID) {
		return fmt.Errorf("%w: NVML and the environment name %s, and the driver opens %s: name the GPU by its UUID", ErrNoDevice, known.UUID, d.info.UUID)
	}
	if d.info.MIG() {
		return fmt.Errorf("%s: %w", d.info.Name, hostagent.ErrMIG)
	}
	d.sms, err = d.drv.attribute(d.dev, attrSMs)
	return err
}

// loadKernels compiles the product's own kernels, but for those that few need.
func (d *Device) loadKernels() error {
	return d.loadModule(kernels.Source, kernels.Marker, kernels.Memory, kernels.Compute, kernels.Half, kernels.Clock, kernels.Fill)
}

// loadModule compiles kernels for this GPU and works out how many blocks of each are
// resident at once.
func (d *Device) loadModule(source func(major, minor int) ([]byte, error), names ...string) error {
	major, err := d.drv.attribute(d.dev, attrMajor)
	if err != nil {
		return err
	}
	minor, err := d.drv.attribute(d.dev, attrMinor)
	if err != nil {
		return err
	}
	src, err := source(major, minor)
	if err != nil {
		return err
	}
	mod, err := d.drv.compile(src)
	if err != nil {
		return err
	}
	d.mods = append(d.mods, mod)
	for _, name := range names {
		fn, err := d.drv.function(mod, name)
		if err != nil {
			return err
		}
		var perSM int32
		if err := d.drv.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", d.drv.Occupancy(&perSM, fn, kernels.Threads, 0)); err != nil {
			return err
		}
		d.fns[name] = function{fn, uint32(max(1, int(perSM)*d.sms))}
	}
	return nil
}

// The buffer is larger than any L2 cache (60 MB on an H200), a power of two,
// and leaves most of a small card's memory alone.
const (
	wantBuffer  = 1 << 30
	leastBuffer = 1 << 25
)

func (d *Device) allocate() error {
	streams := []*uintptr{&d.side}
	if d.caller == nil {
		streams = append(streams, &d.work)
	}
	for _, s := range streams {
		const nonBlocking = 1 // no order with the default stream
		if err := d.drv.check("cuStreamCreate", d.drv.StreamCreate(s, nonBlocking)); err != nil {
			return err
		}
	}
	if err := d.drv.check("cuMemHostAlloc", d.drv.HostAlloc(&d.one, 8, 0)); err != nil {
		return err
	}
	*(*uint32)(d.one) = 1
	var free, total uintptr
	if err := d.drv.check("cuMemGetInfo", d.drv.MemInfo(&free, &total)); err != nil {
		return err
	}
	size := uint64(wantBuffer)
	if d.caller != nil {
		size = borrowedBuffer
	}
	for size > leastBuffer && size > uint64(free)/4 {
		size /= 2
	}
	for _, a := range []struct {
		p    *uint64
		size uint64
	}{{&d.buf, size}, {&d.ctl, kernels.CtlSize}, {&d.stamps, 16}} {
		if err := d.drv.check("cuMemAlloc", d.drv.MemAlloc(a.p, uintptr(a.size))); err != nil {
			return fmt.Errorf("%d bytes on the GPU: %w", a.size, err)
		}
	}
	d.bufSize = size
	if err := d.launch(d.fns[kernels.Fill], ptr(&d.buf), ptr(new(size/4))); err != nil {
		return err
	}
	return d.sync()
}

// part is the size of what each of so many blocks streams: a power of two.
// Together they exceed any L2 cache wherever the buffer does.
func (d *Device) part(blocks uint32) uint64 {
	return 1 << (bits.Len64(d.bufSize/uint64(blocks)) - 1)
}

// Info identifies the GPU.
func (d *Device) Info() hostagent.Info { return d.info }

// Close frees what the device holds and releases the context. It is safe to
// call twice.
func (d *Device) Close() error {
	if d.closed || d.w == nil {
		return nil
	}
	d.closed = true
	err := d.w.do(d.tearDown)
	d.w.close()
	return err
}

func (d *Device) tearDown() error {
	if d.ctx == 0 {
		return nil
	}
	var errs []error
	for _, p := range []uint64{d.buf, d.ctl, d.stamps, d.marks} {
		if p != 0 {
			errs = append(errs, d.drv.check("cuMemFree", d.drv.MemFree(p)))
		}
	}
	if d.one != nil {
		errs = append(errs, d.drv.check("cuMemFreeHost", d.drv.HostFree(d.one)))
	}
	if d.caller != nil {
		d.work = 0 // the caller's
	}
	for _, s := range []uintptr{d.work, d.side} {
		if s != 0 {
			errs = append(errs, d.drv.check("cuStreamDestroy", d.drv.StreamDestroy(s)))
		}
	}
	for _, mod := range d.mods {
		errs = append(errs, d.drv.check("cuModuleUnload", d.drv.ModuleUnload(mod)))
	}
	if d.caller == nil {
		errs = append(errs, d.drv.check("cuDevicePrimaryCtxRelease", d.drv.PrimaryRelease(d.dev)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cuda: close: %w", err)
	}
	return nil
}

package cuda

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
)

// Device is one GPU with a context on it, once it is open. Calls are made from one goroutine.
type Device struct {
	selector string
	drv      *driver
	w        *worker // nil until it is open
	info     gpu.Info
	sms      int
	closed   bool
	caller   *Caller // the program's context and streams; nil for a context of its own

	// Owned by the worker's thread.
	dev     int32
	ctx     uintptr
	free    []func() error // for all that was made, in order
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
	marks   uint64     // u64 each
	marked  int        // of which so many are taken
}

// function is a kernel with the grid that fills the GPU.
type function struct {
	handle uintptr
	blocks uint32
}

var (
	_ gpu.Device    = (*Device)(nil)
	_ gpu.PTXRunner = (*Device)(nil)
	_ gpu.Opener    = (*Device)(nil)
)

// ErrNotOpen: the device was found, and Open has not been called.
var ErrNotOpen = errors.New("the GPU has not been opened")

// Find names a GPU for the method Open, which makes the context; it does not call the
// driver. info is the GPU's identity as far as it is known without the driver; Open refuses
// a GPU of another UUID.
func Find(selector string, info gpu.Info) *Device {
	return &Device{selector: selector, info: info, fns: map[string]function{}}
}

// Open makes a context on the GPU that Find named: an index, a UUID (GPU-…), a PCI bus id
// (0000:65:00.0), or empty for the first; or makes a caller's context ready. It compiles the
// kernels and takes a buffer larger than any L2 cache. It fails with ErrNoDriver where there is
// no libcuda, and with ErrNoDevice where the GPU is not found. After an error the device is
// closed. A second call does nothing.
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
	d.w = newWorker()
	if err := d.w.do(d.setUp); err != nil {
		return errors.Join(fmt.Errorf("cuda: open: %w", err), d.Close())
	}
	return nil
}

// setUp finds the GPU, or takes the caller's context, and makes all that lives as long as the
// device: on the worker's thread the context is current, with the product's own kernels, but
// for those that few need.
func (d *Device) setUp() error {
	var err error
	if d.caller == nil {
		err = d.retain()
	} else {
		err = d.drv.check("cuInit", d.drv.Init(0))
	}
	if err != nil {
		return err
	}
	if err := d.drv.check("cuCtxSetCurrent", d.drv.CtxSetCurrent(d.ctx)); err != nil {
		return err
	}
	if err := d.loadModule(kernels.Source, kernels.Marker, kernels.Memory, kernels.Compute, kernels.Half, kernels.Clock,
		kernels.Fill); err != nil {
		return err
	}
	if d.caller != nil && len(d.caller.Streams) > 0 {
		d.work = d.caller.Streams[0]
	}
	if err := d.allocate(); err != nil || d.caller == nil {
		return err
	}
	d.first, err = d.relate()
	return err
}

// retain finds the GPU and keeps its primary context.
func (d *Device) retain() (err error) {
	if err := d.drv.start(); err != nil {
		return err
	}
	if d.dev, err = d.drv.find(d.selector); err != nil {
		return err
	}
	if err := d.identify(); err != nil {
		return err
	}
	if err := d.drv.check("cuDevicePrimaryCtxRetain", d.drv.PrimaryRetain(&d.ctx, d.dev)); err != nil {
		return err
	}
	d.later("cuDevicePrimaryCtxRelease", func() result { return d.drv.PrimaryRelease(d.dev) })
	return nil
}

// later has tearDown make a call of the driver.
func (d *Device) later(name string, call func() result) {
	d.free = append(d.free, func() error { return d.drv.check(name, call()) })
}

// identify refuses a MIG device: markers on it would not be those of the card.
func (d *Device) identify() error {
	var err error
	known := d.info
	if d.info, err = d.drv.identify(d.dev); err != nil {
		return err
	}
	if known.UUID != "" && !gpu.SameID(known.UUID, d.info.UUID) {
		return fmt.Errorf("%w: NVML and the environment name %s, and the driver opens %s: name the GPU by its UUID",
			ErrNoDevice, known.UUID, d.info.UUID)
	}
	if d.info.MIG() {
		return fmt.Errorf("%s: %w", d.info.Name, gpu.ErrMIG)
	}
	d.sms, err = d.drv.attribute(d.dev, attrSMs)
	return err
}

// loadModule compiles kernels for this GPU and works out how many blocks of each are
// resident at once.
func (d *Device) loadModule(source func(major, minor int) ([]byte, error), names ...string) error {
	major, minor, err := d.capability()
	if err != nil {
		return err
	}
	src, err := source(major, minor)
	if err != nil {
		return err
	}
	mod, err := d.drv.compile(src, mostLevel)
	if err != nil {
		return err
	}
	d.later("cuModuleUnload", func() result { return d.drv.ModuleUnload(mod) })
	for _, name := range names {
		fn, err := d.drv.function(mod, name)
		if err != nil {
			return err
		}
		blocks, err := d.resident(fn, kernels.Threads)
		if err != nil {
			return err
		}
		d.fns[name] = function{fn, blocks}
	}
	return nil
}

// capability returns the compute capability, as 9 and 0.
func (d *Device) capability() (major, minor int, err error) {
	if major, err = d.drv.attribute(d.dev, attrMajor); err != nil {
		return 0, 0, err
	}
	minor, err = d.drv.attribute(d.dev, attrMinor)
	return major, minor, err
}

// resident returns how many blocks of so many threads the whole GPU holds at once.
func (d *Device) resident(fn uintptr, threads uint32) (uint32, error) {
	var perSM int32
	err := d.drv.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", d.drv.Occupancy(&perSM, fn, int32(threads), 0))
	return uint32(max(1, int(perSM)*d.sms)), err
}

// The buffer is larger than any L2 cache (60 MB on an H200), a power of two,
// and leaves most of a small card's memory alone.
const (
	wantBuffer  = 1 << 30
	leastBuffer = 1 << 25
)

// allocate takes the streams and the memory that live as long as the device, and fills the
// buffer once: the first touch of memory would otherwise fall into a measurement.
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
		d.later("cuStreamDestroy", func() result { return d.drv.StreamDestroy(*s) })
	}
	if err := d.drv.check("cuMemHostAlloc", d.drv.HostAlloc(&d.one, 8, 0)); err != nil {
		return err
	}
	d.later("cuMemFreeHost", func() result { return d.drv.HostFree(d.one) })
	*(*uint32)(d.one) = 1
	var free, total uintptr
	if err := d.drv.check("cuMemGetInfo", d.drv.MemInfo(&free, &total)); err != nil {
		return err
	}
	// A quarter of the free memory at most: the program's own work needs the rest.
	size, marks := uint64(wantBuffer), uint64(8*Marks)
	if d.caller != nil {
		// One more mark a stream: the end of each is read off by it, however many marks there are by then.
		size, marks = borrowedBuffer, marks+uint64(8*len(d.caller.Streams))
	}
	for size > leastBuffer && size > uint64(free)/4 {
		size /= 2
	}
	for _, a := range []struct {
		p    *uint64
		size uint64
	}{{&d.buf, size}, {&d.ctl, kernels.CtlSize}, {&d.stamps, 16}, {&d.marks, marks}} {
		var err error
		if *a.p, err = d.malloc(a.size); err != nil {
			return err
		}
		d.later("cuMemFree", func() result { return d.drv.MemFree(*a.p) })
	}
	d.bufSize = size
	if err := d.launch(d.fns[kernels.Fill], params(&d.buf, new(size/4))...); err != nil {
		return err
	}
	return d.sync()
}

// part is the size in bytes of the part of the buffer that each of so many blocks streams:
// a power of two, so that kernels can mask their addresses. Together the parts exceed any
// L2 cache wherever the buffer does.
func (d *Device) part(blocks uint32) uint64 {
	return 1 << (bits.Len64(d.bufSize/uint64(blocks)) - 1)
}

// Info identifies the GPU.
func (d *Device) Info() gpu.Info { return d.info }

// Close frees the device's memory, streams and modules, and releases the context. A second
// call does nothing.
func (d *Device) Close() error {
	if d.closed || d.w == nil {
		return nil
	}
	d.closed = true
	err := d.w.do(d.tearDown)
	d.w.close()
	return err
}

// tearDown frees all that was made, also by half of a setUp, the newest first. The caller's context and
// streams stay as they are.
func (d *Device) tearDown() error {
	var errs []error
	for _, free := range slices.Backward(d.free) {
		errs = append(errs, free())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cuda: close: %w", err)
	}
	return nil
}

// The device attributes that are asked for (cuda.h, CUdevice_attribute).
const (
	attrSMs   = 16
	attrMajor = 75
	attrMinor = 76
)

// find returns the driver's handle of the GPU that a selector names: an index,
// a UUID (GPU-…), or a PCI bus id (0000:65:00.0); empty for the first.
func (d *driver) find(selector string) (int32, error) {
	n, err := d.count()
	if err != nil {
		return 0, err
	}
	switch {
	case gpu.NamesMIG(selector):
		return 0, fmt.Errorf("%s: %w", selector, gpu.ErrMIG)
	case strings.HasPrefix(strings.ToUpper(selector), "GPU-"):
		return d.findBy(n, selector, d.uuid)
	case strings.Contains(selector, ":"):
		return d.findBy(n, selector, d.pciBusID)
	}
	index, err := strconv.ParseInt(cmp.Or(selector, "0"), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: %q: want an index, a UUID (GPU-…) or a PCI bus id (0000:65:00.0)", ErrNoDevice, selector)
	}
	if index < 0 || index >= int64(n) {
		return 0, fmt.Errorf("%w: index %d: the driver sees %d", ErrNoDevice, index, n)
	}
	return d.device(int32(index))
}

// device returns the driver's handle of GPU i, counted from 0.
func (d *driver) device(i int32) (int32, error) {
	dev := new(int32)
	err := d.check("cuDeviceGet", d.DeviceGet(dev, i))
	return *dev, err
}

// findBy returns the handle of the GPU with the given property; ErrNoDevice lists those
// that there are.
func (d *driver) findBy(n int32, want string, property func(int32) (string, error)) (int32, error) {
	var have []string
	for i := range n {
		dev, err := d.device(i)
		if err != nil {
			return 0, err
		}
		p, err := property(dev)
		if err != nil {
			return 0, err
		}
		if gpu.SameID(p, want) {
			return dev, nil
		}
		have = append(have, p)
	}
	return 0, fmt.Errorf("%w: %s: the driver sees %s", ErrNoDevice, want, strings.Join(have, ", "))
}

// uuid returns a GPU's UUID in nvidia-smi's form, GPU-8-4-4-4-12 digits.
func (d *driver) uuid(dev int32) (string, error) {
	u := new([16]byte)
	if err := d.check("cuDeviceGetUuid", d.DeviceUUID(u, dev)); err != nil {
		return "", err
	}
	h := hex.EncodeToString(u[:])
	return "GPU-" + strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-"), nil
}

// pciBusID returns a GPU's PCI bus id, in lower case, with four digits of domain.
func (d *driver) pciBusID(dev int32) (string, error) {
	b := make([]byte, 64)
	err := d.check("cuDeviceGetPCIBusId", d.DevicePCIBusID(&b[0], int32(len(b)), dev))
	return strings.ToLower(dl.Text(b)), err
}

// attribute reads a CUdevice_attribute.
func (d *driver) attribute(dev, attribute int32) (int, error) {
	v := new(int32)
	err := d.check("cuDeviceGetAttribute", d.DeviceAttribute(v, attribute, dev))
	return int(*v), err
}

// List returns the GPUs that programs of this process see, in CUDA's order:
// CUDA_VISIBLE_DEVICES hides and reorders them. It makes no context. It fails
// with ErrNoDriver where there is no libcuda, and with ErrNoDevice where there
// is no GPU.
func List() ([]gpu.Info, error) {
	drv, err := load(libraries...)
	if err != nil {
		return nil, fmt.Errorf("cuda: list: %w", err)
	}
	return drv.list()
}

// list identifies every GPU that the driver sees, in its order.
func (d *driver) list() (out []gpu.Info, err error) {
	err = d.start()
	var n int32
	if err == nil {
		n, err = d.count()
	}
	if err != nil {
		return nil, fmt.Errorf("cuda: list: %w", err)
	}
	for i := range n {
		var info gpu.Info
		dev, err := d.device(i)
		if err == nil {
			info, err = d.identify(dev)
		}
		if err != nil {
			return nil, fmt.Errorf("cuda: list: GPU %d: %w", i, err)
		}
		out = append(out, info)
	}
	return out, nil
}

const seesNone = "the driver sees none; look at nvidia-smi and CUDA_VISIBLE_DEVICES"

// start makes the driver ready; it may be called again.
func (d *driver) start() error {
	r := d.Init(0)
	if r == errNoDevice {
		return fmt.Errorf("%w: %s", ErrNoDevice, seesNone)
	}
	return d.check("cuInit", r)
}

// count returns how many GPUs the driver sees: one at least.
func (d *driver) count() (int32, error) {
	n := new(int32)
	if r := d.DeviceCount(n); r != success && r != errNoDevice {
		return 0, d.check("cuDeviceGetCount", r)
	}
	if *n == 0 {
		return 0, fmt.Errorf("%w: %s", ErrNoDevice, seesNone)
	}
	return *n, nil
}

// identify returns the properties of a GPU that need no context on it.
func (d *driver) identify(dev int32) (i gpu.Info, err error) {
	name := make([]byte, 256)
	if err := d.check("cuDeviceGetName", d.DeviceName(&name[0], int32(len(name)), dev)); err != nil {
		return i, err
	}
	i.Name = dl.Text(name)
	if i.UUID, err = d.uuid(dev); err != nil {
		return i, err
	}
	if i.PCIBusID, err = d.pciBusID(dev); err != nil {
		return i, err
	}
	v := new(int32)
	err = d.check("cuDriverGetVersion", d.DriverGetVersion(v))
	i.Driver = fmt.Sprintf("CUDA %d.%d", *v/1000, *v%1000/10)
	return i, err
}

package cuda

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

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
	mostLevel  = 4 // what it does unless told otherwise
)

// compile loads PTX text, NUL-terminated, as a module. When the driver's
// compiler refuses it, the error has its log.
func (d *driver) compile(src []byte) (uintptr, error) { return d.compileAt(src, mostLevel) }

func (d *driver) compileAt(src []byte, level int) (uintptr, error) {
	log := make([]byte, jitLogBytes)
	options := []int32{jitErrorLog, jitErrorLogSize, jitLevel}
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log)), uintptr(level)}
	var pin runtime.Pinner
	pin.Pin(&log[0])
	defer pin.Unpin()
	mod := new(uintptr)
	r := d.ModuleLoad(mod, &src[0], uint32(len(options)), &options[0], &values[0])
	if err := d.check("cuModuleLoadDataEx", r); err != nil {
		if said := strings.TrimSpace(text(log)); said != "" {
			return 0, fmt.Errorf("%w; the driver's compiler says: %s", err, said)
		}
		if r == errInvalidPTX {
			return 0, fmt.Errorf("%w; the PTX may be newer than this driver", err)
		}
		return 0, err
	}
	return *mod, nil
}

func (d *driver) function(mod uintptr, name string) (uintptr, error) {
	fn := new(uintptr)
	if err := d.check("cuModuleGetFunction "+name, d.ModuleFunction(fn, mod, cString(name))); err != nil {
		return 0, err
	}
	return *fn, nil
}

// ptr makes a kernel parameter of a value: the driver wants its address.
func ptr[T uint32 | uint64](v *T) unsafe.Pointer { return unsafe.Pointer(v) }

// launch starts one of the product's kernels on the grid that fills the GPU.
func (d *Device) launch(f function, params ...unsafe.Pointer) error {
	return d.launchGrid(f.handle, [3]uint32{f.blocks, 1, 1}, [3]uint32{256, 1, 1}, 0, params)
}

func (d *Device) launchGrid(fn uintptr, grid, block [3]uint32, shared uint32, params []unsafe.Pointer) error {
	return d.launchIn(d.work, fn, grid, block, shared, params)
}

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

// upload and download queue copies on the work stream; download waits for its own.
func (d *Device) upload(dst uint64, b []byte) error {
	return d.drv.check("cuMemcpyHtoD", d.drv.CopyToDevice(dst, unsafe.Pointer(&b[0]), uintptr(len(b)), d.work))
}

func (d *Device) download(b []byte, src uint64) error {
	if err := d.drv.check("cuMemcpyDtoH", d.drv.CopyToHost(unsafe.Pointer(&b[0]), src, uintptr(len(b)), d.work)); err != nil {
		return err
	}
	return d.sync()
}

func (d *Device) zero(p, size uint64) error {
	return d.drv.check("cuMemsetD8", d.drv.MemSet(p, 0, uintptr(size), d.work))
}

// params makes a parameter list of device addresses and 64-bit numbers.
func params(v ...*uint64) []unsafe.Pointer {
	out := make([]unsafe.Pointer, len(v))
	for i, p := range v {
		out[i] = unsafe.Pointer(p)
	}
	return out
}

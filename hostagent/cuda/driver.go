package cuda

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"wattmark/hostagent/internal/dl"
)

// result is a CUresult.
type result int32

// The results that are told apart here (cuda.h).
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
	Init              func(flags uint32) result                                                                                                     `c:"cuInit"`
	DriverGetVersion  func(version *int32) result                                                                                                   `c:"cuDriverGetVersion"`
	ErrorName         func(r result, s **byte) result                                                                                               `c:"cuGetErrorName"`
	ErrorString       func(r result, s **byte) result                                                                                               `c:"cuGetErrorString"`
	DeviceCount       func(n *int32) result                                                                                                         `c:"cuDeviceGetCount"`
	DeviceGet         func(dev *int32, ordinal int32) result                                                                                        `c:"cuDeviceGet"`
	DeviceName        func(name *byte, size int32, dev int32) result                                                                                `c:"cuDeviceGetName"`
	DeviceUUID        func(uuid *[16]byte, dev int32) result                                                                                        `c:"cuDeviceGetUuid_v2,cuDeviceGetUuid"`
	DevicePCIBusID    func(id *byte, size int32, dev int32) result                                                                                  `c:"cuDeviceGetPCIBusId"`
	DeviceAttribute   func(v *int32, attribute int32, dev int32) result                                                                             `c:"cuDeviceGetAttribute"`
	PrimaryRetain     func(ctx *uintptr, dev int32) result                                                                                          `c:"cuDevicePrimaryCtxRetain"`
	PrimaryRelease    func(dev int32) result                                                                                                        `c:"cuDevicePrimaryCtxRelease_v2,cuDevicePrimaryCtxRelease"`
	CtxSetCurrent     func(ctx uintptr) result                                                                                                      `c:"cuCtxSetCurrent"`
	CtxCurrent        func(ctx *uintptr) result                                                                                                     `c:"cuCtxGetCurrent"`
	CtxDevice         func(dev *int32) result                                                                                                       `c:"cuCtxGetDevice"`
	CtxSync           func() result                                                                                                                 `c:"cuCtxSynchronize"`
	ModuleLoad        func(mod *uintptr, image *byte, n uint32, options *int32, values *uintptr) result                                             `c:"cuModuleLoadDataEx"`
	ModuleUnload      func(mod uintptr) result                                                                                                      `c:"cuModuleUnload"`
	ModuleFunction    func(fn *uintptr, mod uintptr, name *byte) result                                                                             `c:"cuModuleGetFunction"`
	Occupancy         func(blocks *int32, fn uintptr, threads int32, shared uintptr) result                                                         `c:"cuOccupancyMaxActiveBlocksPerMultiprocessor"`
	Launch            func(fn uintptr, gx, gy, gz, bx, by, bz, shared uint32, stream uintptr, params *unsafe.Pointer, extra *unsafe.Pointer) result `c:"cuLaunchKernel"`
	StreamCreate      func(s *uintptr, flags uint32) result                                                                                         `c:"cuStreamCreate"`
	StreamDestroy     func(s uintptr) result                                                                                                        `c:"cuStreamDestroy_v2"`
	StreamQuery       func(s uintptr) result                                                                                                        `c:"cuStreamQuery"`
	StreamIsCapturing func(s uintptr, status *int32) result                                                                                         `c:"cuStreamIsCapturing?"`
	StreamSync        func(s uintptr) result                                                                                                        `c:"cuStreamSynchronize"`
	MemAlloc          func(p *uint64, size uintptr) result                                                                                          `c:"cuMemAlloc_v2"`
	MemFree           func(p uint64) result                                                                                                         `c:"cuMemFree_v2"`
	MemInfo           func(free, total *uintptr) result                                                                                             `c:"cuMemGetInfo_v2"`
	MemSet            func(p uint64, v uint8, size uintptr, s uintptr) result                                                                       `c:"cuMemsetD8Async"`
	CopyToDevice      func(dst uint64, src unsafe.Pointer, size uintptr, s uintptr) result                                                          `c:"cuMemcpyHtoDAsync_v2"`
	CopyToHost        func(dst unsafe.Pointer, src uint64, size uintptr, s uintptr) result                                                          `c:"cuMemcpyDtoHAsync_v2"`
	HostAlloc         func(p *unsafe.Pointer, size uintptr, flags uint32) result                                                                    `c:"cuMemHostAlloc"`
	HostFree          func(p unsafe.Pointer) result                                                                                                 `c:"cuMemFreeHost"`
}

// Sentinel errors, wrapped with what was done and what to do next.
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
		return nil, fmt.Errorf("%w: %w; install NVIDIA's driver on this machine (nvidia-smi must work here)", ErrNoDriver, err)
	}
	d := new(driver)
	if err := dl.Bind(lib, d); err != nil {
		return nil, fmt.Errorf("%w: %w; the driver is older than CUDA 9", ErrNoDriver, err)
	}
	return d, nil
}

// Loads tells whether the driver's library can be used here; it calls nothing of it.
func Loads() error {
	_, err := load(libraries...)
	return err
}

// check turns a result into an error with its name and text.
func (d *driver) check(call string, r result) error {
	if r == success {
		return nil
	}
	name, text := d.describe(r)
	return fmt.Errorf("%w: %s: %s (%d): %s", ErrCUDA, call, name, int32(r), text)
}

func (d *driver) describe(r result) (name, text string) {
	name, text = "unknown error", "the driver has no text for it"
	var p *byte
	if d.ErrorName(r, &p) == success && p != nil {
		name = goString(p)
	}
	p = nil
	if d.ErrorString(r, &p) == success && p != nil {
		text = goString(p)
	}
	return name, text
}

// goString copies a NUL-terminated string of the driver.
func goString(p *byte) string {
	var b strings.Builder
	for i := 0; i < 4096; i++ {
		c := *(*byte)(unsafe.Add(unsafe.Pointer(p), i))
		if c == 0 {
			break
		}
		b.WriteByte(c)
	}
	return b.String()
}

// cString copies a string to NUL-terminated bytes.
func cString(s string) *byte {
	return &append([]byte(s), 0)[0]
}

// text returns the string in a buffer that the driver filled.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

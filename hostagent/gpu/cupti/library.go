// Package cupti records the kernels of the process that it runs in, through
// NVIDIA's libcupti, found at run time: it ships with the CUDA toolkit or a
// Python wheel, not with the driver. libcuda calls the injection
// (cmd/libwattmark) when the program initialises it; the injection calls Attach
// and, at the process's end, Detach. Nothing here is linked against CUDA.
package cupti

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
	"golang.org/x/sys/unix"
)

// ErrNoLibrary: no libcupti was found.
var ErrNoLibrary = errors.New("CUPTI was not found")

// library is libcupti. CUPTI's results are CUptiResult, 0 for success.
type library struct {
	// the library, and the records of activity
	GetVersion        func(version *uint32) uint32                                `c:"cuptiGetVersion"`
	RegisterCallbacks func(requested, completed uintptr) uint32                   `c:"cuptiActivityRegisterCallbacks"`
	Enable            func(kind uint32) uint32                                    `c:"cuptiActivityEnable"`
	FlushAll          func(flag uint32) uint32                                    `c:"cuptiActivityFlushAll"`
	NextRecord        func(buffer uintptr, valid uintptr, record *uintptr) uint32 `c:"cuptiActivityGetNextRecord"`
	Dropped           func(context uintptr, stream uint32, n *uint64) uint32      `c:"cuptiActivityGetNumDroppedRecords"`
	ResultString      func(result uint32, text **byte) uint32                     `c:"cuptiGetResultString?"`

	// absent in older versions
	FlushPeriod    func(ms uint32) uint32                                        `c:"cuptiActivityFlushPeriod?"`
	Subscribe      func(subscriber *uintptr, callback, user uintptr) uint32      `c:"cuptiSubscribe?"`
	EnableCallback func(on uint32, subscriber uintptr, domain, id uint32) uint32 `c:"cuptiEnableCallback?"`
	Disable        func(kind uint32) uint32                                      `c:"cuptiActivityDisable?"`
	Unsubscribe    func(subscriber uintptr) uint32                               `c:"cuptiUnsubscribe?"`

	calls Calls
}

// driver has the functions of libcuda that map an ordinal to a UUID.
type driver struct {
	DeviceGet  func(device *int32, ordinal int32) int32 `c:"cuDeviceGet"`
	DeviceUUID func(uuid *[16]byte, device int32) int32 `c:"cuDeviceGetUuid_v2,cuDeviceGetUuid"`
}

// load finds CUPTI.
func load() (*library, error) {
	where := Candidates(os.Getenv, filepath.Glob)
	if os.Getenv(EnvLibrary) == "" {
		maps, _ := os.ReadFile("/proc/self/maps")
		where = append(mapped(string(maps)), where...)
	}
	h, err := dl.Open(where...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w\nIt comes with the CUDA toolkit (extras/CUPTI) or the Python wheel "+
			"nvidia-cuda-cupti: install one, add its folder to LD_LIBRARY_PATH, or name the file in %s",
			ErrNoLibrary, err, EnvLibrary)
	}
	var l library
	if err := dl.Bind(h, &l); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	l.calls = Calls{
		Register:  dl.Find(h, "cuptiActivityRegisterCallbacks"),
		Clock:     dl.Find(h, "cuptiActivityRegisterTimestampCallback"),
		Subscribe: dl.Find(h, "cuptiSubscribe"), Flush: dl.Find(h, "cuptiActivityFlushAll"),
	}
	return &l, nil
}

// check turns a CUptiResult into an error with CUPTI's text; nil for success.
func (l *library) check(what string, result uint32) error {
	if result == 0 {
		return nil
	}
	text := "unknown result"
	if l.ResultString != nil {
		var p *byte
		if l.ResultString(result, &p) == 0 && p != nil {
			text = cString(p)
		}
	}
	return fmt.Errorf("%s: %s (%d)", what, text, result)
}

// names of the library, the newest first; the plain one is the toolkit's link.
var names = []string{"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"}

// EnvLibrary names the library to use, and no other.
const EnvLibrary = "WATTMARK_CUPTI"

// Candidates lists where CUPTI may be, in the order in which it is tried: the
// file that WATTMARK_CUPTI names alone, or by its names through the linker's own
// paths, in the toolkits that CUDA_HOME and CUDA_PATH name, in those below
// /usr/local, and in the wheel of the Python environment that the program runs
// in. glob is filepath.Glob.
func Candidates(getenv func(string) string, glob func(string) ([]string, error)) []string {
	if lib := getenv(EnvLibrary); lib != "" {
		return []string{lib}
	}
	out := slices.Clone(names)
	in := func(dir string) {
		for _, n := range names {
			found, err := glob(filepath.Join(dir, n))
			if err == nil {
				slices.SortFunc(found, func(a, b string) int { return cmp.Compare(b, a) }) // newest first
				out = append(out, found...)
			}
		}
	}
	for _, env := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if home := getenv(env); home != "" {
			in(filepath.Join(home, "lib64"))
			in(filepath.Join(home, "extras/CUPTI/lib64"))
		}
	}
	for _, venv := range pythons(getenv) {
		in(filepath.Join(venv, "lib/python3*/site-packages/nvidia/cu13/lib"))
		in(filepath.Join(venv, "lib/python3*/site-packages/nvidia/cuda_cupti/lib"))
	}
	in("/usr/local/cuda*/lib64")
	in("/usr/local/cuda*/extras/CUPTI/lib64")
	for _, dir := range []string{"/usr/local", "/usr", getenv("HOME") + "/.local"} {
		in(filepath.Join(dir, "lib/python3*/*-packages/nvidia/cu13/lib"))
		in(filepath.Join(dir, "lib/python3*/*-packages/nvidia/cuda_cupti/lib"))
	}
	return out
}

// mapped returns the paths of the libcupti that the process has loaded already, out of
// the text of /proc/self/maps: a second copy beside the program's would share nothing
// with it but the driver.
func mapped(maps string) (out []string) {
	for line := range strings.Lines(maps) {
		_, path, ok := strings.Cut(strings.TrimSpace(line), "/")
		if path = "/" + path; ok && strings.HasPrefix(filepath.Base(path), "libcupti.so") &&
			!slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out
}

// pythons are the folders of Python environments: the active one, and that of the
// interpreter which this process runs, if it is one.
func pythons(getenv func(string) string) (out []string) {
	for _, env := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if dir := getenv(env); dir != "" {
			out = append(out, dir)
		}
	}
	// A virtual environment's interpreter is a link: /proc/self/exe points at its
	// target, the command line at itself.
	line, _ := os.ReadFile("/proc/self/cmdline")
	first, _, _ := strings.Cut(string(line), "\x00")
	exe, _ := os.Executable()
	for _, path := range []string{first, exe} {
		if strings.Contains(filepath.Base(path), "python") && filepath.IsAbs(path) {
			out = append(out, filepath.Dir(filepath.Dir(path)))
		}
	}
	return out
}

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

// cString copies a C string that belongs to CUPTI.
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

// put takes a buffer back.
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

// Package cupti records the kernels of the process that it runs in, through
// NVIDIA's libcupti, found at run time: it ships with the CUDA toolkit or a
// Python wheel, not with the driver. libcuda calls the injection
// (cmd/libwattmark) when the program initialises it; the injection calls Attach
// and, at the process's end, Detach. Nothing here is linked against CUDA.
package cupti

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
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
	DriverCall     func(call uint32, on uint8) uint32                            `c:"cuptiActivityEnableDriverApi?"`
	RuntimeCall    func(call uint32, on uint8) uint32                            `c:"cuptiActivityEnableRuntimeApi?"`

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
	for i, name := range callNames {
		l.calls[i] = dl.Find(h, name)
	}
	return &l, nil
}

// check turns a CUptiResult into an error with CUPTI's text; nil for success.
func (l *library) check(what string, result uint32) error {
	if result == 0 {
		return nil
	}
	var text *byte
	if l.ResultString != nil && l.ResultString(result, &text) != 0 {
		text = nil
	}
	return fmt.Errorf("%s: %s (%d)", what, cmp.Or(dl.String(text), "unknown result"), result)
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
	return unsafe.Slice(pointer[byte](address), n) // not Go's: nothing for the collector
}

// cName is the name at an address, without a copy; nil for none.
func cName(address uintptr) []byte {
	if address == 0 {
		return nil
	}
	n := 0
	for n < maxName && *pointer[byte](address + uintptr(n)) != 0 { // no further than its end
		n++
	}
	return at(address, n)
}

// pool keeps the buffers that CUPTI fills; they are the kernel's pages, not Go's.
// It has a lock of its own: the program's thread, which waits for an empty buffer,
// must not wait until a full one is read.
type pool struct {
	mu   sync.Mutex
	free []uintptr
	own  map[uintptr]bool // all that were made
	size int
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
	at := uintptr(unsafe.Pointer(&b[0]))
	p.own[at] = true
	return at
}

// has reports whether a buffer is one of the pool's.
func (p *pool) has(b uintptr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own[b]
}

// out returns the buffers that CUPTI has.
func (p *pool) out() (out []uintptr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for b := range p.own {
		if !slices.Contains(p.free, b) {
			out = append(out, b)
		}
	}
	return out
}

// put takes a buffer back.
func (p *pool) put(b uintptr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, b)
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

// bufferBytes is the size of one buffer for CUPTI: some 40 000 kernels.
const bufferBytes = 8 << 20

// spare is how many buffers wait to be filled: one being written, one behind it.
const spare = 2

// maxLimitReached is CUPTI_ERROR_MAX_LIMIT_REACHED: no further record.
const maxLimitReached = 12

// known is a name that was seen: a module that is unloaded may leave its address
// to another.
type known struct {
	index uint32
	name  []byte
}

// recorder takes CUPTI's buffers to a log. CUPTI calls it from threads of its own.
type recorder struct {
	mu      sync.Mutex
	lib     *library
	drv     *driver // nil where libcuda lacks its functions
	layout  layout
	log     *launchlog.Writer
	pool    pool
	names   map[uintptr]known
	devices map[uint32]bool
	untimed uint64
	unnamed uint64
	odd     uint64
	foreign uint64      // kernels whose times are of an unknown clock
	late    atomic.Bool // the program's own profiler had CUPTI first, and has it still
	gone    atomic.Bool // the program ended CUPTI's work
	program program
	ranged  atomic.Bool       // the program named ranges: calls are recorded
	ranges  map[string]uint32 // their names
	named   events
	k       launchlog.Kernel
}

// newRecorder makes a recorder with its spare buffers in place.
func newRecorder(lib *library, drv *driver, l layout, log *launchlog.Writer) *recorder {
	r := &recorder{
		lib: lib, drv: drv, layout: l, log: log, pool: pool{size: bufferBytes, own: map[uintptr]bool{}},
		names: map[uintptr]known{}, devices: map[uint32]bool{}, program: program{kinds: map[uint32]bool{}},
		ranges: map[string]uint32{},
	}
	r.pool.stock(spare)
	return r
}

// requested hands CUPTI an empty buffer, on the thread that launches: the program's own while its
// profiler runs.
func (r *recorder) requested(buffer *uintptr, size, records *uint64) {
	if r.program.active.Load() && r.program.ask(buffer, size, records) {
		return
	}
	*buffer, *size, *records = r.pool.get(), bufferBytes, 0
	if *buffer == 0 {
		*size = 0 // CUPTI then drops records, and counts them
	}
}

// completed takes a full one to the log, and to the program's own profiler.
func (r *recorder) completed(context uintptr, stream uint32, buffer uintptr, size, valid uint64) {
	if buffer == 0 {
		return
	}
	if !r.pool.has(buffer) {
		r.read(buffer, uintptr(valid))
		r.program.complete(context, stream, buffer, size, valid)
		return
	}
	defer r.pool.put(buffer)
	if valid > bufferBytes {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.odd++
		return
	}
	r.pool.stock(1) // should the next be full before this one is read
	r.read(buffer, uintptr(valid))
	r.copy(context, stream, buffer, uintptr(valid))
	r.mu.Lock()
	defer r.mu.Unlock()
	var dropped uint64
	if r.lib.Dropped(context, stream, &dropped) == 0 && dropped > 0 {
		r.log.Dropped(dropped)
	}
}

// read takes a buffer's kernels to the log.
func (r *recorder) read(buffer, valid uintptr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.program.mu.Lock()
	r.program.readClock()
	r.program.mu.Unlock()
	r.logRanges()
	now := time.Now().UnixNano()
	for record := range r.records(buffer, valid) {
		r.take(at(record, int(buffer+valid-record)), now)
	}
}

// records yields the addresses of a buffer's records. What is wrong with it is counted, or goes to
// the log.
func (r *recorder) records(buffer, valid uintptr) iter.Seq[uintptr] {
	return func(yield func(uintptr) bool) {
		for record := new(uintptr); ; {
			if got := r.lib.NextRecord(buffer, valid, record); got != 0 {
				if got != maxLimitReached {
					r.log.Trouble(r.lib.check("reading CUPTI's buffer", got).Error())
				}
				return
			}
			if *record < buffer || *record >= buffer+valid {
				r.odd++
				return
			}
			if !yield(*record) {
				return
			}
		}
	}
}

// aWhile is how far the end of a kernel may lie from when its record is read, in ns: beyond it,
// its time is not the host's.
const aWhile = int64(24 * time.Hour)

// take writes one record, which was read now (ns since 1970). Records of other kinds, which the program
// enabled, are passed over.
func (r *recorder) take(b []byte, now int64) {
	if len(b) >= 4 && !isKernel(binary.LittleEndian.Uint32(b)) && (r.program.used() || r.ranged.Load()) {
		r.call(b)
		return
	}
	name, ok := r.layout.decode(b, &r.k)
	if !ok {
		r.odd++
		return
	}
	r.log.Reported(1)
	if r.k.Start == 0 || r.k.End == 0 || r.k.End < r.k.Start {
		r.untimed++
		return
	}
	r.k.Start, r.k.End = r.program.host(r.k.Start), r.program.host(r.k.End)
	if r.program.used() && (r.k.End < now-aWhile || r.k.End > now+aWhile) {
		r.foreign++
		return
	}
	if r.k.Name, ok = r.name(uintptr(name)); !ok {
		r.unnamed++
		return
	}
	r.devices[r.k.Device] = true
	r.log.Kernel(&r.k)
}

// call writes the record of a call (CUpti_ActivityAPI) that launches kernels, where ranges want it.
func (r *recorder) call(b []byte) {
	le := binary.LittleEndian
	if !r.ranged.Load() || len(b) < sizeCall {
		return
	}
	if kind, id := le.Uint32(b), le.Uint32(b[4:]); isCall(kind) && slices.Contains(launchedBy[kind], id) {
		at := r.program.host(int64(le.Uint64(b[8:])))
		r.log.Call(le.Uint32(b[32:]), launchlog.Call{Thread: le.Uint32(b[28:]), At: at})
	}
}

// name is the index of the name at an address.
func (r *recorder) name(address uintptr) (uint32, bool) {
	// The text is compared, not the address alone: another module may have it by now.
	text := cName(address)
	if k, ok := r.names[address]; ok && bytes.Equal(k.name, text) {
		return k.index, true
	}
	i, ok := r.log.Name(text)
	if ok {
		r.names[address] = known{i, bytes.Clone(text)}
	}
	return i, ok
}

// identify writes which GPUs the kernels ran on. It asks the driver, which a
// thread of CUPTI's must not.
func (r *recorder) identify() {
	r.mu.Lock()
	ordinals := slices.Sorted(maps.Keys(r.devices))
	r.mu.Unlock()
	for _, o := range ordinals {
		var dev int32
		var uuid [16]byte
		if r.drv != nil && r.drv.DeviceGet(&dev, int32(o)) == 0 && r.drv.DeviceUUID(&uuid, dev) == 0 {
			r.mu.Lock()
			r.log.Device(o, uuid)
			r.mu.Unlock()
		}
	}
}

// end writes the counts of records that were left out, and completes the log.
func (r *recorder) end() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logRanges()
	for _, x := range []struct {
		n    *uint64
		what string
	}{
		{&r.untimed, "kernels without time stamps were left out"},
		{&r.unnamed, "kernels were left out: too many names"},
		{&r.odd, "records that are no kernels were left out"},
		{&r.foreign, "kernels were left out: the program's own profiler had set another clock before it could be related"},
	} {
		if *x.n > 0 {
			r.log.Trouble(fmt.Sprintf("%d %s", *x.n, x.what))
			*x.n = 0
		}
	}
	return r.log.End()
}

// pointer is a callback's argument as a Go pointer; it belongs to CUPTI.
func pointer[T any](a uintptr) *T { return *(**T)(unsafe.Pointer(&a)) }

// A kernel's record is CUpti_ActivityKernel4 and its successors: packed to four bytes,
// aligned to eight. Each version only adds at the end, so the fields used here lie where
// version 4 (CUDA 9.0) put them; grid and block are three words each.
//
// Version 5 (CUDA 11.0) adds graphNodeId at 144 and graphId at 156; in 11.0
// itself those four bytes were padding. Source: NVIDIA's headers of CUDA 10.2
// to 12 and the reference up to version 12 (CUDA 13.4).
const (
	offKind        = 0
	offStart       = 16
	offEnd         = 24
	offDevice      = 40
	offStream      = 48
	offGrid        = 52
	offBlock       = 64
	offCorrelation = 92
	offName        = 104
	offGraph       = 156

	sizeKernel4 = 144
	sizeKernel5 = 160
)

// Activity kinds that carry a kernel's record.
const (
	kindKernel           = 3
	kindDriver           = 4
	kindRuntime          = 5
	kindConcurrentKernel = 10
)

// sizeCall is the size of a call's record: kind, number of the function, start, end, process, thread, correlation
// and result.
const sizeCall = 40

// launchedBy are the functions that launch, by kind: those of the runtime are cudaLaunchKernel,
// cudaLaunchCooperativeKernel, cudaGraphLaunch and cudaLaunchKernelExC, each with its form for per-thread default
// streams (cupti_runtime_cbid.h).
var launchedBy = map[uint32][]uint32{kindDriver: launchCalls, kindRuntime: {211, 214, 269, 270, 311, 312, 430, 431}}

func isCall(kind uint32) bool { return kind == kindDriver || kind == kindRuntime }

func isKernel(kind uint32) bool { return kind == kindConcurrentKernel || kind == kindKernel }

// Interface versions, the results of cuptiGetVersion.
const (
	versionKernel4 = 10 // CUDA 9.0
	versionKernel5 = 13 // CUDA 11.0
	versionGraphID = 14 // CUDA 11.1
)

// ErrVersion: this CUPTI is older than the record layouts known here.
var ErrVersion = errors.New("this CUPTI is too old")

// layout is the part of a kernel's record that a version of CUPTI fills.
type layout struct {
	size  int // bytes that must be there
	graph bool
}

// layoutOf returns the layout of a version's record; ErrVersion before CUDA 9.0.
func layoutOf(version uint32) (layout, error) {
	switch {
	case version < versionKernel4:
		return layout{}, fmt.Errorf("%w: its interface is %d, want %d (CUDA 9.0) or newer", ErrVersion, version,
			versionKernel4)
	case version < versionKernel5:
		return layout{size: sizeKernel4}, nil
	default:
		return layout{size: sizeKernel5, graph: version >= versionGraphID}, nil
	}
}

// decode reads a record. name is the address of its name in the process; ok is false for a
// record of another kind and for one that is cut short. A kernel without time stamps
// (CUPTI could not collect them) has zeros for both.
func (l layout) decode(b []byte, k *launchlog.Kernel) (name uint64, ok bool) {
	if len(b) < l.size {
		return 0, false
	}
	le := binary.LittleEndian
	if !isKernel(le.Uint32(b[offKind:])) {
		return 0, false
	}
	k.Start, k.End = int64(le.Uint64(b[offStart:])), int64(le.Uint64(b[offEnd:]))
	k.Device, k.Stream = le.Uint32(b[offDevice:]), le.Uint32(b[offStream:])
	for i := range 3 {
		k.Grid[i], k.Block[i] = le.Uint32(b[offGrid+4*i:]), le.Uint32(b[offBlock+4*i:])
	}
	k.Correlation, k.Graph = le.Uint32(b[offCorrelation:]), 0
	if l.graph {
		k.Graph = le.Uint32(b[offGraph:])
	}
	return le.Uint64(b[offName:]), true
}

package cupti

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
)

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
	yielded atomic.Bool // CUPTI was given to the program's own profiler
	k       launchlog.Kernel
}

// newRecorder makes a recorder with its spare buffers in place.
func newRecorder(lib *library, drv *driver, l layout, log *launchlog.Writer) *recorder {
	r := &recorder{
		lib: lib, drv: drv, layout: l, log: log, pool: pool{size: bufferBytes},
		names: map[uintptr]known{}, devices: map[uint32]bool{},
	}
	r.pool.stock(spare)
	return r
}

// requested hands CUPTI an empty buffer, on the thread that launches.
func (r *recorder) requested(buffer *uintptr, size, records *uint64) {
	*buffer, *size, *records = r.pool.get(), bufferBytes, 0
	if *buffer == 0 {
		*size = 0 // CUPTI then drops records, and counts them
	}
}

// completed takes a full one to the log.
func (r *recorder) completed(context uintptr, stream uint32, buffer, valid uintptr) {
	if buffer == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pool.stock(1) // should the next be full before this one is read
	defer r.pool.put(buffer)
	if valid > bufferBytes {
		r.odd++
		return
	}
	var record uintptr
	for {
		if got := r.lib.NextRecord(buffer, valid, &record); got != 0 {
			if got != maxLimitReached {
				r.log.Trouble(r.lib.check("reading CUPTI's buffer", got).Error())
			}
			break
		}
		if record < buffer || record >= buffer+valid {
			r.odd++
			break
		}
		r.take(at(record, int(buffer+valid-record)))
	}
	var dropped uint64
	if r.lib.Dropped(context, stream, &dropped) == 0 && dropped > 0 {
		r.log.Dropped(dropped)
	}
}

// take writes one record.
func (r *recorder) take(b []byte) {
	name, ok := r.layout.decode(b, &r.k)
	if !ok {
		r.odd++
		return
	}
	r.log.Reported(1)
	if !timed(&r.k) {
		r.untimed++
		return
	}
	if r.k.Name, ok = r.name(uintptr(name)); !ok {
		r.unnamed++
		return
	}
	if !r.devices[r.k.Device] {
		r.devices[r.k.Device] = true
	}
	r.log.Kernel(&r.k)
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
	for _, x := range []struct {
		n    *uint64
		what string
	}{
		{&r.untimed, "kernels without time stamps were left out"},
		{&r.unnamed, "kernels were left out: too many names"},
		{&r.odd, "records that are no kernels were left out"},
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
// version 4 (CUDA 9.0) put them:
//
//	kind 0, start 16, end 24, deviceId 40, streamId 48, grid 52, 56, 60,
//	block 64, 68, 72, correlationId 92, name 104, sharedMemoryExecuted 140
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
	kindConcurrentKernel = 10
)

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
	if kind := le.Uint32(b[offKind:]); kind != kindConcurrentKernel && kind != kindKernel {
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

// timed reports whether a record's time stamps can be.
func timed(k *launchlog.Kernel) bool { return k.Start > 0 && k.End >= k.Start }

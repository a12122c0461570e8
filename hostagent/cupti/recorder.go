package cupti

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"wattmark/hostagent/launchlog"
)

// bufferBytes is what CUPTI gets at a time: some 40 000 kernels.
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
	drv     *driver // nil where libcuda does not tell
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
		*size = 0 // CUPTI drops what comes, and counts it
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
				r.log.Trouble(r.lib.say("reading CUPTI's buffer", got).Error())
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

// end writes what is left to say, and makes the log whole.
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

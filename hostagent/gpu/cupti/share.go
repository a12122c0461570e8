package cupti

import (
	"fmt"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
)

// CallNumber is one of CUPTI's functions by which a program's own profiler shows itself.
type CallNumber int

// The functions.
const (
	CallRegister  CallNumber = iota // cuptiActivityRegisterCallbacks: it takes the buffers
	CallClock                       // cuptiActivityRegisterTimestampCallback: it sets the clock of the records
	CallEnable                      // cuptiActivityEnable: it begins
	CallDisable                     // cuptiActivityDisable: it ends
	CallFlush                       // cuptiActivityFlushAll
	CallSubscribe                   // cuptiSubscribe: it takes the callbacks around launches
	CallFinalize                    // cuptiFinalize: it ends CUPTI's work in the process
	NumCalls
)

// Calls are the addresses of the functions, 0 for one that this CUPTI lacks.
type Calls [NumCalls]uintptr

var callNames = [NumCalls]string{
	"cuptiActivityRegisterCallbacks", "cuptiActivityRegisterTimestampCallback", "cuptiActivityEnable",
	"cuptiActivityDisable", "cuptiActivityFlushAll", "cuptiSubscribe", "cuptiFinalize",
}

// through has the library's own calls go by these ways into the functions, past the watch.
func (l *library) through(c Calls) {
	l.calls = c
	for call, to := range map[CallNumber]any{
		CallRegister: &l.RegisterCallbacks, CallEnable: &l.Enable, CallDisable: &l.Disable, CallFlush: &l.FlushAll,
		CallSubscribe: &l.Subscribe,
	} {
		if c[call] != 0 {
			purego.RegisterFunc(to, c[call])
		}
	}
}

// program is what the program's own profiler asked of CUPTI. Its buffers are passed on to CUPTI and
// back; the kernels in them are recorded on the way. CUPTI calls it from threads of its own.
type program struct {
	// active: it wants the records now. From then on CUPTI's buffers are its own.
	active atomic.Bool
	// requested and completed are its callbacks, 0 for none.
	requested, completed atomic.Uintptr
	mu                   sync.Mutex
	kinds                map[uint32]bool // activity that it enabled
	stopped              bool            // it disabled its kernels
	clock                uintptr         // its clock's function, 0 for none
	anchors              []anchor        // by host
	// owed are the buffers of ours that CUPTI had when the program's profiler began, and when that
	// was (ns since 1970): they may hold records of it.
	owed map[uintptr]int64
	// spare is a buffer that the program handed over when its profiler began: one that never was
	// asked for any does not flush (Kineto).
	spare atomic.Pointer[handover]
}

// anchor is an instant on the host's clock (ns since 1970) and on the program's own.
type anchor struct{ host, own int64 }

// used reports whether the program has a profiler of its own.
func (p *program) used() bool { return p.requested.Load() != 0 }

// ask asks the program for a buffer, or takes the spare one.
func (p *program) ask(buffer *uintptr, size, records *uint64) bool {
	if s := p.spare.Swap(nil); s != nil {
		*buffer, *size, *records = s.buffer, s.size, s.records
		return true
	}
	f := p.requested.Load()
	if f == 0 {
		return false
	}
	purego.SyscallN(f, addressOf(buffer), addressOf(size), addressOf(records))
	return *buffer != 0
}

// complete hands a full buffer to the program, whose own it is.
func (p *program) complete(context uintptr, stream uint32, buffer uintptr, size, valid uint64) {
	if f := p.completed.Load(); f != 0 {
		purego.SyscallN(f, context, uintptr(stream), buffer, uintptr(size), uintptr(valid))
	}
}

// handover is a buffer of the program's that is being filled with copies.
type handover struct {
	buffer        uintptr
	size, records uint64
	used          uintptr
}

// copy hands the program copies of its records in a buffer of ours, which CUPTI still had when the
// program's profiler began.
func (r *recorder) copy(context uintptr, stream uint32, buffer, valid uintptr) {
	p := &r.program
	p.mu.Lock()
	since, owed := p.owed[buffer]
	delete(p.owed, buffer)
	p.mu.Unlock()
	if !owed || valid == 0 {
		return
	}
	r.mu.Lock()
	ends := slices.Collect(r.records(buffer, valid))
	r.mu.Unlock()
	ends = append(ends, buffer+valid) // each record ends where the next begins
	into := new(handover)
	var pin runtime.Pinner // the program's function writes to it
	pin.Pin(into)
	defer pin.Unpin()
	hand := func() {
		if into.buffer != 0 {
			p.complete(context, stream, into.buffer, into.size, uint64(into.used))
		}
		*into = handover{}
	}
	defer hand()
	var k launchlog.Kernel
	for i, from := range ends[:len(ends)-1] {
		record := at(from, int(ends[i+1]-from))
		if _, kernel := r.layout.decode(record, &k); kernel && p.host(k.Start) < since {
			continue // of before
		}
		if into.buffer != 0 && uint64(into.used)+uint64(len(record)) > into.size {
			hand()
		}
		if into.buffer == 0 && (!p.ask(&into.buffer, &into.size, &into.records) || into.size < uint64(len(record))) {
			return
		}
		copy(at(into.buffer+into.used, len(record)), record)
		into.used += uintptr(len(record))
	}
}

// tries is how often the two clocks are read for an anchor: the closest pair counts.
const tries = 16

// mostAnchors bounds them; the older half goes.
const mostAnchors = 1 << 12

// readClock adds an anchor. mu is held.
func (p *program) readClock() {
	if p.clock == 0 {
		return
	}
	best, within := anchor{}, time.Duration(1<<62)
	for range tries {
		before := time.Now()
		own, _, _ := purego.SyscallN(p.clock)
		after := time.Now()
		if d := after.Sub(before); d < within {
			within, best = d, anchor{before.UnixNano() + int64(d/2), int64(own)}
		}
	}
	if n := len(p.anchors); n > 0 && p.anchors[n-1].own >= best.own {
		return
	}
	if len(p.anchors) == mostAnchors {
		p.anchors = append(p.anchors[:0], p.anchors[mostAnchors/2:]...)
	}
	p.anchors = append(p.anchors, best)
}

// host is a record's time on the host's clock, in ns since 1970: on the straight line between two
// anchors of the program's clock, where it set one.
func (p *program) host(t int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.anchors
	switch {
	case p.clock == 0:
		return t
	case len(a) == 1:
		return t - a[0].own + a[0].host
	}
	i := min(max(sort.Search(len(a), func(i int) bool { return a[i].own >= t }), 1), len(a)-1)
	rate := float64(a[i].host-a[i-1].host) / float64(a[i].own-a[i-1].own)
	return a[i].host + int64(rate*float64(t-a[i].own))
}

// Call does what the program asked of CUPTI such that both get their records, and returns CUPTI's
// result. It must be called in the process that called Attach. It blocks as CUPTI's function does. It is
// safe for concurrent use: nothing is locked while CUPTI works.
func Call(call CallNumber, a, b, c uintptr) uint32 {
	r := attached.rec.Load()
	if r == nil {
		return notInitialized
	}
	switch call {
	case CallRegister:
		return r.register(a, b)
	case CallClock:
		return r.setClock(a)
	case CallEnable:
		return r.enable(uint32(a))
	case CallDisable:
		return r.disable(uint32(a))
	case CallFlush:
		got := r.lib.FlushAll(uint32(a))
		r.flushed()
		if s := r.program.spare.Swap(nil); s != nil && !r.program.active.Load() {
			r.program.complete(0, 0, s.buffer, s.size, 0)
		} else if s != nil {
			r.program.spare.Store(s)
		}
		return got
	case CallSubscribe:
		r.unsubscribe()
	case CallFinalize:
		r.finalize()
	}
	got, _, _ := purego.SyscallN(r.lib.calls[call], a, b, c)
	return uint32(got)
}

// notInitialized is CUPTI_ERROR_NOT_INITIALIZED.
const notInitialized = 15

// register takes the program's callbacks. CUPTI keeps ours.
func (r *recorder) register(requested, completed uintptr) uint32 {
	if requested == 0 || completed == 0 {
		return r.lib.RegisterCallbacks(requested, completed) // CUPTI's own error
	}
	if r.late.Load() {
		if err := enable(r.lib); err != nil { // it records still
			return r.lib.RegisterCallbacks(requested, completed)
		}
		r.begin()
	}
	r.program.requested.Store(requested)
	r.program.completed.Store(completed)
	r.activate()
	return 0
}

// activate has CUPTI fill the program's buffers from now on.
func (r *recorder) activate() {
	if r.program.active.Swap(true) {
		return
	}
	r.lib.period(0) // some profilers bound the number of their buffers
	p, owed, now := &r.program, map[uintptr]int64{}, time.Now().UnixNano()
	for _, b := range r.pool.out() {
		owed[b] = now
	}
	spare := new(handover)
	var pin runtime.Pinner // the program's function writes to it
	pin.Pin(spare)
	defer pin.Unpin()
	if p.ask(&spare.buffer, &spare.size, &spare.records) {
		p.spare.Store(spare)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owed = owed
}

// period sets the interval, in ms, at which CUPTI delivers its buffers, where this version can.
func (l *library) period(ms uint32) {
	if l.FlushPeriod != nil {
		_ = l.FlushPeriod(ms)
	}
}

// begin notes that kernels are recorded from now on.
func (r *recorder) begin() {
	r.late.Store(false)
	r.gone.Store(false)
	r.mu.Lock()
	defer r.mu.Unlock()
	at := time.Now().UTC().Format("15:04:05.000")
	r.log.Trouble(fmt.Sprintf("recorded from %s on, when its own profiler had stopped", at))
	_ = r.log.Flush() // an error stays, and ends the log
}

// setClock has the records stamped by the program's clock, which is related to the host's from then
// on. What CUPTI holds must be out before.
func (r *recorder) setClock(f uintptr) uint32 {
	p := &r.program
	p.mu.Lock()
	known := f == p.clock && f != 0
	p.mu.Unlock()
	if known {
		return 0
	}
	if !r.late.Load() && r.lib.Disable != nil {
		_ = r.lib.FlushAll(1)
		_ = r.lib.Disable(kindConcurrentKernel)
		defer func() { _ = r.lib.Enable(kindConcurrentKernel) }()
	}
	got, _, _ := purego.SyscallN(r.lib.calls[CallClock], f)
	if uint32(got) == 0 {
		// The clock has its first anchor before any record is read by it; 0 is the host's.
		p.mu.Lock()
		p.clock, p.anchors = f, nil
		p.readClock()
		p.mu.Unlock()
	}
	return uint32(got)
}

// enable enables a kind of activity for the program. Its kernels are ours already; serialized ones, which
// exclude concurrent ones, are recorded as well.
func (r *recorder) enable(kind uint32) uint32 {
	swap := kind == kindKernel && !r.late.Load() && r.lib.Disable != nil
	if swap {
		_ = r.lib.Disable(kindConcurrentKernel)
	}
	got := r.lib.Enable(kind)
	if got != 0 {
		if swap {
			_ = r.lib.Enable(kindConcurrentKernel)
		}
		return got
	}
	p := &r.program
	p.mu.Lock()
	p.kinds[kind], p.stopped = true, false
	p.mu.Unlock()
	if p.used() {
		r.activate()
	} else if !r.late.Load() && isKernel(kind) {
		r.mu.Lock()
		r.log.Trouble("the program's own profiler registered with CUPTI before wattmark, which replaced it: that " +
			"profiler's own record lacks the kernels")
		r.mu.Unlock()
	}
	return 0
}

// event is a begin or an end of a range that waits for the log.
type event struct {
	launchlog.Range
	name string
}

// events are those that the program's threads reported since the log was last written: none of them waits while a
// buffer of kernels is read.
type events struct {
	mu   sync.Mutex
	list []event
}

// mostEvents is how many events wait before their thread takes them to the log itself.
const mostEvents = 1 << 12

// Range adds an event of a range that the program named to the log. The first has the calls that launch
// kernels recorded from then on. It does not block on the log.
func Range(x launchlog.Range, name string) {
	r := attached.rec.Load()
	if r == nil {
		return
	}
	if !r.ranged.Swap(true) {
		r.recordCalls()
	}
	// Events are written with each buffer of kernels; here where no buffer comes.
	r.named.mu.Lock()
	r.named.list = append(r.named.list, event{x, name})
	waiting := len(r.named.list)
	r.named.mu.Unlock()
	if waiting >= mostEvents && r.mu.TryLock() {
		defer r.mu.Unlock()
		r.logRanges()
	}
}

// recordCalls has the calls that launch kernels recorded: these alone where this CUPTI can. Records of all calls made
// a decode on an H100 15 to 24 % longer (testdata/h200/logs/cost.txt).
func (r *recorder) recordCalls() {
	for kind, one := range map[uint32]func(uint32, uint8) uint32{
		kindDriver: r.lib.DriverCall, kindRuntime: r.lib.RuntimeCall,
	} {
		for _, id := range launchedBy[kind] {
			if one == nil {
				_ = r.lib.Enable(kind)
				break
			}
			_ = one(id, 1) // one that this CUPTI does not know yet is not called beside it either
		}
	}
}

// logRanges takes the events to the log. The caller holds r.mu.
func (r *recorder) logRanges() {
	r.named.mu.Lock()
	list := r.named.list
	r.named.list = nil
	r.named.mu.Unlock()
	for _, x := range list {
		i, ok := r.ranges[x.name]
		if !ok {
			if i, ok = r.log.Name([]byte(x.name)); !ok {
				r.unnamed++
				continue
			}
			r.ranges[x.name] = i
		}
		x.Name = i
		r.log.Range(&x.Range)
	}
}

// disable ends a kind of activity for the program. Ours goes on. CUPTI is given buffers of ours from
// the last one on.
func (r *recorder) disable(kind uint32) (got uint32) {
	switch {
	case r.late.Load():
		got = r.lib.Disable(kind)
	case kind == kindKernel:
		got = r.lib.Disable(kind)
		_ = r.lib.Enable(kindConcurrentKernel)
	case kind != kindConcurrentKernel && !(r.ranged.Load() && isCall(kind)):
		got = r.lib.Disable(kind)
	}
	p := &r.program
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.kinds, kind)
	p.stopped = p.stopped || isKernel(kind)
	if len(p.kinds) == 0 && p.active.Swap(false) {
		r.lib.period(flushEvery)
	}
	return got
}

// flushed begins the recording behind the program's own, which has stopped and taken its buffers.
func (r *recorder) flushed() {
	p := &r.program
	p.mu.Lock()
	stopped := p.stopped && len(p.kinds) == 0
	p.mu.Unlock()
	if r.late.Load() && stopped && enable(r.lib) == nil {
		r.begin()
	}
}

// finalize takes what CUPTI has before the program ends its work. A profiler that begins again has it
// back.
func (r *recorder) finalize() {
	_ = r.lib.FlushAll(1)
	r.gone.Store(true)
	r.late.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Yielded(time.Now().UnixNano())
	_ = r.log.Flush() // an error stays, and ends the log
}

// unsubscribe gives CUPTI's subscription to the program, which is about to subscribe: no further
// launch is bracketed.
func (r *recorder) unsubscribe() {
	attached.Lock()
	subscriber := attached.subscriber
	attached.subscriber = 0
	attached.Unlock()
	if subscriber == 0 || r.lib.Unsubscribe == nil {
		return
	}
	err := r.lib.check("cuptiUnsubscribe", r.lib.Unsubscribe(subscriber))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Trouble("no further kernels are bracketed: the program itself subscribed to CUPTI's callbacks")
	if err != nil {
		r.log.Trouble(err.Error())
	}
}

// addressOf is a pointer as an argument of a C function. What it points to is CUPTI's, or pinned.
func addressOf[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

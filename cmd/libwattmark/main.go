//go:build cgo

// Command libwattmark is the C library: wattmark.h, and the paper's interface
// in power.h. Build it with make lib. The C side (gate.c) refuses children
// after fork and keeps errors by thread; here Go measures.
package main

/*
#include <stdlib.h>
#include "wattmark.h"
#include "power.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/daemon"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

func main() {} // a library; never called

// sessions are the measurements that wm_begin began.
var sessions = struct {
	sync.Mutex
	next C.wm_measurement
	m    map[C.wm_measurement]*session
}{m: map[C.wm_measurement]*session{}}

// guard runs f for a call of C's, puts its error's text where C wants it, behind the call's
// name, and returns its code. A panic is an error too: it must not take the program along.
func guard(call string, text *C.char, n C.size_t, f func() error) (rc C.int) {
	var err error
	func() {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("wattmark failed inside: %v", p)
			}
		}()
		if err = f(); err != nil {
			err = fmt.Errorf("%s: %w", call, err)
		}
	}()
	if err == nil {
		return C.WM_OK
	}
	putText(text, int(n), err.Error())
	for _, c := range codes {
		if slices.ContainsFunc(c.errs, func(e error) bool { return errors.Is(err, e) }) {
			return c.code
		}
	}
	return C.WM_E_FAILED
}

// putText copies as many whole characters as fit, and ends them with a NUL.
func putText(to *C.char, n int, s string) {
	if n == 0 {
		return
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(to)), n)
	at := 0
	for i, r := range s {
		next := i + len(string(r))
		if next >= n {
			break
		}
		at = next
	}
	copy(b, s[:min(at, len(s))])
	b[min(at, len(s))] = 0
}

//export wmgo_begin
func wmgo_begin(user, name *C.char, o *C.wm_options, h *C.wm_measurement, text *C.char, n C.size_t) C.int {
	return guard("wm_begin", text, n, func() error {
		if h == nil {
			return fmt.Errorf("%w: there is no place for the measurement", errArgument)
		}
		*h = 0
		q, err := readOptions(o)
		if err != nil {
			return err
		}
		q.user, q.name = C.GoString(user), C.GoString(name)
		s, err := open(q)
		if err != nil {
			return err
		}
		if err := s.m.Begin(); err != nil {
			if q.wait == 0 && errors.Is(err, monitorclient.ErrBusy) {
				err = fmt.Errorf("%w in line: wait_ms of wm_options, wait= in Python", err)
			}
			return errors.Join(err, s.abandon())
		}
		sessions.Lock()
		defer sessions.Unlock()
		sessions.next++
		*h, sessions.m[sessions.next] = sessions.next, s
		return nil
	})
}

// readOptions copies the options: C keeps its memory.
func readOptions(o *C.wm_options) (request, error) {
	if o.size < C.sizeof_wm_options {
		return request{}, fmt.Errorf("%w: options of %d bytes, %d are expected: call wm_options_init first",
			errArgument, o.size, C.sizeof_wm_options)
	}
	if o.flags&^C.WM_NO_SENSOR != 0 {
		return request{}, fmt.Errorf("%w: flags %#x are not known", errArgument, o.flags)
	}
	if o.stream_count > 1024 || (o.stream_count > 0 && o.streams == nil) {
		return request{}, fmt.Errorf("%w: stream_count %d without as many streams", errArgument, o.stream_count)
	}
	q := request{
		monitor: C.GoString(o.monitor), database: C.GoString(o.database), device: C.GoString(o.device),
		host:     C.GoString(o.host),
		noSensor: o.flags&C.WM_NO_SENSOR != 0,
		warmUp:   milliseconds(o.warm_up_ms), wait: milliseconds(o.wait_ms), lease: milliseconds(o.lease_ms),
	}
	q.streams = lists.Map(unsafe.Slice(o.streams, o.stream_count), func(s unsafe.Pointer) uintptr { return uintptr(s) })
	return q, nil
}

func milliseconds(n C.uint) time.Duration { return time.Duration(n) * time.Millisecond }

// with calls f with the measurement of a handle, which take removes: of two concurrent calls
// that end it, one gets it and the other errHandle.
func with(h C.wm_measurement, take bool, f func(*session) error) error {
	sessions.Lock()
	s, ok := sessions.m[h]
	if take {
		delete(sessions.m, h)
	}
	sessions.Unlock()
	if !ok {
		return fmt.Errorf("%w: %d was never begun, or has ended", errHandle, int64(h))
	}
	return f(s)
}

//export wmgo_marker
func wmgo_marker(h C.wm_measurement, label *C.char, stream C.uintptr_t, text *C.char, n C.size_t) C.int {
	return guard("wm_marker", text, n, func() error {
		return with(h, false, func(s *session) error { return s.m.Mark(C.GoString(label), uintptr(stream)) })
	})
}

//export wmgo_end
func wmgo_end(h C.wm_measurement, r *C.wm_result, text *C.char, n C.size_t) C.int {
	return guard("wm_end", text, n, func() error {
		if r != nil && r.size < C.sizeof_wm_result {
			return fmt.Errorf("%w: a result of %d bytes, %d are expected: set its size first", errArgument,
				r.size, C.sizeof_wm_result)
		}
		return with(h, true, func(s *session) error {
			t, err := s.finish()
			if r != nil {
				putResult(r, t)
			}
			return err
		})
	})
}

// putResult fills a result, whose size the caller has set; quantities that are not known are
// NaN. It does so also for an incomplete task, beside the error.
func putResult(r *C.wm_result, t store.Brief) {
	nan := C.double(math.NaN())
	*r = C.wm_result{
		size: r.size, task: C.int64_t(t.ID), state: C.int(t.State),
		energy_j: nan, energy_u_j: nan, seconds: nan, mean_w: nan, peak_w: nan, sensor_j: nan,
	}
	putText(&r.reason[0], len(r.reason), t.Reason)
	if t.NVML != nil {
		r.sensor_j = C.double(*t.NVML)
	}
	if x := t.Result; x != nil {
		r.energy_j, r.energy_u_j = C.double(x.Total.Energy), C.double(x.Total.U)
		r.seconds, r.mean_w, r.peak_w = C.double(x.To-x.From), C.double(x.Mean), C.double(x.Peak)
		r.samples, r.gaps, r.lost = C.uint64_t(x.Samples), C.uint64_t(x.Gaps), C.uint64_t(x.Lost)
	}
}

//export wmgo_cancel
func wmgo_cancel(h C.wm_measurement, text *C.char, n C.size_t) C.int {
	return guard("wm_cancel", text, n, func() error { return with(h, true, (*session).abandon) })
}

// wmgo_exit gives up the measurements that a program leaves open, so that the bench
// is free at once and not after the lease.
//
//export wmgo_exit
func wmgo_exit() {
	sessions.Lock()
	open := sessions.m
	sessions.m = map[C.wm_measurement]*session{}
	sessions.Unlock()
	var wg sync.WaitGroup
	for _, s := range open {
		wg.Go(func() { _ = s.abandon() })
	}
	wg.Wait()
	_ = papers.leave()
}

// The library's own errors.
var (
	errArgument   = errors.New("wrong argument")
	errHandle     = errors.New("no such measurement")
	errIncomplete = errors.New("the task is not complete")
	errDatabase   = errors.New("task database")
	errState      = errors.New("call out of order")
)

// codes are looked through in order: the cause nearest to the user's hand first.
var codes = []struct {
	code C.int
	errs []error
}{
	{C.WM_E_ARGUMENT, []error{errArgument, measure.ErrText}},
	{C.WM_E_HANDLE, []error{errHandle}},
	{C.WM_E_ARGUMENT, []error{daemon.ErrPlace, daemon.ErrRefused}},
	{C.WM_E_HOST, []error{daemon.ErrUnreachable, daemon.ErrLost}},
	{C.WM_E_STATE, []error{errState, measurement.ErrOrder}},
	{C.WM_E_BUSY, []error{monitorclient.ErrBusy}},
	{C.WM_E_MONITOR, []error{monitorclient.ErrUnreachable, monitorclient.ErrGone, monitorclient.ErrMismatch}},
	{C.WM_E_BENCH, []error{measurement.ErrBench, measurement.ErrWrongGPU}},
	{C.WM_E_GPU, []error{
		cuda.ErrNoDriver, cuda.ErrNoDevice, measurement.ErrSelection, cuda.ErrStream, cuda.ErrCUDA,
		gpu.ErrMIG, daemon.ErrProgram,
	}},
	{C.WM_E_DATABASE, []error{
		errDatabase, daemon.ErrDatabase, store.ErrNotFound, store.ErrConflict, store.ErrCorrupt,
		store.ErrFull, store.ErrIO, store.ErrBusy, store.ErrReadOnly,
	}},
	{C.WM_E_INCOMPLETE, []error{errIncomplete}},
	{C.WM_E_CANCELLED, []error{measurement.ErrCancelled}},
}

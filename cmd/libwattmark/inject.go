//go:build cgo

package main

// #include <stdint.h>
// int wattmark_at_exit(void);
// int wattmark_watch(const uintptr_t functions[7], uintptr_t originals[7]);
// void wattmark_unwatch(void);
// uintptr_t wattmark_launch_callback(void);
import "C"

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/cupti"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure/marker"
)

// InitializeInjection is called by libcuda when a program initialises it with
// CUDA_INJECTION64_PATH naming this library: it records the program's kernels into
// the folder that WATTMARK_AUTO names. Whatever fails, the program runs on; the
// log holds the reason. It returns 1, as libcuda expects.
//
//export InitializeInjection
func InitializeInjection() C.int {
	dir := os.Getenv(cupti.EnvLogs)
	if dir == "" {
		return 1
	}
	onLaunch, err := selection()
	if err != nil {
		fmt.Fprintln(os.Stderr, "wattmark: no kernels are bracketed:", err)
	}
	if err := cupti.Attach(dir, cupti.Options{OnLaunch: onLaunch, Watch: watch}); err != nil {
		fmt.Fprintln(os.Stderr, "wattmark: kernels are not recorded:", err)
		return 1
	}
	if C.wattmark_at_exit() != 0 {
		fmt.Fprintln(os.Stderr, "wattmark: the last kernels before the program's end may be missing: atexit failed")
	}
	return 1
}

// watch puts guard.c between the program and CUPTI's functions, and makes c the ways into the
// functions themselves.
func watch(c *cupti.Calls) error {
	functions, originals := [cupti.NumCalls]C.uintptr_t{}, [cupti.NumCalls]C.uintptr_t{}
	for i, at := range c {
		functions[i] = C.uintptr_t(at)
	}
	if errno := C.wattmark_watch(&functions[0], &originals[0]); errno != 0 {
		return syscall.Errno(errno)
	}
	for i, at := range originals {
		c[i] = uintptr(at)
	}
	return nil
}

// wattmark_cupti is called by guard.c where the program itself calls one of CUPTI's functions.
//
//export wattmark_cupti
func wattmark_cupti(call C.int, a, b, c C.uintptr_t) C.uint32_t {
	return C.uint32_t(cupti.Call(cupti.CallNumber(call), uintptr(a), uintptr(b), uintptr(c)))
}

// wattmark_range is called by nvtx.c for a range's begin and end.
//
//export wattmark_range
func wattmark_range(kind C.int, thread C.uint32_t, at C.int64_t, id C.uint64_t, domain, name *C.char) {
	text := C.GoString(name)
	if d := C.GoString(domain); d != "" && text != "" {
		text = d + ": " + text
	}
	cupti.Range(launchlog.Range{
		Kind: launchlog.RangeKind(kind), Thread: uint32(thread), At: int64(at), ID: uint64(id),
		Domain: uint32(uintptr(unsafe.Pointer(domain))),
	}, text)
}

// wattmark_detach is called at the process's end, by inject.c.
//
//export wattmark_detach
func wattmark_detach() {
	C.wattmark_unwatch()
	if selected != nil {
		selected.report()
	}
	if err := cupti.Detach(); err != nil {
		fmt.Fprintln(os.Stderr, "wattmark: kernels may be missing:", err)
	}
}

// selector plays markers around selected launches of the program that the library
// was injected into: it waits for the context's work, plays the start marker, lets
// the kernel be launched, waits for it, and plays the stop marker.
type selector struct {
	cupti.Selection
	match *regexp.Regexp
	// playing is up from before a start marker until behind its stop marker: one
	// launch at a time.
	playing atomic.Bool

	mu      sync.Mutex
	seen    map[string]uint64 // launches by name
	played  int
	skipped map[string]int // launches that were to be bracketed, by why not
	failed  error          // none is bracketed any more

	// Of the launch that is being bracketed.
	devices map[uintptr]*cuda.Device
	device  *cuda.Device
}

var selected *selector // nil without a selection

// selection reads the environment's selection, and returns CUPTI's callback.
func selection() (uintptr, error) {
	text := os.Getenv(cupti.EnvSelection)
	if text == "" {
		return 0, nil
	}
	s, match, err := cupti.ParseSelection(text)
	if err != nil {
		return 0, err
	}
	selected = &selector{
		Selection: s, match: match, seen: map[string]uint64{}, skipped: map[string]int{},
		devices: map[uintptr]*cuda.Device{},
	}
	return uintptr(C.wattmark_launch_callback()), nil
}

//export wattmark_selects
func wattmark_selects(name *C.char) C.int {
	n := C.GoString(name)
	return toC(!strings.HasPrefix(n, "wm_") && selected.match.MatchString(n)) // wm_ are the library's own
}

func toC(yes bool) C.int { return map[bool]C.int{true: 1}[yes] }

//export wattmark_before
func wattmark_before(name *C.char, ctx, stream C.uintptr_t) C.int {
	return toC(selected.before(C.GoString(name), uintptr(ctx), uintptr(stream)))
}

//export wattmark_after
func wattmark_after() {
	if err := selected.play(marker.Stop); err != nil {
		selected.fail(err)
		return
	}
	selected.playing.Store(false)
}

// wants counts a launch, and reports whether it is to be bracketed. That the library's
// own launches come here too, while it plays, is why it must not wait.
func (s *selector) wants(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.seen[name]
	s.seen[name]++
	if s.failed != nil || n%uint64(s.Every) != 0 {
		return false
	}
	if s.played >= s.AtMost {
		s.skipped[fmt.Sprintf("behind the first %d", s.AtMost)]++
		return false
	}
	if !s.playing.CompareAndSwap(false, true) {
		s.skipped["while another was"]++
		return false
	}
	s.played++
	return true
}

// before plays the start marker of a launch that is to be bracketed, and reports whether it
// did. It blocks the launching thread until the context's earlier work has ended. A launch
// that is captured into a graph runs later or never: it is skipped.
func (s *selector) before(name string, ctx, stream uintptr) bool {
	if !s.wants(name) {
		return false
	}
	if cuda.Capturing(stream) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.skipped["that were captured into a graph"]++
		s.played--
		s.playing.Store(false)
		return false
	}
	var err error
	if s.device = s.devices[ctx]; s.device == nil {
		if s.device, err = cuda.FindCaller(cuda.Caller{Context: ctx}); err == nil {
			err = s.device.Open(context.Background())
		}
		if err == nil {
			s.devices[ctx] = s.device
		}
	}
	if err == nil {
		err = s.play(marker.Start)
	}
	if err != nil {
		s.fail(err)
	}
	return err == nil
}

// fail logs the error and ends the bracketing for the rest of the process; the program itself
// goes on.
func (s *selector) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	logTrouble("no further kernels are bracketed: %v", err)
	s.playing.Store(false)
}

// play waits for the program's work and plays a marker.
func (s *selector) play(kind marker.Kind) error {
	if _, err := s.device.Settle(); err != nil {
		return err
	}
	p, err := s.device.PlayMarker(context.Background(), s.Marker, kind)
	if err != nil {
		return err
	}
	m := launchlog.Marker{Kind: p.Kind, First: p.Edges[0].Chip}
	m.Edges = lists.Map(p.Edges, func(e gpu.PlayedEdge) int64 { return e.At.UnixNano() })
	cupti.Write(func(w *launchlog.Writer) { w.Marker(&m) })
	return nil
}

// logTrouble adds a remark to the launch log.
func logTrouble(format string, args ...any) {
	cupti.Write(func(w *launchlog.Writer) { w.Trouble(fmt.Sprintf(format, args...)) })
}

// report logs kernels that were selected and not bracketed.
func (s *selector) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for why, n := range s.skipped {
		logTrouble("%d selected launches were not bracketed: those %s", n, why)
	}
	if s.played == 0 && s.failed == nil {
		logTrouble("no launch was bracketed: none matches %q", s.Kernel)
	}
}

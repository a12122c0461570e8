//go:build cgo

package main

// #include <stdint.h>
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

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/cupti"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/measure/marker"
)

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

// ownKernels begin the names of the library's own.
const ownKernels = "wm_"

//export wattmark_selects
func wattmark_selects(name *C.char) C.int {
	n := C.GoString(name)
	if strings.HasPrefix(n, ownKernels) || !selected.match.MatchString(n) {
		return 0
	}
	return 1
}

//export wattmark_before
func wattmark_before(name *C.char, ctx, stream C.uintptr_t) C.int {
	if selected.before(C.GoString(name), uintptr(ctx), uintptr(stream)) {
		return 1
	}
	return 0
}

//export wattmark_after
func wattmark_after() { selected.after() }

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

func (s *selector) before(name string, ctx, stream uintptr) bool {
	if !s.wants(name) {
		return false
	}
	if cuda.Capturing(stream) {
		s.skip("that were captured into a graph")
		return false
	}
	if err := s.start(ctx); err != nil {
		s.fail(err)
		return false
	}
	return true
}

func (s *selector) skip(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped[why]++
	s.played--
	s.playing.Store(false)
}

func (s *selector) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	logTrouble("no further kernels are bracketed: %v", err)
	s.playing.Store(false)
}

func (s *selector) start(ctx uintptr) (err error) {
	if s.device = s.devices[ctx]; s.device == nil {
		if s.device, err = cuda.Attach(context.Background(), cuda.Caller{Context: ctx}); err != nil {
			return err
		}
		s.devices[ctx] = s.device
	}
	return s.play(marker.Start)
}

func (s *selector) after() {
	if err := s.play(marker.Stop); err != nil {
		s.fail(err)
		return
	}
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
	m := logged(p)
	cupti.Write(func(w *launchlog.Writer) { w.Marker(&m) })
	return nil
}

func logged(p gpu.Played) launchlog.Marker {
	m := launchlog.Marker{Kind: p.Kind, First: p.Edges[0].Chip}
	for _, e := range p.Edges {
		m.Edges = append(m.Edges, e.At.UnixNano())
	}
	return m
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

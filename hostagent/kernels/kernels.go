// Package kernels holds the PTX that the host agent runs: the marker, the
// benchmarks of Cheng et al., and two small helpers. It is text that the driver
// compiles for the GPU at hand; nothing here needs a toolkit.
package kernels

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed marker.ptx
var markerPTX string

//go:embed bench.ptx
var benchPTX string

//go:embed mix.ptx
var mixPTX string

//go:embed clock.ptx
var clockPTX string

// The entries of the module.
const (
	Marker  = "wm_marker"
	Memory  = "wm_memory"
	Compute = "wm_compute"
	Half    = "wm_half"
	Mix     = "wm_mix"
	Clock   = "wm_clock"
	Fill    = "wm_fill"
)

// Threads is the block size that the kernels are written for.
const Threads = 256

// Offsets of the control words that marker and benchmarks share.
const (
	CtlBegin   = 0  // u64, ns of the GPU's clock
	CtlEnd     = 8  // u64, last exit
	CtlStop    = 16 // u32, set by the host to end early
	CtlBatches = 24 // u64, batches done by all blocks
	CtlSize    = 32
)

// Work of one batch of a benchmark, a thread.
const (
	MemoryBytes = 128 + 16 // read and written
	ComputeFMA  = 512
	HalfBytes   = 64
	HalfFMA     = 256
	MixBytes    = 128
	MixFMA      = 32 // a round
)

// Source returns the module for a GPU of the given compute capability,
// NUL-terminated as the driver wants it. Kernels nap by nanosleep from 7.0 on
// (PTX ISA 6.3); older GPUs watch the clock with one thread a block instead.
// Capabilities below 5.0 are refused.
func Source(major, minor int) ([]byte, error) {
	return module(major, minor, markerPTX+"\n"+benchPTX+"\n"+clockPTX)
}

// MixSource returns the module of Mix alone, likewise: few need it, and compiling it
// takes the driver time.
func MixSource(major, minor int) ([]byte, error) { return module(major, minor, mixPTX) }

func module(major, minor int, body string) ([]byte, error) {
	cc := 10*major + minor
	version, target, nap := "6.3", "sm_75", "nanosleep.u32"
	switch {
	case cc < 50:
		return nil, fmt.Errorf("kernels: compute capability %d.%d: the marker needs 5.0 (Maxwell) or newer", major, minor)
	case cc < 70:
		version, target, nap = "6.0", "sm_50", ""
	case cc < 75:
		target = "sm_70"
	}
	if nap == "" {
		body = strings.ReplaceAll(body, "$NAP %r14;", "")
	} else {
		body = strings.ReplaceAll(body, "$NAP", nap)
	}
	return fmt.Appendf(nil, ".version %s\n.target %s\n.address_size 64\n\n%s\x00", version, target, body), nil
}

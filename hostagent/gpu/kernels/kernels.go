// Package kernels holds the PTX that the host agent runs: the marker, the
// benchmarks of Cheng et al., and two small helpers. It is text that the driver
// compiles for the GPU at hand; nothing here needs a toolkit.
package kernels

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/wattmark/wattmark/internal/lazy"
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

// Work of one batch of a mix, a thread.
const (
	MixBytes = 128
	MixFMA   = 32 // a round
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

// module puts the head for a compute capability before PTX text, and chooses the nap:
//
//	5.0 – 6.x   PTX 6.0   no nanosleep: the waiting thread reads the clock without pause
//	7.0 – 7.2   PTX 6.3   sm_70
//	7.5 and up  PTX 6.3   sm_75, which the driver compiles for any newer GPU
func module(major, minor int, body string) ([]byte, error) {
	cc := 10*major + minor
	version, target := "6.3", "sm_75"
	switch {
	case cc < 50:
		return nil, fmt.Errorf("kernels: compute capability %d.%d: the marker needs 5.0 (Maxwell) or newer", major,
			minor)
	case cc < 70:
		version, target, body = "6.0", "sm_50", strings.ReplaceAll(body, "$NAP %r14;", "")
	case cc < 75:
		target = "sm_70"
	}
	body = strings.ReplaceAll(body, "$NAP", "nanosleep.u32")
	return fmt.Appendf(nil, ".version %s\n.target %s\n.address_size 64\n\n%s\x00", version, target, body), nil
}

// ErrPTX is wrapped by errors about a PTX file that cannot be launched as asked.
var ErrPTX = errors.New("unusable PTX")

// Entry is a kernel that a PTX file declares.
type Entry struct {
	Name string
	// Params holds the size of each parameter, in bytes.
	Params []int
}

var (
	commentRE = lazy.Regexp(`(?s)/\*.*?\*/|//[^\n]*`)
	entryRE   = lazy.Regexp(`\.entry\s+([A-Za-z0-9_$%]+)\s*(\(([^)]*)\))?`)
	paramRE   = lazy.Regexp(`\.param\b.*?\.(b|u|s|f)(8|16|32|64)\b`)
	arrayRE   = lazy.Regexp(`\[\s*(\d{1,6})\s*\]\s*$`)
)

// Entries lists the kernels of a PTX text. The driver reads as many bytes a
// parameter as the kernel declares, so that a launch with the wrong list would
// read past its end: the list is checked here first.
func Entries(source []byte) ([]Entry, error) {
	// Comments may hold anything, also the word .entry.
	text := commentRE().ReplaceAllString(strings.TrimRight(string(source), "\x00"), " ")
	if !strings.Contains(text, ".version") || !strings.Contains(text, ".target") {
		return nil, fmt.Errorf("%w: no .version and .target line: is this PTX text?", ErrPTX)
	}
	var out []Entry
	for _, m := range entryRE().FindAllStringSubmatch(text, -1) {
		e := Entry{Name: m[1]}
		if strings.TrimSpace(m[3]) != "" {
			for _, p := range strings.Split(m[3], ",") {
				size, err := paramSize(p)
				if err != nil {
					return nil, fmt.Errorf("%w: kernel %s: %w", ErrPTX, e.Name, err)
				}
				e.Params = append(e.Params, size)
			}
		}
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: it declares no kernel (.entry)", ErrPTX)
	}
	return out, nil
}

var typeBytes = map[string]int{"8": 1, "16": 2, "32": 4, "64": 8}

// paramSize returns a parameter's size in bytes, from its type and its array length.
func paramSize(p string) (int, error) {
	p = strings.TrimSpace(p)
	m := paramRE().FindStringSubmatch(p)
	if m == nil {
		return 0, fmt.Errorf("cannot read the parameter %q", p)
	}
	size := typeBytes[m[2]]
	if a := arrayRE().FindStringSubmatch(p); a != nil {
		n := 0
		if _, err := fmt.Sscan(a[1], &n); err != nil || n <= 0 {
			return 0, fmt.Errorf("cannot read the length of the parameter %q", p)
		}
		size *= n
	}
	return size, nil
}

// Find returns one kernel of a PTX text; with an empty name, its only one.
func Find(source []byte, name string) (Entry, error) {
	all, err := Entries(source)
	if err != nil {
		return Entry{}, err
	}
	var names []string
	for _, e := range all {
		if e.Name == name || (name == "" && len(all) == 1) {
			return e, nil
		}
		names = append(names, e.Name)
	}
	if name == "" {
		return Entry{}, fmt.Errorf("%w: it declares %d kernels: name one of %s", ErrPTX, len(all),
			strings.Join(names, ", "))
	}
	return Entry{}, fmt.Errorf("%w: no kernel %s: it declares %s", ErrPTX, name, strings.Join(names, ", "))
}

// CheckLaunch reports a parameter list that the kernel does not have: first the
// buffers (8 bytes each), then the scalars (4 bytes each).
func (e Entry) CheckLaunch(buffers, scalars int) error {
	if buffers+scalars != len(e.Params) {
		return fmt.Errorf("%w: kernel %s takes %d parameters: %d buffers and %d scalars were given", ErrPTX, e.Name,
			len(e.Params), buffers, scalars)
	}
	for i, size := range e.Params {
		want, what := 8, "a buffer"
		if i >= buffers {
			want, what = 4, "a 32-bit scalar"
		}
		if size != want {
			return fmt.Errorf("%w: kernel %s: parameter %d has %d bytes, not the %d of %s", ErrPTX, e.Name, i, size,
				want, what)
		}
	}
	return nil
}

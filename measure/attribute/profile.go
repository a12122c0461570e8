package attribute

import "github.com/wattmark/wattmark/measure"

// Trace is what a profiler recorded. Times are in ns on its clock: since 1970 where HostClock.
type Trace struct {
	HostClock bool
	Kernels   []Profiled
	Calls     map[uint32]Call // by correlation
	Ranges    []Range
	Devices   map[uint32]bool // that ran kernels
}

// Profiled is one execution of a kernel. Event is the number of its event in the file.
type Profiled struct {
	Event          int
	Start, End     int64
	Name           string
	Device, Stream uint32
	Correlation    uint32
	Grid, Block    [3]uint32
}

// Call is the call that launched kernels.
type Call struct {
	Thread int
	At     int64
}

// Range is a span that the program named: a user's annotation, or an operation of the framework (Op).
type Range struct {
	Event    int
	From, To int64
	Thread   int
	Name     string
	Op       bool
	Process  bool  // as in Span
	External int64 // the range's id, which its copy on the GPU's side has, 0 for none
}

// Mark is the energy of one event. U is at k = 2.
type Mark struct {
	Energy, U measure.Joule
	Busy      measure.Seconds // of its kernels
}

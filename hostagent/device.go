package hostagent

import (
	"context"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
)

// Info is what is known of a GPU.
type Info struct {
	Name, UUID, PCIBusID, Driver string
	Simulated                    bool
}

// Span is an interval on the host's wall clock.
type Span struct{ Start, End time.Time }

// Played is a marker as the host played it: the host's time of every chip edge.
type Played struct {
	Kind  marker.Kind
	Span  Span // whole marker, guards included
	Edges []PlayedEdge
}

// PlayedEdge is one chip boundary on the host's wall clock. Chip counts from
// the first chip of the code.
type PlayedEdge struct {
	Chip int
	At   time.Time
}

// Benchmark names one of the built-in kernels of Cheng et al.
type Benchmark string

// The built-in benchmarks.
const (
	BenchHalf    Benchmark = "half"    // half compute, half memory, scattered accesses
	BenchCompute Benchmark = "compute" // arithmetic alone
	BenchMemory  Benchmark = "memory"  // streams memory
)

// Kernel is one kernel that ran, on the host's wall clock.
type Kernel struct {
	Name string
	Span Span
}

// Device is a GPU as the host agent sees it. Calls are made from one goroutine.
type Device interface {
	// Info identifies the GPU. Of one that is not open yet it may know nothing.
	Info() Info
	// PlayMarker plays a whole marker and returns when it has ended.
	PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (Played, error)
	// RunBenchmark runs a built-in kernel for d and returns when it has ended.
	RunBenchmark(ctx context.Context, b Benchmark, d time.Duration) ([]Kernel, error)
	// WarmUp loads the GPU for d, before the first marker.
	WarmUp(ctx context.Context, d time.Duration) error
	// Close releases the GPU.
	Close() error
}

// Opener is a Device that has been found and is opened later: until then it has no
// context on the GPU, and only Info and Close may be called.
type Opener interface {
	// Open makes the context. A second call does nothing.
	Open(ctx context.Context) error
}

// PTXRunner is a Device that can launch a kernel from a PTX file.
type PTXRunner interface {
	RunPTX(ctx context.Context, launch PTXLaunch) ([]Kernel, error)
}

// PTXLaunch names a kernel in a PTX file and how to launch it. Buffers are
// allocated and zeroed on the device and passed as the first parameters.
type PTXLaunch struct {
	Source  []byte
	Entry   string
	Grid    [3]uint32
	Block   [3]uint32
	Shared  uint32
	Buffers []uint64 // bytes each
	Scalars []uint32
	Repeat  int
}

// PowerReading is one reading of the GPU's own sensors.
type PowerReading struct {
	At      time.Time // host's wall clock, middle of the call
	Instant measure.Watt
	Average measure.Watt
	Usage   measure.Watt  // nvmlDeviceGetPowerUsage
	Energy  measure.Joule // the energy counter; NaN where it was not read
}

// PowerSensor reads the GPU's own power sensor. Readings that a GPU does not
// have are NaN.
type PowerSensor interface {
	Read() (PowerReading, error)
	ReadEnergy() (measure.Joule, error)
}

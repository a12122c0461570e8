// Package gpu defines a GPU as the host agent uses it. Implementations are in the
// folders below; nothing here knows a vendor.
//
//	Device       plays markers and runs benchmarks       cuda, sim
//	PTXRunner,   optional abilities of a Device          cuda (PTX), sim
//	MixRunner,
//	TrainRunner
//	PowerSensor  the GPU's own power readings            nvml, sim
//	ConditionReader, ProcessReader, PowerRegisters       optional abilities of a sensor
//
// All times are the host's wall clock.
package gpu

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
)

// Info identifies a GPU; unknown fields are empty.
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

// ErrMIG: the GPU is cut into MIG devices. Its work and its markers would load a
// part of the card, and a meter sees the whole of it.
var ErrMIG = errors.New("a MIG device is a part of a card, and a meter sees the whole card: switch MIG off " +
	"(nvidia-smi -i GPU -mig 0), or measure another GPU")

// NamesMIG reports whether a selector names a MIG device (MIG-…).
func NamesMIG(selector string) bool { return strings.HasPrefix(strings.ToUpper(selector), "MIG-") }

// migName is how the CUDA driver calls a MIG device: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
var migName = lazy.Regexp(`\bMIG \d+[gc]\.`)

// MIG reports whether CUDA calls the GPU a MIG device.
func (i Info) MIG() bool { return migName().MatchString(i.Name) }

// SameID reports whether two UUIDs, or two PCI bus ids, are the same, however
// tools write them: in any case, and with the eight digits of domain that NVML
// writes where CUDA writes four and lspci none.
func SameID(a, b string) bool { return canonical(a) == canonical(b) }

// canonical brings an id to lower case, and a PCI bus id's domain to its significant digits.
func canonical(id string) string {
	id = strings.ToLower(id)
	if domain, rest, ok := strings.Cut(id, ":"); ok && strings.Count(rest, ":") == 1 {
		return strings.TrimPrefix(strings.TrimLeft(domain, "0")+":"+rest, ":")
	}
	return id
}

// Identify combines the identities from the CUDA driver and from the sensor's library:
// NVML knows the driver's own version, CUDA only the version of its API.
func Identify(gpu Info, sensor any) Info {
	s, ok := sensor.(interface{ Info() Info })
	if ok && s.Info().Driver != "" && s.Info().Driver != gpu.Driver {
		gpu.Driver = s.Info().Driver + " (" + gpu.Driver + ")"
	}
	return gpu
}

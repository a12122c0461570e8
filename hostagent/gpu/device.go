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
	"fmt"
	"math/rand/v2"
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

// PowerRegisters is a PowerSensor whose registers can be read one by one, each at its own
// cost. A register that the GPU lacks reads NaN.
type PowerRegisters interface {
	// ReadUsage is nvmlDeviceGetPowerUsage alone.
	ReadUsage() (measure.Watt, error)
	// ReadFields is one query of the instant and the average field.
	ReadFields() (instant, average measure.Watt, err error)
}

// Condition holds the other quantities that bear on a GPU's power: clocks, temperature,
// throttling. Unknown values are NaN; Throttle is then zero.
type Condition struct {
	SM, Memory  measure.Hertz
	Temperature float64 // °C
	Throttle    uint64  // nvmlClocksEventReasons bits; zero for none
}

// ConditionReader is a PowerSensor that also reads the GPU's condition.
type ConditionReader interface{ Condition() Condition }

// throttleReasons are NVML's reasons for clocks below the requested ones, from bit 1 on
// (nvml.h, nvmlClocksEventReason…). Bit 0 is idleness, which is none.
var throttleReasons = []string{
	"the clocks that were set", "its power cap", "hardware (slowdown)", "sync boost",
	"heat (software)", "heat (hardware)", "the power brake", "the display's clock",
}

// Throttled names the causes that held the clocks down; empty for none.
func (c Condition) Throttled() (by []string) {
	for i, name := range throttleReasons {
		if c.Throttle>>(i+1)&1 == 1 {
			by = append(by, name)
		}
	}
	return by
}

// ProcessUse is a process that has a context on a GPU.
type ProcessUse struct {
	PID  int
	Name string
	// Busy is the share of the time for which it had kernels there, 0 to 1; NaN where the
	// driver does not report it.
	Busy float64
}

// ProcessReader is a PowerSensor that also lists the processes that use the GPU.
type ProcessReader interface {
	// Processes returns those that hold a context now, or had kernels within a span. Busy
	// is over the parts of the span for which the driver has samples.
	Processes(within Span) ([]ProcessUse, error)
}

// Train is a carrier cut into slices, with a kernel launched between them. All of
// it is queued at once, so that slices and kernels follow each other as closely
// as the GPU can.
type Train struct {
	Carrier Benchmark
	// Slice is how long each slice of the carrier runs, plus up to Dither, evenly
	// distributed: launches then do not keep step with a meter's scans.
	Slice, Dither time.Duration
	Seed          uint64
	Insert        Insert
	Phases        []TrainPhase
	// Starts asks for the instant of every launch of the kernel.
	Starts bool
}

// Insert is the kernel: from a PTX file, or a built-in benchmark for a time.
type Insert struct {
	Name      string
	PTX       *PTXLaunch
	Benchmark Benchmark
	Length    time.Duration
}

// TrainPhase is a stretch of a train.
type TrainPhase struct {
	// Slices of the carrier; with Kernel, one launch follows each.
	Slices int
	Kernel bool
	// Bare launches of the kernel alone, back to back, in place of slices.
	Bare int
}

// Ran is a train as it ran, on the host's wall clock.
type Ran struct{ Phases []RanPhase }

// RanPhase is a phase as it ran. It ends where the next one begins.
type RanPhase struct {
	Span     Span
	Carrier  time.Duration // of the slices alone, without the gaps between them
	Inserted int
	Starts   []time.Time // of the launches, where they were asked for
}

// TrainRunner is a Device that can run trains.
type TrainRunner interface {
	RunTrain(ctx context.Context, t Train) (Ran, error)
}

// MaxSlices bounds the slices of a train: their time stamps are kept on the GPU.
const MaxSlices = 2_000_000

// Validate reports a train that cannot run.
func (t *Train) Validate() error {
	slices, bare := 0, 0
	for i, p := range t.Phases {
		if p.Slices < 0 || p.Bare < 0 || (p.Slices == 0) == (p.Bare == 0) {
			return fmt.Errorf("train: phase %d: %d slices and %d bare launches: want one of the two", i+1, p.Slices,
				p.Bare)
		}
		slices, bare = slices+p.Slices, bare+p.Bare
	}
	switch {
	case slices+bare == 0:
		return fmt.Errorf("train: nothing to run")
	case slices+bare > MaxSlices:
		return fmt.Errorf("train: %d slices: at most %d; make them longer", slices+bare, MaxSlices)
	case t.Slice <= 0 && slices > 0 || t.Dither < 0:
		return fmt.Errorf("train: slices of %v with a dither of %v: must be positive", t.Slice, t.Dither)
	case t.Insert.PTX == nil && t.Insert.Benchmark != "" && t.Insert.Length <= 0:
		return fmt.Errorf("train: kernel %s for %v: the time must be positive", t.Insert.Benchmark, t.Insert.Length)
	}
	return nil
}

// Lengths returns how long each slice runs, in the order of the phases.
func (t *Train) Lengths() []time.Duration {
	rng := rand.New(rand.NewPCG(t.Seed, 0x7472_6169))
	var out []time.Duration
	for _, p := range t.Phases {
		for range p.Slices {
			d := t.Slice
			if t.Dither > 0 {
				d += time.Duration(rng.Int64N(int64(t.Dither) + 1))
			}
			out = append(out, d)
		}
	}
	return out
}

// MixRunner is a Device that can run a kernel of a chosen arithmetic intensity.
type MixRunner interface {
	// RunMix streams memory for length and does rounds of arithmetic on each element:
	// rounds / 2 flop (single precision, a multiply-add is two) a byte.
	RunMix(ctx context.Context, rounds uint32, length time.Duration) (MixRan, error)
}

// MixRan is the work that a mix did.
type MixRan struct {
	Kernel       Kernel
	Flops, Bytes float64
}

// MixIntensity is the arithmetic intensity of so many rounds, in flop a byte.
func MixIntensity(rounds uint32) float64 { return float64(rounds) / 2 }

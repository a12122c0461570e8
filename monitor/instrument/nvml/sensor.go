package nvml

import (
	"context"
	"strings"
)

// NoReading stands for a register that the GPU does not have.
const NoReading = -1

// Reading is one look at the GPU's power registers, in milliwatts; NoReading
// where the GPU lacks one.
type Reading struct {
	Instant int32 // field 186
	Average int32 // field 185
	Usage   int32 // nvmlDeviceGetPowerUsage
}

// Info identifies the GPU.
type Info struct{ Name, UUID, Driver string }

// Sensor reads one GPU. Calls come from one locked OS thread. An error of Read
// may pass; one that lasts ends the stream.
type Sensor interface {
	Info() Info
	Read() (Reading, error)
	Close() error
}

// OpenFunc finds a GPU by index, UUID or PCI bus id; the first for "".
type OpenFunc func(ctx context.Context, gpu string) (Sensor, error)

// Field names a register.
type Field string

// The fields, as written in a bench file.
const (
	FieldAuto    Field = "auto" // instant, else average, else usage
	FieldInstant Field = "instant"
	FieldAverage Field = "average"
	FieldUsage   Field = "usage"
)

// of returns the field's value.
func (f Field) of(r Reading) int32 {
	switch f {
	case FieldInstant:
		return r.Instant
	case FieldAverage:
		return r.Average
	case FieldUsage:
		return r.Usage
	}
	return NoReading
}

// resolve picks the field to poll: what was asked for, or the best there is.
func (f Field) resolve(r Reading) (Field, bool) {
	if f != FieldAuto {
		return f, f.of(r) != NoReading
	}
	for _, g := range []Field{FieldInstant, FieldAverage, FieldUsage} {
		if g.of(r) != NoReading {
			return g, true
		}
	}
	return f, false
}

// Arch is a GPU's architecture as far as its power sensor is concerned.
type Arch string

// The architectures whose sensors the public study tells apart.
const (
	Hopper  Arch = "hopper"
	Ada     Arch = "ada"
	GA10x   Arch = "ga10x"
	GA100   Arch = "ga100"
	Turing  Arch = "turing"
	Volta   Arch = "volta"
	Pascal  Arch = "pascal"
	Kepler  Arch = "kepler"
	Unknown Arch = "unknown"
)

// archNames are parts of product names, the more particular ones first.
var archNames = []struct {
	part string
	arch Arch
}{
	{"H100", Hopper},
	{"H200", Hopper},
	{"H800", Hopper},
	{"H20", Hopper},
	{"GH200", Hopper},
	{"ADA", Ada},
	{"RTX 40", Ada},
	{"L40", Ada},
	{"L4", Ada},
	{"A100", GA100},
	{"A800", GA100},
	{"A30", GA100},
	{"RTX 30", GA10x},
	{"RTX A", GA10x},
	{"A10", GA10x},
	{"A40", GA10x},
	{"A16", GA10x},
	{"A2", GA10x},
	{"RTX 20", Turing},
	{"QUADRO RTX", Turing},
	{"TITAN RTX", Turing},
	{"GTX 16", Turing},
	{"T4", Turing},
	{"V100", Volta},
	{"TITAN V", Volta},
	{"GV100", Volta},
	{"P100", Pascal},
	{"P40", Pascal},
	{"P4", Pascal},
	{"GTX 10", Pascal},
	{"TITAN X", Pascal},
	{"K80", Kepler},
	{"K40", Kepler},
	{"K20", Kepler},
}

// ArchOf tells the architecture from a product name such as "NVIDIA H200".
func ArchOf(name string) Arch {
	upper := " " + strings.ToUpper(name)
	for _, a := range archNames {
		if strings.Contains(upper, " "+a.part) || (len(a.part) > 2 && strings.Contains(upper, a.part)) {
			return a.arch
		}
	}
	return Unknown
}

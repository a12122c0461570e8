package instructions

import (
	"math"
	"time"

	"wattmark/hostagent"
	"wattmark/measure"
)

// Run is one program measured once.
type Run struct {
	Instruction string `json:"instruction"`
	Setting
	// Campaign is when the plan began, and tells its passes from another's.
	Campaign time.Time `json:"campaign"`
	Pass     int       `json:"pass"`
	GPU      string    `json:"gpu"`
	UUID     string    `json:"gpu_uuid"`
	Driver   string    `json:"driver"`
	// Seed of the order, the machine, and the program's version; empty in runs that
	// are older than these fields.
	Seed    uint64 `json:"seed,omitempty"`
	Host    string `json:"host,omitempty"`
	Version string `json:"version,omitempty"`
	// Block is false for the kernel without the block, or with none: idle.
	Block bool `json:"block"`
	// Base names the program without the block by its content; empty for idle.
	Base string `json:"base,omitempty"`
	// Turns of the loop, threads that ran it, time from launch to synchronisation,
	// and cycles of thread 0.
	Turns   uint64          `json:"turns"`
	Threads uint64          `json:"threads"`
	Time    measure.Seconds `json:"time_s"`
	Cycles  uint64          `json:"cycles"`
	// X is what thread 0 ended with; Checked that it is what Go computes.
	X       uint64 `json:"x"`
	Checked bool   `json:"checked"`
	// Power is each method's mean.
	Power map[Method]measure.Watt `json:"power_w"`
	// Reads a second of the power.
	Reads measure.Hertz `json:"reads_hz"`
	SM    measure.Hertz `json:"sm_hz,omitempty"`
	// Celsius is the GPU's temperature.
	Celsius float64 `json:"celsius,omitempty"`
	Error   string  `json:"error,omitempty"`

	span hostagent.Span
}

// Span is when the measured launch ran, on the host's wall clock; zero in a run
// that was read from a file.
func (r *Run) Span() hostagent.Span { return r.span }

// at notes the GPU's condition as far as it is known.
func (r *Run) at(c hostagent.Condition) {
	if !math.IsNaN(float64(c.SM)) {
		r.SM = c.SM
	}
	if !math.IsNaN(c.Temperature) {
		r.Celsius = c.Temperature
	}
}

package instructions

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// Run is one program measured once.
type Run struct {
	Instruction string `json:"instruction"`
	Setting
	// Campaign is the begin of the plan, and distinguishes its passes from another's.
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
	// X is the register of thread 0 at the end; Checked: it is the value that Go computes.
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

	span gpu.Span
}

// Span is when the measured launch ran, on the host's wall clock; zero in a run
// that was read from a file.
func (r *Run) Span() gpu.Span { return r.span }

// at notes the GPU's condition as far as it is known.
func (r *Run) at(c gpu.Condition) {
	if !math.IsNaN(float64(c.SM)) {
		r.SM = c.SM
	}
	if !math.IsNaN(c.Temperature) {
		r.Celsius = c.Temperature
	}
}

// mostLine bounds a line of a file of runs: a run has less than 2 kB.
const mostLine = 1 << 20

// ReadRuns reads runs, a JSON object a line; empty lines are passed over. Errors
// name the line, as NAME:LINE.
func ReadRuns(r io.Reader, name string) ([]Run, error) {
	var out []Run
	s := bufio.NewScanner(r)
	s.Buffer(nil, mostLine)
	line := 1
	for ; s.Scan(); line++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		run, err := parseRun(s.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, err)
		}
		out = append(out, run)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, line, err)
	}
	return out, nil
}

// parseRun decodes one line; unknown fields and a second object in it are errors.
func parseRun(text []byte) (r Run, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("no run of wattmark instructions: %w", err)
	}
	if d.More() {
		return r, errors.New("more than one run in a line")
	}
	return r, r.valid()
}

// valid refuses a run that no measurement can have written.
func (r *Run) valid() error {
	switch {
	case r.Instruction == "":
		return errors.New("a run without an instruction")
	case r.Campaign.IsZero():
		return fmt.Errorf("a run of %s without its campaign", r.Instruction)
	case r.Layout != OneThread && r.Layout != WholeGPU:
		return fmt.Errorf("a run of %s with the layout %q: want %s or %s", r.Instruction, r.Layout, OneThread, WholeGPU)
	case r.Time < 0 || r.Steps < 0 || r.Pass < 0:
		return fmt.Errorf("a run of %s with a negative time, number of steps or pass", r.Instruction)
	}
	for m := range r.Power {
		if m != Meter && !slices.Contains(Methods(), m) {
			return fmt.Errorf("a run of %s with a power by %q: want one of %v, %s", r.Instruction, m, Methods(), Meter)
		}
	}
	return nil
}

// campaign returns the stored form of a run's campaign.
func (r *Run) campaign() store.InstructionCampaign {
	return store.InstructionCampaign{
		GPU: r.GPU, GPUUUID: r.UUID, Driver: r.Driver, Started: r.Campaign, Seed: r.Seed, Host: r.Host,
		Version: r.Version,
	}
}

// Stored is a run as the database keeps it, and its campaign, without a number.
func (r *Run) Stored() (store.InstructionCampaign, store.InstructionRun) {
	out := store.InstructionRun{
		Pass: r.Pass, Instruction: r.Instruction, Layout: string(r.Layout), Level: r.Level, Steps: r.Steps,
		Block: r.Block, Base: r.Base, Turns: r.Turns, Threads: r.Threads, Time: r.Time, Cycles: r.Cycles, X: r.X,
		Checked: r.Checked, Reads: r.Reads, SM: r.SM, Celsius: r.Celsius, Error: r.Error,
	}
	if r.Power != nil {
		out.Power = map[string]measure.Watt{}
	}
	for m, p := range r.Power {
		out.Power[string(m)] = p
	}
	return r.campaign(), out
}

// FromStore converts stored runs of one campaign.
func FromStore(c store.InstructionCampaign, runs []store.InstructionRun) []Run {
	out := make([]Run, len(runs))
	for n, s := range runs {
		r := Run{
			Instruction: s.Instruction, Setting: Setting{Layout(s.Layout), s.Level, s.Steps}, Campaign: c.Started,
			Pass: s.Pass, GPU: c.GPU, UUID: c.GPUUUID, Driver: c.Driver, Seed: c.Seed, Host: c.Host,
			Version: c.Version, Block: s.Block, Base: s.Base, Turns: s.Turns, Threads: s.Threads, Time: s.Time,
			Cycles: s.Cycles, X: s.X, Checked: s.Checked, Reads: s.Reads, SM: s.SM, Celsius: s.Celsius,
			Error: s.Error,
		}
		if s.Power != nil {
			r.Power = map[Method]measure.Watt{}
		}
		for m, p := range s.Power {
			r.Power[Method(m)] = p
		}
		out[n] = r
	}
	return out
}

package instructions

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/gonum/stat"
)

// Estimate is the energy of one instruction in one setting by one method.
type Estimate struct {
	Instruction string `json:"instruction"`
	Setting
	Method Method `json:"method"`
	// Energy is the instruction's by Arafa et al.: the energy of the kernel with the
	// block less that of the kernel without it, over the instructions that were
	// executed. It has the whole GPU's power while the instruction takes its time.
	Energy measure.Joule `json:"energy_j"`
	// Dynamic is the same of the power above that of the idle GPU.
	Dynamic measure.Joule `json:"dynamic_j"`
	// Spread is the standard deviation of Energy over the passes, DynamicSpread that
	// of Dynamic; zero of a single pass.
	Spread        measure.Joule `json:"spread_j"`
	DynamicSpread measure.Joule `json:"dynamic_spread_j"`
	Passes        int           `json:"passes"`
	// Power with the block, and of the idle GPU, means over the passes.
	Power measure.Watt `json:"power_w"`
	Idle  measure.Watt `json:"idle_w"`
	// Cycles that a step added to thread 0, over its instructions: the latency
	// where one thread runs.
	Cycles  float64 `json:"cycles"`
	Checked bool    `json:"checked"`
}

// partner names the counterpart of a run in its campaign: the run without the block, by its
// content, or the mean power of the idle GPU, by the method.
type partner struct {
	campaign int64 // when it began; a time.Time compares its zone as well
	pass     int
	s        Setting
	name     string
}

// base names the run without the block that belongs to this one.
func (r *Run) base() partner { return partner{r.Campaign.UnixNano(), r.Pass, r.Setting, r.Base} }

// idle names the mean power at rest that belongs to this run.
func (r *Run) idle(m Method) partner {
	return partner{campaign: r.Campaign.UnixNano(), s: Setting{Layout: r.Layout}, name: m}
}

// cell is one place of the table.
type cell struct {
	instruction string
	s           Setting
	m           Method
}

// Estimates makes the table of a plan's runs, in the catalogue's order. Runs of
// several campaigns count as further passes. Runs without a partner, or without a
// measurement of the idle GPU in their campaign, are left out.
func Estimates(runs []Run) []Estimate {
	order := map[string]int{}
	for n, i := range Catalogue() {
		order[i.Name] = n
	}
	var out []Estimate
	for c, s := range cells(runs) {
		e, se := meanOf(s.energy)
		d, sd := meanOf(s.dynamic)
		p, _ := meanOf(s.power)
		idle, _ := meanOf(s.idle)
		cycles, _ := meanOf(s.cycles)
		out = append(out, Estimate{
			Instruction: c.instruction, Setting: c.s, Method: c.m, Energy: measure.Joule(e), Dynamic: measure.Joule(d),
			Spread: measure.Joule(se), DynamicSpread: measure.Joule(sd), Passes: len(s.energy),
			Power: measure.Watt(p), Idle: measure.Watt(idle), Cycles: cycles, Checked: s.checked,
		})
	}
	slices.SortFunc(out, func(a, b Estimate) int {
		return cmp.Or(
			cmp.Compare(a.Layout, b.Layout), cmp.Compare(order[a.Instruction], order[b.Instruction]),
			cmp.Compare(b.Level, a.Level), cmp.Compare(a.Steps, b.Steps),
			cmp.Compare(slices.Index(Methods(), a.Method), slices.Index(Methods(), b.Method)),
		)
	})
	return out
}

// cells pairs each run with its run without the block, and gathers them by cell.
func cells(runs []Run) map[cell]*series {
	known := map[string]Instruction{}
	for _, i := range Catalogue() {
		known[i.Name] = i
	}
	bases, idle := map[partner]*Run{}, map[partner]*mean{}
	for n := range runs {
		r := &runs[n]
		switch {
		case r.Error != "":
		case r.Instruction == Idle:
			for m, p := range r.Power {
				if idle[r.idle(m)] == nil {
					idle[r.idle(m)] = new(mean)
				}
				idle[r.idle(m)].add(p)
			}
		case !r.Block:
			bases[r.base()] = r
		}
	}
	out := map[cell]*series{}
	for n := range runs {
		r := &runs[n]
		base, i := bases[r.base()], known[r.Instruction]
		if !r.Block || r.Error != "" || base == nil || i.Name == "" || !r.counted() || !base.counted() {
			continue
		}
		for m, p := range r.Power {
			without, both := base.Power[m]
			rest := idle[r.idle(m)]
			if !both || rest == nil {
				continue
			}
			c := cell{r.Instruction, r.Setting, m}
			if out[c] == nil {
				out[c] = &series{}
			}
			out[c].add(i, r, base, p, without, rest.value())
		}
	}
	return out
}

// counted reports whether a run has the counts that energies are divided by: a file from
// elsewhere may lack them.
func (r *Run) counted() bool { return r.Turns > 0 && r.Threads > 0 && r.Steps > 0 }

// Campaigns lists when the runs' campaigns began, oldest first.
func Campaigns(runs []Run) []time.Time {
	out := lists.Map(runs, func(r Run) time.Time { return r.Campaign })
	slices.SortStableFunc(out, time.Time.Compare)
	return slices.CompactFunc(out, time.Time.Equal)
}

// Cards lists the GPUs that runs were made on, by UUID.
func Cards(runs []Run) []string {
	out := lists.Map(runs, func(r Run) string { return r.UUID })
	slices.Sort(out)
	return slices.Compact(out)
}

// series is one cell of the table over the passes.
type series struct {
	energy, dynamic, power, idle, cycles []float64
	checked                              bool
}

// add adds one pass: with a block of n steps, t the time of a turn of the loop,
//
//	E = (P·t − P′·t′) / (n·threads),  dynamic E the same of P − P(idle) and P′ − P(idle)
//
// where the primes are of the kernel without the block. The powers are one method's means.
func (s *series) add(i Instruction, r, base *Run, with, without, idle measure.Watt) {
	steps := float64(r.Steps * i.Ops)
	per := steps * float64(r.Threads) / float64(i.Threads)
	tw, tb := float64(r.Time)/float64(r.Turns), float64(base.Time)/float64(base.Turns)
	s.energy = append(s.energy, (float64(with)*tw-float64(without)*tb)/per)
	s.dynamic = append(s.dynamic, (float64(with-idle)*tw-float64(without-idle)*tb)/per)
	s.power, s.idle = append(s.power, float64(with)), append(s.idle, float64(idle))
	s.cycles = append(s.cycles, (float64(r.Cycles)/float64(r.Turns)-float64(base.Cycles)/float64(base.Turns))/steps)
	s.checked = r.Checked
}

// meanOf returns mean and sample standard deviation, zero of a single value.
func meanOf(v []float64) (m, s float64) {
	if m, s = stat.MeanStdDev(v, nil); len(v) < 2 {
		s = 0
	}
	return m, s
}

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
	store.ProgramRun

	span gpu.Span
}

// Span is when the measured launch ran, on the host's wall clock; zero in a run
// that was read from a file.
func (r *Run) Span() gpu.Span { return r.span }

// note ends the watch of a measured launch, and keeps when that ran, the sensor's readings within it, and the GPU's
// condition as far as it is known. Nothing is kept of a launch that failed, or of readings that ended before it.
func (r *Run) note(ctx context.Context, at gpu.Span, w *watcher, c gpu.Condition, failed error) error {
	if err := errors.Join(failed, w.end()); err != nil {
		return err
	}
	if ctx.Err() != nil { // a kernel runs on, but the readings ended
		return context.Cause(ctx)
	}
	r.span, r.Time = at, measure.SecondsOf(at.End.Sub(at.Start))
	r.Power = w.means(at)
	if n := len(w.readings); n > 1 {
		r.Reads = measure.Hertz(float64(n-1) / w.readings[n-1].at.Sub(w.readings[0].at).Seconds())
	}
	if !math.IsNaN(float64(c.SM)) {
		r.SM = c.SM
	}
	if !math.IsNaN(c.Temperature) {
		r.Celsius = c.Temperature
	}
	return nil
}

// mostLine bounds a line of a file of runs: a run has less than 2 kB.
const mostLine = 1 << 20

// ReadRuns reads runs, a JSON object a line; empty lines are passed over. Unknown fields and a
// second object in a line are errors. Errors name the line, as NAME:LINE.
func ReadRuns(r io.Reader, name string) ([]Run, error) {
	var out []Run
	s := bufio.NewScanner(r)
	s.Buffer(nil, mostLine)
	line := 1
	for ; s.Scan(); line++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		var run Run
		d := json.NewDecoder(bytes.NewReader(s.Bytes()))
		d.DisallowUnknownFields()
		err := d.Decode(&run)
		switch {
		case err != nil:
			err = fmt.Errorf("no run of wattmark instructions: %w", err)
		case d.More():
			err = errors.New("more than one run in a line")
		default:
			err = run.valid()
		}
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

// Stored is a run as the database keeps it, and its campaign, without a number.
func (r *Run) Stored() (store.InstructionCampaign, store.InstructionRun) {
	c := store.InstructionCampaign{
		GPU: r.GPU, GPUUUID: r.UUID, Driver: r.Driver, Started: r.Campaign, Seed: r.Seed, Host: r.Host, Version: r.Version,
	}
	return c, store.InstructionRun{
		Pass: r.Pass, Instruction: r.Instruction, Layout: string(r.Layout), Level: r.Level, Steps: r.Steps,
		ProgramRun: r.ProgramRun,
	}
}

// FromStore converts stored runs of one campaign.
func FromStore(c store.InstructionCampaign, runs []store.InstructionRun) []Run {
	return lists.Map(runs, func(s store.InstructionRun) Run {
		return Run{
			Instruction: s.Instruction, Setting: Setting{Layout(s.Layout), s.Level, s.Steps}, Campaign: c.Started,
			Pass: s.Pass, GPU: c.GPU, UUID: c.GPUUUID, Driver: c.Driver, Seed: c.Seed, Host: c.Host,
			Version: c.Version, ProgramRun: s.ProgramRun,
		}
	})
}

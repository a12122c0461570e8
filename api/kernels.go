package api

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// Kernels is a task's energy by kernel name, as show and the page have it.
type Kernels struct {
	Lines []KernelLine `json:"lines"`
	// Kernels stored in the database, delivered by CUPTI, and lost within CUPTI.
	Recorded uint64   `json:"recorded"`
	Reported uint64   `json:"reported"`
	Dropped  uint64   `json:"dropped"`
	Warnings []string `json:"warnings,omitempty"`
	// Sum of all lines: the energy of the task. NaN without lines.
	Sum measure.Joule `json:"sum_j,omitzero"`
}

// KernelLine is the energy of one kernel name, or of the time without kernels: between the
// first and the last kernel (active_idle), or outside of them (idle).
type KernelLine struct {
	Class  string `json:"class"` // kernel, active_idle, idle
	Name   string `json:"name,omitempty"`
	Symbol string `json:"symbol,omitempty"` // mangled, if it differs from Name
	// Method is "edges" (the meter's power between begin and end of the launches) or "least squares" (one
	// mean power for each name, fitted to the whole trace).
	Method string `json:"method"`
	// Together are the names of a group that the readings do not tell apart.
	Together []string `json:"together,omitempty"`
	// Members are the same with their launches, the longest time first. Only commands that read the database have them.
	Members          []KernelMember  `json:"members,omitempty"`
	Launches         uint64          `json:"launches"`
	Short            uint64          `json:"short_launches"` // shorter than the meter resolves
	Busy             measure.Seconds `json:"busy_s"`         // sum of the kernels' durations
	Share            measure.Seconds `json:"share_s"`        // the same, divided among concurrent kernels
	measure.Estimate                 // k = 2
	// Mean is over Share; PerCall is the energy of one launch. NaN where there is none.
	Mean    measure.Watt  `json:"mean_w,omitzero"`
	PerCall measure.Joule `json:"per_call_j,omitzero"`
}

// KernelMember is one name of a group, whose energy is not known apart.
type KernelMember struct {
	Name     string          `json:"name"`
	Launches uint64          `json:"launches"`
	Busy     measure.Seconds `json:"busy_s"` // sum of their durations
}

// The values of KernelLine.Class.
const (
	ClassKernel     = "kernel"
	ClassActiveIdle = "active_idle"
	ClassIdle       = "idle"
)

var classes = map[store.EnergyClass]string{
	store.KernelEnergy: ClassKernel, store.ActiveIdleEnergy: ClassActiveIdle, store.IdleEnergy: ClassIdle,
}

// Readable returns a kernel's name demangled, without its parameters.
func Readable(symbol string) string {
	return measure.Printable(demangle.Filter(symbol, demangle.NoParams))
}

// NewKernels returns the lines of energy by name of a task measured with a setup, with warnings
// about missing kernels and about errors that ± U does not include.
func NewKernels(tables *store.LaunchTables, lines []store.NameEnergy, setup measure.Setup) *Kernels {
	k := &Kernels{Lines: []KernelLine{}, Sum: measure.Joule(math.NaN())}
	for i := range lines {
		k.Lines = append(k.Lines, newKernelLine(&lines[i]))
		if i == 0 {
			k.Sum = 0
		}
		k.Sum += lines[i].Energy.Energy
	}
	// The shortest span that the meter resolves: the largest of sample period, update interval, averaging window and
	// twice the time constant.
	var resolution measure.Seconds
	if tb, m := setup.Timebase, setup.Response; tb.TicksPerScan > 0 {
		resolution = max(tb.Seconds(tb.TicksPerScan), m.Update, m.Seen())
	}
	k.addWarnings(tables)
	k.warnOfShort(lines, resolution)
	return k
}

func newKernelLine(e *store.NameEnergy) KernelLine {
	names := lists.Map(strings.Split(e.Name, store.Together), Readable) // one unless it is of a group
	l := KernelLine{
		Class: classes[e.Class], Name: strings.Join(names, store.Together), Method: "edges", Launches: e.Launches,
		Short: e.Short, Busy: e.Busy, Share: e.Share, Estimate: e.Energy,
		Mean: measure.Watt(math.NaN()), PerCall: measure.Joule(math.NaN()),
	}
	if l.Name != e.Name {
		l.Symbol = e.Name
	}
	if len(names) > 1 {
		l.Together = names
	}
	if e.Fitted {
		l.Method = "least squares"
	}
	if e.Share > 0 { // the mean power is over the name's own share of time
		l.Mean = measure.Watt(float64(l.Energy) / float64(e.Share))
	}
	if e.Launches > 0 {
		l.PerCall = l.Energy / measure.Joule(e.Launches)
	}
	return l
}

func (k *Kernels) warn(format string, a ...any) {
	k.Warnings = append(k.Warnings, fmt.Sprintf(format, a...))
}

// addWarnings adds the counts of kernels, and warnings about missing kernels.
func (k *Kernels) addWarnings(tables *store.LaunchTables) {
	for _, p := range tables.Processes {
		k.Recorded, k.Reported, k.Dropped = k.Recorded+p.Kernels, k.Reported+p.Reported, k.Dropped+p.Dropped
		if p.Trouble != "" {
			k.warn("process %d: %s", p.PID, p.Trouble)
		}
		if !p.Whole {
			k.warn("process %d ended without its count (killed?): its last kernels are missing, their energy is in idle", p.PID)
		}
	}
	troubled := func(p store.LaunchProcess) bool { return p.Trouble != "" }
	if k.Reported == 0 && !slices.ContainsFunc(tables.Processes, troubled) {
		k.warn("CUPTI reported no kernel: the program launched none, or another profiler took them; nothing is known " +
			"of energy by kernel")
	}
	if k.Dropped > 0 {
		k.warn("CUPTI lost %s: their energy is in others' or in idle", measure.Plural(k.Dropped, "kernel"))
	}
	// Without devices no kernel was recorded at all, which is warned of above.
	measured := func(d store.LaunchDevice) bool { return d.Measured }
	if len(tables.Devices) > 0 && !slices.ContainsFunc(tables.Devices, measured) {
		k.warn("no kernel ran on the GPU that was measured")
	}
}

// warnOfShort adds warnings about kernels shorter than the meter resolves.
func (k *Kernels) warnOfShort(lines []store.NameEnergy, resolution measure.Seconds) {
	var short, all, fitted uint64
	groups := 0
	for _, l := range lines {
		all += l.Launches
		if !l.Fitted {
			short += l.Short
			continue
		}
		fitted += l.Short
		if strings.Contains(l.Name, store.Together) {
			groups++
		}
	}
	if fitted > 0 {
		k.warn("%d of %d kernels are shorter than the %v that the meter resolves: their energies are of the mean power "+
			"of each name, fitted to the trace by least squares; launches of a name that draw differently are averaged",
			fitted, all, resolution)
	}
	if groups > 0 {
		k.warn("the readings do not determine the energies of names that are listed together: the line has their sum")
	}
	if short > 0 {
		k.warn("%d of %d kernels are shorter than the %v that the meter resolves: their energy is what it saw around "+
			"them, and ± U does not hold that", short, all, resolution)
	}
}

// ReadKernels returns a task's energy by kernel name, as it is stored for a result.
func (s *Service) ReadKernels(ctx context.Context, req *pb.ReadKernelsRequest) (*pb.ReadKernelsResponse, error) {
	doing := fmt.Sprintf("read the kernels of task %d", req.GetTaskId())
	t, err := s.taskResult(ctx, req.GetTaskId(), req.GetResult())
	if err != nil {
		return nil, toStatus(doing, err)
	}
	tables, err := s.db.LaunchTables(ctx, t.ID)
	if err != nil || len(tables.Processes) == 0 {
		return &pb.ReadKernelsResponse{}, toStatus(doing, err)
	}
	lines, err := s.db.NameEnergies(ctx, t.ID, t.ResultNumber)
	if err != nil {
		return nil, toStatus(doing, err)
	}
	res := kernelsMessage(*NewKernels(&tables, lines, t.Setup))
	res.Result = uint32(t.ResultNumber)
	return res, nil
}

// ReadRanges returns a task's energy by range, and its single ranges within a span.
func (s *Service) ReadRanges(ctx context.Context, req *pb.ReadRangesRequest) (*pb.ReadRangesResponse, error) {
	x, err := s.span(ctx, req, amount{"max_spans", req.GetMaxSpans(), defaultSlices, store.MostSpans})
	if err != nil {
		return nil, err
	}
	doing := fmt.Sprintf("read the ranges of task %d", x.id)
	t, err := s.taskResult(ctx, int64(x.id), 0)
	if err != nil {
		return nil, toStatus(doing, err)
	}
	r, err := s.db.Ranges(ctx, &t)
	if r == nil || err != nil {
		return &pb.ReadRangesResponse{}, toStatus(doing, err)
	}
	r.Within(x.from, x.to, x.n)
	return rangesMessage(*r), nil
}

// orZero returns v, and 0 where it is not known: NaN is no number of the JSON API.
func orZero[T ~float64](v T) float64 {
	if !measure.Known(v) {
		return 0
	}
	return float64(v)
}

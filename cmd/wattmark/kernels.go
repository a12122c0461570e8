package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"wattmark/hostagent/measurement"
	"wattmark/measure"
	"wattmark/store"
)

// kernelsReport is the energy by kernel name as our JSON shows it.
type kernelsReport struct {
	Lines []kernelLine `json:"lines"`
	// Recorded kernels are stored, Reported were handed out by CUPTI, Dropped were
	// lost within it.
	Recorded uint64   `json:"recorded"`
	Reported uint64   `json:"reported"`
	Dropped  uint64   `json:"dropped"`
	Warnings []string `json:"warnings,omitempty"`
	// SumJ is what all lines come to: the energy of the task.
	SumJ *float64 `json:"sum_j,omitempty"`
}

// kernelLine is one name, or the time without kernels.
type kernelLine struct {
	Class    string   `json:"class"` // kernel, active_idle, idle
	Name     string   `json:"name,omitempty"`
	Symbol   string   `json:"symbol,omitempty"` // as the compiler made it
	Launches uint64   `json:"launches"`
	Short    uint64   `json:"short_launches"`
	BusyS    float64  `json:"busy_s"`
	ShareS   float64  `json:"share_s"`
	EnergyJ  *float64 `json:"energy_j"`
	EnergyUJ *float64 `json:"energy_u_j"`
	MeanW    *float64 `json:"mean_w,omitempty"`
	PerCallJ *float64 `json:"per_call_j,omitempty"`
}

var classNames = map[store.EnergyClass]string{
	store.KernelEnergy: "kernel", store.ActiveIdleEnergy: "active_idle", store.IdleEnergy: "idle",
}

// readable is a kernel's name without its mangling and its parameters.
func readable(symbol string) string {
	return measure.Printable(demangle.Filter(symbol, demangle.NoParams))
}

func newKernelLine(e *store.NameEnergy) kernelLine {
	l := kernelLine{
		Class: classNames[e.Class], Name: readable(e.Name), Launches: e.Launches, Short: e.Short,
		BusyS: float64(e.Busy), ShareS: float64(e.Share),
		EnergyJ: number(float64(e.Energy.Energy)), EnergyUJ: number(float64(e.Energy.U)),
	}
	if l.Name != e.Name {
		l.Symbol = e.Name
	}
	if e.Share > 0 {
		l.MeanW = number(float64(e.Energy.Energy) / float64(e.Share))
	}
	if e.Launches > 0 {
		l.PerCallJ = number(float64(e.Energy.Energy) / float64(e.Launches))
	}
	return l
}

// addKernels adds the energy by kernel name; it is worked out where another
// calibration came into use since. A task that was not recorded has none.
func (r *report) addKernels(ctx context.Context, db *store.DB, t *store.Task) error {
	tables, err := db.LaunchTables(ctx, t.ID)
	if err != nil || len(tables.Processes) == 0 {
		return err
	}
	k := &kernelsReport{Lines: []kernelLine{}}
	lines, err := db.NameEnergies(ctx, t.ID, t.ResultNumber)
	inUse := func(x store.ResultInfo) bool { return x.InUse && x.Number == t.ResultNumber }
	if err == nil && len(lines) == 0 && (slices.ContainsFunc(t.Results, inUse) || len(t.Results) == 0) {
		lines, err = attributed(ctx, db, t.ID)
	}
	switch {
	case errors.Is(err, measurement.ErrNoShares):
		k.Warnings = append(k.Warnings, err.Error())
	case err != nil:
		return err
	}
	var sum measure.Joule
	for i := range lines {
		k.Lines = append(k.Lines, newKernelLine(&lines[i]))
		sum += lines[i].Energy.Energy
	}
	if len(lines) > 0 {
		k.SumJ = finite(sum)
	}
	k.addWarnings(&tables, lines, resolutionOf(t))
	r.Kernels = k
	return nil
}

// attributed shares a task's energy among its kernels; in a database that may only be
// read the shares are not stored.
func attributed(ctx context.Context, db *store.DB, id store.TaskID) ([]store.NameEnergy, error) {
	lines, err := measurement.Attribute(ctx, db, id)
	if errors.Is(err, store.ErrReadOnly) {
		err = nil
	}
	return lines, err
}

// shareAgain stores the energies by kernel of a task whose result changed; nothing for a
// program that was not recorded.
func shareAgain(ctx context.Context, db *store.DB, id store.TaskID) error {
	_, err := measurement.Attribute(ctx, db, id)
	if errors.Is(err, measurement.ErrNoShares) {
		return nil
	}
	return err
}

// addKernelsOf is addKernels for a task's number.
func (r *report) addKernelsOf(ctx context.Context, db *store.DB, id store.TaskID) error {
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	return r.addKernels(ctx, db, &t)
}

// resolutionOf is the span that the task's meter cannot look into.
func resolutionOf(t *store.Task) measure.Seconds {
	tb, m := t.Setup.Timebase, t.Setup.Response
	if !(tb.TicksPerScan > 0) {
		return 0
	}
	return max(tb.Seconds(tb.TicksPerScan), m.Update, m.Window, 2*m.Tau)
}

// addWarnings says what is missing, and what U does not hold.
func (k *kernelsReport) addWarnings(tables *store.LaunchTables, lines []store.NameEnergy, resolution measure.Seconds) {
	warn := func(format string, a ...any) { k.Warnings = append(k.Warnings, fmt.Sprintf(format, a...)) }
	for _, p := range tables.Processes {
		k.Recorded, k.Reported, k.Dropped = k.Recorded+p.Kernels, k.Reported+p.Reported, k.Dropped+p.Dropped
		if p.Trouble != "" {
			warn("process %d: %s", p.PID, p.Trouble)
		}
		if !p.Whole {
			warn("process %d ended without its count (killed?): its last kernels are missing, their energy is in idle", p.PID)
		}
	}
	if k.Reported == 0 && !slices.ContainsFunc(tables.Processes, func(p store.LaunchProcess) bool { return p.Trouble != "" }) {
		warn("CUPTI reported no kernel: the program launched none, or another profiler took them; nothing is known of energy by kernel")
	}
	if k.Dropped > 0 {
		warn("CUPTI lost %d kernels: their energy is in others' or in idle", k.Dropped)
	}
	measured := len(tables.Devices) == 0
	for _, d := range tables.Devices {
		measured = measured || d.Measured
	}
	if !measured {
		warn("no kernel ran on the GPU that was measured")
	}
	var short, all uint64
	for _, l := range lines {
		short, all = short+l.Short, all+l.Launches
	}
	if short > 0 {
		warn("%d of %d kernels are shorter than the %v that the meter resolves: their energy is what it saw around them, and ± U does not hold that", short, all, resolution)
	}
}

// ownKernels begin the names of the kernels that libwattmark.so launches.
const ownKernels = "wm_"

func (a *app) renderKernels(r *report) {
	k := r.Kernels
	if k == nil {
		fmt.Fprintln(a.out, "\nNo kernels were recorded for this task: run --auto records them.")
		return
	}
	fmt.Fprintf(a.out, "\nEnergy by kernel (equal shares where several run at once), %d recorded of %d:\n", k.Recorded, k.Reported+k.Dropped)
	t := newTable(a.out)
	t.AppendHeader([]any{"kernel", "launches", "time", "energy (k = 2)", "mean", "a launch"})
	for i := range k.Lines {
		l := &k.Lines[i]
		row := []any{shorten(l.Name, 60), l.Launches, measure.Seconds(l.BusyS), "", "", ""}
		switch l.Class {
		case classNames[store.ActiveIdleEnergy]:
			row[0], row[1] = "(between kernels)", ""
		case classNames[store.IdleEnergy]:
			row[0], row[1] = "(before and after)", ""
		default:
			if strings.HasPrefix(l.Name, ownKernels) {
				row[0] = fmt.Sprintf("(%s: around single kernels)", l.Name)
			}
		}
		if l.EnergyJ != nil && l.EnergyUJ != nil {
			row[3] = energyText(*l.EnergyJ, *l.EnergyUJ)
		}
		if l.MeanW != nil {
			row[4] = measure.Watt(*l.MeanW)
		}
		if l.PerCallJ != nil {
			row[5] = measure.Joule(*l.PerCallJ)
		}
		t.AppendRow(row)
	}
	if k.SumJ != nil && r.EnergyJ != nil && r.EnergyUJ != nil {
		t.AppendFooter([]any{"sum", "", "", energyText(*k.SumJ, *r.EnergyUJ), "", ""})
	}
	t.Render()
	for _, w := range k.Warnings {
		fmt.Fprintln(a.out, "  caution:", w)
	}
}

// shorten cuts a name in its middle: both ends tell kernels apart.
func shorten(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most/2]) + "…" + string(r[len(r)-most/2+1:])
}

// exportKernels writes the timeline of a recorded program as CSV.
func exportKernels(ctx context.Context, w io.Writer, db *store.DB, t *store.Task) error {
	tables, err := db.LaunchTables(ctx, t.ID)
	if err != nil {
		return err
	}
	if len(tables.Processes) == 0 {
		return fmt.Errorf("task %d has no recorded kernels: run --auto records them", t.ID)
	}
	buf := bufio.NewWriterSize(w, 1<<16)
	out := csv.NewWriter(buf)
	if err := out.Write([]string{
		"start_ns", "end_ns", "name", "symbol", "process", "device", "measured", "stream", "correlation", "graph",
		"grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
	}); err != nil {
		return err
	}
	names := make([]string, len(tables.Names))
	for i, n := range tables.Names {
		names[i] = readable(n)
	}
	u := func(v uint32) string { return strconv.FormatUint(uint64(v), 10) }
	for l, err := range db.Launches(ctx, t.ID) {
		if err != nil {
			return err
		}
		if l.Name >= len(names) || l.Device >= len(tables.Devices) {
			return fmt.Errorf("task %d: a launch of name %d on device %d: %w", t.ID, l.Name, l.Device, store.ErrCorrupt)
		}
		d := tables.Devices[l.Device]
		if err := out.Write([]string{
			strconv.FormatInt(l.Start, 10), strconv.FormatInt(l.End, 10), names[l.Name], tables.Names[l.Name],
			u(tables.Processes[d.Process].PID), u(d.Ordinal), strconv.FormatBool(d.Measured), u(l.Stream), u(l.Correlation), u(l.Graph),
			u(l.Grid[0]), u(l.Grid[1]), u(l.Grid[2]), u(l.Block[0]), u(l.Block[1]), u(l.Block[2]),
		}); err != nil {
			return err
		}
	}
	out.Flush()
	return errors.Join(out.Error(), buf.Flush())
}

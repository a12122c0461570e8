package report

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/store"
)

// AddKernels adds the energy by kernel name. If it is not stored for the result in use, as
// after a change of calibration, it is calculated first. A task without recorded kernels
// stays without; one whose energy cannot be divided gets a warning instead of lines.
func (r *Report) AddKernels(ctx context.Context, db *store.DB) error {
	tables, lines, err := NameEnergies(ctx, db, r.task)
	switch {
	case err == nil && len(tables.Processes) == 0:
		return nil
	case errors.Is(err, measurement.ErrNoShares):
		r.Kernels = &api.Kernels{Lines: []api.KernelLine{}, Warnings: []string{err.Error()}, Sum: measure.Joule(math.NaN())}
		return nil
	case err != nil:
		return err
	}
	r.Kernels = api.NewKernels(&tables, lines, r.task.Setup)
	return addMembers(ctx, db, r, &tables, lines)
}

// addMembers adds to each group its names, with their launches and times.
func addMembers(
	ctx context.Context, db *store.DB, r *Report, tables *store.LaunchTables, lines []store.NameEnergy,
) error {
	var times []measurement.NameTime
	for i := range r.Kernels.Lines {
		l := &r.Kernels.Lines[i]
		if len(l.Together) == 0 {
			continue
		}
		if times == nil {
			var err error
			if times, err = measurement.NameTimes(ctx, db, r.task, tables); err != nil {
				return err
			}
		}
		for n, symbol := range strings.Split(lines[i].Name, store.Together) {
			m := api.KernelMember{Name: l.Together[n]}
			if k := slices.Index(tables.Names, symbol); k >= 0 { // else it is the time between kernels
				m.Launches, m.Busy = times[k].Launches, times[k].Busy
			}
			l.Members = append(l.Members, m)
		}
		slices.SortStableFunc(l.Members, func(a, b api.KernelMember) int { return cmp.Compare(b.Busy, a.Busy) })
	}
	return nil
}

// NameEnergies returns the tables of a task's recorded launches, empty if none were recorded, and its energy by
// kernel name. Energies that are not stored for the result in use are calculated, and stored unless the database is
// open read-only; a result not in use has only the lines stored with it. Errors wrap measurement.ErrNoShares where
// the energy cannot be divided.
func NameEnergies(ctx context.Context, db *store.DB, t *store.Task) (
	tables store.LaunchTables, lines []store.NameEnergy, err error,
) {
	if tables, err = db.LaunchTables(ctx, t.ID); err != nil || len(tables.Processes) == 0 {
		return tables, nil, err
	}
	lines, err = db.NameEnergies(ctx, t.ID, t.ResultNumber)
	inUse := func(x store.ResultInfo) bool { return x.InUse && x.Number == t.ResultNumber }
	if err == nil && len(lines) == 0 && (slices.ContainsFunc(t.Results, inUse) || len(t.Results) == 0) {
		if lines, err = measurement.Attribute(ctx, db, t.ID); errors.Is(err, store.ErrReadOnly) {
			err = nil
		}
	}
	return tables, lines, err
}

// ShareAgain calculates and stores the energies by kernel of a task whose result changed. It
// does nothing for a task without recorded kernels.
func ShareAgain(ctx context.Context, db *store.DB, id store.TaskID) error {
	_, err := measurement.Attribute(ctx, db, id)
	if errors.Is(err, measurement.ErrNoShares) {
		return nil
	}
	return err
}

// ownKernels is the prefix of the names of kernels that libwattmark.so launches.
const ownKernels = "wm_"

// RenderKernels writes the energy by kernel as a table, with the warnings below.
func RenderKernels(a *cli.App, r *Report) {
	k := r.Kernels
	if k == nil {
		fmt.Fprintln(a.Out, "\nNo kernels were recorded for this task: run --auto records them.")
		return
	}
	fmt.Fprintf(a.Out, "\nEnergy by kernel (equal shares where several run at once), %d recorded of %d:\n", k.Recorded,
		k.Reported+k.Dropped)
	t := out.NewTable(a.Out, "kernel", "launches", "time", "energy (k = 2)", "mean", "a launch", "by")
	for i := range k.Lines {
		l := &k.Lines[i]
		row := []any{measure.Shorten(l.Name, 60), l.Launches, l.Busy, "", "", "", l.Method}
		if n := len(l.Together); n > 0 {
			row[0] = fmt.Sprintf("%d together: %s", n, measure.Shorten(l.Name, 48))
			if len(l.Members) > 0 {
				row[0] = fmt.Sprintf("%d together, by time:", n)
			}
		}
		// The time without kernels has no name and no launches; kernels of our own library
		// (markers around single kernels) are marked as such.
		switch l.Class {
		case api.ClassActiveIdle:
			row[0], row[1] = "(between kernels)", ""
		case api.ClassIdle:
			row[0], row[1] = "(before and after)", ""
		default:
			if strings.HasPrefix(l.Name, ownKernels) && len(l.Together) == 0 {
				row[0] = fmt.Sprintf("(%s: around single kernels)", l.Name)
			}
		}
		if measure.Known(l.Energy) && measure.Known(l.U) {
			row[3] = out.EnergyText(l.Energy, l.U)
		}
		if measure.Known(l.Mean) {
			row[4] = l.Mean
		}
		if measure.Known(l.PerCall) {
			row[5] = l.PerCall
		}
		t.AppendRow(row)
		for _, m := range memberRows(l.Members) {
			t.AppendRow(m)
		}
	}
	if measure.Known(k.Sum) && r.EnergyJ != nil && r.EnergyUJ != nil {
		t.AppendFooter([]any{"sum", "", "", out.EnergyText(float64(k.Sum), *r.EnergyUJ), "", "", ""})
	}
	t.Render()
	out.Each(a.Out, "  caution: %s\n", k.Warnings)
}

// mostMembers bounds the names of a group that are listed.
const mostMembers = 12

// memberRows are the names of a group, the last row for all that are left out.
func memberRows(members []api.KernelMember) (rows []out.Row) {
	row := func(name string, m api.KernelMember) {
		rows = append(rows, out.Row{"  " + name, m.Launches, m.Busy, "", "", "", ""})
	}
	var rest api.KernelMember
	for i, m := range members {
		switch {
		case i >= mostMembers-1 && len(members) > mostMembers:
			rest.Launches, rest.Busy = rest.Launches+m.Launches, rest.Busy+m.Busy
		case m.Launches == 0: // the time between kernels
			rows = append(rows, out.Row{"  " + m.Name, "", "", "", "", "", ""})
		default:
			row(measure.Shorten(m.Name, 58), m)
		}
	}
	if rest.Launches > 0 {
		row(fmt.Sprintf("%d more", len(members)-mostMembers+1), rest)
	}
	return rows
}

// WindowsReport are the windows of a server, and their sums.
type WindowsReport struct {
	Summary []serving.Line  `json:"summary"`
	Served  *serving.Served `json:"served,omitempty"`
	*measurement.ServedWindows
}

// AddWindows adds the windows that the program named; nothing where it named none.
func (r *Report) AddWindows(ctx context.Context, db *store.DB) error {
	w, err := measurement.Windows(ctx, db, r.task.ID)
	if errors.Is(err, measurement.ErrNoShares) && w != nil {
		w.Notes, err = append(w.Notes, err.Error()), nil
	}
	if err != nil || w == nil {
		return err
	}
	served, err := w.Served(ctx, db, r.task.ID)
	r.Windows = &WindowsReport{serving.Summarise(w.Windows), served, w}
	return err
}

// RenderWindows writes the sums of windows as a table, with the notes below.
func RenderWindows(a *cli.App, r *WindowsReport) {
	if r == nil {
		fmt.Fprintln(a.Out,
			"\nNo windows were named in this task: wattmark.window in Python, BeginWindow over gRPC and HTTP.")
		return
	}
	fmt.Fprintln(a.Out, "\nEnergy by window (those open at once share the power equally):")
	head := out.Row{"class", "stage", "windows", "-mean length", "energy (k = 2)", "p50", "-p90", "-p99", "each"}
	out.Table(a.Out, head, r.Summary, func(l serving.Line) out.Row {
		row := out.Row{l.Class, cmp.Or(l.Stage, "(requests)"), l.Windows}
		if l.Windows == 0 {
			return append(row, "", "", "", "", "", "")
		}
		per := lists.Map(l.Per, func(p serving.Per) string {
			return out.EnergyText(p.Energy, p.U) + "/" + strings.TrimSuffix(p.Unit, "s")
		})
		return append(row, l.Time/measure.Seconds(l.Windows), out.EnergyText(l.Energy, l.U), l.P50, l.P90, l.P99,
			strings.Join(per, ", "))
	})
	if s := r.Served; s != nil && s.Power != nil {
		took := measure.Seconds(float64(s.End-s.Begin) * 1e-9)
		fmt.Fprintf(a.Out, "  from the first window's begin to the last one's end, without warm-up: %s in %v, %v\n",
			out.EnergyText(s.Energy, s.U), took, s.Mean)
	}
	out.Each(a.Out, "  caution: %s\n", r.Notes)
}

// RenderRanges writes the energy by range as a table, with the notes below.
func RenderRanges(a *cli.App, r *store.Ranges) {
	if r == nil {
		fmt.Fprintln(a.Out, "\nNo ranges were recorded for this task: run --auto records NVTX's, annotate a profiler's.")
		return
	}
	fmt.Fprintln(a.Out, "\nEnergy by range (of the kernels launched in it):")
	head := out.Row{"range", "times", "launches", "GPU busy", "energy (k = 2)", "each"}
	out.Table(a.Out, head, r.Ranges, func(x store.RangeEnergy) out.Row {
		depth := strings.Count(x.Path, "/")
		name := strings.Repeat("  ", depth) + measure.Shorten(x.Path[strings.LastIndex(x.Path, "/")+1:], 60-2*depth)
		return out.Row{name, x.Ranges, x.Launches, x.Busy, out.EnergyText(x.Energy, x.U), x.Energy / measure.Joule(x.Ranges)}
	})
	out.Each(a.Out, "  caution: %s\n", r.Notes)
}

// mostLaunches bounds the recorded launches held in memory.
const mostLaunches = 1 << 20

// TaskKernels returns the launches recorded in the program on the measured GPU, else the
// kernels that the benchmark noted; at is the time of an instant of the host's wall clock.
// note is a caution where only the first mostLaunches count.
func TaskKernels(ctx context.Context, db *store.DB, t *store.Task, at func(time.Time) measure.Seconds) (
	out []validate.Kernel, note string, err error,
) {
	tables, err := db.LaunchTables(ctx, t.ID)
	if err != nil {
		return nil, "", err
	}
	if len(tables.Processes) == 0 {
		list, err := db.Kernels(ctx, t.ID)
		return lists.Map(list, func(k store.Kernel) validate.Kernel {
			span := validate.Span{From: at(k.Start), To: at(k.End)}
			return validate.Kernel{Name: measure.Printable(k.Name), Span: span}
		}), "", err
	}
	names := lists.Map(tables.Names, api.Readable)
	for l, err := range db.Launches(ctx, t.ID) {
		switch {
		case err != nil:
			return nil, "", err
		case l.Name >= len(names) || l.Device >= len(tables.Devices):
			return nil, "", corrupt(t, &l)
		case !tables.Devices[l.Device].Measured:
			continue
		case len(out) == mostLaunches:
			return out, fmt.Sprintf("of the recorded kernels only the first %d count: what later ones drew is in "+
				"the line of no kernel", mostLaunches), nil
		}
		out = append(out, validate.Kernel{
			Name: names[l.Name],
			Span: validate.Span{From: at(time.Unix(0, l.Start)), To: at(time.Unix(0, l.End))},
		})
	}
	return out, "", nil
}

// corrupt returns the error of a launch that refers to a name or device outside the tables.
func corrupt(t *store.Task, l *store.Launch) error {
	return fmt.Errorf("task %d: a launch of name %d on device %d: %w", t.ID, l.Name, l.Device, store.ErrCorrupt)
}

// ExportKernels writes the recorded launches of a task as CSV in the order of their start,
// one line per launch. Times are nanoseconds of the host's clock. A launch that refers to
// a name or device outside the tables is store.ErrCorrupt.
func ExportKernels(ctx context.Context, w io.Writer, db *store.DB, t *store.Task) error {
	tables, err := db.LaunchTables(ctx, t.ID)
	if err != nil {
		return err
	}
	if len(tables.Processes) == 0 {
		return fmt.Errorf("task %d has no recorded kernels: run --auto records them", t.ID)
	}
	buf := bufio.NewWriterSize(w, 1<<16)
	out := csv.NewWriter(buf) // flushed into buf, buf into w, at the end
	if err := out.Write([]string{
		"start_ns", "end_ns", "name", "symbol", "process", "device", "measured", "stream", "correlation", "graph",
		"grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
	}); err != nil {
		return err
	}
	names := lists.Map(tables.Names, api.Readable)
	u := func(v uint32) string { return strconv.FormatUint(uint64(v), 10) }
	for l, err := range db.Launches(ctx, t.ID) {
		if err != nil {
			return err
		}
		if l.Name >= len(names) || l.Device >= len(tables.Devices) {
			return corrupt(t, &l)
		}
		d := tables.Devices[l.Device]
		if err := out.Write([]string{
			strconv.FormatInt(l.Start, 10), strconv.FormatInt(l.End, 10), names[l.Name], tables.Names[l.Name],
			u(tables.Processes[d.Process].PID), u(d.Ordinal), strconv.FormatBool(d.Measured), u(l.Stream), u(l.Correlation),
			u(l.Graph), u(l.Grid[0]), u(l.Grid[1]), u(l.Grid[2]), u(l.Block[0]), u(l.Block[1]), u(l.Block[2]),
		}); err != nil {
			return err
		}
	}
	out.Flush()
	return errors.Join(out.Error(), buf.Flush())
}

// tinyReport is the JSON of the energy of one launch of a tiny kernel, measured over many
// launches; Carrier is the power of the load around each, for methods that have one.
type tinyReport struct {
	Method   string                 `json:"method"`
	Kernel   string                 `json:"kernel"`
	Launches int                    `json:"launches"`
	Energy   measure.Joule          `json:"energy_j"`
	EnergyU  measure.Joule          `json:"energy_u_j"`
	Length   measure.Seconds        `json:"length_s,omitzero"`
	Mean     measure.Watt           `json:"mean_w,omitzero"`
	Carrier  measure.Watt           `json:"carrier_w,omitzero"`
	DOF      int                    `json:"dof,omitempty"`    // degrees of freedom
	Above    measure.Joule          `json:"above_j,omitzero"` // above the level around a launch
	AboveU   measure.Joule          `json:"above_u_j,omitzero"`
	WantedU  float64                `json:"planned_u_rel,omitempty"` // relative
	Budget   []measure.Contribution `json:"budget"`
	Profile  []store.TinyBin        `json:"profile,omitempty"` // over all launches, from the start of one
	Warnings []string               `json:"warnings,omitempty"`
	Plan     json.RawMessage        `json:"plan"`
	coverage float64
}

// addTiny adds the energy of one launch of a tiny kernel, for a task made to measure that.
func (r *Report) addTiny(ctx context.Context, db *store.DB) error {
	t, err := db.Tiny(ctx, store.TaskID(r.TaskID))
	if err != nil || t == nil {
		return err
	}
	x := &tinyReport{
		Method: t.Method, Kernel: t.Kernel, Launches: t.Launches, Energy: t.Energy.Energy, EnergyU: t.Energy.U,
		Length: t.Length, Mean: measure.Watt(math.NaN()), Carrier: t.Carrier, DOF: t.DOF, Above: t.Above.Energy,
		AboveU: t.Above.U, Budget: append([]measure.Contribution{}, t.Budget...), Profile: t.Profile, Warnings: t.Warnings,
		Plan: t.Plan, coverage: measure.FactorOf(t.Energy, t.Budget),
	}
	if t.Length > 0 {
		x.Mean = measure.Watt(float64(t.Energy.Energy) / float64(t.Length))
	}
	// The plan is stored as JSON of the version that measured; only its goal is read here.
	var plan struct{ U float64 }
	if err := json.Unmarshal(t.Plan, &plan); err == nil {
		x.WantedU = plan.U
	}
	r.Tiny = x
	return nil
}

// render writes the energy of one launch as text, with its profile.
func (t *tinyReport) render(w io.Writer) {
	if t == nil || !measure.Known(t.Energy) || !measure.Known(t.EnergyU) {
		return
	}
	fmt.Fprintf(w, "One launch of %s, by %s over %d launches\n", t.Kernel, t.Method, t.Launches)
	fmt.Fprintf(w, "  energy   %s (k = %.2g)", measure.FormatU(float64(t.Energy), float64(t.EnergyU), "J"), t.coverage)
	if t.Energy > 0 {
		fmt.Fprintf(w, ", ± %.2g %%", 100*float64(t.EnergyU)/float64(t.Energy))
	}
	fmt.Fprintln(w)
	if t.Length > 0 {
		fmt.Fprintf(w, "  length   %v by the GPU's clock: %v on the mean", t.Length, t.Mean)
		if measure.Known(t.Carrier) {
			fmt.Fprintf(w, ", in a carrier of %v", t.Carrier)
		}
		fmt.Fprintln(w)
	}
	if measure.Known(t.Above) && measure.Known(t.AboveU) {
		fmt.Fprintf(w, "  above    %s above what surrounds it\n", measure.FormatU(float64(t.Above), float64(t.AboveU), "J"))
	}
	renderLargest(w, t.Budget)
	out.Each(w, "  warning  %s\n", t.Warnings)
	t.plot(w)
	fmt.Fprintln(w)
}

// plot draws the folded profile, and below it a ruler with the length of the launch.
func (t *tinyReport) plot(w io.Writer) {
	if len(t.Profile) < 2 {
		return
	}
	power := lists.Map(t.Profile, func(b store.TinyBin) float64 { return float64(b.Power) })
	// The profile has fewer points than columns: asciigraph interpolates them to the width.
	width := max(out.PlotWidth(w), 40)
	first, last := t.Profile[0].At, t.Profile[len(t.Profile)-1].At
	ruler := []rune(strings.Repeat(" ", width))
	out.Mark(ruler, first, last, 0, t.Length, '═')
	g := out.Graph{
		Series: [][]float64{power}, Height: 12, Axis: "%.0f W", Options: []asciigraph.Option{asciigraph.Width(width)},
		Ruler: string(ruler), Key: "═ the launch", First: first.String(), Last: last.String(), Columns: width,
	}
	fmt.Fprintln(w)
	g.Draw(w)
}

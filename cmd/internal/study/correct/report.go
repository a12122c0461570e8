package correct

import (
	"cmp"
	"context"
	"fmt"
	"image/color"
	"io"
	"math"
	"time"

	"github.com/wattmark/wattmark/analysis/correct"
	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/plot/plotter"
)

// CorrectionReport is the correction of a file of readings. A value that is not known is
// null. Of a sensor that does not look all the time there is a Bound and no energy.
type CorrectionReport struct {
	Readings         string            `json:"readings"`
	Field            string            `json:"field,omitempty"`
	Sensor           correctedSensor   `json:"sensor"`
	Spacing          measure.Seconds   `json:"spacing_s"`     // between readings, median
	Used             int               `json:"readings_used"` // or renewals, without repeats
	Level            *correct.Level    `json:"level,omitempty"`
	Work             []correct.Piece   `json:"work"`
	measure.Estimate                   // of all work, k = 2
	Phases           []correct.Phase   `json:"phases,omitempty"`
	Bound            *correct.Unseen   `json:"bound,omitempty"`
	Noise            measure.Watt      `json:"corrected_noise_w,omitzero"` // of one corrected value (k = 1)
	Warnings         []string          `json:"warnings,omitempty"`
	Picture          string            `json:"picture,omitempty"`
	raw, truth       []correct.Reading // to draw
}

// correctedSensor describes the sensor that was corrected: a lag by its constant and
// slope, a window by its length. U is expanded (k = 2).
type correctedSensor struct {
	Model    sensor.Model    `json:"model"`
	Constant measure.Seconds `json:"constant_s,omitempty"`
	U        measure.Seconds `json:"constant_u_s,omitempty"`
	Window   measure.Seconds `json:"window_s,omitempty"`
	Period   measure.Seconds `json:"period_s"`
	Delay    measure.Seconds `json:"delay_s"`
	Slope    string          `json:"slope,omitempty"`
}

// newCorrectedSensor converts a profile; slope names the estimator of the slope of a lag.
func newCorrectedSensor(p *sensor.Profile, slope string) correctedSensor {
	r := correctedSensor{Model: p.Model, Window: p.Window, Period: p.Period, Delay: p.Delay}
	if p.Model == sensor.FirstOrder {
		l := correct.FromProfile(p)
		r.Constant, r.U, r.Slope = l.C, l.U, slope
	}
	return r
}

// correctLag corrects the readings of a sensor that lags, and finds the work and the
// phases. The sensor's delay is subtracted from the times of the readings first.
func correctLag(rs []correct.Reading, p *sensor.Profile, o correct.Options) (*CorrectionReport, error) {
	// The slope belongs to the time of the power, not of the reading.
	moved := lists.Map(rs, func(x correct.Reading) correct.Reading {
		return correct.Reading{At: x.At - p.Delay, Power: x.Power}
	})
	res, err := correct.Run(moved, o)
	if err != nil {
		return nil, err
	}
	r := &CorrectionReport{
		Sensor: newCorrectedSensor(p, o.Lag.Slope.String()), Spacing: correct.Spacing(rs), Used: len(res.Readings),
		Level: res.Level, Work: res.Work, Phases: res.Phases, Noise: res.Sigma, Warnings: res.Warnings,
		raw: res.Readings, truth: res.Corrected,
	}
	r.Energy, r.U = res.Total()
	// Without an uncertainty of the constant, U covers noise and threshold alone.
	if o.Lag.U == 0 {
		r.Warnings = append(r.Warnings,
			"± U leaves out what the constant's own uncertainty makes: give it by --tau-u, as correct fit tells it")
	}
	return r, nil
}

// correctWindow corrects the readings of a sensor that shows the mean of a window, over
// kernel or over all readings. A window shorter than the period yields bounds alone.
func correctWindow(rs []correct.Reading, p *sensor.Profile, kernel correct.Span,
	f CorrectFlags,
) (*CorrectionReport, error) {
	renewals := correct.Renewals(rs, p.Period)
	if err := correct.Check(renewals); err != nil {
		return nil, fmt.Errorf("%w (renewals of the register in %s)", err, measure.Plural(len(rs), "reading"))
	}
	// What stays unknown, of a sensor that does not look all the time, is null in JSON.
	nan := math.NaN()
	r := &CorrectionReport{
		Sensor: newCorrectedSensor(p, ""), Spacing: correct.Spacing(rs), Used: len(renewals), raw: rs,
		Estimate: measure.Estimate{Energy: measure.Joule(nan), U: measure.Joule(nan)}, Noise: measure.Watt(nan),
	}
	if kernel == (correct.Span{}) { // all that the renewals cover, less the delay
		kernel = correct.Span{From: renewals[0].At - p.Delay, To: renewals[len(renewals)-1].At - p.Delay}
	}
	raw, rawErr := correct.Integrate(rs, kernel)
	// The sensor is blind for the rest of each period: the flags, else the readings bound it.
	if p.Window < p.Period {
		low, high := correct.Extremes(rs)
		low, high = cmp.Or(measure.Watt(max(f.floor, 0)), low), cmp.Or(measure.Watt(max(f.cap, 0)), high)
		u, err := correct.FindUnseen(renewals, p, kernel, low, high)
		if err = cmp.Or(err, rawErr); err != nil {
			return nil, err
		}
		r.Bound = &u
		r.Work = []correct.Piece{{Energy: correct.Energy{
			Span: kernel, Energy: r.Energy, U: r.U, Mean: measure.Watt(nan), Raw: raw,
		}}}
		r.Warnings = append(r.Warnings, "the sensor does not look all the time: no number, a bound. Of a task "+
			"whose kernels are known there is one: wattmark correct TASK")
		return r, nil
	}
	// The window covers the whole period: the energy is determined, noise aside.
	s, e, err := correct.SmoothEnergy(renewals, p, measure.Watt(f.floor), kernel)
	if err != nil {
		return nil, err
	}
	// The energy as read is for comparison: a failure to integrate leaves it out.
	if rawErr == nil {
		e.Raw = raw
	}
	r.truth, r.Noise = s.Readings(), s.Noise
	r.Work, r.Energy, r.U = []correct.Piece{{Energy: e}}, e.Energy, e.U
	return r, nil
}

// String describes the sensor as a verb phrase, as in "lags by 58 ms; slope symmetric".
func (s correctedSensor) String() string {
	if s.Model == sensor.FirstOrder {
		u := map[bool]string{true: fmt.Sprintf(" ± %v", s.U)}[s.U > 0]
		return fmt.Sprintf("lags by %v%s; slope %s", s.Constant, u, s.Slope)
	}
	return fmt.Sprintf("shows the mean of %v every %v", s.Window, s.Period)
}

// render writes the report as text, with a plot in the terminal where plot is set.
func (r *CorrectionReport) render(w io.Writer, plot bool) {
	fmt.Fprintf(w, "%s  %s\n", r.Readings, r.Field)
	fmt.Fprintf(w, "  sensor   %v\n", r.Sensor)
	if measure.Known(r.Spacing) {
		fmt.Fprintf(w, "  read     every %v; %d %s used", r.Spacing, r.Used,
			map[bool]string{true: "renewals", false: "readings"}[r.Sensor.Window > 0])
		if measure.Known(r.Noise) && r.Sensor.Constant > 0 {
			fmt.Fprintf(w, "; one of them corrected is uncertain by %v (k = 1)", r.Noise)
		}
		fmt.Fprintln(w)
	}
	if r.Level != nil {
		fmt.Fprintf(w, "  level    %s\n", r.Level.Statement)
	}
	out.Each(w, "  caution  %s\n", r.Warnings)
	fmt.Fprintln(w)
	r.renderWork(w)
	if b := r.Bound; b != nil {
		fmt.Fprintf(w, "The sensor looked at %.0f %% of it. With %v to %v in the rest the energy lies between %.1f "+
			"J and %.1f J.\n", 100*b.Share, b.Floor, b.Cap, float64(b.Low), float64(b.High))
	}
	if len(r.Phases) > 0 {
		fmt.Fprintln(w, "\nPhases, with what the readings integrate to uncorrected:")
		out.Table(w, out.Row{"phase", "from", "lasts", "as read"}, r.Phases, func(p correct.Phase) out.Row {
			return out.Row{p.Kind, seconds(p.From), seconds(p.Length()), joules(p.Raw)}
		})
	}
	if plot && len(r.raw) > 1 && len(r.truth) > 1 {
		out.Sketch(w, r.chart())
	}
	if r.Picture != "" {
		fmt.Fprintf(w, "\nDrawn into %s\n", r.Picture)
	}
}

// seconds formats a time to the millisecond.
func seconds(s measure.Seconds) string { return fmt.Sprintf("%.3f s", float64(s)) }

// joules formats an energy, or returns nothing where it is not known.
func joules(e measure.Joule) string { return out.Known(e, "%.2f J", "") }

// renderWork writes the table of the pieces of work, their total and their warnings.
func (r *CorrectionReport) renderWork(w io.Writer) {
	t := out.NewTable(w, "work", "from", "to", "as read", "corrected (k = 2)", "mean")
	for i, p := range r.Work {
		// Of a sensor that leaves time unseen only the raw integral is known.
		row := out.Row{i + 1, seconds(p.From), seconds(p.To), joules(p.Raw), "", ""}
		if measure.Known(p.Energy.Energy) && measure.Known(p.U) {
			row[4], row[5] = out.EnergyText(p.Energy.Energy, p.U), p.Mean
		}
		t.AppendRow(row)
	}
	if len(r.Work) > 1 && measure.Known(r.Energy) {
		t.AppendFooter(out.Row{"", "", "", "total", out.Energy(r.Estimate), ""})
	}
	t.Render()
	for i, p := range r.Work {
		for _, x := range p.Warnings {
			fmt.Fprintf(w, "Work %d: %s\n", i+1, x)
		}
	}
}

// phaseColors are the fills of the phases in the drawing.
var phaseColors = map[correct.PhaseKind]color.Color{
	correct.AtWork:     color.RGBA{0xfd, 0xe7, 0xc8, 0xff},
	correct.Decay:      color.RGBA{0xdc, 0xea, 0xf5, 0xff},
	correct.ActiveIdle: color.RGBA{0xd9, 0xef, 0xe6, 0xff},
	correct.Steps:      color.RGBA{0xf2, 0xe3, 0xee, 0xff},
}

// chart draws the readings, the corrected power, the threshold of work and the phases.
func (r *CorrectionReport) chart() *figure.Chart {
	low, high := r.extent()
	c := &figure.Chart{
		Title: "Power as the sensor said, and corrected: it " + r.Sensor.String(), X: "time / s", Y: "power / W",
		YRange: [2]float64{low, high}, Headroom: 1.6,
	}
	// One entry in the legend for each kind of phase.
	named := map[correct.PhaseKind]bool{}
	for _, p := range r.Phases {
		colour, ok := phaseColors[p.Kind]
		if !ok {
			continue
		}
		name := map[bool]string{false: string(p.Kind)}[named[p.Kind]]
		named[p.Kind] = true
		from, to := float64(p.From), float64(p.To)
		c.Areas = append(c.Areas, figure.Area{
			Name: name, Color: colour, Lower: plotter.XYs{{X: from, Y: low}, {X: to, Y: low}},
			Upper: plotter.XYs{{X: from, Y: 1.6 * high}, {X: to, Y: 1.6 * high}},
		})
	}
	c.Line("corrected", figure.Style{Color: figure.Vermillion, Width: 0.8, Sketch: true}, readingPoints(r.truth))
	c.Line("as read", figure.Style{Color: figure.Blue, Width: 1.6, Sketch: true}, readingPoints(r.raw))
	if l := r.Level; l != nil && len(r.raw) > 0 {
		threshold := []correct.Reading{
			{At: r.raw[0].At, Power: l.Threshold}, {At: r.raw[len(r.raw)-1].At, Power: l.Threshold},
		}
		c.Line(fmt.Sprintf("work counts above %.1f W", float64(l.Threshold)),
			figure.Style{Color: figure.Rule, Width: 0.8, Dashed: true}, readingPoints(threshold))
	}
	return c
}

// extent returns the range of power to draw in watts. The slope amplifies noise where the
// power steps, so that corrected values far outside the readings are cut: above 1.3 times
// and below -0.15 times the greatest reading.
func (r *CorrectionReport) extent() (low, high float64) {
	for _, x := range r.raw {
		high = max(high, float64(x.Power))
	}
	read := high
	for _, x := range r.truth {
		high = max(high, min(float64(x.Power), 1.3*read))
		low = min(low, max(float64(x.Power), -0.15*read))
	}
	return low, high
}

// readingPoints converts readings to points of a plot.
func readingPoints(rs []correct.Reading) plotter.XYs {
	return lists.Map(rs, func(x correct.Reading) plotter.XY {
		return plotter.XY{X: float64(x.At), Y: float64(x.Power)}
	})
}

// TaskCorrection is the correction of a task's readings. Methods are the corrected
// variants, compared with the meter; RawJ is the integral of the readings over the work.
type TaskCorrection struct {
	TaskID  store.TaskID          `json:"task_id"`
	Field   string                `json:"field"`
	Sensor  correctedSensor       `json:"sensor"`
	Raw     measure.Joule         `json:"raw_energy_j"`
	Stored  bool                  `json:"stored"`
	Methods []report.MethodReport `json:"methods"`
}

// correctTask corrects the stored readings of a task over its work, and stores the
// variants as software methods unless --no-store is set or the database is read-only.
// Flags that apply to files are usage errors.
func correctTask(a *cli.App, ctx context.Context, arg string, p *sensor.Profile, f CorrectFlags) error {
	if f.given("from") || f.given("to") || f.svg != "" || f.level != 0 || f.floor != 0 || f.cap != 0 ||
		f.Slope != correct.Symmetric.String() {
		return cli.Usagef("--from, --to, --svg, --active-idle, --slope, --floor and --cap are for files: a task knows when its work ran")
	}
	db, err := f.openDB(a, ctx, arg)
	if err != nil {
		return err
	}
	defer db.Close()
	t, err := a.Task(ctx, db, arg)
	if err != nil {
		return err
	}
	if err := f.Certificate.Fits(p, t.GPUUUID, t.Driver); err != nil {
		return err
	}
	from, to, err := exchange.WorkSpan(ctx, db, t.ID)
	if err != nil {
		return err
	}
	rs, field, err := taskReadings(ctx, db, t.ID, cmp.Or(f.field, p.Field), from)
	if err != nil {
		return err
	}
	kernels, note, err := report.TaskKernels(ctx, db, t,
		func(at time.Time) measure.Seconds { return measure.SecondsOf(at.Sub(from)) })
	if note != "" {
		fmt.Fprintln(a.Err, "wattmark:", note)
	}
	if err != nil {
		return err
	}
	// The caller's profile keeps its field; the copy names the one that was read.
	profile := *p
	profile.Field = field
	work := correct.Span{From: 0, To: measure.SecondsOf(to.Sub(from))}
	results, readings := storedForm(correct.Methods(rs, &profile, work, kernels), from, to)
	if !f.noStore {
		if err = db.PutReadings(ctx, t.ID, readings); err == nil {
			err = db.PutMethods(ctx, t.ID, results) // replaces a variant of the same name
		}
		if err != nil {
			return err
		}
	}
	r := &TaskCorrection{
		TaskID: t.ID, Field: field, Sensor: newCorrectedSensor(&profile, correct.Symmetric.String()), Stored: !f.noStore,
		Methods: report.NewMethodReports(results, report.NewReport(t, a.DB).TruthOf()),
	}
	if r.Raw, err = correct.Integrate(rs, work); err != nil {
		r.Raw = measure.Joule(math.NaN()) // left out: it is for comparison
	}
	return a.Print(r, func(w io.Writer) { r.render(w, t) })
}

// openDB opens the database for writing. Where that is not permitted it prints a note,
// sets noStore and opens the database for reading.
func (f *CorrectFlags) openDB(a *cli.App, ctx context.Context, task string) (*store.DB, error) {
	if f.noStore {
		return a.OpenDB(ctx, task)
	}
	db, err := a.OpenToChange(ctx)
	if cli.CannotWrite(err) {
		fmt.Fprintf(a.Err, "%s may only be read here: what comes out is shown, and not stored.\n", a.DB)
		f.noStore = true
		return a.OpenDB(ctx, task)
	}
	return db, err
}

// storedForm converts corrected variants of the work from one instant to another to
// methods of a task, and their power to readings, so that plots can draw them.
func storedForm(list []validate.Method, from, to time.Time) (results []store.MethodResult, readings []store.Reading) {
	// A corrected variant was never polled: its timings are not known.
	nan := measure.Seconds(math.NaN())
	none := store.Timing{P50: nan, P99: nan, Max: nan}
	for _, m := range list {
		results = append(results, store.MethodResult{
			Method: m.Name, From: from, To: to, Energy: m.Energy, U: m.U,
			Mean:     measure.Watt(float64(m.Energy) / to.Sub(from).Seconds()),
			Readings: uint64(len(m.Readings)), Call: none, Alone: none, Beside: none, Note: m.Note,
		})
		for _, x := range m.Readings {
			readings = append(readings,
				store.Reading{Method: m.Name, At: from.Add(x.At.Duration()), Value: float64(x.Power)})
		}
	}
	return results, readings
}

// render writes the correction as text, with the table of methods.
func (r *TaskCorrection) render(w io.Writer, t *store.Task) {
	fmt.Fprintf(w, "Task %d  %s: %s, which %v\n", t.ID, t.Name, r.Field, r.Sensor)
	if measure.Known(r.Raw) {
		fmt.Fprintf(w, "  as read  %s\n", joules(r.Raw))
	}
	report.RenderMethods(w, r.Methods, "the meter")
	if r.Stored {
		fmt.Fprintf(w, "Stored with the task: wattmark show %d lists them beside the others.\n", t.ID)
	}
}

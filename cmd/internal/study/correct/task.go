package correct

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/wattmark/wattmark/analysis/correct"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// TaskCorrection is the correction of a task's readings. Methods are the corrected
// variants, compared with the meter; RawJ is the integral of the readings over the work.
type TaskCorrection struct {
	TaskID store.TaskID    `json:"task_id"`
	Field  string          `json:"field"`
	Sensor correctedSensor `json:"sensor"`
	// integral of the readings over the work, uncorrected
	Raw measure.Joule `json:"raw_energy_j"`
	// whether the variants are in the database
	Stored  bool                  `json:"stored"`
	Methods []report.MethodReport `json:"methods"`
}

// correctTask corrects the stored readings of a task over its work, and stores the
// variants as software methods unless --no-store is set or the database is read-only.
// Flags that apply to files are usage errors.
func correctTask(a *cli.App, ctx context.Context, arg string, p *sensor.Profile, f CorrectFlags) error {
	if f.givenFrom || f.givenTo || f.svg != "" || f.level != 0 || f.floor != 0 || f.cap != 0 ||
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
	kernels, err := kernelsSince(a, ctx, db, t, from)
	if err != nil {
		return err
	}
	// The caller's profile keeps its field; the copy names the one that was read.
	profile := *p
	profile.Field = field
	// Readings, kernels and work count from the begin of the work.
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

// kernelsSince returns the kernels of a task in seconds since an instant. Its note on kernels
// that are left out goes to standard error.
func kernelsSince(a *cli.App, ctx context.Context, db *store.DB, t *store.Task, from time.Time) (
	[]validate.Kernel, error,
) {
	kernels, note, err := report.TaskKernels(ctx, db, t,
		func(at time.Time) measure.Seconds { return measure.SecondsOf(at.Sub(from)) })
	if note != "" {
		fmt.Fprintln(a.Err, "wattmark:", note)
	}
	return kernels, err
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

// Package report turns one task of the database into its report: the JSON that run, show
// and export print, the same as text, its plot and its picture. Every command that ends
// with a task renders it with this package, so that two never differ.
//
//	task → NewReport (JSON) → RenderReport (text), PlotTask (terminal), DrawTask (SVG)
//
// A Report grows by parts: AddSide (condition of the GPU, software methods, one launch of a
// tiny kernel), AddKernels (energy by kernel name), SetTruth (emulated board).
// Field names carry units: _j joule, _w watt, _s second, _u_j the expanded uncertainty in
// joules (k = 2). A quantity that is not known is left out, never zero.
package report

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/wattmark/wattmark/analysis/swings"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/machine"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/measure/wall"
	"github.com/wattmark/wattmark/store"
)

// ListedReport is the JSON of a task in a list, and the first part of a Report.
type ListedReport struct {
	TaskID        int64             `json:"task_id"`
	GroupID       int64             `json:"group_id,omitempty"` // of a measurement of several GPUs
	Name          string            `json:"name"`
	User          string            `json:"user"`
	Job           string            `json:"job,omitempty"` // common to its tasks on all hosts
	State         string            `json:"state"`
	Reason        string            `json:"reason,omitempty"`
	Database      string            `json:"database"`
	Launched      time.Time         `json:"launched"`
	GPU           string            `json:"gpu,omitempty"`
	Driver        string            `json:"driver,omitempty"`
	Instrument    string            `json:"instrument,omitempty"`
	Bench         string            `json:"bench,omitempty"`
	CalibrationID string            `json:"calibration_id,omitempty"` // in force for the figures
	EnergyJ       *float64          `json:"energy_j,omitempty"`
	EnergyUJ      *float64          `json:"energy_u_j,omitempty"`
	DurationS     *float64          `json:"duration_s,omitempty"`
	MeanW         *float64          `json:"mean_w,omitempty"`
	PeakW         *float64          `json:"peak_w,omitempty"`
	NVMLJ         *float64          `json:"nvml_j,omitempty"`
	Samples       uint64            `json:"samples"`
	Stored        uint64            `json:"samples_stored"`
	Gaps          uint64            `json:"gaps"`
	Lost          uint64            `json:"samples_lost"`
	Window        *validate.Span    `json:"window,omitempty"`
	Clock         *clock.Fit        `json:"clock,omitempty"`
	Tags          map[string]string `json:"tags,omitempty"`
	Pinned        bool              `json:"pinned,omitempty"` // exempt from retention
	Cold          bool              `json:"cold,omitempty"`   // its samples are packed
}

// Report is the JSON of one task with all details.
type Report struct {
	ListedReport
	Failure  string        `json:"failure,omitempty"`   // of the work; empty if it succeeded
	ExitCode *int          `json:"exit_code,omitempty"` // of a program that failed
	Rate     measure.Hertz `json:"sample_rate_hz,omitempty"`
	// NVMLMethod is the method whose readings NVMLJ integrates.
	NVMLMethod string                 `json:"nvml_method,omitempty"`
	TruthJ     *float64               `json:"truth_j,omitempty"`
	ErrorPct   *float64               `json:"error_pct,omitempty"`
	Tests      string                 `json:"truth_tests,omitempty"` // parts of the chain that the error tests
	Rails      []railReport           `json:"rails"`
	Missing    []string               `json:"missing_rails,omitempty"`
	Markers    markersReport          `json:"markers"`
	Budget     []measure.Contribution `json:"budget,omitempty"`
	Events     []eventReport          `json:"events,omitempty"`
	// Records are the calibration records in force; Results are all results of the task, one
	// per calibration that it was calculated with.
	Records      []recordReport     `json:"calibration_records,omitempty"`
	ResultNumber int                `json:"result,omitempty"`
	Results      []store.ResultInfo `json:"results,omitempty"`
	// Methods are the results of software methods. Picture is the file of a drawn plot.
	Methods   []MethodReport   `json:"methods,omitempty"`
	Picture   string           `json:"picture,omitempty"`
	Condition *conditionReport `json:"gpu_condition,omitempty"` // around the work
	Quality   *quality.Verdict `json:"quality,omitempty"`
	Kernels   *api.Kernels     `json:"kernels,omitempty"`
	Machine   []machine.Use    `json:"machine,omitempty"` // by the host's own sensors
	// UTCU is U (k = 2) of an instant of the trace in UTC, in seconds, where the host's kernel stated its clock's
	// error.
	UTCU measure.Number `json:"utc_u_s,omitempty"`
	// Whole is the energy of the whole machine by a meter at its wall, WallTrouble why there is none.
	Whole       *wall.Result      `json:"whole_machine,omitempty"`
	WallTrouble string            `json:"whole_machine_trouble,omitempty"`
	Ranges      *store.Ranges     `json:"ranges,omitempty"`  // of the program's own
	Windows     *WindowsReport    `json:"windows,omitempty"` // of a server
	Swings      *swings.Swings    `json:"swings,omitempty"`
	Tiny        *tinyReport       `json:"tiny,omitempty"`
	Notes       []store.Note      `json:"notes,omitempty"`
	Provenance  *provenanceReport `json:"provenance,omitempty"`
	// Caution warns of an error that ± U does not include.
	Caution string `json:"caution,omitempty"`

	task     *store.Task
	unmarked bool // measured without markers
}

// railReport is the energy of one power rail.
type railReport struct {
	Name     string  `json:"name"`
	EnergyJ  float64 `json:"energy_j"`
	EnergyUJ float64 `json:"energy_u_j"`
	MeanW    float64 `json:"mean_w"`
	PeakW    float64 `json:"peak_w"`
}

// markersReport holds the two markers around the work, null for one not found.
type markersReport struct {
	Start *MarkerReport `json:"start"`
	Stop  *MarkerReport `json:"stop"`
}

// MarkerReport is a marker found in the power trace, in device time.
type MarkerReport struct {
	TS          float64 `json:"t_s"`
	US          float64 `json:"u_s"`     // standard uncertainty (k = 1)
	PSLRdB      float64 `json:"pslr_db"` // peak-to-sidelobe ratio of the correlation
	Correlation float64 `json:"correlation"`
	StepW       float64 `json:"step_w"`   // height of the power step
	TagOK       bool    `json:"tag_ok"`   // the task's tag was decoded
	Fallback    bool    `json:"fallback"` // found by the plain up-down pattern

	begin, end measure.Seconds // including its guard intervals, for the plot
}

// eventReport is a gap or another event in the stream of samples.
type eventReport struct {
	Kind      string `json:"kind"`
	FirstScan uint64 `json:"first_scan"`
	Scans     uint64 `json:"scans"`
	Exact     bool   `json:"exact"` // Scans is a count, not an estimate
	Detail    string `json:"detail,omitempty"`
}

// newMarkerReport returns the report of a marker; nil for nil.
func newMarkerReport(m *marker.Found) *MarkerReport {
	if m == nil {
		return nil
	}
	return &MarkerReport{
		float64(m.T), float64(m.U), float64(m.PSLR), m.Correlation, float64(m.Step), m.TagOK, m.Fallback, m.Begin, m.End,
	}
}

// Readable returns the name of a database for display: a file's path is made absolute, so that it
// is readable from any working directory.
func Readable(db string) string {
	if abs, err := filepath.Abs(db); err == nil && !store.OnServer(db) {
		return abs
	}
	return db
}

// NewListedReport returns the list entry of a task. db is the database's name for display.
func NewListedReport(t *store.Row, db string) ListedReport {
	r := ListedReport{
		TaskID: int64(t.ID), GroupID: int64(t.Group), Name: t.Name, User: t.User, Job: t.Job, State: t.State.String(),
		Reason: t.Reason, Database: Readable(db), Launched: t.Launched, GPU: t.GPU, Driver: t.Driver,
		Instrument: t.Instrument.Kind, Bench: t.Bench, CalibrationID: t.CalibrationID, Stored: t.Scans, Clock: t.Clock,
		Tags: t.Tags, Pinned: t.Pinned, Cold: t.Cold,
	}
	if t.Instrument.Model != "" {
		r.Instrument += " (" + t.Instrument.Model + ")"
	}
	if t.NVML != nil {
		r.NVMLJ = cli.Number(float64(*t.NVML))
	}
	if f := t.Result; f != nil {
		r.EnergyJ, r.EnergyUJ = cli.Number(float64(f.Total.Energy)), cli.Number(float64(f.Total.U))
		r.DurationS = cli.Number(float64(f.To - f.From))
		r.MeanW, r.PeakW = cli.Number(float64(f.Mean)), cli.Number(float64(f.Peak))
		r.Samples, r.Gaps, r.Lost = f.Samples, f.Gaps, f.Lost
		r.Window = &validate.Span{From: f.From, To: f.To}
	}
	return r
}

// NewReport returns the report of a task as far as its row holds it, without a query: the
// Add methods read the rest.
func NewReport(t *store.Task, db string) *Report {
	row := t.Row()
	// Rails is an empty list without a result, never null.
	r := &Report{ListedReport: NewListedReport(&row, db), task: t, Missing: t.Setup.Missing, Rails: []railReport{}}
	if t.Failure != nil {
		r.Failure, r.ExitCode = t.Failure.Reason, t.Failure.ExitCode
	}
	r.unmarked = t.Marker.Code == marker.None
	if t.Setup.Timebase.TicksPerScan > 0 {
		r.Rate = t.Setup.Timebase.SampleRate()
	}
	r.Caution = Caution(t.Setup.Response)
	r.Records = NewRecordReports(&t.Setup)
	r.NVMLMethod, r.ResultNumber, r.Results = t.NVMLMethod, t.ResultNumber, t.Results
	if t.Result != nil {
		for _, x := range t.Result.Rails {
			r.Rails = append(r.Rails,
				railReport{x.Name, float64(x.Energy.Energy), float64(x.Energy.U), float64(x.Mean), float64(x.Peak)})
		}
		r.Budget = t.Result.Budget
	}
	r.AddLabels(t)
	r.Quality = NewQuality(t)
	// Several candidates may be stored; the report shows the pair that bounds the window.
	start, stop := marker.Pair(t.Markers)
	r.Markers = markersReport{newMarkerReport(start), newMarkerReport(stop)}
	r.Events = lists.Map(t.Events, func(e measure.Event) eventReport {
		return eventReport{e.Kind.String(), e.FirstScan, e.Scans, e.Exact, e.Detail}
	})
	return r
}

// Caution returns a warning if the meter looks away between its values. Empty if there is none.
func Caution(m measure.Response) string {
	if !m.LooksAway() {
		return ""
	}
	return fmt.Sprintf("this meter %s: work that changes faster is misread, by any amount, beyond ± U", m.Sees())
}

// SetTruth adds the energy that an emulated board injected, and the relative error in
// percent. drawn: the meter's gains, zeros and clock are off by random amounts, so that the
// error tests ± U too; otherwise they are exact.
func (r *Report) SetTruth(truth measure.Joule, drawn bool) {
	r.Tests = "the markers, the window and the arithmetic; not ± U: this meter's gains and zeros are exact " +
		"(--imperfect draws wrong ones)"
	if drawn {
		r.Tests = "the whole chain: this meter's gains, zeros and clock are off by amounts drawn from their stated " +
			"uncertainty"
	}
	r.TruthJ = cli.Number(float64(truth))
	if r.EnergyJ != nil && truth != 0 {
		r.ErrorPct = cli.Number(100 * (*r.EnergyJ/float64(truth) - 1))
	}
}

// AddSide adds the data recorded beside the meter: the GPU's condition, the results of
// software methods, and the energy of one launch of a tiny kernel.
func (r *Report) AddSide(ctx context.Context, db *store.DB) error {
	return errors.Join(r.addCondition(ctx, db), r.AddMethods(ctx, db), r.addTiny(ctx, db), r.addWhole(ctx, db))
}

// addWhole adds the energy of the whole machine, where the bench has a meter at its wall.
func (r *Report) addWhole(ctx context.Context, db *store.DB) error {
	t := r.task
	if t == nil || t.Result == nil || t.Setup.Wall() < 0 {
		return nil
	}
	e, err := measurement.WindowEdges(ctx, db, t)
	if err == nil {
		r.Whole, err = db.AtWall(ctx, t.ID, t.Result, e)
	}
	if err != nil && ctx.Err() == nil {
		r.WallTrouble, err = err.Error(), nil
	}
	return err
}

// NewQuality returns the verdict on a task; nil while it runs.
func NewQuality(t *store.Task) *quality.Verdict {
	v, ended := t.Verdict()
	if !ended {
		return nil
	}
	for i := range v.Reasons {
		if r := &v.Reasons[i]; !measure.Known(measure.Number(r.Share)) { // JSON has no NaN
			r.Share = 0
		}
	}
	return &v
}

// ShowTask prints a task at the end of a measurement, as JSON or as text with its plot. extra
// (may be nil) adds the caller's own data to the report. An incomplete task is an error with
// the exit code 3. After an interruption it prints nothing and returns nil.
func ShowTask(a *cli.App, ctx context.Context, db *store.DB, id store.TaskID, extra func(*Report)) error {
	if ctx.Err() != nil {
		return nil // the measurement's own error reports the samples kept
	}
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	r := NewReport(&t, a.DB)
	if err := r.AddSide(ctx, db); err != nil {
		return err
	}
	if extra != nil {
		extra(r)
	}
	if a.JSON {
		err = a.PrintJSON(r)
	} else {
		RenderReport(a.Out, r)
		if t.Scans > 0 {
			err = PlotTask(a, ctx, db, &t, r)
		}
		if r.Kernels == nil { // the caller prints them, and then the answer
			RenderAnswer(a.Out, r)
		}
	}
	// A failure of the work has an error of its own, with the program's exit code.
	if err == nil && t.State != store.Complete && t.Failure == nil {
		reason := t.Reason
		if t.State == store.Running {
			reason = "its samples are at the monitor; wattmark tasks or wattmark host finishes it once it can be stored"
		}
		err = cli.WithCode(cli.ExitIncomplete, fmt.Errorf("task %d is %s: %s", id, r.State, reason))
	}
	return err
}

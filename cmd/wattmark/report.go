package main

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/store"
)

// listedReport is a task as a list shows it, in JSON. Units live in the names; a quantity
// that was not measured is left out, never zero.
type listedReport struct {
	TaskID        int64             `json:"task_id"`
	GroupID       int64             `json:"group_id,omitempty"` // of several GPUs
	Name          string            `json:"name"`
	User          string            `json:"user"`
	Job           string            `json:"job,omitempty"` // on however many hosts
	State         string            `json:"state"`
	Reason        string            `json:"reason,omitempty"`
	Database      string            `json:"database"`
	Launched      time.Time         `json:"launched"`
	GPU           string            `json:"gpu,omitempty"`
	Driver        string            `json:"driver,omitempty"`
	Instrument    string            `json:"instrument,omitempty"`
	Bench         string            `json:"bench,omitempty"`
	CalibrationID string            `json:"calibration_id,omitempty"` // that the figures follow
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
	Window        *windowReport     `json:"window,omitempty"`
	Clock         *clockReport      `json:"clock,omitempty"`
	Tags          map[string]string `json:"tags,omitempty"`
	Pinned        bool              `json:"pinned,omitempty"` // stays when others are deleted for their age
	Cold          bool              `json:"cold,omitempty"`   // its samples are packed
}

// report is a task with all that is known of it, as JSON has it.
type report struct {
	listedReport
	Failure  string  `json:"failure,omitempty"`   // how the work failed
	ExitCode *int    `json:"exit_code,omitempty"` // of a program that failed
	RateHz   float64 `json:"sample_rate_hz,omitempty"`
	// NVMLMethod is the method whose readings NVMLJ integrates.
	NVMLMethod string         `json:"nvml_method,omitempty"`
	TruthJ     *float64       `json:"truth_j,omitempty"`
	ErrorPct   *float64       `json:"error_pct,omitempty"`
	Tests      string         `json:"truth_tests,omitempty"` // what the error tests, and what not
	Rails      []railReport   `json:"rails"`
	Missing    []string       `json:"missing_rails,omitempty"`
	Markers    markersReport  `json:"markers"`
	Budget     []budgetReport `json:"budget,omitempty"`
	Events     []eventReport  `json:"events,omitempty"`
	// Records are what the calibration rests on; Results are all results of the task,
	// under several calibrations.
	Records      []recordReport `json:"calibration_records,omitempty"`
	ResultNumber int            `json:"result,omitempty"`
	Results      []resultReport `json:"results,omitempty"`
	// Methods are what software would have said. Picture is a plot that was written.
	Methods []methodReport `json:"methods,omitempty"`
	Picture string         `json:"picture,omitempty"`
	// Condition is the GPU's clocks and temperature around the work.
	Condition *conditionReport `json:"gpu_condition,omitempty"`
	Quality   *qualityReport   `json:"quality,omitempty"`
	// Kernels is the energy by kernel of a recorded program.
	Kernels *kernelsReport `json:"kernels,omitempty"`
	// Tiny is the energy of one launch, where the task was made for that.
	Tiny       *tinyReport       `json:"tiny,omitempty"`
	Notes      []noteReport      `json:"notes,omitempty"`
	Provenance *provenanceReport `json:"provenance,omitempty"`
	// Caution is what the meter cannot see and ± U does not hold.
	Caution string `json:"caution,omitempty"`

	task     *store.Task
	unmarked bool // no marker was wanted
}

type railReport struct {
	Name     string  `json:"name"`
	EnergyJ  float64 `json:"energy_j"`
	EnergyUJ float64 `json:"energy_u_j"`
	MeanW    float64 `json:"mean_w"`
	PeakW    float64 `json:"peak_w"`
}

type markersReport struct {
	Start *markerReport `json:"start"`
	Stop  *markerReport `json:"stop"`
}

type markerReport struct {
	TS          float64 `json:"t_s"`
	US          float64 `json:"u_s"`
	PSLRdB      float64 `json:"pslr_db"`
	Correlation float64 `json:"correlation"`
	StepW       float64 `json:"step_w"`
	TagOK       bool    `json:"tag_ok"`
	Fallback    bool    `json:"fallback"`

	beginS, endS float64 // with its guards, for the plot
}

type clockReport struct {
	AS           float64 `json:"a_s"`
	B            float64 `json:"b"`
	RMSS         float64 `json:"rms_s"`
	Observations int     `json:"observations"`
	Rejected     int     `json:"rejected"`
}

type windowReport struct {
	FromS float64 `json:"from_s"`
	ToS   float64 `json:"to_s"`
}

type budgetReport struct {
	Source     string  `json:"source"`
	UJ         float64 `json:"u_j"`
	Systematic bool    `json:"systematic"`
}

type eventReport struct {
	Kind      string `json:"kind"`
	FirstScan uint64 `json:"first_scan"`
	Scans     uint64 `json:"scans"`
	Exact     bool   `json:"exact"`
	Detail    string `json:"detail,omitempty"`
}

var stateNames = map[store.State]string{
	store.Running: "running", store.Complete: "complete", store.Incomplete: "incomplete", store.Untrimmed: "untrimmed",
	store.Failed: "failed",
}

// number returns a pointer for JSON, nil where v is not a finite number.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func newMarkerReport(m *marker.Found) *markerReport {
	if m == nil {
		return nil
	}
	return &markerReport{float64(m.T), float64(m.U), float64(m.PSLR), m.Correlation, float64(m.Step), m.TagOK, m.Fallback, float64(m.Begin), float64(m.End)}
}

// newListedReport collects what a list shows of a task.
func newListedReport(t *store.Row, db string) listedReport {
	if abs, err := filepath.Abs(db); err == nil && !store.OnServer(db) {
		db = abs // a script may look from elsewhere
	}
	r := listedReport{
		TaskID: int64(t.ID), GroupID: int64(t.Group), Name: t.Name, User: t.User, Job: t.Job, State: stateNames[t.State], Reason: t.Reason, Database: db,
		Launched: t.Launched, GPU: t.GPU, Driver: t.Driver, Instrument: t.Instrument.Kind, Bench: t.Bench, CalibrationID: t.CalibrationID,
		Stored: t.Scans, Tags: t.Tags, Pinned: t.Pinned, Cold: t.Cold,
	}
	if t.Instrument.Model != "" {
		r.Instrument += " (" + t.Instrument.Model + ")"
	}
	if t.NVML != nil {
		r.NVMLJ = number(float64(*t.NVML))
	}
	if c := t.Clock; c != nil {
		r.Clock = &clockReport{float64(c.A), c.B, float64(c.RMS), c.Used, c.Rejected}
	}
	if f := t.Result; f != nil {
		r.EnergyJ, r.EnergyUJ = number(float64(f.Total.Energy)), number(float64(f.Total.U))
		r.DurationS = number(float64(f.To - f.From))
		r.MeanW, r.PeakW = number(float64(f.Mean)), number(float64(f.Peak))
		r.Samples, r.Gaps, r.Lost = f.Samples, f.Gaps, f.Lost
		r.Window = &windowReport{float64(f.From), float64(f.To)}
	}
	return r
}

// newReport collects what is known of a task.
func newReport(t *store.Task, db string) *report {
	row := t.Row()
	r := &report{listedReport: newListedReport(&row, db), task: t, Missing: t.Setup.Missing, Rails: []railReport{}}
	if t.Failure != nil {
		r.Failure, r.ExitCode = t.Failure.Reason, t.Failure.ExitCode
	}
	r.unmarked = t.Marker.Code == marker.None
	if t.Setup.Timebase.TicksPerScan > 0 {
		r.RateHz = float64(t.Setup.Timebase.SampleRate())
	}
	r.Caution = caution(t.Setup.Response)
	r.Records = newRecordReports(&t.Setup)
	r.NVMLMethod, r.ResultNumber, r.Results = t.NVMLMethod, t.ResultNumber, newResultReports(t.Results)
	r.addRails(t.Result)
	r.addLabels(t)
	r.Quality = newQuality(t)
	start, stop := marker.Pair(t.Markers)
	r.Markers = markersReport{newMarkerReport(start), newMarkerReport(stop)}
	for _, e := range t.Events {
		r.Events = append(r.Events, eventReport{e.Kind.String(), e.FirstScan, e.Scans, e.Exact, e.Detail})
	}
	return r
}

// caution warns of a meter that looks away: one that averages over less than
// the time between its values misses what happens meanwhile. One of many values a
// second is a sampler as any other: a slower instrument beside a faster one is.
func caution(m measure.Response) string {
	const sampler = 5e-3 // seconds
	if m.Update <= m.Window || m.Update <= sampler {
		return ""
	}
	return fmt.Sprintf("this meter sees %v of every %v: work that changes faster is misread, by any amount, beyond ± U", m.Window, m.Update)
}

func (r *report) addRails(res *measure.Result) {
	if res == nil {
		return
	}
	for _, x := range res.Rails {
		r.Rails = append(r.Rails, railReport{x.Name, float64(x.Energy.Energy), float64(x.Energy.U), float64(x.Mean), float64(x.Peak)})
	}
	for _, c := range res.Budget {
		r.Budget = append(r.Budget, budgetReport{c.Source, float64(c.U), c.Systematic})
	}
}

// setTruth adds what an emulated board really injected, and what the error says of a
// meter whose gains are drawn from their uncertainty, or exact.
func (r *report) setTruth(truth measure.Joule, drawn bool) {
	r.Tests = "the markers, the window and the arithmetic; this meter's gains and zeros are exact, so nothing of ± U (--imperfect draws them)"
	if drawn {
		r.Tests = "the whole chain: this meter's gains, zeros and clock are off by amounts drawn from their stated uncertainty"
	}
	r.TruthJ = number(float64(truth))
	if r.EnergyJ != nil && truth != 0 {
		r.ErrorPct = number(100 * (*r.EnergyJ/float64(truth) - 1))
	}
}

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

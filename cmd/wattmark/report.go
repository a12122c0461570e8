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

// report is a task as our JSON shows it. Units live in the names; a quantity
// that was not measured is left out, never zero.
type report struct {
	TaskID     int64          `json:"task_id"`
	GroupID    int64          `json:"group_id,omitempty"` // of several GPUs
	Name       string         `json:"name"`
	User       string         `json:"user"`
	Job        string         `json:"job,omitempty"` // on however many hosts
	State      string         `json:"state"`
	Reason     string         `json:"reason,omitempty"`
	Database   string         `json:"database"`
	Launched   time.Time      `json:"launched"`
	GPU        string         `json:"gpu,omitempty"`
	Driver     string         `json:"driver,omitempty"`
	Instrument string         `json:"instrument,omitempty"`
	Bench      string         `json:"bench,omitempty"`
	RateHz     float64        `json:"sample_rate_hz,omitempty"`
	EnergyJ    *float64       `json:"energy_j,omitempty"`
	EnergyUJ   *float64       `json:"energy_u_j,omitempty"`
	TruthJ     *float64       `json:"truth_j,omitempty"`
	ErrorPct   *float64       `json:"error_pct,omitempty"`
	DurationS  *float64       `json:"duration_s,omitempty"`
	MeanW      *float64       `json:"mean_w,omitempty"`
	PeakW      *float64       `json:"peak_w,omitempty"`
	NVMLJ      *float64       `json:"nvml_j,omitempty"`
	Samples    uint64         `json:"samples"`
	Stored     uint64         `json:"samples_stored"`
	Gaps       uint64         `json:"gaps"`
	Lost       uint64         `json:"samples_lost"`
	Rails      []railReport   `json:"rails"`
	Missing    []string       `json:"missing_rails,omitempty"`
	Markers    markersReport  `json:"markers"`
	Clock      *clockReport   `json:"clock,omitempty"`
	Window     *windowReport  `json:"window,omitempty"`
	Budget     []budgetReport `json:"budget,omitempty"`
	Events     []eventReport  `json:"events,omitempty"`
	// CalibrationID names the calibration that the figures follow, Records what it
	// rests on; Results are all results of the task, under several calibrations.
	CalibrationID string         `json:"calibration_id,omitempty"`
	Records       []recordReport `json:"calibration_records,omitempty"`
	ResultNumber  int            `json:"result,omitempty"`
	Results       []resultReport `json:"results,omitempty"`
	// Methods are what software would have said. Picture is a plot that was written.
	Methods []methodReport `json:"methods,omitempty"`
	Picture string         `json:"picture,omitempty"`
	// Condition is the GPU's clocks and temperature around the work.
	Condition *conditionReport `json:"gpu_condition,omitempty"`
	Quality   *qualityReport   `json:"quality,omitempty"`
	// Kernels is the energy by kernel of a recorded program.
	Kernels *kernelsReport `json:"kernels,omitempty"`
	// Tiny is the energy of one launch, where the task was made for that.
	Tiny *tinyReport `json:"tiny,omitempty"`
	// Tags and Notes label it; Pinned keeps it from retention, Cold says that it is packed.
	Tags       map[string]string `json:"tags,omitempty"`
	Notes      []noteReport      `json:"notes,omitempty"`
	Pinned     bool              `json:"pinned,omitempty"`
	Cold       bool              `json:"cold,omitempty"`
	Provenance *provenanceReport `json:"provenance,omitempty"`
	// Caution is what the meter cannot see and ± U does not hold.
	Caution string `json:"caution,omitempty"`

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

// newReport collects what is known of a task.
func newReport(t *store.Task, db string) *report {
	if abs, err := filepath.Abs(db); err == nil && !store.OnServer(db) {
		db = abs // a script may look from elsewhere
	}
	r := &report{
		TaskID: int64(t.ID), GroupID: int64(t.Group.Group), Name: t.Name, User: t.User, Job: t.Job, State: stateNames[t.State], Reason: t.Reason, Database: db,
		Launched: t.Launched, GPU: t.GPU, Driver: t.Driver, Bench: t.Bench, Missing: t.Setup.Missing, Stored: t.Scans,
		Rails: []railReport{},
	}
	r.unmarked = t.Marker.Code == marker.None
	r.Instrument = t.Instrument.Kind
	if t.Instrument.Model != "" {
		r.Instrument += " (" + t.Instrument.Model + ")"
	}
	if t.Setup.Timebase.TicksPerScan > 0 {
		r.RateHz = float64(t.Setup.Timebase.SampleRate())
	}
	if t.NVML != nil {
		r.NVMLJ = number(float64(*t.NVML))
	}
	r.Caution = caution(t.Setup.Response)
	r.CalibrationID, r.Records = t.CalibrationID, newRecordReports(&t.Setup)
	r.ResultNumber, r.Results = t.ResultNumber, newResultReports(t.Results)
	r.addResult(t.Result)
	r.addLabels(t)
	r.Quality = newQuality(t)
	start, stop := marker.Pair(t.Markers)
	r.Markers = markersReport{newMarkerReport(start), newMarkerReport(stop)}
	if c := t.Clock; c != nil {
		r.Clock = &clockReport{float64(c.A), c.B, float64(c.RMS), c.Used, c.Rejected}
	}
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

func (r *report) addResult(res *measure.Result) {
	if res == nil {
		return
	}
	r.EnergyJ, r.EnergyUJ = number(float64(res.Total.Energy)), number(float64(res.Total.U))
	r.DurationS = number(float64(res.To - res.From))
	r.MeanW, r.PeakW = number(float64(res.Mean)), number(float64(res.Peak))
	r.Samples, r.Gaps, r.Lost = res.Samples, res.Gaps, res.Lost
	r.Window = &windowReport{float64(res.From), float64(res.To)}
	for _, x := range res.Rails {
		r.Rails = append(r.Rails, railReport{x.Name, float64(x.Energy.Energy), float64(x.Energy.U), float64(x.Mean), float64(x.Peak)})
	}
	for _, c := range res.Budget {
		r.Budget = append(r.Budget, budgetReport{c.Source, float64(c.U), c.Systematic})
	}
}

// setTruth adds what an emulated board really injected.
func (r *report) setTruth(truth measure.Joule) {
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

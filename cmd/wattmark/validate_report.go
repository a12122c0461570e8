package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"wattmark/analysis/validate"
	"wattmark/store"
)

// validationReport is a validation of one subject as our JSON shows it; of several
// it stands in a list. A quantity that cannot be told is left out, or null where it
// stands in a pair.
type validationReport struct {
	Name           string    `json:"name"`
	GPU            string    `json:"gpu,omitempty"`
	Driver         string    `json:"driver,omitempty"`
	Meter          string    `json:"meter,omitempty"`
	Verdict        string    `json:"verdict"`
	Started        time.Time `json:"started"`
	DurationS      float64   `json:"duration_s"`
	Samples        uint64    `json:"samples"`
	MeterJ         *float64  `json:"meter_j"`
	MeterUJ        *float64  `json:"meter_u_j"`
	MeanW          *float64  `json:"mean_w"`
	PeakW          *float64  `json:"peak_w,omitempty"`
	LostS          float64   `json:"lost_s,omitempty"`
	ClockOffsetS   *float64  `json:"clock_offset_s,omitempty"`
	ClockOffsetUS  *float64  `json:"clock_offset_u_s,omitempty"`
	ClockDriftPPM  *float64  `json:"clock_drift_ppm,omitempty"`
	ClockDriftUPPM *float64  `json:"clock_drift_u_ppm,omitempty"`
	ClockHow       string    `json:"clock_how,omitempty"`
	clockFound
	Alternation *float64        `json:"alternation,omitempty"`
	Methods     []methodVerdict `json:"methods"`
	// Kernels have equal shares where several ran at once: with NoKernel they come to
	// KernelSum, the energy of the work.
	Kernels       []kernelVerdict     `json:"kernels"`
	NoKernel      *kernelVerdict      `json:"no_kernel,omitempty"`
	KernelSum     *kernelVerdict      `json:"kernel_sum,omitempty"`
	Missing       []string            `json:"missing_rails"`
	MissingBounds []missingRailReport `json:"missing_bounds,omitempty"`
	MissingMostW  *float64            `json:"missing_most_w,omitempty"`
	Cautions      []string            `json:"cautions,omitempty"`
	Level         float64             `json:"level"`
	Resamples     int                 `json:"resamples"`
	Seed          uint64              `json:"seed"`
}

// methodVerdict is one method against the meter.
type methodVerdict struct {
	Name        string      `json:"name"`
	EnergyJ     *float64    `json:"energy_j,omitempty"`
	EnergyUJ    *float64    `json:"energy_u_j,omitempty"` // that the method states of it
	OwnRule     bool        `json:"own_rule"`
	ErrorPct    *float64    `json:"error_pct,omitempty"`
	Interval    [2]*float64 `json:"interval"` // of error_pct, for other work like this
	BlockS      *float64    `json:"block_s,omitempty"`
	Agreement   string      `json:"agreement"` // over this work: agrees (within), differs (outside) or unknown
	Readings    int         `json:"readings"`
	Compared    int         `json:"compared"` // readings that were kept, behind mape_pct, rmse_w and bias_w
	MAPEPct     *float64    `json:"mape_pct,omitempty"`
	RMSEW       *float64    `json:"rmse_w,omitempty"`
	BiasW       *float64    `json:"bias_w,omitempty"`
	UpdateS     *float64    `json:"update_s,omitempty"`
	LagS        *float64    `json:"lag_s,omitempty"`
	LagUS       *float64    `json:"lag_u_s,omitempty"`
	Correlation *float64    `json:"correlation,omitempty"`
	LagNote     string      `json:"lag_note,omitempty"`
	Note        string      `json:"note,omitempty"`
}

// kernelVerdict is the kernels of one name.
type kernelVerdict struct {
	Name     string                `json:"name"`
	Launches int                   `json:"launches"`
	BusyS    float64               `json:"busy_s"`
	ShareS   float64               `json:"share_s"`
	MeterJ   *float64              `json:"meter_j"`
	MeterUJ  *float64              `json:"meter_u_j"`
	Methods  []kernelMethodVerdict `json:"methods"`
}

type kernelMethodVerdict struct {
	Name      string      `json:"name"`
	EnergyJ   *float64    `json:"energy_j,omitempty"`
	ErrorPct  *float64    `json:"error_pct,omitempty"`
	Interval  [2]*float64 `json:"interval"`
	Agreement string      `json:"agreement,omitempty"` // as of a method; none of a sum
}

type missingRailReport struct {
	Name   string   `json:"name"`
	MostW  *float64 `json:"most_w,omitempty"`
	Reason string   `json:"reason"`
}

func newValidationReport(r *validate.Report) validationReport {
	out := validationReport{
		Name: r.Name, GPU: r.GPU, Driver: r.Driver, Meter: r.Meter, Verdict: r.Verdict, Started: r.Origin,
		DurationS: float64(r.Work.Length()), Samples: r.Samples, MeterJ: finite(r.Truth.Energy), MeterUJ: finite(r.Truth.U),
		MeanW: finite(r.Mean), PeakW: finite(r.Peak), LostS: float64(r.Lost),
		ClockOffsetS: finite(r.Clock.Offset), ClockOffsetUS: finite(r.Clock.OffsetU),
		ClockDriftPPM: number(r.Clock.DriftPPM), ClockDriftUPPM: number(r.Clock.DriftUPPM), ClockHow: r.Clock.How,
		Alternation: number(r.Alternation), Cautions: r.Cautions, Level: r.Level, Resamples: r.Resamples, Seed: r.Seed,
		Methods: []methodVerdict{}, Kernels: []kernelVerdict{}, Missing: []string{},
	}
	out.clockFound = newClockFound(&r.Clock)
	for _, m := range r.Missing {
		out.Missing = append(out.Missing, m.Name)
		out.MissingBounds = append(out.MissingBounds, missingRailReport{m.Name, finite(m.Most), m.Reason})
	}
	if len(r.Missing) > 0 {
		out.MissingMostW = finite(r.MissingPower)
	}
	for i := range r.Methods {
		out.Methods = append(out.Methods, newMethodVerdict(&r.Methods[i]))
	}
	for _, l := range r.ByKernel(len(r.Kernels)) {
		k := newKernelVerdict(&l.KernelReport)
		switch l.Kind {
		case validate.WithoutKernel:
			out.NoKernel = &k
		case validate.AllKernels:
			out.KernelSum = &k
		default:
			out.Kernels = append(out.Kernels, k)
		}
	}
	return out
}

// finite is a physical value for JSON, nil where it is not a finite number.
func finite[T ~float64](v T) *float64 { return number(float64(v)) }

func newMethodVerdict(m *validate.MethodReport) methodVerdict {
	out := methodVerdict{
		Name: m.Name, EnergyJ: finite(m.Energy), OwnRule: m.Own, ErrorPct: number(m.ErrorPct), Interval: [2]*float64{number(m.Lo), number(m.Hi)},
		BlockS: finite(m.Block), Agreement: string(m.Agreement), Readings: m.Readings, Compared: m.Compared, MAPEPct: number(m.MAPEPct), RMSEW: finite(m.RMSE), BiasW: finite(m.Bias),
		UpdateS: finite(m.Update), LagS: finite(m.Lag), LagUS: finite(m.LagU), Correlation: number(m.Correlation), LagNote: m.LagNote, Note: m.Note,
	}
	if m.U > 0 {
		out.EnergyUJ = finite(m.U)
	}
	return out
}

func newKernelVerdict(k *validate.KernelReport) kernelVerdict {
	out := kernelVerdict{
		Name: k.Name, Launches: k.Launches, BusyS: float64(k.Busy), ShareS: float64(k.Share), MeterJ: finite(k.Truth.Energy), MeterUJ: finite(k.Truth.U),
		Methods: []kernelMethodVerdict{},
	}
	for _, m := range k.Methods {
		out.Methods = append(out.Methods, kernelMethodVerdict{m.Name, finite(m.Energy), number(m.ErrorPct), [2]*float64{number(m.Lo), number(m.Hi)}, string(m.Agreement)})
	}
	return out
}

// summaryReport is one method over several subjects.
type summaryReport struct {
	GPU          string      `json:"gpu,omitempty"`
	Driver       string      `json:"driver,omitempty"`
	Method       string      `json:"method"`
	Subjects     int         `json:"subjects"`
	Judged       int         `json:"judged"`
	Agreeing     int         `json:"agreeing"` // of those judged
	MeanErrorPct *float64    `json:"mean_error_pct"`
	Interval     [2]*float64 `json:"interval"`
	MAPEPct      *float64    `json:"mape_pct"`
	RMSEPct      *float64    `json:"rmse_pct"`
	RMSEJ        *float64    `json:"rmse_j"`
	WorstPct     *float64    `json:"worst_pct"`
	WorstName    string      `json:"worst"`
}

// filesReport names what was written beside.
type filesReport struct {
	SVG   string `json:"svg,omitempty"`
	HTML  string `json:"html,omitempty"`
	Saved string `json:"saved,omitempty"`
}

// json is one subject by itself, or several in a list with their summary.
func (v *validation) json() any {
	files := filesReport{v.svg, v.html, v.saved}
	if len(v.reports) == 1 && len(v.refused) == 0 {
		return struct {
			validationReport
			filesReport
		}{newValidationReport(v.reports[0]), files}
	}
	type refused struct {
		Name   string `json:"name"`
		Reason string `json:"reason"`
	}
	out := struct {
		Subjects []validationReport `json:"subjects"`
		Summary  []summaryReport    `json:"summary"`
		Refused  []refused          `json:"refused,omitempty"`
		filesReport
	}{filesReport: files, Summary: []summaryReport{}}
	for _, r := range v.reports {
		out.Subjects = append(out.Subjects, newValidationReport(r))
	}
	for _, l := range v.summary.Lines {
		out.Summary = append(out.Summary, summaryReport{
			l.GPU, l.Driver, l.Method, l.N, l.Judged, l.Agreeing, number(l.MeanErrorPct),
			[2]*float64{number(l.Lo), number(l.Hi)},
			number(l.MAPEPct), number(l.RMSEPct), finite(l.RMSE), number(l.WorstPct), l.WorstName,
		})
	}
	for _, x := range v.refused {
		out.Refused = append(out.Refused, refused{x.name, x.err.Error()})
	}
	return out
}

// validationKind is the kind of analysis that --save keeps.
const validationKind = "validation"

// saveValidation keeps a validation in the database.
func (a *app) saveValidation(ctx context.Context, v *validation, name string, tasks []store.TaskID) (err error) {
	content, err := json.Marshal(v.json())
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.PutAnalysis(ctx, store.Analysis{
		Kind: validationKind, Name: name, Made: time.Now(), Maker: "wattmark " + version(), Content: content, Tasks: tasks,
	})
	v.saved = name
	return err
}

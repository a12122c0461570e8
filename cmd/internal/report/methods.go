package report

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// MethodReport is the result of a software method for the same work as the meter's.
type MethodReport struct {
	Method  string   `json:"method"`
	EnergyJ *float64 `json:"energy_j,omitempty"`
	// EnergyUJ is the uncertainty that the method states itself (k = 2).
	EnergyUJ *float64 `json:"energy_u_j,omitempty"`
	MeanW    *float64 `json:"mean_w,omitempty"`
	// ErrorPct is the relative error of the mean power against the meter or the truth.
	ErrorPct *float64 `json:"error_pct,omitempty"`
	// WithinU: the energy agrees with the meter's within the meter's ± U and the method's own
	// (measure.Estimate.Against). Left out if the meter cannot be the reference.
	WithinU  *bool        `json:"within_u,omitempty"`
	Readings uint64       `json:"readings"`
	Call     store.Timing `json:"call,omitzero"` // duration of one call of the sensor
	// Apart is the time from the end of one call to that of the next while the energy counter
	// was not being read, Beside while it was.
	Apart  store.Timing `json:"apart,omitzero"`
	Beside store.Timing `json:"apart_beside_counter,omitzero"`
	Note   string       `json:"note,omitempty"`
}

// Truthful is the reference for software methods: the meter, or an emulated board.
type Truthful struct {
	Mean measure.Watt
	// Meter is the energy of the reference; its U is NaN if the meter cannot be one. unseen
	// is the most that it may have missed, on rails without a sensor.
	Meter  measure.Estimate
	unseen measure.Joule
	// Other returns a remark if a method covers other work than the meter, else nothing.
	Other func(*store.MethodResult) string
}

// NewMethodReports returns the reports of software methods. With truth (nil for none) they
// have the error and agreement, except methods that cover other work: these have a note.
func NewMethodReports(results []store.MethodResult, truth *Truthful) (result []MethodReport) {
	for i := range results {
		m := &results[i]
		r := MethodReport{
			Method: m.Method, EnergyJ: cli.Number(float64(m.Energy)), MeanW: cli.Number(float64(m.Mean)),
			Readings: m.Readings, Call: m.Call, Apart: m.Alone, Beside: m.Beside, Note: m.Note,
		}
		if m.U > 0 {
			r.EnergyUJ = cli.Number(m.U)
		}
		if truth != nil && r.MeanW != nil && truth.Mean != 0 {
			if other := truth.Other(m); other != "" {
				r.Note = out.JoinNonEmpty("; ", r.Note, other)
			} else {
				r.ErrorPct = cli.Number(100 * float64(m.Mean/truth.Mean-1))
				// The uncertainties of both count.
				own := measure.Estimate{Energy: m.Energy, U: m.U}
				if a := own.Against(truth.Meter, truth.unseen); a != measure.Unknown {
					r.WithinU = new(a == measure.Agrees)
				}
			}
		}
		result = append(result, r)
	}
	return result
}

// TruthOf returns the reference for the methods of the report's task; nil without a result.
func (r *Report) TruthOf() *Truthful {
	t := r.task
	if t.Result == nil || !(t.Result.Duration() > 0) {
		return nil
	}
	truth := &Truthful{Mean: t.Result.Mean, Meter: t.Result.Total}
	// Without a clock fit it is not certain that method and meter cover the same work.
	if LooksAway(t) || t.Clock == nil {
		truth.Meter.U = measure.Joule(math.NaN())
	}
	// Rails that the meter does not measure may have drawn up to their bound for the whole window.
	_, most := validate.Unseen(t.Setup.Missing)
	truth.unseen = measure.Joule(float64(most) * float64(t.Result.Duration()))
	times := NewTaskTimes(t)
	work := validate.Span{From: times.Host(t.Result.From), To: times.Host(t.Result.To)}
	truth.Other = func(m *store.MethodResult) string {
		if t.Clock == nil {
			return ""
		}
		if off, same := times.SameWork(m.From, m.To, work); !same {
			return fmt.Sprintf("it spoke of other work than the window (%v off): wattmark validate %d integrates its "+
				"readings over the window", off, t.ID)
		}
		return ""
	}
	return truth
}

// AddMethods adds the results of the software methods that ran beside the meter.
func (r *Report) AddMethods(ctx context.Context, db *store.DB) error {
	results, err := db.Methods(ctx, store.TaskID(r.TaskID))
	if err != nil {
		return err
	}
	r.Methods = NewMethodReports(results, r.TruthOf())
	return nil
}

// RenderMethods writes the methods as a table; against is the name of the reference.
func RenderMethods(w io.Writer, list []MethodReport, against string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\nWhat software would have said, against %s:\n", against)
	t := out.NewTable(w, "method", "energy", "mean", "error", "± U", "readings", "~a call (p50, p99)", "")
	for _, m := range list {
		row := []any{m.Method, "", "", "", "", "", "", m.Note}
		if m.EnergyJ != nil && m.MeanW != nil {
			row[1], row[2], row[5] = fmt.Sprintf("%.2f J", *m.EnergyJ), fmt.Sprintf("%.1f W", *m.MeanW), m.Readings
		}
		if m.ErrorPct != nil {
			row[3] = measure.FormatPercent(*m.ErrorPct)
		}
		if m.WithinU != nil {
			row[4] = m.Word()
		}
		if m.Call.N > 0 {
			row[6] = fmt.Sprintf("%v, %v", m.Call.P50, m.Call.P99)
		}
		t.AppendRow(row)
	}
	var right []table.ColumnConfig
	for _, n := range []int{2, 3, 4, 6} {
		right = append(right, table.ColumnConfig{Number: n, Align: text.AlignRight})
	}
	t.SetColumnConfigs(append(right, table.ColumnConfig{Number: 8, WidthMax: 60, WidthMaxEnforcer: text.WrapSoft}))
	t.Render()
	for _, m := range list {
		if m.Method == string(sensor.MTSM) && m.Apart.N > 0 && m.Beside.N > 0 {
			fmt.Fprintf(w, "MTSM's readings lay %v apart (p99 %v); %v (p99 %v) while the energy counter was being read.\n",
				m.Apart.P50, m.Apart.P99, m.Beside.P50, m.Beside.P99)
		}
	}
}

// Word returns the agreement with the meter in a word: within or outside of both
// uncertainties; empty if the meter cannot be the reference.
func (m *MethodReport) Word() string {
	switch {
	case m.WithinU == nil:
		return measure.Unknown.Word()
	case *m.WithinU:
		return measure.Agrees.Word()
	}
	return measure.Differs.Word()
}

// TaskTimes converts a task's device time to seconds of the host's clock since the work
// began. Origin is that beginning.
type TaskTimes struct {
	task   *store.Task
	Origin time.Time
}

// NewTaskTimes returns the conversion for a task, which must have a result.
func NewTaskTimes(t *store.Task) TaskTimes {
	if t.Clock == nil {
		return TaskTimes{t, t.Started.Add(t.Result.From.Duration())}
	}
	from, _ := t.Clock.Host(t.Result.From)
	return TaskTimes{t, measurement.HostTime(*t.Clock, from)}
}

// Host converts device time by the clock fit or, without one, by the start time that the
// monitor recorded, which has the error of its clock.
func (t TaskTimes) Host(device measure.Seconds) measure.Seconds {
	if f := t.task.Clock; f != nil {
		s, _ := f.Host(device)
		return s - measurement.HostSeconds(*f, t.Origin)
	}
	return device - measure.SecondsOf(t.Origin.Sub(t.task.Started))
}

// Wall returns the seconds from the beginning of the work to at.
func (t TaskTimes) Wall(at time.Time) measure.Seconds { return measure.SecondsOf(at.Sub(t.Origin)) }

// LooksAway reports whether the meter cannot be the reference for software methods: it does
// not measure all the time (Caution), or it is the GPU's own sensor.
func LooksAway(t *store.Task) bool {
	return Caution(t.Setup.Response) != "" || t.OwnSensor()
}

// SameWork reports whether a method's span is the span of the work, and the larger
// difference of their ends. The tolerance is 2 ms or 0.1 % of the work; a clock fit leaves
// errors of fractions of a millisecond.
func (t TaskTimes) SameWork(from, to time.Time, work validate.Span) (off measure.Seconds, same bool) {
	begin, end := t.Wall(from)-work.From, t.Wall(to)-work.To
	off = max(begin, -begin, end, -end)
	return off, off <= max(2e-3, work.Length()/1000)
}

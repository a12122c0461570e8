package main

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"wattmark/analysis/validate"
	"wattmark/hostagent/methods"
	"wattmark/measure"
	"wattmark/store"
)

// methodReport is what a software method said, beside the meter.
type methodReport struct {
	Method  string   `json:"method"`
	EnergyJ *float64 `json:"energy_j,omitempty"`
	// EnergyUJ is what the method states of its energy (k = 2).
	EnergyUJ *float64 `json:"energy_u_j,omitempty"`
	MeanW    *float64 `json:"mean_w,omitempty"`
	// ErrorPct is of the mean power, against the truth.
	ErrorPct *float64 `json:"error_pct,omitempty"`
	// WithinU tells whether the energy agrees with the meter's within the meter's ± U and
	// the method's own (measure.Estimate.Against); left out where the meter cannot judge.
	WithinU  *bool         `json:"within_u,omitempty"`
	Readings uint64        `json:"readings"`
	Call     *timingReport `json:"call,omitempty"`
	// Apart is the time from the end of one call to that of the next while the energy counter
	// was not being read, Beside while it was.
	Apart  *timingReport `json:"apart,omitempty"`
	Beside *timingReport `json:"apart_beside_counter,omitempty"`
	Note   string        `json:"note,omitempty"`
}

type timingReport struct {
	N    uint64   `json:"n"`
	P50S *float64 `json:"p50_s"`
	P99S *float64 `json:"p99_s"`
	MaxS *float64 `json:"max_s"`
}

func newTimingReport(t store.Timing) *timingReport {
	if t.N == 0 {
		return nil
	}
	return &timingReport{t.N, number(float64(t.P50)), number(float64(t.P99)), number(float64(t.Max))}
}

// truthful is what methods are held against.
type truthful struct {
	mean measure.Watt
	// meter is its energy, of which U is NaN where it cannot judge; unseen is what it may
	// have missed.
	meter  measure.Estimate
	unseen measure.Joule
	// other says of which other work a method spoke; empty for that of the meter.
	other func(*store.MethodResult) string
}

// agreement holds a method against the truth.
func (t *truthful) agreement(m *store.MethodResult) measure.Agreement {
	return measure.Estimate{Energy: m.Energy, U: m.U}.Against(t.meter, t.unseen)
}

func newMethodReports(results []store.MethodResult, truth *truthful) (out []methodReport) {
	for i := range results {
		m := &results[i]
		r := methodReport{
			Method: m.Method, EnergyJ: number(float64(m.Energy)), MeanW: number(float64(m.Mean)), Readings: m.Readings,
			Call: newTimingReport(m.Call), Apart: newTimingReport(m.Alone), Beside: newTimingReport(m.Beside), Note: m.Note,
		}
		if m.U > 0 {
			r.EnergyUJ = finite(m.U)
		}
		if truth != nil && r.MeanW != nil && truth.mean != 0 {
			if other := truth.other(m); other != "" {
				r.Note = joinNonEmpty("; ", r.Note, other)
			} else {
				r.ErrorPct = number(100 * float64(m.Mean/truth.mean-1))
				if a := truth.agreement(m); a != measure.Unknown {
					within := a == measure.Agrees
					r.WithinU = &within
				}
			}
		}
		out = append(out, r)
	}
	return out
}

// truthOf is what a task's methods are held against; nil where there is no result.
func (r *report) truthOf() *truthful {
	t := r.task
	if t.Result == nil || !(t.Result.Duration() > 0) {
		return nil
	}
	truth := &truthful{mean: t.Result.Mean, meter: t.Result.Total}
	if looksAway(t) || t.Clock == nil { // without a clock fit nothing says that it is the same work
		truth.meter.U = measure.Joule(math.NaN())
	}
	_, most := validate.Unseen(t.Setup.Missing)
	truth.unseen = measure.Joule(float64(most) * float64(t.Result.Duration()))
	times := newTaskTimes(t)
	work := validate.Span{From: times.host(t.Result.From), To: times.host(t.Result.To)}
	truth.other = func(m *store.MethodResult) string {
		if t.Clock == nil {
			return ""
		}
		if off, same := times.sameWork(m.From, m.To, work); !same {
			return fmt.Sprintf("it spoke of other work than the window (%v off): wattmark validate %d integrates its readings over the window", off, t.ID)
		}
		return ""
	}
	return truth
}

// addMethods adds what the software methods said of the task, beside the meter.
func (r *report) addMethods(ctx context.Context, db *store.DB) error {
	results, err := db.Methods(ctx, store.TaskID(r.TaskID))
	if err != nil {
		return err
	}
	r.Methods = newMethodReports(results, r.truthOf())
	return nil
}

// renderMethods writes the methods for a person; against names the truth.
func renderMethods(w io.Writer, list []methodReport, against string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\nWhat software would have said, against %s:\n", against)
	t := newTable(w)
	t.AppendHeader(table.Row{"method", "energy", "mean", "error", "± U", "readings", "a call (p50, p99)", ""})
	for _, m := range list {
		row := table.Row{m.Method, "", "", "", "", "", callText(m.Call), m.Note}
		if m.EnergyJ != nil && m.MeanW != nil {
			row[1], row[2], row[5] = fmt.Sprintf("%.2f J", *m.EnergyJ), fmt.Sprintf("%.1f W", *m.MeanW), m.Readings
		}
		if m.ErrorPct != nil {
			row[3] = percent(*m.ErrorPct)
		}
		if m.WithinU != nil {
			row[4] = m.word()
		}
		t.AppendRow(row)
	}
	var right []table.ColumnConfig
	for _, n := range []int{2, 3, 4, 6} {
		right = append(right, table.ColumnConfig{Number: n, Align: text.AlignRight})
	}
	t.SetColumnConfigs(append(right, table.ColumnConfig{Number: 8, WidthMax: 60}))
	t.Render()
	for _, m := range list {
		if m.Method == string(methods.MTSM) && m.Apart != nil && m.Beside != nil {
			fmt.Fprintf(w, "MTSM's readings lay %v apart (p99 %v); %v (p99 %v) while the energy counter was being read.\n",
				secondsOf(m.Apart.P50S), secondsOf(m.Apart.P99S), secondsOf(m.Beside.P50S), secondsOf(m.Beside.P99S))
		}
	}
}

// word is within or outside of the meter's ± U and the method's own; empty where the
// meter cannot judge.
func (m *methodReport) word() string {
	switch {
	case m.WithinU == nil:
		return measure.Unknown.Word()
	case *m.WithinU:
		return measure.Agrees.Word()
	}
	return measure.Differs.Word()
}

func callText(t *timingReport) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%v, %v", secondsOf(t.P50S), secondsOf(t.P99S))
}

func secondsOf(v *float64) measure.Seconds {
	if v == nil {
		return measure.Seconds(math.NaN())
	}
	return measure.Seconds(*v)
}

package main

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"wattmark/analysis/sensor"
	"wattmark/measure"
)

func (s correctedSensor) String() string {
	if s.Model == string(sensor.FirstOrder) {
		u := ""
		if s.UConstant > 0 {
			u = fmt.Sprintf(" ± %v", measure.Seconds(s.UConstant))
		}
		return fmt.Sprintf("lags by %v%s; slope %s", measure.Seconds(s.ConstantS), u, s.Slope)
	}
	return fmt.Sprintf("shows the mean of %v every %v", measure.Seconds(s.WindowS), measure.Seconds(s.PeriodS))
}

// render writes the report for a person.
func (r *correctionReport) render(w io.Writer, plot bool) {
	fmt.Fprintf(w, "%s  %s\n", r.Readings, r.Field)
	fmt.Fprintf(w, "  sensor   %v\n", r.Sensor)
	if r.SpacingS != nil {
		fmt.Fprintf(w, "  read     every %v; %d %s used", measure.Seconds(*r.SpacingS), r.Used, map[bool]string{true: "renewals", false: "readings"}[r.Sensor.WindowS > 0])
		if r.NoiseW != nil && r.Sensor.ConstantS > 0 {
			fmt.Fprintf(w, "; one of them corrected is uncertain by %v (k = 1)", measure.Watt(*r.NoiseW))
		}
		fmt.Fprintln(w)
	}
	if r.Level != nil {
		fmt.Fprintf(w, "  level    %s\n", r.Level.Statement)
	}
	for _, x := range r.Warnings {
		fmt.Fprintf(w, "  caution  %s\n", x)
	}
	fmt.Fprintln(w)
	t := newTable(w)
	t.AppendHeader(table.Row{"work", "from", "to", "as read", "corrected (k = 2)", "mean"})
	for i, p := range r.Work {
		row := table.Row{i + 1, fmt.Sprintf("%.3f s", p.FromS), fmt.Sprintf("%.3f s", p.ToS), "", "", ""}
		if p.RawJ != nil {
			row[3] = fmt.Sprintf("%.2f J", *p.RawJ)
		}
		if p.EnergyJ != nil && p.UJ != nil {
			row[4], row[5] = energyText(*p.EnergyJ, *p.UJ), measure.Watt(*p.MeanW)
		}
		t.AppendRow(row)
	}
	if len(r.Work) > 1 && r.TotalJ != nil {
		t.AppendFooter(table.Row{"", "", "", "total", energyText(*r.TotalJ, *r.TotalUJ), ""})
	}
	t.Render()
	for i, p := range r.Work {
		for _, x := range p.Warnings {
			fmt.Fprintf(w, "Work %d: %s\n", i+1, x)
		}
	}
	if b := r.Bound; b != nil {
		fmt.Fprintf(w, "The sensor looked at %.0f %% of it. With %v to %v in the rest the energy lies between %.1f J and %.1f J.\n",
			100*b.Share, measure.Watt(b.FloorW), measure.Watt(b.CapW), b.LowJ, b.HighJ)
	}
	r.renderPhases(w)
	if plot {
		r.plot(w)
	}
	if r.Picture != "" {
		fmt.Fprintf(w, "\nDrawn into %s\n", r.Picture)
	}
}

func (r *correctionReport) renderPhases(w io.Writer) {
	if len(r.Phases) == 0 {
		return
	}
	fmt.Fprintln(w, "\nPhases, with what the readings integrate to uncorrected:")
	t := newTable(w)
	t.AppendHeader(table.Row{"phase", "from", "lasts", "as read"})
	for _, p := range r.Phases {
		raw := ""
		if p.RawJ != nil {
			raw = fmt.Sprintf("%.2f J", *p.RawJ)
		}
		t.AppendRow(table.Row{p.Kind, fmt.Sprintf("%.3f s", p.FromS), fmt.Sprintf("%.3f s", p.ToS-p.FromS), raw})
	}
	t.Render()
}

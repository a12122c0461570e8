package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/guptarohit/asciigraph"
	"github.com/jedib0t/go-pretty/v6/table"

	"wattmark/analysis/roofline"
	"wattmark/measure"
	"wattmark/store"
)

// rooflineReport is a roofline as our JSON shows it; intervals are of 95 %.
type rooflineReport struct {
	GPU           string            `json:"gpu,omitempty"`
	UUID          string            `json:"gpu_uuid,omitempty"`
	FlopJ         roofFigure        `json:"energy_per_flop_j"`
	ByteJ         roofFigure        `json:"energy_per_byte_j"`
	ConstantW     roofFigure        `json:"constant_power_w"`
	PeakFlops     float64           `json:"peak_flop_per_s"`
	PeakBytes     float64           `json:"peak_byte_per_s"`
	TimeBalance   float64           `json:"time_balance_flop_per_byte"`
	EnergyBalance roofFigure        `json:"energy_balance_flop_per_byte"`
	Gap           roofFigure        `json:"byte_over_flop_energy"`
	BestFlopJ     roofFigure        `json:"energy_per_flop_at_best_j"`
	ScatterPct    *float64          `json:"scatter_pct"` // null where three points leave none
	DoF           int               `json:"dof"`
	Points        []roofPointReport `json:"points"`
	Line          []roofLinePoint   `json:"model"`
	Cautions      []string          `json:"cautions,omitempty"`
	Passed        []string          `json:"passed_over,omitempty"`
	Picture       string            `json:"picture,omitempty"`

	model *roofline.Model
}

type roofFigure struct {
	Value float64  `json:"value"`
	U     *float64 `json:"u"`
}

// roofPointReport is a task on the roofline. Intensity is null for one that moves nothing.
type roofPointReport struct {
	TaskID      int64    `json:"task_id"`
	Name        string   `json:"name"`
	Fitted      bool     `json:"fitted"`
	Throttled   bool     `json:"throttled,omitempty"`
	Flop        float64  `json:"flop"`
	Bytes       float64  `json:"byte"`
	Intensity   *float64 `json:"intensity_flop_per_byte"`
	EnergyJ     float64  `json:"energy_j"`
	TimeS       float64  `json:"time_s"`
	PowerW      float64  `json:"power_w"`
	FlopPerS    float64  `json:"flop_per_s"`
	FlopPerJ    float64  `json:"flop_per_j"`
	ResidualPct float64  `json:"against_model_pct"`
	// RoofPct is the time that the work takes at the best rates, of the time it took.
	RoofPct float64 `json:"of_roof_pct"`
}

type roofLinePoint struct {
	Intensity float64 `json:"intensity_flop_per_byte"`
	FlopPerS  float64 `json:"flop_per_s"`
	FlopPerJ  float64 `json:"flop_per_j"`
	PowerW    float64 `json:"power_w"`
}

func newRoofFigure(f roofline.Figure) roofFigure { return roofFigure{f.Value, number(f.U)} }

func newRooflineReport(m *roofline.Model, tasks []*store.Task, points []roofline.Point) *rooflineReport {
	r := &rooflineReport{
		GPU: tasks[0].GPU, UUID: tasks[0].GPUUUID, FlopJ: newRoofFigure(m.Flop), ByteJ: newRoofFigure(m.Byte), ConstantW: newRoofFigure(m.Constant),
		PeakFlops: m.Peaks.Flops, PeakBytes: m.Peaks.Bytes, TimeBalance: m.TimeBalance, EnergyBalance: newRoofFigure(m.EnergyBalance),
		Gap: newRoofFigure(m.Gap), BestFlopJ: newRoofFigure(m.BestFlop), ScatterPct: number(100 * m.Scatter), DoF: m.DoF, Cautions: m.Cautions, model: m,
	}
	for i, p := range points {
		r.Points = append(r.Points, newRoofPoint(m, tasks[i], p, m.Fitted(p)))
	}
	low, high := r.bounds()
	const steps = 64
	for i := range steps + 1 {
		x := low * math.Pow(high/low, float64(i)/steps)
		perSecond, perJoule, power := m.At(x)
		r.Line = append(r.Line, roofLinePoint{x, perSecond, perJoule, float64(power)})
	}
	return r
}

// bounds are the intensities that are drawn.
func (r *rooflineReport) bounds() (low, high float64) {
	low, high = r.TimeBalance/4, r.TimeBalance*4
	for _, p := range r.Points {
		if p.Intensity != nil && *p.Intensity > 0 {
			low, high = min(low, *p.Intensity), max(high, *p.Intensity)
		}
	}
	return low, high
}

func newRoofPoint(m *roofline.Model, t *store.Task, p roofline.Point, fitted bool) roofPointReport {
	e, s := float64(p.Energy), float64(p.Time)
	x := roofPointReport{
		TaskID: int64(t.ID), Name: t.Name, Fitted: fitted, Throttled: p.Throttled, Flop: p.Flop, Bytes: p.Bytes, EnergyJ: e, TimeS: s, PowerW: e / s,
		FlopPerS: p.Flop / s, FlopPerJ: p.Flop / e, ResidualPct: 100 * m.Residual(p), RoofPct: 100 * float64(m.Time(p.Flop, p.Bytes)) / s,
	}
	if p.Bytes > 0 {
		x.Intensity = number(p.Intensity())
	}
	return x
}

// renderRoofline writes a roofline for a person.
func (a *app) renderRoofline(r *rooflineReport, plot bool) {
	m := r.model
	fmt.Fprintf(a.out, "Energy roofline of %s (± 95 %%)\n\n", joinNonEmpty(", ", r.GPU, r.UUID))
	for _, l := range []struct{ name, value string }{
		{"a flop", withU(m.Flop.Value, m.Flop.U, "J")},
		{"a byte", withU(m.Byte.Value, m.Byte.U, "J")},
		{"constant power", withU(m.Constant.Value, m.Constant.U, "W")},
		{"best rates", siText(m.Peaks.Flops, "flop/s") + ", " + siText(m.Peaks.Bytes, "byte/s")},
		{"balance in time", fmt.Sprintf("%.4g flop/byte", m.TimeBalance)},
		{"balance in energy", withU(m.EnergyBalance.Value, m.EnergyBalance.U, "flop/byte") + ": half of the best flop/J"},
		{"a byte against a flop", withU(m.Gap.Value, m.Gap.U, "flop")},
		{"a flop at its best", withU(m.BestFlop.Value, m.BestFlop.U, "J") + ", constant power included"},
	} {
		fmt.Fprintf(a.out, "  %-22s %s\n", l.name, l.value)
	}
	if m.DoF > 0 {
		fmt.Fprintf(a.out, "  %-22s %.2g %% around the model, %d degrees of freedom\n", "points scatter", 100*m.Scatter, m.DoF)
	}
	fmt.Fprintln(a.out)
	t := newTable(a.out)
	t.AppendHeader(table.Row{"task", "name", "flop/byte", "flop/s", "of roof", "flop/J", "power", "against model", ""})
	for _, p := range r.Points {
		intensity, shown := "∞", ""
		switch {
		case p.Intensity != nil:
			intensity = fmt.Sprintf("%.4g", *p.Intensity)
		case p.Flop == 0:
			intensity = "–"
		}
		if !p.Fitted {
			shown = "not fitted"
		}
		if p.Throttled {
			shown = joinNonEmpty(", ", "throttled", shown)
		}
		t.AppendRow(table.Row{
			p.TaskID, shorten(p.Name, 40), intensity, siText(p.FlopPerS, "flop/s"), fmt.Sprintf("%.0f %%", p.RoofPct), siText(p.FlopPerJ, "flop/J"),
			measure.Watt(p.PowerW), percent(p.ResidualPct), shown,
		})
	}
	right(t, 1, 3, 4, 5, 6, 7, 8)
	t.Render()
	if plot {
		r.plot(a.out)
	}
	for _, c := range append(append([]string{}, r.Passed...), r.Cautions...) {
		fmt.Fprintln(a.out, "  caution:", c)
	}
}

// plot draws both arch lines in the terminal, in shares of their best, by the
// logarithm of the intensity.
func (r *rooflineReport) plot(w io.Writer) {
	columns := min(plotWidth(w), 100)
	low, high := r.bounds()
	_, best, _ := r.model.At(1e9 * high)
	var speed, energy []float64
	for i := range columns {
		s, j, _ := r.model.At(low * math.Pow(high/low, float64(i)/float64(columns-1)))
		speed, energy = append(speed, 100*s/r.PeakFlops), append(energy, 100*j/best)
	}
	graph := asciigraph.PlotMany([][]float64{speed, energy}, asciigraph.Height(12), asciigraph.Offset(3), asciigraph.LowerBound(0), asciigraph.UpperBound(100),
		asciigraph.SeriesColors(asciigraph.Blue, asciigraph.Red), asciigraph.SeriesLegends("flop/s, % of the best", "flop/J, % of the best"),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf("%.0f %%", v) }))
	if !isTerminal(w) {
		graph = ansi.Strip(graph)
	}
	body, legend := splitLegend(strings.Split(graph, "\n"))
	left := leftEdge(body)
	fmt.Fprintf(w, "\n%s\n", strings.Join(body, "\n"))
	line := []rune(strings.Repeat(" ", columns))
	for _, mark := range []struct {
		at float64
		c  rune
	}{{r.EnergyBalance.Value, 'E'}, {r.TimeBalance, 'T'}} {
		if i := math.Log(mark.at/low) / math.Log(high/low) * float64(columns-1); i >= 0 && i < float64(columns) {
			line[int(i)] = mark.c
		}
	}
	fmt.Fprintf(w, "%s%s  balance: T in time, E in energy\n", strings.Repeat(" ", left), string(line))
	first, last := fmt.Sprintf("%.3g flop/byte", low), fmt.Sprintf("%.3g (logarithmic)", high)
	fmt.Fprintf(w, "%s%s%*s\n%s\n\n", strings.Repeat(" ", left), first, max(columns-len(first), len(last)+1), last, strings.Trim(strings.Join(legend, "\n"), "\n"))
}

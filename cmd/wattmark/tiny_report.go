package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/guptarohit/asciigraph"

	"wattmark/measure"
	"wattmark/store"
)

// tinyReport is the energy of one launch of a tiny kernel in our JSON.
type tinyReport struct {
	Method    string          `json:"method"`
	Kernel    string          `json:"kernel"`
	Launches  int             `json:"launches"`
	EnergyJ   *float64        `json:"energy_j"`
	EnergyUJ  *float64        `json:"energy_u_j"`
	LengthS   *float64        `json:"length_s,omitempty"`
	MeanW     *float64        `json:"mean_w,omitempty"`
	CarrierW  *float64        `json:"carrier_w,omitempty"`
	DOF       int             `json:"dof,omitempty"`
	AboveJ    *float64        `json:"above_j,omitempty"`
	AboveUJ   *float64        `json:"above_u_j,omitempty"`
	WantedU   float64         `json:"planned_u_rel,omitempty"`
	Budget    []budgetReport  `json:"budget"`
	Profile   []profilePoint  `json:"profile,omitempty"`
	Warnings  []string        `json:"warnings,omitempty"`
	Plan      json.RawMessage `json:"plan"`
	coverageK float64
}

type profilePoint struct {
	AtS      float64 `json:"at_s"`
	PowerW   float64 `json:"power_w"`
	UW       float64 `json:"u_w"`
	Readings int     `json:"readings"`
}

// addTiny adds what the task says of a tiny kernel, where it was measured for one.
func (r *report) addTiny(ctx context.Context, db *store.DB) error {
	t, err := db.Tiny(ctx, store.TaskID(r.TaskID))
	if err != nil || t == nil {
		return err
	}
	x := &tinyReport{
		Method: t.Method, Kernel: t.Kernel, Launches: t.Launches, EnergyJ: number(float64(t.Energy.Energy)), EnergyUJ: number(float64(t.Energy.U)),
		LengthS: number(float64(t.Length)), CarrierW: number(float64(t.Carrier)), DOF: t.DOF,
		AboveJ: number(float64(t.Above.Energy)), AboveUJ: number(float64(t.Above.U)), Plan: t.Plan, Warnings: t.Warnings, Budget: []budgetReport{},
		coverageK: measure.FactorOf(t.Energy, t.Budget),
	}
	if t.Length > 0 {
		x.MeanW = number(float64(t.Energy.Energy) / float64(t.Length))
	}
	var plan struct{ U float64 }
	if err := json.Unmarshal(t.Plan, &plan); err == nil {
		x.WantedU = plan.U
	}
	for _, c := range t.Budget {
		x.Budget = append(x.Budget, budgetReport{c.Source, float64(c.U), c.Systematic})
	}
	for _, b := range t.Profile {
		x.Profile = append(x.Profile, profilePoint{float64(b.At), float64(b.Power), float64(b.U), b.Readings})
	}
	r.Tiny = x
	return nil
}

// render writes the energy of one launch for a person.
func (t *tinyReport) render(w io.Writer) {
	if t == nil || t.EnergyJ == nil || t.EnergyUJ == nil {
		return
	}
	fmt.Fprintf(w, "One launch of %s, by %s over %d launches\n", t.Kernel, t.Method, t.Launches)
	fmt.Fprintf(w, "  energy   %s (k = %.2g)", scaledEnergy(*t.EnergyJ, *t.EnergyUJ), t.coverageK)
	if *t.EnergyJ > 0 {
		fmt.Fprintf(w, ", ± %.2g %%", 100**t.EnergyUJ / *t.EnergyJ)
	}
	fmt.Fprintln(w)
	if t.LengthS != nil && *t.LengthS > 0 {
		fmt.Fprintf(w, "  length   %v by the GPU's clock: %v on the mean", measure.Seconds(*t.LengthS), measure.Watt(*t.MeanW))
		if t.CarrierW != nil {
			fmt.Fprintf(w, ", in a carrier of %v", measure.Watt(*t.CarrierW))
		}
		fmt.Fprintln(w)
	}
	if t.AboveJ != nil && t.AboveUJ != nil {
		fmt.Fprintf(w, "  above    %s above what surrounds it\n", scaledEnergy(*t.AboveJ, *t.AboveUJ))
	}
	if b, ok := largest(t.Budget); ok {
		fmt.Fprintf(w, "  ± U      owes most to %s, %v (k = 1)\n", b.Source, measure.Joule(b.UJ))
	}
	for _, s := range t.Warnings {
		fmt.Fprintf(w, "  warning  %s\n", s)
	}
	t.plot(w)
	fmt.Fprintln(w)
}

// scaledEnergy writes E ± U in the SI unit that fits E.
func scaledEnergy(e, u float64) string {
	for _, p := range []struct {
		scale float64
		name  string
	}{{1, "J"}, {1e-3, "mJ"}, {1e-6, "µJ"}, {1e-9, "nJ"}} {
		if math.Abs(e) >= p.scale || p.scale == 1e-9 {
			return strings.ReplaceAll(energyText(e/p.scale, u/p.scale), " J", " "+p.name)
		}
	}
	return ""
}

// plot draws the folded profile.
func (t *tinyReport) plot(w io.Writer) {
	if len(t.Profile) < 2 {
		return
	}
	var power []float64
	for _, b := range t.Profile {
		power = append(power, b.PowerW)
	}
	width := max(plotWidth(w), 40)
	graph := asciigraph.Plot(power, asciigraph.Height(12), asciigraph.Width(width), asciigraph.Offset(3), asciigraph.Precision(0),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf("%.0f W", v) }))
	lines := strings.Split(graph, "\n")
	left := leftEdge(lines)
	fmt.Fprintf(w, "\n%s\n", graph)
	first, last := t.Profile[0].AtS, t.Profile[len(t.Profile)-1].AtS
	ruler := []rune(strings.Repeat(" ", width))
	if t.LengthS != nil {
		for i := range ruler {
			if at := first + (float64(i)+0.5)*(last-first)/float64(width); at >= 0 && at < *t.LengthS {
				ruler[i] = '═'
			}
		}
	}
	fmt.Fprintf(w, "%s%s  ═ the launch\n", strings.Repeat(" ", left), string(ruler))
	a, b := measure.Seconds(first).String(), measure.Seconds(last).String()
	fmt.Fprintf(w, "%s%s%*s\n", strings.Repeat(" ", left), a, max(0, width-len([]rune(a))), b)
}

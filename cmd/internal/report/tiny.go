package report

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/guptarohit/asciigraph"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// tinyReport is the JSON of the energy of one launch of a tiny kernel, measured over many
// launches; Carrier is the power of the load around each, for methods that have one.
type tinyReport struct {
	Method   string                 `json:"method"`
	Kernel   string                 `json:"kernel"`
	Launches int                    `json:"launches"`
	Energy   measure.Joule          `json:"energy_j"`
	EnergyU  measure.Joule          `json:"energy_u_j"`
	Length   measure.Seconds        `json:"length_s,omitzero"`
	Mean     measure.Watt           `json:"mean_w,omitzero"`
	Carrier  measure.Watt           `json:"carrier_w,omitzero"`
	DOF      int                    `json:"dof,omitempty"`    // degrees of freedom
	Above    measure.Joule          `json:"above_j,omitzero"` // above the level around a launch
	AboveU   measure.Joule          `json:"above_u_j,omitzero"`
	WantedU  float64                `json:"planned_u_rel,omitempty"` // relative
	Budget   []measure.Contribution `json:"budget"`
	Profile  []store.TinyBin        `json:"profile,omitempty"` // over all launches, from the start of one
	Warnings []string               `json:"warnings,omitempty"`
	Plan     json.RawMessage        `json:"plan"`
	coverage float64
}

// AddTiny adds the energy of one launch of a tiny kernel, for a task made to measure that.
func (r *Report) AddTiny(ctx context.Context, db *store.DB) error {
	t, err := db.Tiny(ctx, store.TaskID(r.TaskID))
	if err != nil || t == nil {
		return err
	}
	x := &tinyReport{
		Method: t.Method, Kernel: t.Kernel, Launches: t.Launches, Energy: t.Energy.Energy, EnergyU: t.Energy.U,
		Length: t.Length, Mean: measure.Watt(math.NaN()), Carrier: t.Carrier, DOF: t.DOF, Above: t.Above.Energy,
		AboveU: t.Above.U, Budget: append([]measure.Contribution{}, t.Budget...), Profile: t.Profile, Warnings: t.Warnings,
		Plan: t.Plan, coverage: measure.FactorOf(t.Energy, t.Budget),
	}
	if t.Length > 0 {
		x.Mean = measure.Watt(float64(t.Energy.Energy) / float64(t.Length))
	}
	// The plan is stored as JSON of the version that measured; only its goal is read here.
	var plan struct{ U float64 }
	if err := json.Unmarshal(t.Plan, &plan); err == nil {
		x.WantedU = plan.U
	}
	r.Tiny = x
	return nil
}

// render writes the energy of one launch as text, with its profile.
func (t *tinyReport) render(w io.Writer) {
	if t == nil || !measure.Known(t.Energy) || !measure.Known(t.EnergyU) {
		return
	}
	fmt.Fprintf(w, "One launch of %s, by %s over %d launches\n", t.Kernel, t.Method, t.Launches)
	fmt.Fprintf(w, "  energy   %s (k = %.2g)", scaledEnergy(t.Energy, t.EnergyU), t.coverage)
	if t.Energy > 0 {
		fmt.Fprintf(w, ", ± %.2g %%", 100*float64(t.EnergyU)/float64(t.Energy))
	}
	fmt.Fprintln(w)
	if t.Length > 0 {
		fmt.Fprintf(w, "  length   %v by the GPU's clock: %v on the mean", t.Length, t.Mean)
		if measure.Known(t.Carrier) {
			fmt.Fprintf(w, ", in a carrier of %v", t.Carrier)
		}
		fmt.Fprintln(w)
	}
	if measure.Known(t.Above) && measure.Known(t.AboveU) {
		fmt.Fprintf(w, "  above    %s above what surrounds it\n", scaledEnergy(t.Above, t.AboveU))
	}
	renderLargest(w, t.Budget)
	for _, s := range t.Warnings {
		fmt.Fprintf(w, "  warning  %s\n", s)
	}
	t.plot(w)
	fmt.Fprintln(w)
}

// scaledEnergy returns E ± U in the unit from J to nJ that fits E.
func scaledEnergy(e, u measure.Joule) string {
	for _, p := range []struct {
		scale measure.Joule
		name  string
	}{{1, "J"}, {1e-3, "mJ"}, {1e-6, "µJ"}, {1e-9, "nJ"}} {
		if max(e, -e) >= p.scale || p.scale == 1e-9 {
			return strings.ReplaceAll(out.EnergyText(e/p.scale, u/p.scale), " J", " "+p.name)
		}
	}
	return ""
}

// plot draws the folded profile, and below it a ruler with the length of the launch.
func (t *tinyReport) plot(w io.Writer) {
	if len(t.Profile) < 2 {
		return
	}
	var power []float64
	for _, b := range t.Profile {
		power = append(power, float64(b.Power))
	}
	// The profile has fewer points than columns: asciigraph interpolates them to the width.
	width := max(out.PlotWidth(w), 40)
	first, last := t.Profile[0].At, t.Profile[len(t.Profile)-1].At
	ruler := []rune(strings.Repeat(" ", width))
	out.Mark(ruler, first, last, 0, t.Length, '═')
	g := out.Graph{
		Series: [][]float64{power}, Height: 12, Axis: "%.0f W", Options: []asciigraph.Option{asciigraph.Width(width)},
		Ruler: string(ruler), Key: "═ the launch", First: first.String(), Last: last.String(), Columns: width,
	}
	fmt.Fprintln(w)
	g.Draw(w)
}

package tiny

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/fold"
)

// ErrRan: the train that ran differs from the plan.
var ErrRan = errors.New("the train did not run as planned")

// Outcome is the energy of one launch.
type Outcome struct {
	Method   Method
	Launches int
	Timing
	Energy measure.Estimate
	Budget []measure.Contribution
	// Carrier is the power of the carrier; 0 for repeat.
	Carrier measure.Watt
	// DOF and Residual are of contrast's fit.
	DOF      int
	Residual measure.Joule
	// Profile is fold's.
	Profile  *fold.Profile
	Warnings []string
}

// Source is where the samples come from: the setup that they were made under, the
// relation of the clocks, and the blocks in order of time.
type Source struct {
	Setup  *measure.Setup
	Fit    clock.Fit
	Blocks iter.Seq2[*measure.Block, error]
}

// Analyse works the energy of one launch out of the samples of a train that ran
// by the plan.
func Analyse(p Plan, ran gpu.Ran, src Source) (Outcome, error) {
	kinds := p.kinds()
	if len(ran.Phases) != len(kinds) {
		return Outcome{}, fmt.Errorf("tiny: %w: %d phases ran, %d were planned", ErrRan, len(ran.Phases), len(kinds))
	}
	t := p.Train("", gpu.Insert{}, 0)
	out := Outcome{Method: p.Method, Timing: timing(ran.Phases, kinds, func(i int) int { return t.Phases[i].Slices })}
	var err error
	switch p.Method {
	case Repeat:
		err = out.repeat(ran.Phases[0], src)
	case Contrast:
		err = out.contrast(ran, kinds, src)
	case Fold:
		err = out.fold(p, ran.Phases[slices.Index(kinds, mixed)], src)
	default:
		err = fmt.Errorf("%w: method %q: want repeat, contrast or fold", ErrPlan, p.Method)
	}
	if err != nil {
		return out, fmt.Errorf("tiny: %w", err)
	}
	out.warn(p, src.Setup.Response)
	return out, nil
}

// repeat divides the energy of n launches by n.
func (o *Outcome) repeat(p gpu.RanPhase, src Source) error {
	w, edges := measurement.Carry(&src.Fit, p.Span)
	ws, err := measure.NewWindows(src.Setup, []measure.Window{w})
	if err == nil {
		err = ws.AddAll(src.Blocks)
	}
	if err != nil {
		return err
	}
	part := measure.Part{Window: ws.Integrators()[0], Edges: edges, Weight: 1 / float64(p.Inserted)}
	c, err := measure.Combine([]measure.Part{part})
	if err != nil {
		return err
	}
	o.Launches, o.Energy, o.Budget = p.Inserted, c.Energy, c.Budget
	return nil
}

// contrast compares the phases with the kernel with those without, by a fit that also takes
// a drift out (fold.Contrast).
func (o *Outcome) contrast(ran gpu.Ran, kinds []kind, src Source) error {
	var phases []fold.Phase
	for i, p := range ran.Phases {
		if kinds[i] == lead {
			continue
		}
		w, edges := measurement.Carry(&src.Fit, p.Span)
		phases = append(phases, fold.Phase{
			Window: w, Edges: edges, Carrier: measure.SecondsOf(p.Carrier), Inserted: p.Inserted,
		})
	}
	d, err := fold.Contrast(src.Setup, phases, src.Blocks)
	if err != nil {
		return err
	}
	o.Launches, o.Energy, o.Budget = d.Inserted, d.Energy, d.Budget
	o.Carrier, o.DOF, o.Residual = d.Carrier, d.DOF, d.Residual
	return nil
}

// fold puts the samples around all launches into one profile, and integrates it above the
// carrier's level (fold.New).
func (o *Outcome) fold(p Plan, ran gpu.RanPhase, src Source) error {
	cfg := fold.Config{
		Length: o.Length, Before: p.Before, After: p.After, Settle: p.Settle, Bins: p.Bins,
		// A launch begins between the end of a slice and one gap later.
		UStart: o.Gap / measure.Seconds(math.Sqrt(12)),
	}
	for i, at := range ran.Starts {
		t, u := src.Fit.Meter(measurement.HostSeconds(src.Fit, at))
		cfg.Starts = append(cfg.Starts, t+o.Gap/2)
		if i == len(ran.Starts)/2 {
			cfg.UClock = u
		}
	}
	f, err := fold.New(src.Setup, cfg)
	if err != nil {
		return err
	}
	for b, err := range src.Blocks {
		if err == nil {
			err = f.Add(b)
		}
		if err != nil {
			return err
		}
	}
	profile, err := f.Profile()
	if err != nil {
		return err
	}
	o.Launches, o.Profile, o.Carrier = profile.Launches, &profile, profile.Level
	o.Energy, o.Budget = profile.Whole, profile.WholeBudget
	return nil
}

// warn adds the limits of the figures.
func (o *Outcome) warn(p Plan, r measure.Response) {
	add := func(format string, a ...any) { o.Warnings = append(o.Warnings, fmt.Sprintf(format, a...)) }
	if p.Method == Repeat {
		add("launches back to back find their data in the caches, and one may begin before the other has ended: this " +
			"is not the energy of a single cold kernel; contrast comes closer")
	}
	if r.Update > r.Window && r.Window > 0 {
		add("this meter looks at %v of every %v: the phases are long enough for their mean, but what it misses is not "+
			"in ± U", r.Window, r.Update)
	}
	if p.Method == Fold && (r.Tau > 0 || r.Window > 0) {
		add("the profile is as the meter shows it (first-order lag %v, average %v): it is not sharper than that; the "+
			"energy does not mind as long as all of it has settled", r.Tau, r.Window)
	}
	if o.Length <= 0 {
		add("by the GPU's clock the launches took no time of their own: they ran beside the carrier, or are " +
			"too short for it")
	}
	if p.Method == Contrast && math.Abs(float64(o.Energy.U)) > math.Abs(float64(o.Energy.Energy)) {
		add("± U is larger than the energy: the meter has not seen the kernel; take more launches (a smaller --until-u, a " +
			"longer --phase)")
	}
}

// Missed adds a warning where the relative uncertainty is above the wanted one, with the line
// that it owes most to.
func (o *Outcome) Missed(want float64) {
	got := math.Abs(float64(o.Energy.U) / float64(o.Energy.Energy))
	if len(o.Budget) == 0 || got <= want {
		return
	}
	most := slices.MaxFunc(o.Budget, func(a, b measure.Contribution) int { return cmp.Compare(a.U, b.U) })
	o.Warnings = append(o.Warnings, fmt.Sprintf("± %.2g %% was wanted and ± %.2g %% reached; most of it is %s",
		100*want, 100*got, most.Source))
}

// Kernels returns a train that ran as the kernels of a task: its phases by name.
func Kernels(p Plan, ran gpu.Ran, name string) []gpu.Kernel {
	var out []gpu.Kernel
	for i, k := range p.kinds() {
		if i >= len(ran.Phases) {
			break
		}
		ph := ran.Phases[i]
		text := fmt.Sprintf("%s ×%d", name, ph.Inserted)
		switch k {
		case lead:
			text = "carrier, lead"
		case plain:
			text = "carrier, plain"
		case mixed:
			text = "carrier with " + text
		}
		out = append(out, gpu.Kernel{Name: text, Span: ph.Span})
	}
	return out
}

package main

import (
	"fmt"
	"io"
	"math"

	"github.com/jedib0t/go-pretty/v6/table"

	"wattmark/analysis/sensor"
	"wattmark/measure"
)

// sensorReport is what sensor identify prints.
type sensorReport struct {
	Source  string              `json:"source"`
	Truth   string              `json:"load_from"`
	Fields  []sensorFieldReport `json:"fields"`
	Refused []string            `json:"refused,omitempty"`
}

// sensorFieldReport is a profile with what was said of it.
type sensorFieldReport struct {
	sensor.Profile
	Notes   []string `json:"notes"`
	Version int      `json:"version,omitempty"`
	Picture string   `json:"picture,omitempty"`
}

func (a *app) printIdentified(f *sensorIdentifyFlags) error {
	r := sensorReport{Source: f.source.description, Truth: f.source.truth, Refused: f.refused}
	for _, x := range f.identified {
		r.Fields = append(r.Fields, sensorFieldReport{x.Profile, append([]string{}, x.Notes...), f.versions[x.Profile.Field], f.pictures[x.Profile.Field]})
	}
	if a.json {
		return a.printJSON(r)
	}
	fmt.Fprintf(a.out, "%s; the load is known from %s\n", r.Source, r.Truth)
	for i, x := range r.Fields {
		fmt.Fprintln(a.out)
		renderProfile(a.out, &x.Profile)
		for _, n := range x.Notes {
			fmt.Fprintf(a.out, "  note     %s\n", n)
		}
		if x.Version > 0 {
			fmt.Fprintf(a.out, "  stored   version %d of %s\n", x.Version, profileName(x.UUID, x.Field))
		}
		if x.Picture != "" {
			fmt.Fprintf(a.out, "  drawn    into %s\n", x.Picture)
		}
		if f.plot {
			fmt.Fprintln(a.out)
			plotIdentified(a.out, f.identified[i])
		}
	}
	for _, x := range r.Refused {
		fmt.Fprintf(a.out, "\n%s\n", x)
	}
	return nil
}

// plusMinus writes a time with its expanded uncertainty.
func plusMinus(v, u measure.Seconds) string { return fmt.Sprintf("%v ± %v", v, u) }

// renderProfile writes a profile for a person.
func renderProfile(w io.Writer, p *sensor.Profile) {
	fmt.Fprintf(w, "%s%s\n", p.Field, ofGPU(p))
	fmt.Fprintf(w, "  period   %s (jitter %v)\n", plusMinus(p.Period, p.UPeriod), p.Jitter)
	what := fmt.Sprintf("mean over a window of %s", plusMinus(p.Window, p.UWindow))
	if p.Model == sensor.FirstOrder {
		what = fmt.Sprintf("first-order lag, τ = %s", plusMinus(p.Tau, p.UTau))
	}
	switch {
	case p.Undecided:
		what += "; undecided between the two models, see below"
	case p.Weak:
		what += "; the load hardly tells it"
	}
	fmt.Fprintf(w, "  model    %s\n", what)
	fmt.Fprintf(w, "  delay    %s; polled readings lie %s behind the power\n", plusMinus(p.Delay, p.UDelay), plusMinus(p.Lag, p.ULag))
	fmt.Fprintf(w, "  sees     %s of the time\n", shareText(p.Seen, p.USeen))
	if p.Calibrated {
		fmt.Fprintf(w, "  static   reading = (%.4f ± %.4f) · power %+.2f W ± %.2f W\n", p.Gain, p.UGain, float64(p.Offset), float64(p.UOffset))
	} else {
		fmt.Fprintf(w, "  static   not known: no meter\n")
	}
	fmt.Fprintf(w, "  steps    of %v; noise of a value at rest %v\n", p.Quantum, p.Noise)
	if e := p.Evidence; e != nil && e.Boxcar != nil && e.FirstOrder != nil {
		renderEvidence(w, e)
	}
}

func ofGPU(p *sensor.Profile) string {
	if s := joinNonEmpty(", ", p.GPU, p.UUID, p.Driver); s != "" {
		return " of " + s
	}
	return ""
}

func shareText(share, u float64) string {
	if u < 0.005 || math.IsNaN(u) {
		return fmt.Sprintf("%.0f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %% ± %.0f %%", 100*share, 100*min(u, 1))
}

// renderEvidence writes both models beside each other.
func renderEvidence(w io.Writer, e *sensor.Evidence) {
	t := newTable(w)
	t.AppendHeader(table.Row{"model", "constant", "95 %", "delay", "95 %", "residual", "AIC"})
	for _, f := range []*sensor.Fit{e.Boxcar, e.FirstOrder} {
		mark := ""
		if f.Model == e.Preferred {
			mark = " *"
		}
		t.AppendRow(table.Row{
			string(f.Model) + mark, f.Constant, fmt.Sprintf("%v to %v", f.ConstantLow, f.ConstantHigh),
			f.Delay, fmt.Sprintf("%v to %v", f.DelayLow, f.DelayHigh), f.Residual, fmt.Sprintf("%.1f", f.AIC),
		})
	}
	t.Render()
	fmt.Fprintf(w, "  evidence %d renewals, worth %d independent ones; ΔAIC %.1f, Vuong z %.1f (1.96 decides)\n", e.Updates, e.Effective, e.DeltaAIC, e.Vuong)
	for _, l := range bestFit(e).Levels {
		fmt.Fprintf(w, "  level    %s: %.1f W ± %.1f W\n", l.Name, float64(l.Power), float64(l.U))
	}
}

func bestFit(e *sensor.Evidence) *sensor.Fit {
	if e.Preferred == sensor.FirstOrder {
		return e.FirstOrder
	}
	return e.Boxcar
}

package validate

import (
	"cmp"
	"math"
	"slices"

	"wattmark/analysis/stats"
	"wattmark/measure"
)

// judgeKernels gathers the kernels by name, within the work.
func (r *run) judgeKernels() {
	by := map[string][]Span{}
	for _, k := range r.s.Kernels {
		if k.From >= r.s.Work.To || k.To <= r.s.Work.From || k.To <= k.From {
			continue
		}
		by[k.Name] = append(by[k.Name], k.Span)
	}
	if len(by) == 0 {
		return
	}
	said := make([]*cumulative, len(r.methods))
	for i := range r.methods {
		said[i] = ofReadings(r.truth.cuts, r.methods[i].Readings, reach)
	}
	for name, spans := range by {
		if k, ok := r.kernel(name, spans, said); ok {
			r.rep.Kernels = append(r.rep.Kernels, k)
		}
	}
	slices.SortFunc(r.rep.Kernels, func(a, b KernelReport) int {
		return cmp.Or(cmp.Compare(b.Truth.Energy, a.Truth.Energy), cmp.Compare(a.Name, b.Name))
	})
}

// kernel judges the launches of one name; ok is false where the meter misses one.
func (r *run) kernel(name string, spans []Span, said []*cumulative) (out KernelReport, ok bool) {
	out = KernelReport{Name: name, Launches: len(spans)}
	truth := make([]float64, len(spans))
	var sum float64
	for i, s := range spans {
		truth[i] = r.truth.between(float64(s.From), float64(s.To))
		sum += truth[i]
		out.Busy += s.Length()
	}
	if math.IsNaN(sum) || !(sum > 0) {
		return out, false
	}
	u := r.uncertainty(sum, float64(out.Busy), spans)
	out.Truth = measure.Estimate{Energy: measure.Joule(sum), U: measure.Joule(2 * u)}
	for i := range r.methods {
		out.Methods = append(out.Methods, r.kernelMethod(&r.methods[i], said[i], spans, truth, &out.Truth))
	}
	return out, true
}

func (r *run) kernelMethod(m *Method, said *cumulative, spans []Span, truth []float64, all *measure.Estimate) KernelMethod {
	nan := math.NaN()
	out := KernelMethod{Name: m.Name, Energy: measure.Joule(nan), ErrorPct: nan, Lo: nan, Hi: nan}
	energies := make([]float64, len(spans))
	var sum float64
	for i, s := range spans {
		energies[i] = said.between(float64(s.From), float64(s.To))
		sum += energies[i]
	}
	if math.IsNaN(sum) {
		return out
	}
	ratio := sum / float64(all.Energy)
	out.Energy, out.ErrorPct = measure.Joule(sum), 100*(ratio-1)
	u := ratio * float64(all.U) / float64(all.Energy)
	below, above := u, u
	if len(m.Readings) > 1 {
		b := stats.Bootstrap{Resamples: r.o.Resamples, Level: r.o.Level, Seed: r.o.Seed}.Ratio(energies, truth)
		if !math.IsNaN(b.Lo) {
			below, above = math.Hypot(u, max(b.Point-b.Lo, 0)), math.Hypot(u, max(b.Hi-b.Point, 0))
		}
	}
	out.Lo, out.Hi = out.ErrorPct-100*below, out.ErrorPct+100*above
	return out
}

package validate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// judgeKernels sums up the kernels by name, within the work. As in package attribute,
// at each instant the power belongs in equal shares to the kernels that run, by the
// meter and by each method's readings alike. The energy without a kernel is a line of
// its own, so that all lines add up to the work's energy.
func (r *run) judgeKernels() {
	r.rep.Kernels = []KernelReport{}
	var spans []Span
	by := map[string][]int{}
	for _, k := range r.s.Kernels {
		s := Span{max(k.From, r.s.Work.From), min(k.To, r.s.Work.To)}
		if s.To > s.From {
			by[k.Name] = append(by[k.Name], len(spans))
			spans = append(spans, s)
		}
	}
	if len(spans) == 0 {
		return
	}
	l := r.layKernels(spans)
	for _, name := range slices.Sorted(maps.Keys(by)) {
		launches := lists.Map(by[name], func(n int) stretch { return l.stretchOf(spans[n]) })
		k := r.kernel(l, launches)
		k.Name, k.Launches = name, len(launches)
		for _, n := range by[name] {
			k.Busy += spans[n].Length()
		}
		r.rep.Kernels = append(r.rep.Kernels, k)
	}
	slices.SortStableFunc(r.rep.Kernels,
		func(a, b KernelReport) int { return cmp.Compare(b.Truth.Energy, a.Truth.Energy) })
	// The lines of the kernels and the time between them share all energy of the work: their
	// sum has the uncertainty of the work, which is less than that of the lines added up.
	rest := r.kernel(l, l.between)
	rest.Name, rest.Busy = "(no kernel)", rest.Share
	sum := together(append(slices.Clone(r.rep.Kernels), rest))
	sum.Name, sum.Truth.U = "sum", r.rep.Truth.U
	r.rep.NoKernel, r.rep.KernelSum = &rest, &sum
}

// layout lists the kernels that run between each two neighbouring edges.
type layout struct {
	edges   []float64
	running []int // from an edge to the next
	between []stretch
	time    *shares
	// The meter's energy, and that of edges which all lie a standard uncertainty of
	// the clock's offset earlier and later.
	truth, less, more *shares
	said              []*shares // by method
}

// stretch are the parts from one edge to another; idle ones alone count where none
// runs.
type stretch struct{ from, to int }

// leastPause is half of the unit of the kernels' clock: what is shorter between two edges is rounding.
const leastPause = 0.5e-9

// layKernels sorts the edges of kernels and work, counts the running kernels between
// them, and shares the energies.
func (r *run) layKernels(spans []Span) *layout {
	l := &layout{edges: []float64{r.from, r.to}}
	for _, s := range spans {
		l.edges = append(l.edges, float64(s.From), float64(s.To))
	}
	slices.Sort(l.edges)
	l.edges = slices.Compact(l.edges)
	l.running = make([]int, len(l.edges)-1)
	change := make([]int, len(l.edges))
	for _, s := range spans {
		// A kernel runs from the part at its begin up to, and not with, the part at its end.
		p := l.stretchOf(s)
		change[p.from]++
		change[p.to]--
	}
	// A sweep over the edges: kernels begun less kernels ended.
	n := 0
	for i := range l.running {
		n += change[i]
		l.running[i] = n
		if n == 0 && l.edges[i+1]-l.edges[i] > leastPause {
			l.between = append(l.between, stretch{i, i + 1})
		}
	}
	l.time = l.share(func(from, to float64) float64 { return to - from })
	at := func(c *cumulative, by float64) *shares {
		return l.share(func(from, to float64) float64 { return c.between(from+by, to+by) })
	}
	l.truth = at(r.truth, 0)
	if r.shift > 0 {
		l.less, l.more = at(r.truth, -r.shift), at(r.truth, r.shift)
	}
	for _, m := range r.s.Methods {
		l.said = append(l.said, at(ofReadings(r.truth.cuts, m.Readings, reach), 0))
	}
	return l
}

// stretchOf returns the edges of a span, which are in the layout.
func (l *layout) stretchOf(s Span) stretch {
	return stretch{sort.SearchFloat64s(l.edges, float64(s.From)), sort.SearchFloat64s(l.edges, float64(s.To))}
}

// shares is the running sum of one kernel's share, from the first edge on: a launch has
// the difference between its ends. Parts with an unknown value are counted in unknown.
type shares struct {
	sum     []float64
	unknown []int
}

// share divides each part's value by the number of kernels that run; where none does,
// all of it is the part's.
func (l *layout) share(of func(from, to float64) float64) *shares {
	s := &shares{sum: make([]float64, len(l.edges)), unknown: make([]int, len(l.edges))}
	for i, n := range l.running {
		v := of(l.edges[i], l.edges[i+1]) / float64(max(n, 1))
		s.sum[i+1], s.unknown[i+1] = s.sum[i], s.unknown[i]
		if math.IsNaN(v) {
			s.unknown[i+1]++
		} else {
			s.sum[i+1] += v
		}
	}
	return s
}

// of returns a stretch's energy; NaN where a part of it is not known.
func (s *shares) of(p stretch) float64 {
	if s.unknown[p.to] != s.unknown[p.from] {
		return math.NaN()
	}
	return s.sum[p.to] - s.sum[p.from]
}

// each returns the energies of stretches, and their sum.
func (s *shares) each(list []stretch) (out []float64, sum float64) {
	out = make([]float64, len(list))
	for i, p := range list {
		out[i] = s.of(p)
		sum += out[i]
	}
	return out, sum
}

// kernel judges the launches of one name, or the stretches between kernels.
func (r *run) kernel(l *layout, launches []stretch) (out KernelReport) {
	truth, sum := l.truth.each(launches)
	_, share := l.time.each(launches)
	less, more := math.NaN(), math.NaN()
	if l.less != nil {
		_, less = l.less.each(launches)
		_, more = l.more.each(launches)
	}
	u := r.uncertainty(sum, share, less, more)
	out.Share = seconds(share)
	out.Truth = Truth{Energy: measure.Joule(sum), U: measure.Joule(2 * u)}
	for i := range r.s.Methods {
		said, all := l.said[i].each(launches)
		out.Methods = append(out.Methods, r.kernelMethod(&r.s.Methods[i], said, all, truth, out.Truth, share))
	}
	return out
}

// kernelMethod compares a method's readings over launches with the meter.
func (r *run) kernelMethod(m *Method, said []float64, sum float64, truth []float64, all Truth,
	share float64,
) KernelMethod {
	none := measure.Number(math.NaN())
	out := KernelMethod{
		Name: m.Name, Energy: measure.Joule(sum), ErrorPct: none, Interval: Interval{none, none}, Agreement: Unknown,
	}
	if math.IsNaN(sum) || !(all.Energy > 0) {
		return out
	}
	// The interval combines the meter's uncertainty, common to all launches, with the
	// scatter over launches, resampled.
	ratio := sum / float64(all.Energy)
	out.ErrorPct = measure.Number(100 * (ratio - 1))
	// First-order propagation of the relative uncertainty of the meter to the ratio.
	u := ratio * float64(all.U) / float64(all.Energy)
	b := stats.Interval{Lo: math.NaN()}
	if len(m.Readings) > 1 {
		b = r.bootstrap().Ratio(said, truth)
	}
	out.Interval = errorInterval(out.ErrorPct, u, b)
	out.Agreement = r.agreement(measure.Estimate{Energy: out.Energy}, measure.Estimate(all), share)
	return out
}

// ByKernel returns the lines of a table by kernel: at most so many names, the other
// names together, the time without a kernel, and the sum of these, which is the work's
// energy. It is nil without kernels.
func (r *Report) ByKernel(most int) []KernelLine {
	if r.NoKernel == nil {
		return nil
	}
	n := min(len(r.Kernels), most)
	var out []KernelLine
	for i := range r.Kernels[:n] {
		out = append(out, KernelLine{OneKernel, r.Kernels[i]})
	}
	// The names beyond the table stay in the sum: a table without them would not add up.
	if rest := r.Kernels[n:]; len(rest) > 0 {
		others := together(rest)
		others.Name = fmt.Sprintf("(%d other names)", len(rest))
		out = append(out, KernelLine{OtherKernels, others})
	}
	return append(out, KernelLine{WithoutKernel, *r.NoKernel}, KernelLine{AllKernels, *r.KernelSum})
}

// together adds lines up. The meter's uncertainties have causes in common: they add
// up as they are.
func together(list []KernelReport) (out KernelReport) {
	out.Methods = slices.Clone(list[0].Methods)
	for i := range out.Methods {
		out.Methods[i].Energy = 0
	}
	for _, k := range list {
		out.Launches, out.Busy, out.Share = out.Launches+k.Launches, out.Busy+k.Busy, out.Share+k.Share
		out.Truth.Energy, out.Truth.U = out.Truth.Energy+k.Truth.Energy, out.Truth.U+k.Truth.U
		for i := range out.Methods {
			out.Methods[i].Energy += k.Methods[i].Energy
		}
	}
	for i := range out.Methods {
		m := &out.Methods[i]
		none := measure.Number(math.NaN())
		m.ErrorPct, m.Interval, m.Agreement = none, Interval{none, none}, ""
		if out.Truth.Energy > 0 {
			m.ErrorPct = measure.Number(100 * (float64(m.Energy/out.Truth.Energy) - 1))
		}
	}
	return out
}

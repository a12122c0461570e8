package validate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// Options tune a validation. Zero values are good ones.
type Options struct {
	Resamples int     // 1000 when zero
	Level     float64 // of the intervals; 0.95 when zero
	Seed      uint64
	Columns   int // of the trace; 1200 when zero
}

// defaults replaces zeros and levels outside of 0 to 1.
func (o Options) defaults() Options {
	o.Resamples, o.Columns = cmp.Or(max(o.Resamples, 0), 1000), cmp.Or(max(o.Columns, 0), 1200)
	if !(o.Level > 0 && o.Level < 1) {
		o.Level = 0.95
	}
	return o
}

// The grid on which series are compared.
const (
	cell      = 1e-3 // seconds, unless that makes too few or too many
	fewCells  = 64
	mostCells = 1 << 16
	// mostMargin is how much before and behind the work is looked at for a lag.
	mostMargin = 2.0 // seconds
	// reach is how far an end of the work may lie from a method's nearest reading.
	reach = 0.25 // seconds
)

// run is one validation.
type run struct {
	s *Subject
	o Options

	from, to float64
	edges    []float64 // of the cells of the work
	wide     []float64 // of the cells of the work and its margins
	columns  []float64 // edges of the trace's columns
	shift    float64   // standard uncertainty of the clock's offset, s
	truth    *cumulative
	power    []float64 // joules of the truth by cell of the work
	relative float64   // the truth's relative standard uncertainty that does not come from its clock

	rep Report
}

// Run judges a subject. It reads the truth once. Errors wrap ErrSubject where the
// subject is to blame, or are those of the truth or of ctx.
func Run(ctx context.Context, s Subject, o Options) (*Report, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	r := &run{s: &s, o: o.defaults(), from: float64(s.Work.From), to: float64(s.Work.To)}
	r.lay()
	if err := r.read(ctx); err != nil {
		return nil, err
	}
	if err := r.judgeTruth(); err != nil {
		return nil, err
	}
	r.rep.Unmeasured = append([]string{}, s.Missing...)
	r.rep.Missing, r.rep.MissingPower = Unseen(s.Missing)
	for i := range s.Methods {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r.rep.Methods = append(r.rep.Methods, r.judge(&s.Methods[i]))
	}
	r.judgeLoad()
	r.judgeKernels()
	r.rep.conclude()
	return &r.rep, nil
}

// lay lays out the instants at which the truth's energy is wanted.
func (r *run) lay() {
	// Cells of about 1 ms over the work, at least 64; the margins for the lag use cells of
	// the same length.
	length := r.to - r.from
	n := min(mostCells, max(fewCells, int(math.Round(length/cell))))
	h := length / float64(n)
	m := int(min(mostMargin, max(length, reach)) / h)
	m = min(m, mostCells)
	r.edges = ticks(r.from, r.to, n)
	r.wide = slices.Concat(ticks(r.from-float64(m)*h, r.from, m)[:m], r.edges, ticks(r.to, r.to+float64(m)*h, m)[1:])
	// The trace shows a twentieth of the work on either side, at least 50 ms.
	margin := max(length/20, 0.05)
	r.columns = ticks(r.from-margin, r.to+margin, r.o.Columns)
	if u := float64(r.s.Clock.OffsetU) / 2; u > 0 && !math.IsInf(u, 0) {
		r.shift = u
	}
	// All instants are collected beforehand, so that one pass over the samples suffices.
	cuts := slices.Concat(r.wide, r.columns)
	cuts = r.cutsOf(cuts, r.s.Work)
	for _, k := range r.s.Kernels {
		cuts = r.cutsOf(cuts, k.Span)
	}
	for _, m := range r.s.Methods {
		for _, c := range r.stands(m.Readings) {
			cuts = append(cuts, c.from, c.to)
		}
	}
	slices.Sort(cuts)
	r.truth = newCumulative(slices.Compact(cuts))
}

// cutsOf adds a span's ends, and where they may lie by the clock.
func (r *run) cutsOf(cuts []float64, s Span) []float64 {
	from, to := float64(s.From), float64(s.To)
	cuts = append(cuts, from, to)
	if r.shift > 0 {
		cuts = append(cuts, from-r.shift, to-r.shift, from+r.shift, to+r.shift)
	}
	return cuts
}

// ticks are n+1 instants from one to another, both included to the last bit.
func ticks(from, to float64, n int) []float64 {
	out := make([]float64, n+1)
	for i := range out {
		out[i] = from + (to-from)*float64(i)/float64(max(n, 1))
	}
	out[n] = to
	return out
}

// read is the one pass over the truth.
func (r *run) read(ctx context.Context) error {
	n := r.o.Columns
	tr := tracer{edges: r.columns, min: constant(math.Inf(1), n), max: constant(math.Inf(-1), n)}
	peak := math.Inf(-1)
	seen := uint64(0)
	for s, err := range r.s.Truth {
		if err == nil {
			err = r.truth.add(s)
		}
		if err != nil {
			return fmt.Errorf("%s: the meter: %w", r.s.Name, err)
		}
		tr.add(s)
		if at := float64(s.At); at >= r.from && at <= r.to {
			seen++
			peak = max(peak, float64(s.Power))
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: the meter: %w", r.s.Name, err)
	}
	if r.truth.n < 2 {
		return r.s.refuse("the meter has %s: it needs at least two", measure.Plural(r.truth.n, "sample"))
	}
	// A clock that was fitted leaves an end by rounding beyond the last sample.
	spacing := float64(r.truth.last.At-r.truth.first.At) / float64(r.truth.n-1)
	// Such an end takes the power of the nearest sample; the uncertainty of the clock covers
	// the difference.
	r.truth.hold(2*spacing + r.shift)
	if math.IsNaN(r.truth.between(r.from, r.to)) {
		return r.s.refuse("the meter's samples lie from %.4f s to %.4f s, the work from %.4f s to %.4f s: choose a "+
			"work within the samples, or check how the clocks relate",
			float64(r.truth.first.At), float64(r.truth.last.At), r.from, r.to)
	}
	if math.IsInf(peak, -1) {
		peak = math.NaN()
	}
	r.rep.Samples, r.rep.Peak, r.rep.Trace = seen, measure.Watt(peak), tr.finish(r.truth)
	return nil
}

// judgeTruth sets the meter's energy, mean and uncertainty.
func (r *run) judgeTruth() error {
	s, rep := r.s, &r.rep
	e := r.truth.between(r.from, r.to)
	if !(e > 0) {
		return s.refuse("the meter says %v over the work: no error can be told against that; check its wiring and "+
			"its zero (wattmark check)", measure.Joule(e))
	}
	r.power = r.truth.cells(r.edges)
	rep.Name, rep.GPU, rep.Driver, rep.Meter = s.Name, s.GPU, s.Driver, s.Meter
	rep.Origin, rep.Work, rep.Duration, rep.Clock = s.Origin, s.Work, s.Work.Length(), s.Clock
	rep.Level, rep.Resamples, rep.Seed = r.o.Level, r.o.Resamples, r.o.Seed
	rep.Cautions = slices.Clone(s.Cautions)
	rep.Mean = measure.Watt(e / (r.to - r.from))
	r.relative = math.Hypot(s.Systematic, r.gaps()/e)
	// The energy with the clock off by its standard uncertainty, both ways.
	less, more := math.NaN(), math.NaN()
	if r.shift > 0 {
		less, more = r.truth.between(r.from-r.shift, r.to-r.shift), r.truth.between(r.from+r.shift, r.to+r.shift)
	}
	// A shift of the clock changes the energy by the powers at both ends of the work, which
	// are not known to be alike: both directions are evaluated.
	u := r.uncertainty(e, float64(s.Work.Length()), less, more)
	rep.Truth = Truth{Energy: measure.Joule(e), U: measure.Joule(2 * u)}
	if s.Total.U > 0 { // one meter has one U
		rep.Truth.U = s.Total.U
	}
	if rep.Samples < 10 {
		r.caution("the meter has %s within the work: far too few to be held against", measure.Plural(rep.Samples, "sample"))
	}
	if math.IsNaN(float64(s.Clock.OffsetU)) {
		r.caution("nobody knows how far the meter's clock is off the host's: lags and the energies of short kernels " +
			"may be anything")
	}
	return nil
}

// uncertainty is the standard uncertainty of an energy of the truth over a length:
// gains, offsets, and the clocks, which move all of its spans alike. less and more
// are the energy with all spans a standard uncertainty of the clock earlier and
// later; NaN where that is not known.
func (r *run) uncertainty(energy, length, less, more float64) float64 {
	v := math.Pow(r.relative*energy, 2) + math.Pow(float64(r.s.Offset)*length, 2)
	if drift := float64(r.s.Clock.DriftUPPM) / 2e6; drift > 0 {
		v += math.Pow(drift*energy, 2)
	}
	for _, x := range []float64{less, more} {
		if d := x - energy; !math.IsNaN(d) {
			v += d * d / 2
		}
	}
	return math.Sqrt(v)
}

// gaps returns the standard uncertainty in joules of the samples lost within the work:
// a line bridges each gap, off by the standard deviation of the power.
func (r *run) gaps() float64 {
	// Within a gap the power may be anything that it was elsewhere in the work.
	h := (r.to - r.from) / float64(len(r.power))
	watts := lists.Map(r.power, func(e float64) float64 { return e / h })
	spread := stats.Deviations(watts, constant(float64(r.rep.Mean), len(watts)), nil).RMSE
	var v float64
	for _, g := range r.s.Gaps {
		from, to := max(float64(g.From), r.from), min(float64(g.To), r.to)
		if to > from {
			r.rep.Lost += seconds(to - from)
			v += math.Pow((to-from)*spread, 2)
		}
	}
	return math.Sqrt(v)
}

// constant returns n equal values.
func constant(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

func (r *run) caution(format string, a ...any) {
	r.rep.Cautions = append(r.rep.Cautions, fmt.Sprintf(format, a...))
}

// cumulative is the energy that had passed at each of many instants, from one
// pass over samples that are joined by lines (the trapezoid rule, with the ends of
// every span interpolated). The instants are fixed beforehand, so memory does not
// grow with the samples.
type cumulative struct {
	cuts   []float64 // in order, each once
	energy []float64 // that passed since the first sample; NaN outside of the samples
	next   int       // the first cut that has not been passed

	n           uint64
	first, last Sample
	total       float64
}

// newCumulative takes the instants, which ascend.
func newCumulative(cuts []float64) *cumulative {
	return &cumulative{cuts: cuts, energy: constant(math.NaN(), len(cuts))}
}

// add takes the next sample.
func (c *cumulative) add(s Sample) error {
	at, p := float64(s.At), float64(s.Power)
	if math.IsNaN(at+p) || math.IsInf(at+p, 0) {
		return fmt.Errorf("sample %d: %v W at %v s is no finite reading: repair or cut the trace there", c.n+1, p, at)
	}
	t0, p0 := float64(c.last.At), float64(c.last.Power)
	switch {
	case c.n == 0: // cuts before the first sample have no energy and stay NaN
		c.first = s
		var is bool
		if c.next, is = slices.BinarySearch(c.cuts, at); is {
			c.energy[c.next] = 0
			c.next++
		}
	case at < t0:
		return fmt.Errorf("sample %d at %.6f s comes after one at %.6f s: sort the samples by time", c.n+1, at, t0)
	case at > t0: // the integral of a line from the last sample up to the cut
		slope := (p - p0) / (at - t0)
		for c.next < len(c.cuts) && c.cuts[c.next] <= at {
			d := c.cuts[c.next] - t0
			c.energy[c.next] = c.total + d*(p0+slope*d/2)
			c.next++
		}
		c.total += (at - t0) * (p0 + p) / 2
	}
	c.last = s
	c.n++
	return nil
}

// hold carries the first and the last sample on by at most reach, for cuts that
// lie that little beyond them.
func (c *cumulative) hold(reach float64) {
	if c.n == 0 {
		return
	}
	first, last := float64(c.first.At), float64(c.last.At)
	for i := sort.SearchFloat64s(c.cuts, first-reach); i < len(c.cuts) && c.cuts[i] < first; i++ {
		c.energy[i] = (c.cuts[i] - first) * float64(c.first.Power)
	}
	for i := sort.SearchFloat64s(c.cuts, last); i < len(c.cuts) && c.cuts[i] <= last+reach; i++ {
		if c.cuts[i] > last {
			c.energy[i] = c.total + (c.cuts[i]-last)*float64(c.last.Power)
		}
	}
}

// at returns the energy at an instant that is one of the cuts.
func (c *cumulative) at(t float64) float64 {
	if i, is := slices.BinarySearch(c.cuts, t); is {
		return c.energy[i]
	}
	return math.NaN()
}

// between returns the energy of a span whose ends are cuts.
func (c *cumulative) between(from, to float64) float64 { return c.at(to) - c.at(from) }

// cells returns the energies between neighbouring cuts from one to another.
func (c *cumulative) cells(edges []float64) []float64 {
	out := make([]float64, len(edges)-1)
	last := c.at(edges[0])
	for i := range out {
		next := c.at(edges[i+1])
		out[i], last = next-last, next
	}
	return out
}

// ofReadings runs a method's readings through the same cuts; a single reading
// stands for all time.
func ofReadings(cuts []float64, r []Reading, reach float64) *cumulative {
	c := newCumulative(cuts)
	for _, x := range r {
		_ = c.add(Sample(x)) // checked before
	}
	if len(r) == 1 {
		reach = math.Inf(1)
	}
	c.hold(reach)
	return c
}

func seconds(v float64) measure.Seconds { return measure.Seconds(v) }

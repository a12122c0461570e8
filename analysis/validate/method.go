package validate

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
)

// stand is a reading with the time that it stands for, from half way to the one
// before it to half way to the one behind it, within the work.
type stand struct {
	from, to float64
	power    float64
}

// stands places readings. A single one stands for all of the work. The first and
// the last reach to the work's ends where they lie near.
func (r *run) stands(list []Reading) (out []stand) {
	if len(list) == 1 {
		return []stand{{r.from, r.to, float64(list[0].Power)}}
	}
	for i, x := range list {
		at := float64(x.At)
		from, to := at-reach, at+reach
		if i > 0 {
			from = at - (at-float64(list[i-1].At))/2
		}
		if i+1 < len(list) {
			to = at + (float64(list[i+1].At)-at)/2
		}
		from, to = max(from, r.from), min(to, r.to)
		if to > from {
			out = append(out, stand{from, to, float64(x.Power)})
		}
	}
	return out
}

// judge holds one method against the truth.
func (r *run) judge(m *Method) MethodReport {
	none := measure.Number(math.NaN())
	never := seconds(math.NaN())
	out := MethodReport{
		Name: m.Name, Note: m.Note, Energy: m.Energy, U: m.U, Own: m.Silent || !math.IsNaN(float64(m.Energy)),
		ErrorPct: none, Interval: Interval{none, none}, Block: never, Agreement: Unknown, late: math.NaN(),
		Lag: never, LagU: never, Correlation: none, EndsPct: none, Update: update(m.Readings),
		Points: thin(m.Readings, r.columns[0], r.columns[len(r.columns)-1], 2*r.o.Columns),
	}
	said := ofReadings(r.truth.cuts, m.Readings, reach)
	if !out.Own {
		out.Energy = measure.Joule(said.between(r.from, r.to))
	}
	r.pointwise(&out, m)
	f := r.lagOf(&out, m, said)
	r.energyOf(&out, m, said, f)
	return out
}

// pointwise compares the readings with the truth's means.
func (r *run) pointwise(out *MethodReport, m *Method) {
	var said, truth, weights []float64
	for _, c := range r.stands(m.Readings) {
		said = append(said, c.power)
		truth = append(truth, r.truth.between(c.from, c.to)/(c.to-c.from))
		weights = append(weights, c.to-c.from)
	}
	// Weights are lengths of time: a reading that stood for longer counts for more.
	d := stats.Deviations(said, truth, weights)
	out.Readings = d.N
	if m.Made > 0 {
		out.Readings = int(min(m.Made, math.MaxInt32))
	}
	out.Compared, out.MAPEPct = d.N, measure.Number(d.MAPE)
	out.RMSE, out.Bias = measure.Watt(d.RMSE), measure.Watt(d.Bias)
}

// energyOf fills in the error with its interval.
func (r *run) energyOf(out *MethodReport, m *Method, said *cumulative, f *follower) {
	e, truth := float64(out.Energy), float64(r.rep.Truth.Energy)
	if math.IsNaN(e) || math.IsInf(e, 0) {
		if n := len(m.Readings); n == 0 {
			out.Note = cmp.Or(m.Note, "it has no readings")
		} else if m.Note == "" {
			out.Note = fmt.Sprintf("its readings lie from %.3f s to %.3f s and do not reach over the work, %.3f s to "+
				"%.3f s", float64(m.Readings[0].At), float64(m.Readings[n-1].At), r.from, r.to)
		}
		return
	}
	ratio := e / truth
	out.ErrorPct = measure.Number(100 * (ratio - 1))
	cells := said.cells(r.edges)
	middle := len(cells) / 2
	out.late = 100 * (floats.Sum(cells[middle:])/floats.Sum(r.power[middle:]) - 1)
	r.interval(out, m, f, cells, ratio)
	out.Agreement = r.agreement(measure.Estimate{Energy: out.Energy, U: m.U}, r.total(), float64(r.s.Work.Length()))
	if out.Agreement == Agrees && !measure.Known(out.EndsPct) { // judged by the difference, not the ratio: a hair wider
		out.Interval = Interval{min(out.Interval.Lo, 0), max(out.Interval.Hi, 0)}
	}
}

// interval sets a method's interval, and the part of its error that comes from the lag at the
// work's ends: those of the readings and the meter's power at the instants that they show
// ([run.follow]), or at the same instants where the lag is not known. The relative
// uncertainties of meter and method add in quadrature: their causes are independent.
func (r *run) interval(out *MethodReport, m *Method, f *follower, cells []float64, ratio float64) {
	u := math.Hypot(ratio*float64(r.rep.Truth.U), float64(m.U)) / float64(r.rep.Truth.Energy)
	b := stats.Interval{Lo: math.NaN()}
	whole := floats.Sum(cells)
	switch {
	case f != nil && !math.IsNaN(f.band.Lo):
		b = f.band
		// The method's own rule has the same ends as its readings.
		in := ratio * b.Point * float64(r.rep.Truth.Energy) / whole
		out.EndsPct, ratio = measure.Number(100*(ratio-in)), in
	case len(m.Readings) > 1 && !math.IsNaN(whole):
		// Blocks shorter than two updates of the sensor would hold no independent error.
		boot := r.bootstrap()
		boot.Least = leastUpdates * float64(out.Update) / (r.to - r.from) * float64(len(cells))
		b = boot.Ratio(cells, r.power)
		b.Block *= (r.to - r.from) / float64(len(cells))
	}
	if math.IsNaN(b.Lo) {
		out.Note = strings.TrimPrefix(out.Note+"; its interval holds the meter's uncertainty alone: there are no readings "+
			"all along the work to resample", "; ")
	} else {
		out.Block = seconds(b.Block)
	}
	out.Interval = errorInterval(measure.Number(100*(ratio-1)), u, b)
}

// total is the meter's energy that methods are held against.
func (r *run) total() measure.Estimate {
	if r.s.Total.Energy > 0 {
		return r.s.Total
	}
	return measure.Estimate(r.rep.Truth)
}

// agreement holds an energy over a length of the work against the meter's.
func (r *run) agreement(e, meter measure.Estimate, length float64) Agreement {
	if r.s.LooksAway {
		return Unknown
	}
	return e.Against(meter, measure.Joule(float64(r.rep.MissingPower)*length))
}

// leastUpdates is how many of the sensor's updates a block holds at least: within
// one nothing is new.
const leastUpdates = 2

// bootstrap returns the resampling by the options.
func (r *run) bootstrap() stats.Bootstrap {
	return stats.Bootstrap{Resamples: r.o.Resamples, Level: r.o.Level, Seed: r.o.Seed}
}

// errorInterval returns the interval of an error, in per cent, from the relative uncertainty of its
// ratio, and the interval of that by resampling, where it is known.
func errorInterval(errorPct measure.Number, u float64, b stats.Interval) Interval {
	below, above := u, u
	if !math.IsNaN(b.Lo) {
		below, above = math.Hypot(u, max(b.Point-b.Lo, 0)), math.Hypot(u, max(b.Hi-b.Point, 0))
	}
	return Interval{errorPct - measure.Number(100*below), errorPct + measure.Number(100*above)}
}

// Limits of the lag: the least correlation, the height of a second peak relative to the
// highest from which on the lag is ambiguous, and the longest lag searched.
const (
	leastCorrelation = 0.3
	rivalry          = 0.95
	mostLag          = 1.5 // seconds: half of the longest window of a sensor, and some more
)

// lagOf fills in by how much the readings trail the truth, and returns how they follow it, nil
// where that is not known.
func (r *run) lagOf(out *MethodReport, m *Method, said *cumulative) *follower {
	if len(m.Readings) < 4 {
		out.LagNote = "too few readings"
		return nil
	}
	// A sensor averages over its update: smooth the truth alike before correlating.
	truth, reads := r.truth.cells(r.wide), said.cells(r.wide)
	h := (r.to - r.from) / float64(len(r.edges)-1)
	truth = smooth(truth, int(math.Round(float64(out.Update)/h)))
	from, to := overlap(truth, reads, len(r.wide)/2)
	most := int(min(mostLag, float64(to-from)*h/3) / h)
	d := stats.Lag(reads[from:to], truth[from:to], most, r.bootstrap())
	out.Correlation = measure.Number(d.Correlation)
	switch {
	case !(d.Correlation >= leastCorrelation):
		out.LagNote = "the readings do not follow the power"
		return nil
	case math.IsNaN(d.U):
		out.LagNote = fmt.Sprintf("the readings follow best at the end of what was searched, ±%v: too little "+
			"changed to tell", seconds(float64(most)*h))
		return nil
	case d.Rival >= rivalry*d.Correlation:
		out.LagNote = "the load repeats itself: the lag may be longer or shorter by its period"
	}
	// One edge is seen no better than the update, rectangular; many edges at phases of chance by
	// the root of their number.
	lag, u := d.Lag*h, max(d.U*h, float64(out.Update)/math.Sqrt(12*edges(truth[from:to])))
	f := r.follow(m.Readings, lag, float64(out.Update))
	if f != nil {
		lag, u = f.lag(u)
	}
	switch {
	case math.IsNaN(u):
		out.LagNote = "it has too few readings to tell"
	case 2*u > mostLag/4:
		out.LagNote = fmt.Sprintf("too little changed to tell it within %v", seconds(mostLag/4))
	default:
		out.Lag, out.LagU = seconds(lag), seconds(2*math.Hypot(u, r.shift))
	}
	return f
}

// smooth returns the means over an odd number of cells around each, about as many as
// given, since a sensor cannot follow changes faster than its updates. Means that reach
// beyond the ends are NaN.
func smooth(x []float64, cells int) []float64 {
	// A running sum: each cell enters once and leaves once, and bad counts the unknown
	// cells in the window.
	half := cells / 2
	if half < 1 {
		return x
	}
	out := constant(math.NaN(), len(x))
	var sum float64
	bad := 0
	add := func(v float64, sign int) {
		if math.IsNaN(v) {
			bad += sign
		} else {
			sum += float64(sign) * v
		}
	}
	for i, v := range x {
		add(v, 1)
		if i > 2*half {
			add(x[i-2*half-1], -1)
		}
		if i >= 2*half && bad == 0 {
			out[i-half] = sum / float64(2*half+1)
		}
	}
	return out
}

// overlap is the stretch around the middle in which both series have values.
func overlap(a, b []float64, middle int) (from, to int) {
	from, to = middle, middle
	for from > 0 && !math.IsNaN(a[from-1]+b[from-1]) {
		from--
	}
	for to < len(a) && !math.IsNaN(a[to]+b[to]) {
		to++
	}
	return from, to
}

// edges is how many steps share a series' changes: the participation ratio.
func edges(x []float64) float64 {
	var sum, squares float64
	for i := 1; i < len(x); i++ {
		g := (x[i] - x[i-1]) * (x[i] - x[i-1])
		sum += g
		squares += g * g
	}
	if squares == 0 {
		return 1
	}
	return max(1, sum*sum/squares)
}

// fewChanges is the least number of changes that determine a sensor's update interval;
// a steady load has few.
const fewChanges = 5

// update is the median time between changes of value, NaN where there are few.
func update(r []Reading) measure.Seconds {
	var at []float64
	for i := 1; i < len(r); i++ {
		if r[i].Power != r[i-1].Power {
			at = append(at, float64(r[i].At))
		}
	}
	if len(at) <= fewChanges {
		return seconds(math.NaN())
	}
	return seconds(stats.Median(stats.Differences(at)))
}

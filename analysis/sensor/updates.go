package sensor

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/stat"
)

// Poll is one reading of the register.
type Poll struct {
	At    measure.Seconds
	Power measure.Watt
	// Stamp is the register's own time, on a clock of its own; zero where it has none.
	Stamp measure.Seconds
}

// Update is a renewal of the register.
type Update struct {
	At    measure.Seconds // best estimate
	Power measure.Watt
	// The renewal was seen between two polls; for one that left the value as it was,
	// Early and Late are At.
	Early, Late measure.Seconds
	N           int // number of the renewal; the first is 0
}

// ErrSeries is wrapped by errors about readings that carry too little information.
var ErrSeries = errors.New("these readings do not tell what the sensor does")

// fewest is the least number of changes that determine a period.
const fewest = 12

// Updates are the renewals of a register and their beat.
type Updates struct {
	List    []Update
	Period  measure.Seconds
	UPeriod measure.Seconds // expanded, 95 %
	Jitter  measure.Seconds // of a renewal about its smoothed place
	UPhase  measure.Seconds // standard uncertainty of all instants together
	Polling measure.Seconds // median distance of polls
	Notes   []string
}

// FindUpdates collapses polls to renewals and finds their beat. It tolerates missed
// renewals (those with an unchanged value), a slowly wandering beat and uneven polls.
// Polls are in order of time. Errors wrap ErrSeries.
func FindUpdates(polls []Poll) (*Updates, error) {
	for i := range polls {
		p := &polls[i]
		if math.IsNaN(float64(p.Power+measure.Watt(p.At))) || i > 0 && p.At < polls[i-1].At {
			return nil, fmt.Errorf("sensor: %w: reading %d (%v at %v) is no number or goes back in time", ErrSeries,
				i+1, p.Power, p.At)
		}
	}
	apart := stats.Differences(lists.Map(polls, func(p Poll) measure.Seconds { return p.At }))
	u := &Updates{Polling: measure.Seconds(stats.Median(apart))}
	changes := u.collapse(polls)
	if len(changes) < fewest {
		return nil, fmt.Errorf("sensor: %w: the register changed %d times in %d readings, want %d: record for "+
			"longer, with a load that changes", ErrSeries, len(changes), len(polls), fewest)
	}
	period := beatOf(changes, u.Polling)
	if period == 0 {
		return nil, fmt.Errorf("sensor: %w: its changes follow no beat slower than the polls, every %v: poll faster",
			ErrSeries, u.Polling)
	}
	number(changes, period)
	u.Period, u.UPeriod = meanPeriod(changes, period)
	u.place(changes, polls)
	return u, nil
}

// collapse keeps the polls at which the value, or the register's own time stamp,
// changed. A stamp that changes with every poll is the time of the call, and is ignored.
func (u *Updates) collapse(polls []Poll) []Update {
	moved, same := 0, 0
	for i := 1; i < len(polls); i++ {
		if polls[i].Stamp != polls[i-1].Stamp {
			moved++
		}
		if polls[i].Power == polls[i-1].Power {
			same++
		}
	}
	// Stamps of the register repeat wherever the value does; stamps of calls never.
	stamped := moved > 0 && moved <= len(polls)-1-same/2
	if moved > 0 && !stamped {
		u.Notes = append(u.Notes, "the time stamps are those of the calls, not of the register: not used")
	}
	var out []Update
	var hole []string
	for i := 1; i < len(polls); i++ {
		a, b := polls[i-1], polls[i]
		if a.Power == b.Power && !(stamped && a.Stamp != b.Stamp) {
			continue
		}
		// A gap in the polling hides any number of renewals at unknown times.
		if float64(b.At-a.At) > 8*float64(u.Polling) && len(out) > 0 {
			hole = []string{"a change within a hole in the readings was left out"}
			continue
		}
		out = append(out, Update{At: (a.At + b.At) / 2, Early: a.At, Late: b.At, Power: b.Power})
	}
	u.Notes = append(u.Notes, hole...)
	return out
}

// place puts every renewal on the beat: a change at its place on a straight line through its neighbours, within the
// two polls around it; renewals with an unchanged value between two changes at even distances. Renewals before the
// first change and after the last are unknown.
func (u *Updates) place(changes []Update, polls []Poll) {
	const side = 4
	at := make([]float64, len(changes))
	var spread float64
	for i := range changes {
		lo, hi := max(0, i-side), min(len(changes)-1, i+side)
		fit := lineAt(changes[lo:hi+1], changes[i].N, float64(u.Period))
		at[i] = min(max(fit, float64(changes[i].Early)), float64(changes[i].Late))
		d := float64(changes[i].At) - fit
		w := float64(changes[i].Late - changes[i].Early)
		spread += d*d - w*w/12 // of the polls
	}
	u.Jitter = measure.Seconds(math.Sqrt(max(spread/float64(len(changes)), 0)))
	u.UPhase = measure.Seconds(uPhase(changes, at))
	for i, c := range changes {
		if i > 0 {
			u.between(changes[i-1], at[i-1], c, at[i], polls)
		}
		c.At = measure.Seconds(at[i])
		u.List = append(u.List, c)
	}
	for i := range u.List {
		u.List[i].N -= changes[0].N
	}
}

// uPhase returns how far all of the changes' instants may be off together, in seconds, k = 1: polls in step with the
// renewals see each late by the same part of the polls' distance, which no mean takes out. A line of constant period
// passes between the two polls around each change, but for jitter. Its mean shift against the instants counts by the
// likelihood of the best slope and jitter with it: evenly where every change allows it; phases that travel allow few.
func uPhase(changes []Update, at []float64) float64 {
	const steps, stray = 10, 1e-3 // to either side; density of changes that lie on no line
	n := lists.Map(changes, func(c Update) float64 { return float64(c.N) })
	a, b := stat.LinearRegression(n, at, nil, false)
	early, late, tilt := make([]float64, len(n)), make([]float64, len(n)), make([]float64, len(n))
	for i, c := range changes {
		line := a + b*n[i]
		early[i], late[i], tilt[i] = float64(c.Early)-line, float64(c.Late)-line, 2*(n[i]-n[0])/(n[len(n)-1]-n[0])-1
	}
	width := stats.Median(lists.Map(changes, func(c Update) float64 { return float64(c.Late - c.Early) }))
	fit := make([]float64, 2*steps+1)
	for i := range fit {
		shift := width / 2 * float64(i-steps) / steps
		fit[i] = math.Inf(-1)
		for j := -steps; j <= steps; j++ {
			slope := width * float64(j) / steps
			for jitter := width / 40; jitter < 2*width; jitter *= 3 {
				sum := 0.0
				for k, x := range tilt {
					x = shift + slope*x
					sum += math.Log(stray + math.Erf((late[k]-x)/jitter) - math.Erf((early[k]-x)/jitter))
				}
				fit[i] = max(fit[i], sum)
			}
		}
	}
	var sum, square float64
	best := slices.Max(fit)
	for i, f := range fit {
		w, shift := math.Exp(f-best), width/2*float64(i-steps)/steps
		sum, square = sum+w, square+w*shift*shift
	}
	return math.Sqrt(square / sum)
}

// between adds the renewals between two changes that a poll confirms: within a gap in
// the readings the value is unknown.
func (u *Updates) between(a Update, atA float64, b Update, atB float64, polls []Poll) {
	if b.N <= a.N+1 {
		return
	}
	step := (atB - atA) / float64(b.N-a.N)
	i := sort.Search(len(polls), func(i int) bool { return float64(polls[i].At) >= atA })
	for k := a.N + 1; k < b.N; k++ {
		t := atA + step*float64(k-a.N)
		for i < len(polls) && float64(polls[i].At) < t+0.3*step {
			i++
		}
		if i == len(polls) || float64(polls[i].At) > t+step {
			continue
		}
		s := measure.Seconds(t)
		u.List = append(u.List, Update{At: s, Early: s, Late: s, Power: polls[i].Power, N: k})
	}
}

// lineAt returns the instant of renewal n on a line through renewals. Its slope stays
// within 10 % of the period, so that a handful of changes cannot tilt it.
func lineAt(c []Update, n int, period float64) float64 {
	var sx, sy, sxx, sxy, m float64
	for _, u := range c {
		x, y := float64(u.N-n), float64(u.At)-period*float64(u.N-n)
		sx, sy, sxx, sxy, m = sx+x, sy+y, sxx+x*x, sxy+x*y, m+1
	}
	slope := (m*sxy - sx*sy) / (m*sxx - sx*sx)
	if !(math.Abs(slope) <= 0.1*period) { // it is NaN where all are of one number
		return sy / m
	}
	return (sy - slope*sx) / m
}

// stretch is the number of changes that are evaluated together: the beat of a sensor
// wanders, but hardly over so few.
const stretch = 16

// beatOf returns the longest period in seconds at which the changes share one phase, zero where there is none above
// the polls' distance. The measure is Rayleigh's: the length of the mean of exp(2πi·t/T), averaged over short
// stretches, so that a wandering beat keeps its peak. Fractions of the period score as well, multiples do not; hence
// the longest.
func beatOf(changes []Update, polling measure.Seconds) float64 {
	at := lists.Map(changes, func(c Update) float64 { return float64(c.At) })
	gaps := stats.Differences(at)
	slices.Sort(gaps)
	// At least one gap in three is a single period; an update in two steps makes short
	// gaps.
	longest := 1.3 * gaps[len(gaps)*9/10]
	shortest := max(1.15*float64(polling), gaps[len(gaps)/10]/4)
	if shortest >= longest {
		return 0
	}
	span := at[min(stretch, len(at)-1)] - at[0]
	// Fine enough that a stretch stays in phase within a sixth of a turn.
	step := 1 / (6 * max(span, longest))
	type candidate struct{ t, r float64 }
	var all []candidate
	best := 0.0
	for f := 1 / longest; f <= 1/shortest; f += step {
		r := gathering(at, f)
		all = append(all, candidate{1 / f, r})
		best = max(best, r)
	}
	if best < 2.2/math.Sqrt(stretch)*0.7 {
		return 0
	}
	for i, c := range all {
		// The first peak, from the longest period on, of 85 % of the highest.
		if c.r < 0.85*best || i+1 < len(all) && c.r < all[i+1].r {
			continue
		}
		f := 1 / c.t // climb to its top
		for d := step / 2; d > step/64; d /= 2 {
			for _, g := range []float64{f - d, f + d} {
				if gathering(at, g) > gathering(at, f) {
					f = g
				}
			}
		}
		return 1 / f
	}
	return 0
}

// gathering returns Rayleigh's measure of instants, 0 to 1, at a frequency, averaged over stretches.
func gathering(at []float64, f float64) float64 {
	var sum, n float64
	for i := 0; i < len(at); i += stretch / 2 {
		j := min(i+stretch, len(at))
		if j-i < stretch/2 && i > 0 {
			break
		}
		sum += gather(at[i:j], 1/f)
		n++
	}
	return sum / n
}

// number counts the renewals from change to change by following the beat: each change
// corrects the phase by a share of its deviation.
func number(changes []Update, period float64) {
	width := lists.Map(changes, func(c Update) float64 { return float64(c.Late - c.Early) })
	gain := 0.3
	if stats.Median(width) > 0.3*period {
		gain = 0.1
	}
	at := float64(changes[0].At)
	for i := 1; i < len(changes); i++ {
		t := float64(changes[i].At)
		n := int(math.Round((t - at) / period))
		if n < 1 {
			n = 0 // twice within a period: the polls, or a sensor that corrects itself
		}
		at += float64(n) * period
		at += gain * (t - at)
		changes[i].N = changes[i-1].N + n
	}
}

// meanPeriod returns the median of the periods of stretches, with an expanded
// uncertainty (95 %) from their scatter and from the polling at both ends of the series.
func meanPeriod(changes []Update, period float64) (measure.Seconds, measure.Seconds) {
	blocks := min(12, len(changes)/6)
	var p []float64
	for b := range blocks {
		i, j := b*(len(changes)-1)/blocks, (b+1)*(len(changes)-1)/blocks
		if n := changes[j].N - changes[i].N; n > 0 {
			p = append(p, float64(changes[j].At-changes[i].At)/float64(n))
		}
	}
	first, last := changes[0], changes[len(changes)-1]
	n := float64(last.N - first.N)
	whole := float64(last.At-first.At) / n
	if len(p) < 2 {
		return measure.Seconds(whole), measure.Seconds(period)
	}
	mid := stats.Median(p)
	if math.Abs(whole-mid) < 0.02*mid {
		mid = whole // no renewal was missed: the ends are most precise
	}
	var s, polls float64
	for _, v := range p {
		s += (v - mid) * (v - mid)
	}
	for _, c := range changes {
		polls += math.Pow(float64(c.Late-c.Early), 2) / 12 / float64(len(changes))
	}
	// Errors by polling cancel between neighbouring stretches: they are no wander of the
	// beat.
	each := n / float64(blocks)
	wander := max(s/float64(len(p)-1)-2*polls/(each*each), 0)
	t := stats.Student(0.975, float64(len(p)-1))
	u := math.Hypot(t*math.Sqrt(wander/float64(len(p))), 1.96*math.Sqrt(2*polls)/n)
	return measure.Seconds(mid), measure.Seconds(u)
}

// Quantum returns the register's resolution: the largest step of which nearly all differences of values are
// multiples; zero below eight different values. Steps that are rounded in print are found as well: the measure is
// Rayleigh's again, over values instead of times.
func Quantum(polls []Poll) measure.Watt {
	v := lists.Map(polls, func(p Poll) float64 { return float64(p.Power) })
	slices.Sort(v)
	v = slices.Compact(v)
	if len(v) < 8 {
		return 0
	}
	least := commonStep(v)
	if len(v) < 20 {
		return measure.Watt(least)
	}
	every := func(step int) (out []float64) {
		for i := 0; i < len(v); i += step {
			out = append(out, v[i])
		}
		return out
	}
	if len(v) > 120 { // 120 values from the whole range suffice
		v = every(len(v)/120 + 1)
	}
	span, few := v[len(v)-1]-v[0], every(len(v)/16+1) // a few values refuse most steps
	// From coarse to fine, in steps that keep the phase over the span within a sixth of a
	// turn.
	for q := span / 10; q > max(2.5*least, 0.01); q /= 1 + q/(6*span) {
		if near(few, q) && gather(v, q) > 0.9 {
			for d := q * q / (6 * span); d > 1e-9; d /= 2 {
				for _, c := range []float64{q - d, q + d} {
					if gather(v, c) > gather(v, q) {
						q = c
					}
				}
			}
			digits := math.Pow(10, 3-math.Floor(math.Log10(q))) // four significant ones
			return measure.Watt(math.Round(q*digits) / digits)
		}
	}
	return measure.Watt(least)
}

// near reports whether all values lie within a third of a step of a multiple of it,
// counted from the first: a quick test.
func near(v []float64, q float64) bool {
	for _, x := range v {
		n := (x - v[0]) / q
		if math.Abs(n-math.Round(n)) > 0.33 {
			return false
		}
	}
	return true
}

// gather returns Rayleigh's measure of values at a step, 0 to 1.
func gather(v []float64, q float64) float64 {
	var re, im float64
	for _, x := range v {
		s, c := math.Sincos(2 * math.Pi * (x - v[0]) / q)
		re, im = re+c, im+s
	}
	return math.Hypot(re, im) / float64(len(v))
}

// commonStep returns the greatest common divisor of the gaps between values in watts, of
// whole milliwatts.
func commonStep(v []float64) float64 {
	var g int64
	for i := 1; i < len(v); i++ {
		a := int64(math.Round((v[i] - v[i-1]) * 1e3))
		for g, a = max(g, a), min(g, a); a > 0; g, a = a, g%a {
		}
	}
	return float64(g) / 1e3
}

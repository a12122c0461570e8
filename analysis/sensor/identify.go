package sensor

import (
	"fmt"
	"math"

	"wattmark/measure"
)

// Options tune Identify. Zero values are good ones.
type Options struct {
	// From and To bound the polls that are used; all when both are zero.
	From, To measure.Seconds
	// UClock is the standard uncertainty of how the clocks of polls and load relate;
	// 2 ms when zero. A value cannot come before what it tells of: the delay is
	// negative by no more than some UClock.
	UClock measure.Seconds
}

// Identified is a profile with what it was read from, for a picture.
type Identified struct {
	Profile Profile
	Updates []Update // those that were fitted
	// Boxcar and FirstOrder are what the models say at each of them.
	Boxcar, FirstOrder []measure.Watt
	Notes              []string
}

// Identify finds out what a sensor did to a load that is known. The polls and the
// load are on one clock. Errors wrap ErrSeries or ErrLoad.
func Identify(field string, polls []Poll, k *Known, o Options) (*Identified, error) {
	if o.From != 0 || o.To != 0 {
		polls = within(polls, o.From, o.To)
	}
	u, err := FindUpdates(polls)
	if err != nil {
		return nil, err
	}
	out := &Identified{Notes: u.Notes}
	out.Updates = covered(u, k)
	at, y := make([]float64, len(out.Updates)), make([]float64, len(out.Updates))
	for i, x := range out.Updates {
		at[i], y[i] = float64(x.At), float64(x.Power)
	}
	if len(at) < fewest {
		return nil, fmt.Errorf("sensor: %w: %d renewals lie within the known load, want %d: do the clocks fit?", ErrSeries, len(at), fewest)
	}
	b := boundsFor(float64(u.Period), at[len(at)-1]-at[0], float64(o.UClock))
	l := newLinear(k, at, y)
	l.uClock = b.u
	quantum := Quantum(polls)
	left := l.believe(b, out.Updates, u, quantum)
	box, err := fitModel(l, l.starts[0], b)
	if err != nil {
		return nil, err
	}
	lag, err := fitModel(l, l.starts[1], b)
	if err != nil {
		return nil, err
	}
	criteria(box, lag, k.k+2)
	out.Boxcar, out.FirstOrder = watts(box.predicted), watts(lag.predicted)
	out.Profile = profileOf(field, u, quantum, box, lag, k)
	out.judge(b, box, lag, k, left)
	return out, nil
}

func watts(v []float64) []measure.Watt {
	out := make([]measure.Watt, len(v))
	for i := range v {
		out[i] = measure.Watt(v[i])
	}
	return out
}

func within(polls []Poll, from, to measure.Seconds) (out []Poll) {
	for _, p := range polls {
		if p.At >= from && (p.At <= to || to == 0) {
			out = append(out, p)
		}
	}
	return out
}

// covered are the renewals for which the load is known: of a meter's trace those
// within it, and a window later, which is not known yet: ten periods, if so much
// is there.
func covered(u *Updates, k *Known) (out []Update) {
	from, to := k.at[0], k.at[len(k.at)-1]
	if !k.metered() {
		return u.List
	}
	if skip := 10 * float64(u.Period); to-from > 5*skip {
		from += skip
	}
	for _, x := range u.List {
		if float64(x.At) >= from && float64(x.At) <= to {
			out = append(out, x)
		}
	}
	return out
}

// profileOf writes a profile from the fits.
func profileOf(field string, u *Updates, quantum measure.Watt, box, lag *fitted, k *Known) Profile {
	best, other := box, lag
	if lag.fit.AIC < box.fit.AIC {
		best, other = lag, box
	}
	f := &best.fit
	p := Profile{
		Field: field, Model: f.Model, Period: u.Period, UPeriod: u.UPeriod, Jitter: u.Jitter,
		Delay: f.Delay, UDelay: half(f.DelayLow, f.DelayHigh, f.Delay),
		Calibrated: k.metered(), Gain: f.Gain, UGain: f.UGain, Offset: f.Offset, UOffset: f.UOffset,
		Quantum: quantum, Residual: f.Residual, Noise: noiseOf(best.residuals),
		Evidence: &Evidence{
			Updates: len(best.residuals), Effective: int(best.effective), Boxcar: &box.fit, FirstOrder: &lag.fit,
			Preferred: f.Model, DeltaAIC: other.fit.AIC - f.AIC, Vuong: vuong(best.scaled, other.scaled),
		},
	}
	u95 := half(f.ConstantLow, f.ConstantHigh, f.Constant)
	sees := f.Constant
	if f.Model == Boxcar {
		p.Window, p.UWindow = f.Constant, u95
	} else {
		p.Tau, p.UTau = f.Constant, u95
		sees, u95 = 2*sees, 2*u95
	}
	p.Lag = f.Delay + f.Constant*measure.Seconds(share(f.Model)) + p.Period/2
	p.ULag = measure.Seconds(math.Hypot(float64(best.uLag), float64(p.UPeriod)/2))
	p.Seen = min(1, float64(sees/u.Period))
	if p.USeen = float64(u95 / u.Period); sees > u.Period {
		p.USeen = max(0, 1-float64((sees-u95)/u.Period))
	}
	// About equal: the difference of the two, renewal by renewal, is not clearly
	// other than zero (Vuong 1989), or so small that no criterion would bet on it.
	p.Undecided = p.Evidence.Vuong < 1.96 || p.Evidence.DeltaAIC < 4
	if p.Undecided { // what is seen must not hang on a choice that was not made
		for _, f := range []*Fit{&box.fit, &lag.fit} {
			for _, c := range []measure.Seconds{f.ConstantLow, f.ConstantHigh} {
				share := min(1, 2*share(f.Model)*float64(c/p.Period))
				p.USeen = max(p.USeen, math.Abs(share-p.Seen))
			}
		}
	}
	return p
}

// half is the larger half of an interval that is not quite even.
func half(lo, hi, at measure.Seconds) measure.Seconds { return max(hi-at, at-lo) }

// noiseOf is the standard deviation of the residuals' middle: what is left where
// the load rests, since edges are few.
func noiseOf(r []float64) measure.Watt {
	a := make([]float64, len(r))
	for i, v := range r {
		a[i] = math.Abs(v)
	}
	return 1.4826 * measure.Watt(median(a))
}

// sameKind is how much the power of one kind of work varies at least, of the
// readings' range: temperatures and clocks do not stand still.
const sameKind = 0.005

// spanOf is the range of the readings, without the tails.
func (l *linear) spanOf() float64 { return 100 * (l.huberOf - 1e-3) }

// believe searches with both models, each residual counting by no more than its
// size, and weighs the renewals by what they then are. It returns how many were left
// out.
func (l *linear) believe(b bounds, list []Update, u *Updates, quantum measure.Watt) int {
	when := instants(list, float64(u.Jitter), float64(u.Polling))
	n := len(l.y)
	r, slope := make([]float64, n), make([]float64, n)
	for i, m := range []Model{Boxcar, FirstOrder} {
		l.starts[i], _ = l.search(m, b)
		for j, v := range l.r {
			if i == 0 || math.Abs(v) < math.Abs(r[j]) {
				r[j] = v
			}
		}
		for j, v := range l.slopes(l.starts[i], when) {
			slope[j] = max(slope[j], v)
		}
	}
	var left int
	least := max(float64(quantum)/math.Sqrt(12), 1e-3)
	if !l.k.metered() {
		least = max(least, sameKind*l.spanOf())
	}
	l.w, _, left = weigh(r, slope, when, least)
	l.huber = 0
	return left
}

// criteria writes Akaike's criterion (1974) of two models, on the number of
// renewals that are independent and that tell them apart.
func criteria(box, lag *fitted, unknowns int) {
	n := float64(len(box.scaled))
	eff := min(box.effective, lag.effective)
	for _, f := range []*fitted{box, lag} {
		f.effective = eff
		f.fit.AIC = eff*math.Log(max(f.rss, 1e-12)/n) + 2*float64(unknowns)
	}
}

// Package sensor identifies the dynamics of a GPU's built-in power sensor from its
// readings and a load that is known from elsewhere. Its nouns:
//
//   - Poll: one reading of the register. Updates: the renewals of the register, their
//     period and jitter, derived from polls.
//   - Load: a power over time. Known: a load up to unknown weights, from a meter's trace
//     or from kernels of unknown power.
//   - Profile: the result: period, window or time constant, delay, static gain and
//     offset, resolution, each with its expanded uncertainty (95 %).
//   - Plan: how to measure with the sensor alone, given its profile. Estimate: the energy
//     of one repetition from trials by that plan.
//
// The method is that of "Part-time Power Measurements: nvidia-smi's Lack of Attention" (arXiv 2312.02741): readings
// are collapsed to the changes of the register, and a boxcar of a window and a delay over the load is fitted to them.
// It competes with the first-order lag of Burtscher, Zecena and Zong ("Measuring GPU Power with the K20 Built-in
// Sensor"); Akaike's criterion and Vuong's test decide.
//
// The package is pure: it reads no file and no device. Times are seconds of one clock.
package sensor

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Kind is the kind of analysis that profiles are stored as.
const Kind = "sensor-profile"

// Model names how a sensor follows the power.
type Model string

// The models. A value that is published at t is, of the power p,
//
//	boxcar:      gain · mean of p over [t − delay − window, t − delay] + offset
//	first-order: gain · y(t − delay) + offset, where τ·dy/dt = p − y
const (
	Boxcar     Model = "boxcar"
	FirstOrder Model = "first-order"
)

// Profile describes one field of one GPU's sensor. Every U is an expanded uncertainty at
// 95 %; zero where the value was not measured.
type Profile struct {
	Field  string `json:"field"` // instant, average, usage, or a column's name
	GPU    string `json:"gpu,omitempty"`
	UUID   string `json:"gpu_uuid,omitempty"`
	Driver string `json:"driver,omitempty"`

	// Model is the better fit of the two, used to predict.
	Model Model `json:"model"`
	// Undecided: the other fitted about equally well. Both are in Evidence.
	Undecided bool `json:"undecided"`
	// Weak: the load hardly constrains the window or τ.
	Weak bool `json:"weak"`

	// Period is the time from one renewal of the register to the next, Jitter the
	// standard deviation of a renewal about its place.
	Period  measure.Seconds `json:"period_s"`
	UPeriod measure.Seconds `json:"period_u_s"`
	Jitter  measure.Seconds `json:"jitter_s"`

	Window  measure.Seconds `json:"window_s"` // of a boxcar; zero for a lag
	UWindow measure.Seconds `json:"window_u_s"`
	Tau     measure.Seconds `json:"tau_s"` // of a lag; zero for a boxcar
	UTau    measure.Seconds `json:"tau_u_s"`
	Delay   measure.Seconds `json:"delay_s"`
	UDelay  measure.Seconds `json:"delay_u_s"`
	// DelayLow to DelayHigh is how far the delay went over the run, seen block by block; both are zero
	// where it stayed. UDelay and ULag are those of the delay at any one time.
	DelayLow  measure.Seconds `json:"delay_low_s,omitzero"`
	DelayHigh measure.Seconds `json:"delay_high_s,omitzero"`

	// Lag is the mean delay of readings, polled at any time, behind the power: delay,
	// half of a window or all of τ, and half a period for which the register holds its
	// value. It is the constant of Burtscher's correction.
	Lag  measure.Seconds `json:"lag_s"`
	ULag measure.Seconds `json:"lag_u_s"`

	// Gain and Offset are the static line from true watts to the reading. Against
	// kernel events alone, whose power was not measured, they are 1 and 0, and Calibrated
	// is false.
	Calibrated bool         `json:"calibrated"`
	Gain       float64      `json:"gain"`
	UGain      float64      `json:"gain_u"`
	Offset     measure.Watt `json:"offset_w"`
	UOffset    measure.Watt `json:"offset_u_w"`

	Quantum  measure.Watt `json:"quantum_w"`    // the register's resolution
	Residual measure.Watt `json:"residual_w"`   // rms of the fit
	Noise    measure.Watt `json:"noise_w"`      // of one value while the load rests
	Seen     float64      `json:"share_seen"`   // of the time, from 0 to 1
	USeen    float64      `json:"share_seen_u"` // expanded

	Evidence *Evidence `json:"evidence,omitempty"`
}

// Evidence holds both fits and the criteria that chose between them.
type Evidence struct {
	Updates    int   `json:"updates"`           // renewals that were fitted
	Effective  int   `json:"updates_effective"` // independent ones of the same information
	Boxcar     *Fit  `json:"boxcar,omitempty"`
	FirstOrder *Fit  `json:"first_order,omitempty"`
	Preferred  Model `json:"preferred"`
	// DeltaAIC is the other model's criterion less that of the preferred one, on the
	// effective number of renewals (Akaike 1974).
	DeltaAIC float64 `json:"delta_aic"`
	// Vuong is the advantage of the preferred model in standard deviations.
	Vuong float64 `json:"vuong_z"`
}

// Fit is one model fitted. Constant is the boxcar's window or the lag's τ; every
// interval is at 95 %.
type Fit struct {
	Model        Model           `json:"model"`
	Constant     measure.Seconds `json:"constant_s"`
	ConstantLow  measure.Seconds `json:"constant_low_s"`
	ConstantHigh measure.Seconds `json:"constant_high_s"`
	Delay        measure.Seconds `json:"delay_s"`
	DelayLow     measure.Seconds `json:"delay_low_s,omitzero"`
	DelayHigh    measure.Seconds `json:"delay_high_s,omitzero"`
	Gain         float64         `json:"gain"`
	UGain        float64         `json:"gain_u"`
	Offset       measure.Watt    `json:"offset_w"`
	UOffset      measure.Watt    `json:"offset_u_w"`
	Levels       []Level         `json:"levels,omitempty"`
	Residual     measure.Watt    `json:"residual_w"`
	Correlation  float64         `json:"residual_correlation"` // of one residual with the next
	AIC          float64         `json:"aic"`
}

// Level is the fitted power of one kind of load.
type Level struct {
	Name  string       `json:"name"`
	Power measure.Watt `json:"power_w"`
	U     measure.Watt `json:"power_u_w"`
}

// ErrProfile is wrapped by errors about unusable profiles.
var ErrProfile = errors.New("no usable sensor profile")

// Validate reports the first fault of a profile. Errors wrap ErrProfile.
func (p *Profile) Validate() error {
	switch {
	case p.Model != Boxcar && p.Model != FirstOrder:
		return fmt.Errorf("sensor: %w: model %q: want %s or %s", ErrProfile, p.Model, Boxcar, FirstOrder)
	case !(p.Period > 0) || !measure.Known(p.Period):
		return fmt.Errorf("sensor: %w: period %v: want a positive time", ErrProfile, p.Period)
	case !(p.Window >= 0) || !(p.Tau >= 0) || !measure.Known(p.Window+p.Tau) || !measure.Known(p.Delay):
		return fmt.Errorf("sensor: %w: window %v, tau %v, delay %v: want times that are not negative", ErrProfile,
			p.Window, p.Tau, p.Delay)
	case p.Gain == 0 || !measure.Known(p.Gain) || !measure.Known(p.Offset):
		return fmt.Errorf("sensor: %w: gain %g, offset %v: want a gain other than zero", ErrProfile, p.Gain, p.Offset)
	}
	return nil
}

// PredictAt returns the register's values when renewed at each of the instants, which
// ascend, without noise and jitter. Before its beginning and after its end the load keeps
// its first and its last power.
func (p *Profile) PredictAt(l *Load, at []measure.Seconds) []measure.Watt {
	out := p.response().at(l, at)
	for i, w := range out {
		out[i] = measure.Watt(p.Gain)*w + p.Offset
		if p.Quantum > 0 {
			out[i] = p.Quantum * measure.Watt(math.Round(float64(out[i]/p.Quantum)))
		}
	}
	return out
}

// response returns the profile's dynamics, without the static line.
func (p *Profile) response() response {
	if p.Model == FirstOrder {
		return response{FirstOrder, p.Tau, p.Delay}
	}
	return response{Boxcar, p.Window, p.Delay}
}

// Options of Identify. The zero value is ready.
type Options struct {
	// From and To bound the polls that are used; all when both are zero.
	From, To measure.Seconds
	// UClock is the standard uncertainty of the relation of the clocks of polls and load;
	// 2 ms when zero. A value cannot precede its cause: the delay is never below −4 times
	// UClock.
	UClock measure.Seconds
}

// Identified is a profile with the renewals that it was fitted to.
type Identified struct {
	Profile Profile
	Updates []Update // those that were fitted
	// Boxcar and FirstOrder are the models' predictions of each of them.
	Boxcar, FirstOrder []measure.Watt
	Notes              []string
}

// Identify fits a sensor's profile to polls of a field under a known load, both on one
// clock: it finds the renewals, fits both models and chooses. Errors wrap ErrSeries.
func Identify(field string, polls []Poll, k *Known, o Options) (*Identified, error) {
	if o.From != 0 || o.To != 0 {
		polls = slices.DeleteFunc(slices.Clone(polls),
			func(p Poll) bool { return !(p.At >= o.From) || o.To != 0 && p.At > o.To })
	}
	u, err := FindUpdates(polls)
	if err != nil {
		return nil, err
	}
	out := &Identified{Notes: u.Notes, Updates: covered(u, k)}
	at := lists.Map(out.Updates, func(x Update) float64 { return float64(x.At) })
	y := lists.Map(out.Updates, func(x Update) float64 { return float64(x.Power) })
	if len(at) < fewest {
		return nil, fmt.Errorf("sensor: %w: %d renewals lie within the known load, want %d: do the clocks fit?",
			ErrSeries, len(at), fewest)
	}
	// Search robustly, weigh the renewals by the residuals, then fit both models with the
	// same weights.
	b := boundsFor(float64(u.Period), at[len(at)-1]-at[0], float64(o.UClock))
	l := newLinear(k, at, y)
	l.uClock = b.u
	quantum := Quantum(polls)
	l.believe(b, out.Updates, u, quantum)
	found := l.starts[0]
	if l.solve(l.starts[1]) < l.solve(found) {
		found = l.starts[1]
	}
	way := l.wanders(found)
	if way.take(at); way.sd > 0 { // again, of a sensor whose delay stays
		l.forget()
		l.believe(b, out.Updates, u, quantum)
	}
	if l.uDelay = math.Hypot(way.u, float64(u.UPhase)); !k.metered() {
		l.uDelay = math.Hypot(l.uDelay, float64(measure.UPowerResponse))
	}
	box, err := fitModel(l, l.starts[0], b)
	lag, fault := fitModel(l, l.starts[1], b)
	if err = cmp.Or(err, fault); err != nil {
		return nil, err
	}
	criteria(box, lag, k.k+2)
	out.Boxcar, out.FirstOrder = watts(box.predicted), watts(lag.predicted)
	out.Profile = profileOf(field, u, quantum, box, lag, k)
	out.Profile.wanders(way)
	out.judge(b, box, lag, k, l.left)
	if u.UPhase > u.Polling/6 {
		out.Notes = append(out.Notes, fmt.Sprintf("where the renewals lie between polls, every %v, is known within ±%v, "+
			"which U of delay and lag includes: poll more often, or for longer", u.Polling, 2*u.UPhase))
	}
	return out, nil
}

// watts converts floats to powers.
func watts(v []float64) []measure.Watt {
	return lists.Map(v, func(x float64) measure.Watt { return measure.Watt(x) })
}

// covered returns the renewals for which the load is known: of a meter's trace those
// within it, from a window later on. The window being unknown yet, ten periods are
// skipped, where the trace is five times as long.
func covered(u *Updates, k *Known) []Update {
	from, to := k.at[0], k.at[len(k.at)-1]
	if !k.metered() {
		return u.List
	}
	if skip := 10 * float64(u.Period); to-from > 5*skip {
		from += skip
	}
	return lists.Filter(u.List, func(x *Update) bool { return float64(x.At) >= from && float64(x.At) <= to })
}

// profileOf states a profile from the two fits.
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
		Quantum: quantum, Residual: f.Residual, Noise: measure.Watt(stats.SD(best.residuals)),
		Evidence: &Evidence{
			Updates: len(best.residuals), Effective: int(best.effective), Boxcar: &box.fit, FirstOrder: &lag.fit,
			Preferred: f.Model, DeltaAIC: other.fit.AIC - f.AIC, Vuong: vuong(best.scaled, other.scaled),
		},
	}
	// The time that a value sees: a window, or effectively twice a time constant.
	seen := func(f *Fit, constant measure.Seconds) measure.Seconds {
		return measure.Seconds(2*share(f.Model)) * constant
	}
	sees := seen(f, f.Constant)
	u95 := half(seen(f, f.ConstantLow), seen(f, f.ConstantHigh), sees)
	p.Lag = f.Delay + f.Constant*measure.Seconds(share(f.Model)) + p.Period/2
	p.ULag = measure.Seconds(math.Hypot(float64(best.uLag), float64(p.UPeriod)/2))
	// About equal: the difference of the two, renewal by renewal, is not clearly
	// other than zero (Vuong 1989), or so small that no criterion would bet on it.
	p.Undecided = p.Evidence.Vuong < 1.96 || p.Evidence.DeltaAIC < 4
	if p.Undecided { // the time seen and the lag must cover both models
		for _, f := range []*Fit{&box.fit, &lag.fit} {
			of := f.Delay + f.Constant*measure.Seconds(share(f.Model)) + p.Period/2
			p.ULag = max(p.ULag, measure.Seconds(math.Abs(float64(of-p.Lag))))
			u95 = max(u95, half(seen(f, f.ConstantLow), seen(f, f.ConstantHigh), sees))
		}
	}
	if f.Model == Boxcar {
		p.Window, p.UWindow = f.Constant, u95
	} else {
		p.Tau, p.UTau = f.Constant, u95/2
	}
	p.Seen = min(1, float64(sees/u.Period))
	if p.USeen = min(1, float64(u95/u.Period)); sees > u.Period {
		p.USeen = min(1, max(0, 1-float64((sees-u95)/u.Period)))
	}
	return p
}

// wanders adds to a profile how its delay went over the run: twice the standard deviation to the expanded
// uncertainties of delay and lag.
func (p *Profile) wanders(w wander) {
	if w.sd == 0 {
		return
	}
	p.DelayLow = p.Delay + measure.Seconds(floats.Min(w.delay))
	p.DelayHigh = p.Delay + measure.Seconds(floats.Max(w.delay))
	p.UDelay = measure.Seconds(math.Hypot(float64(p.UDelay), 2*w.sd))
	p.ULag = measure.Seconds(math.Hypot(float64(p.ULag), 2*w.sd))
}

// half returns the larger half of an uneven interval.
func half(lo, hi, at measure.Seconds) measure.Seconds { return max(hi-at, at-lo) }

// sameKind is the least variation of the power of one kind of work, relative to the
// readings' range: temperatures and clocks drift.
const sameKind = 0.005

// believe searches with both models under Huber's loss, and weighs the renewals by the
// residuals.
func (l *linear) believe(b bounds, list []Update, u *Updates, quantum measure.Watt) {
	// The standard uncertainty of each renewal's instant in seconds: anywhere between two
	// polls (/√12), and the jitter.
	when := make([]float64, len(list))
	for i, x := range list {
		width := cmp.Or(float64(x.Late-x.Early), float64(u.Polling))
		when[i] = math.Hypot(width/math.Sqrt(12), float64(u.Jitter)) + 1e-6
	}
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
	least := max(float64(quantum)/math.Sqrt(12), 1e-3)
	if !l.k.metered() {
		// The readings' range from the 5th to the 95th percentile, as newLinear took it.
		least = max(least, sameKind*(100*(l.huberOf-1e-3)))
	}
	l.w, l.variance, l.left = weigh(r, slope, when, least)
	l.huber = 0
}

// criteria sets Akaike's criterion (1974) of two models, n·ln(RSS/n) + 2k, on the lesser
// of their effective numbers of renewals.
func criteria(box, lag *fitted, unknowns int) {
	n := float64(len(box.scaled))
	eff := min(box.effective, lag.effective)
	for _, f := range []*fitted{box, lag} {
		f.effective = eff
		f.fit.AIC = eff*math.Log(max(f.rss, 1e-12)/n) + 2*float64(unknowns)
	}
}

// vuong returns Vuong's statistic (1989) for models that do not contain each other: the
// advantage of the first in standard deviations, by the log-likelihood ratios of the
// residuals, whose variance includes their correlation (Newey and West 1987).
func vuong(better, worse []float64) float64 {
	n := float64(len(better))
	sb, sw := max(floats.Dot(better, better)/n, 1e-12), max(floats.Dot(worse, worse)/n, 1e-12)
	d := make([]float64, len(better))
	for i := range d {
		d[i] = 0.5 * (math.Log(sw/sb) + worse[i]*worse[i]/sw - better[i]*better[i]/sb)
	}
	mean := stat.Mean(d, nil)
	floats.AddConst(-mean, d)
	one := mat.NewDense(len(d), 1, slices.Repeat([]float64{1}, len(d)))
	v := neweyWest(one, d).At(0, 0)
	if v <= 0 {
		return 0
	}
	return mean * n / math.Sqrt(v)
}

// judge sets Weak, and adds notes on the limits of the result.
func (x *Identified) judge(b bounds, box, lag *fitted, k *Known, left int) {
	p := &x.Profile
	note := func(format string, args ...any) { x.Notes = append(x.Notes, fmt.Sprintf(format, args...)) }
	if p.Undecided {
		note("boxcar and first-order fit about equally well (%.3g W and %.3g W rms): both are told, %s is used",
			float64(box.fit.Residual), float64(lag.fit.Residual), p.Model)
	}
	best := box
	if p.Model == FirstOrder {
		best = lag
	}
	lo, hi := float64(best.fit.ConstantLow), float64(best.fit.ConstantHigh)
	if p.Weak = lo == 0 && hi > float64(p.Period)/4 || hi > 0.97*b.most || hi-lo > float64(best.fit.Constant); p.Weak {
		note("the load hardly tells the %s (%v to %v): alternate it in several periods, some short, and for longer",
			map[Model]string{Boxcar: "window", FirstOrder: "time constant"}[p.Model], measure.Seconds(lo),
			measure.Seconds(hi))
	}
	if d := float64(best.fit.Delay); d < b.early*0.9 || d > b.late*0.98 {
		note("the delay lies at the bound of what was searched (%v): do the clocks fit?", best.fit.Delay)
	}
	if left > 0 {
		note("%d of %d renewals, which neither model explains, were left out: there the load was not what it was "+
			"said to be", left, len(x.Updates))
	}
	if !k.metered() {
		note("no meter: gain and offset are not known, and the levels are in the sensor's own watts")
	}
	if distuv.UnitNormal.Survival(math.Abs(best.fit.Correlation)*math.Sqrt(float64(len(best.scaled)))) < 0.005 {
		note("residuals follow each other (correlation %.2f): the uncertainties are widened for it",
			best.fit.Correlation)
	}
}

package sensor

import (
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
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

// Profile is what is known of one field of one GPU's sensor. Every U is an
// expanded uncertainty at 95 %; zero where the value is not known by measurement.
type Profile struct {
	Field  string `json:"field"` // instant, average, usage, or a column's name
	GPU    string `json:"gpu,omitempty"`
	UUID   string `json:"gpu_uuid,omitempty"`
	Driver string `json:"driver,omitempty"`

	// Model is the one to predict with: that which fitted better.
	Model Model `json:"model"`
	// Undecided: the other fitted about equally well. Both are in Evidence.
	Undecided bool `json:"undecided"`
	// Weak: the load that it was read from hardly tells the window or τ.
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

	// Lag is how far readings, polled at any time, lie behind the power in the mean:
	// delay, half of a window or all of τ, and half a period for which the register
	// keeps its value. It is what Burtscher's correction wants as its constant.
	Lag  measure.Seconds `json:"lag_s"`
	ULag measure.Seconds `json:"lag_u_s"`

	// Gain and Offset are the static line from true watts to the reading. Against
	// kernel events alone, whose power nobody measured, they are 1 and 0, and
	// Calibrated is false.
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

// Evidence is what the choice of the model rests on.
type Evidence struct {
	Updates    int   `json:"updates"`           // renewals that were fitted
	Effective  int   `json:"updates_effective"` // as many independent ones tell as much
	Boxcar     *Fit  `json:"boxcar,omitempty"`
	FirstOrder *Fit  `json:"first_order,omitempty"`
	Preferred  Model `json:"preferred"`
	// DeltaAIC is how much worse the other model's criterion is, on the effective
	// number of renewals (Akaike 1974).
	DeltaAIC float64 `json:"delta_aic"`
	// Vuong is by how many standard deviations the preferred model is the better one.
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
	DelayLow     measure.Seconds `json:"delay_low_s"`
	DelayHigh    measure.Seconds `json:"delay_high_s"`
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

// ErrProfile is wrapped by errors about profiles that cannot be used.
var ErrProfile = errors.New("no usable sensor profile")

// Validate reports what is wrong with a profile.
func (p *Profile) Validate() error {
	bad := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
	switch {
	case p.Model != Boxcar && p.Model != FirstOrder:
		return fmt.Errorf("sensor: %w: model %q: want %s or %s", ErrProfile, p.Model, Boxcar, FirstOrder)
	case !(p.Period > 0) || bad(float64(p.Period)):
		return fmt.Errorf("sensor: %w: period %v: want a positive time", ErrProfile, p.Period)
	case p.Window < 0 || p.Tau < 0 || bad(float64(p.Window)) || bad(float64(p.Tau)) || bad(float64(p.Delay)):
		return fmt.Errorf("sensor: %w: window %v, tau %v, delay %v: want times that are not negative", ErrProfile, p.Window, p.Tau, p.Delay)
	case p.Gain == 0 || bad(p.Gain) || bad(float64(p.Offset)):
		return fmt.Errorf("sensor: %w: gain %g, offset %v: want a gain other than zero", ErrProfile, p.Gain, p.Offset)
	}
	return nil
}

// Reading is a value of the register as it was renewed at an instant.
type Reading struct {
	At    measure.Seconds
	Power measure.Watt
}

// PredictAt returns what the register says once it was renewed at each of the
// instants, which are in ascending order, without noise and jitter. Before its
// beginning the load is taken as it was at its beginning, after its end as at its
// end.
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

// Predict returns the register's values over the load, renewed at first and every
// Period after it, to the load's end.
func (p *Profile) Predict(l *Load, first measure.Seconds) []Reading {
	var at []measure.Seconds
	for k := 0; ; k++ {
		t := first + measure.Seconds(k)*p.Period
		if t > l.End() {
			break
		}
		at = append(at, t)
	}
	out := make([]Reading, len(at))
	for i, w := range p.PredictAt(l, at) {
		out[i] = Reading{at[i], w}
	}
	return out
}

// response is the profile's dynamics alone.
func (p *Profile) response() response {
	if p.Model == FirstOrder {
		return response{FirstOrder, p.Tau, p.Delay}
	}
	return response{Boxcar, p.Window, p.Delay}
}

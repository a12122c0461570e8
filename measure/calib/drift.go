package calib

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// Drift is how far a calibration may move with time and temperature, as standard uncertainties
// (k = 1): a data sheet's limit ±a is a/√3. An entry that is nil is not stated and has a default, see
// History.Drift; a zero states that nothing moves.
type Drift struct {
	GainPerYear   *float64 `json:"gain_per_year,omitempty"`   // relative; of a shunt its resistance
	OffsetPerYear *float64 `json:"offset_per_year,omitempty"` // in the channel's unit
	GainPerK      *float64 `json:"gain_per_k,omitempty"`
	OffsetPerK    *float64 `json:"offset_per_k,omitempty"`
}

// The defaults of a record that does not state its drift. A multimeter's accuracy of one year holds within
// 5 K of the temperature of its calibration, and grows by 0.15 of itself for each kelvin (Agilent U3401A,
// User's and Service Guide, "Accuracy specifications").
const (
	defaultYears   = 1.0
	defaultWithinK = 5.0
	defaultPerK    = 0.15 // of the nominal uncertainty
)

// Expired reports whether the record is past its date.
func (r *Record) Expired(at time.Time) bool { return !r.ValidUntil.IsZero() && at.After(r.ValidUntil) }

func years(d time.Duration) float64 { return math.Abs(d.Hours()) / (365.25 * 24) }

// growth is the share of a yearly drift that is there after t years, or of that over an interval after t
// of them: a random walk grows as √t, a constant ageing as t, and the larger of both bounds what is
// between.
func growth(t float64) float64 { return max(t, math.Sqrt(t)) }

// aging is the standard uncertainties of one quantity of a record.
type aging struct {
	nominal       float64 // before the calibration
	perYear, perK *float64
}

// at returns what a record's quantity has gained by age and by temperature at a time, before or after
// the calibration.
//
// A drift that is not stated brings the nominal uncertainty back over the record's interval, one year
// where it has no date; the temperature's default is within what is left of the nominal one. A record
// that has expired has no less than the nominal uncertainty. At an unknown time (the zero one) a record is as
// old as it may be: at the end of its interval.
func (g aging) at(r *Record, at time.Time) (age, temperature float64) {
	interval := defaultYears
	if !r.ValidUntil.IsZero() {
		interval = max(years(r.ValidUntil.Sub(r.At)), 1e-9)
	}
	t := years(at.Sub(r.At))
	if at.IsZero() {
		t = interval
	}
	if g.perYear != nil {
		age = *g.perYear * growth(t)
	} else {
		age = g.nominal * min(growth(t/interval), 1)
	}
	if r.Expired(at) {
		age = max(age, g.nominal)
	}
	within := defaultWithinK
	if r.Conditions.WithinK != nil {
		within = *r.Conditions.WithinK
	}
	if g.perK != nil {
		return age, *g.perK * within / math.Sqrt(3)
	}
	left := math.Sqrt(max(g.nominal*g.nominal-age*age, 0))
	return age, min(defaultPerK*g.nominal*within/math.Sqrt(3), left)
}

// channelDrift is the drift of a channel of record i at a time.
func (h History) channelDrift(i int, name string, at time.Time) (d measure.Drift) {
	x := h[i].either(name)
	var stated Drift
	if x.Drift != nil {
		stated = *x.Drift
	}
	d.AgeOffset, d.TemperatureOffset = aging{x.Nominal.UOffset, stated.OffsetPerYear, stated.OffsetPerK}.at(&h[i], at)
	gain := h.gainOf(i, name)
	if gain == nil {
		return d // a zero alone leaves the gain nominal
	}
	x = gain.either(name)
	if stated = (Drift{}); x.Drift != nil {
		stated = *x.Drift
	}
	d.AgeGain, d.TemperatureGain = aging{x.Nominal.UGain, stated.GainPerYear, stated.GainPerK}.at(gain, at)
	return d
}

// gainOf is the record that the gain of a channel of record i is of: a zero leaves the gain as it was.
func (h History) gainOf(i int, name string) *Record {
	for i >= 0 && h[i].Done == Zero {
		x := h[i].either(name)
		if x == nil || x.Basis == "" {
			return nil
		}
		before := slices.IndexFunc(h, func(r Record) bool { return r.ID == x.Basis })
		if before >= i {
			return nil
		}
		i = before
	}
	if i < 0 || h[i].either(name) == nil || h[i].either(name).Scale == nil {
		return nil
	}
	return &h[i]
}

// drift is the drift of a shunt of a record.
func (x *Rail) drift(r *Record, at time.Time) (d measure.Drift) {
	var stated Drift
	if x.Drift != nil {
		stated = *x.Drift
	}
	d.AgeGain, d.TemperatureGain = aging{x.NominalURel, stated.GainPerYear, stated.GainPerK}.at(r, at)
	return d
}

// inForce calls f with each channel and shunt of a setup that follows a record, and that record's index.
func (h History) inForce(s *measure.Setup, channel func(c, record int), rail func(r, record int, x *Rail)) {
	for i, c := range s.Channels {
		for k := len(h) - 1; k >= 0; k-- {
			if x := h[k].either(c.Name); x != nil && x.Scale != nil && x.Scale.near(ScaleOf(c)) {
				channel(i, k)
				break
			}
		}
	}
	for i, r := range s.Rails {
		for k := len(h) - 1; k >= 0 && r.Wiring == measure.WiringShunt; k-- {
			j := slices.IndexFunc(h[k].Rails,
				func(x Rail) bool { return x.Name == r.Name && alike(x.Ohm, float64(r.Shunt)) })
			if j >= 0 {
				rail(i, k, &h[k].Rails[j])
				break
			}
		}
	}
}

// Aged returns a setup with the drift of its calibration at a time. Records of a later version, which
// cannot be read, have none.
func Aged(s measure.Setup, at time.Time) measure.Setup {
	if len(s.Records) == 0 {
		return s
	}
	h := readable(&s)
	s.Channels, s.Rails = slices.Clone(s.Channels), slices.Clone(s.Rails)
	h.inForce(&s, func(c, k int) { s.Channels[c].Drift = h.channelDrift(k, s.Channels[c].Name, at) },
		func(r, k int, x *Rail) { s.Rails[r].Drift = x.drift(&h[k], at) })
	return s
}

func readable(s *measure.Setup) (h History) {
	for _, c := range s.Records {
		if r, err := Parse(c); err == nil {
			h = append(h, r)
		}
	}
	return NewHistory(h)
}

// Stale is a record in force past its date.
type Stale struct {
	Record
	// Unbounded is set where the instrument and the bench file state no uncertainty of a channel or shunt either.
	Unbounded bool
}

// StaleAt returns the records in force on a setup that have expired at a time.
func StaleAt(s *measure.Setup, at time.Time) (out []Stale) {
	h := readable(s)
	add := func(r *Record, unbounded bool) {
		if r == nil || !r.Expired(at) {
			return
		}
		i := slices.IndexFunc(out, func(x Stale) bool { return x.ID == r.ID })
		if i < 0 {
			i, out = len(out), append(out, Stale{Record: *r})
		}
		out[i].Unbounded = out[i].Unbounded || unbounded
	}
	h.inForce(s, func(c, k int) {
		name := s.Channels[c].Name
		n := h[k].either(name).Nominal
		add(h.gainOf(k, name), n.UGain == 0 && n.UOffset == 0)
		add(&h[k], n.UGain == 0 && n.UOffset == 0)
	}, func(_, k int, x *Rail) { add(&h[k], x.NominalURel == 0) })
	return out
}

// DriftAt returns the drift of a channel or a rail of the newest record in force for it, as InForce finds
// that; zero without one.
func (h History) DriftAt(of Instrument, name string, at time.Time) (d measure.Drift) {
	r := h.InForce(of, name)
	if r == nil {
		return d
	}
	if c := r.find(name); c != nil && c.Scale != nil {
		return h.channelDrift(slices.IndexFunc(h, func(x Record) bool { return x.ID == r.ID }), name, at)
	}
	i := slices.IndexFunc(r.Rails, func(x Rail) bool { return x.Name == name })
	return r.Rails[i].drift(r, at)
}

func (d *Drift) check() error {
	if d == nil {
		return nil
	}
	for _, v := range []*float64{d.GainPerYear, d.OffsetPerYear, d.GainPerK, d.OffsetPerK} {
		if v != nil && !notNegative(*v) {
			return errors.New("an entry of drift is negative or not finite")
		}
	}
	return nil
}

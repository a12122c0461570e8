package calib

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// ErrFit is wrapped by errors about points that no line should be drawn through.
var ErrFit = errors.New("no calibration follows from these points")

// Line is the correction of a channel's readings r: value = A + B·r.
type Line struct {
	A, B float64
	// UA and UB are standard uncertainties, U taken as for independent ones: they
	// are never too small for values between zero and the largest point.
	UA, UB float64
}

// Fit draws the straight line through the points by weighted least squares, in
// the channel's unit. The zero in force takes part as a point of its own, with
// the channel's UOffset: a single point gives the gain, two or more both.
//
// The uncertainty follows the GUM (JCGM 100:2008, 5.2): the readings' parts
// are independent; the reference's is one error for all points, which no
// number of points averages out. How far three or more points lie from the line
// replaces the uncertainty of their readings where that is less, and is added
// to the zero's.
func Fit(c measure.Channel, points []Point) (Line, error) {
	if len(points) == 0 {
		return Line{}, fmt.Errorf("%w: there are none", ErrFit)
	}
	// Readings are taken in units of the largest, so that the sums stay tame.
	unit := 0.0
	for _, p := range points {
		if p.U <= 0 && p.UReading <= 0 {
			return Line{}, fmt.Errorf("%w: %g %s has no uncertainty: state the reference's", ErrFit, p.Value, c.Unit)
		}
		unit = max(unit, math.Abs(p.Reading))
	}
	if !(unit > 0) || !measure.Known(unit) {
		return Line{}, fmt.Errorf("%w: all readings are zero: apply a known value", ErrFit)
	}
	zero := row{r: 0, v: 0, u: cmp.Or(c.UOffset, 1e-9*unit)} // where none is stated it is taken as exact
	f := fitting{unit: unit, rows: []row{zero}}
	for _, p := range points {
		f.rows = append(f.rows, row{r: p.Reading / unit, v: p.Value, u: p.UReading, ref: p.U})
	}
	return f.line(c)
}

// row is an equation v = a + b·r with the independent and the common part of
// its uncertainty.
type row struct{ r, v, u, ref float64 }

type fitting struct {
	unit float64
	rows []row
}

func (f *fitting) line(c measure.Channel) (Line, error) {
	var s, sr, srr, sv, srv float64
	weight := func(x row) float64 { return 1 / (x.u*x.u + x.ref*x.ref) }
	for _, x := range f.rows {
		w := weight(x)
		s, sr, srr, sv, srv = s+w, sr+w*x.r, srr+w*x.r*x.r, sv+w*x.v, srv+w*x.r*x.v
	}
	det := s*srr - sr*sr
	if !(det > 1e-12*s*srr) {
		return Line{}, fmt.Errorf("%w: the points lie too close together, and to zero", ErrFit)
	}
	a, b := (srr*sv-sr*srv)/det, (s*srv-sr*sv)/det
	if !(b > 0) {
		return Line{}, fmt.Errorf(
			"%w: the reading falls where the value rises: is the channel connected the wrong way round?", ErrFit)
	}
	residual := f.residual(a, b)
	// How each row's error moves a and b.
	var aa, bb, ab, da, db float64
	for i, x := range f.rows {
		w := weight(x)
		ka, kb := w*(srr-sr*x.r)/det, w*(s*x.r-sr)/det
		u := x.u
		if i > 0 {
			u = max(u, residual)
		}
		aa, bb, ab = aa+ka*ka*u*u, bb+kb*kb*u*u, ab+ka*kb*u*u
		da, db = da+ka*x.ref, db+kb*x.ref
	}
	aa, bb, ab = aa+da*da, bb+db*db, ab+da*db
	l := Line{A: a, B: b / f.unit, UA: math.Sqrt(aa), UB: math.Sqrt(bb) / f.unit}
	// The covariance of A and B is left out: where their errors add at some point, u²(a) + r²·u²(b) is too small by at
	// most 1 + |correlation|.
	if slices.ContainsFunc(f.rows, func(x row) bool { return x.r*ab > 0 && aa*bb > 0 }) {
		k := math.Sqrt(1 + math.Abs(ab)/math.Sqrt(aa*bb))
		l.UA, l.UB = k*l.UA, k*l.UB
	}
	l.UA = math.Hypot(l.UA, residual)
	if !measure.Known(l.A) || !measure.Known(l.B) || !measure.Known(l.UA) || !measure.Known(l.UB) {
		return Line{}, fmt.Errorf("%w: the numbers of %s are out of all bounds", ErrFit, c.Name)
	}
	return l, nil
}

// residual is the root mean square distance of the points from the line; zero
// where two points or one leave nothing to judge by.
func (f *fitting) residual(a, b float64) float64 {
	points := f.rows[1:]
	if len(points) < 3 {
		return 0
	}
	sum := 0.0
	for _, x := range points {
		d := x.v - a - b*x.r
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(points)-2))
}

// Scale returns the channel's scale under the line. The noise of one reading is
// that of the points, where they have it.
func (l Line) Scale(c measure.Channel, points []Point) Scale {
	s := Scale{Gain: l.B * c.Gain, Offset: l.A + l.B*c.Offset, UGain: l.UB / l.B, UOffset: l.UA, Noise: l.B * c.Noise}
	for i, p := range points {
		if noise := p.StdCount * math.Abs(s.Gain); p.Samples > 0 && (i == 0 || noise > s.Noise) {
			s.Noise = noise
		}
	}
	return s
}

// find returns the record's entry of a channel; nil for none.
func (r *Record) find(name string) *Channel {
	for i := range r.Channels {
		if r.Channels[i].Name == name {
			return &r.Channels[i]
		}
	}
	return nil
}

// InForce returns the newest record of a device with a scale for a channel, as the
// record names it, or with a resistance for a rail; nil without one.
func (h History) InForce(of Instrument, name string) *Record {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].Instrument != of {
			continue
		}
		if c := h[i].find(name); c != nil && c.Scale != nil {
			return &h[i]
		}
		if slices.ContainsFunc(h[i].Rails, func(x Rail) bool { return x.Name == name }) {
			return &h[i]
		}
	}
	return nil
}

// Nominal takes the records off a setup: the calibration of the instrument and the bench file
// alone remains. Channels that no record is in force for stay as they are.
func Nominal(s measure.Setup) (measure.Setup, error) {
	h, err := HistoryOf(&s)
	if err != nil {
		return s, err
	}
	s.Channels, s.Rails, s.Records = slices.Clone(s.Channels), slices.Clone(s.Rails), nil
	h.inForce(&s, func(c, k int) { s.Channels[c] = h[k].either(s.Channels[c].Name).Nominal.On(s.Channels[c]) },
		func(r, _ int, x *Rail) {
			s.Rails[r].Shunt, s.Rails[r].UShunt = measure.Ohm(x.NominalOhm), x.NominalURel
		})
	for i := range s.Channels {
		s.Channels[i].Drift = measure.Drift{}
	}
	for i := range s.Rails {
		s.Rails[i].Drift = measure.Drift{}
	}
	return s, nil
}

// either finds a channel by its name or, on a bench of several instruments, by that
// without its instrument's.
func (r *Record) either(name string) *Channel {
	x := r.find(name)
	if _, bare, several := strings.Cut(name, "/"); x == nil && several {
		x = r.find(bare)
	}
	return x
}

// near reports whether two scales are the same but for rounding.
func (s *Scale) near(t Scale) bool {
	return alike(s.Gain, t.Gain) && alike(s.Offset, t.Offset) && alike(s.UGain, t.UGain) &&
		alike(s.UOffset, t.UOffset) && alike(s.Noise, t.Noise)
}

// alike allows for the rounding of a number by another program.
func alike(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }

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
	stated := cmp.Or(x.Drift, &Drift{})
	d.AgeOffset, d.TemperatureOffset = aging{x.Nominal.UOffset, stated.OffsetPerYear, stated.OffsetPerK}.at(&h[i], at)
	gain := h.gainOf(i, name)
	if gain == nil {
		return d // a zero alone leaves the gain nominal
	}
	x = gain.either(name)
	stated = cmp.Or(x.Drift, &Drift{})
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
	stated := cmp.Or(x.Drift, &Drift{})
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

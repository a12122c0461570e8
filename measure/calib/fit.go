package calib

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

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
	f := fitting{unit: unit}
	if c.UOffset > 0 {
		f.rows = append(f.rows, row{r: 0, v: 0, u: c.UOffset})
	} else {
		f.rows = append(f.rows, row{r: 0, v: 0, u: 1e-9 * unit}) // taken as exact
	}
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
	l.widen(ab, aa*bb, f.rows)
	l.UA = math.Hypot(l.UA, residual)
	if !measure.Known(l.A) || !measure.Known(l.B) || !measure.Known(l.UA) || !measure.Known(l.UB) {
		return Line{}, fmt.Errorf("%w: the numbers of %s are out of all bounds", ErrFit, c.Name)
	}
	return l, nil
}

// widen makes up for leaving the covariance of A and B out: where their errors
// add at some point, u²(a) + r²·u²(b) is too small by at most 1 + |correlation|.
func (l *Line) widen(ab, product float64, rows []row) {
	for _, x := range rows {
		if x.r*ab > 0 && product > 0 {
			k := math.Sqrt(1 + math.Abs(ab)/math.Sqrt(product))
			l.UA, l.UB = k*l.UA, k*l.UB
			return
		}
	}
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

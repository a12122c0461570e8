package measure

import "math"

// Moments are a rail's integrals over a window under the trapezoid rule: of 1,
// of its two raw counts and of their products. Power is a product of two
// linear forms of the counts (Linear), so they are a sufficient statistic:
// energy and its derivative by every parameter of the calibration follow from
// them, and a task can be calibrated anew without reading its samples again.
type Moments struct {
	One        Seconds // the window's length
	X, Y       float64 // count·seconds; Y is 0 for a rail of one channel
	XX, XY, YY float64 // count²·seconds
}

// Energy returns the rail's energy under the given calibration.
func (m Moments) Energy(l Linear) Joule {
	i, v := l.forms()
	return Joule(m.product(i, v))
}

// form is a linear form of a rail's two counts: c + x·X + y·Y.
type form struct{ c, x, y float64 }

// forms returns the two factors of power.
func (l Linear) forms() (current, voltage form) {
	return form{l.I0, l.IX, l.IY}, form{l.V0, 0, l.VY}
}

// scale returns k·f.
func (f form) scale(k float64) form { return form{k * f.c, k * f.x, k * f.y} }

// plus returns f + g.
func (f form) plus(g form) form { return form{f.c + g.c, f.x + g.x, f.y + g.y} }

// integral returns the integral of f over the window.
func (m Moments) integral(f form) float64 {
	return f.c*float64(m.One) + f.x*m.X + f.y*m.Y
}

// product returns the integral of f·g over the window.
func (m Moments) product(f, g form) float64 {
	return f.c*g.c*float64(m.One) +
		(f.c*g.x+f.x*g.c)*m.X + (f.c*g.y+f.y*g.c)*m.Y +
		f.x*g.x*m.XX + (f.x*g.y+f.y*g.x)*m.XY + f.y*g.y*m.YY
}

// sum is a compensated sum (A. Neumaier, ZAMM 54 (1974) 39–51): its error does
// not grow with the number of terms.
type sum struct{ s, c float64 }

func (a *sum) add(v float64) {
	t := a.s + v
	if math.Abs(a.s) >= math.Abs(v) {
		a.c += (a.s - t) + v
	} else {
		a.c += (v - t) + a.s
	}
	a.s = t
}

func (a sum) value() float64 { return a.s + a.c }

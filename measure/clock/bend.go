package clock

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/stat/distuv"
)

// Knot is a marker that corrects a fit's line: from one knot to the next the correction runs straight. Its errors are
// independent of those of other knots.
type Knot struct {
	Host measure.Seconds // counted from the fit's origin
	Off  measure.Seconds // of the meter's clock against the line
	Var  float64         // of Off, s²
	Bend float64         // s², of how far the clocks are off the straight correction midway to the next knot
}

// Errors returns the independent errors of the device time of a host time: their numbers are first and the two behind
// it, and w by how much each of them counts. first is −1 for a fit without knots. ErrorVar has their variances.
func (f *Fit) Errors(host measure.Seconds) (first int, w [3]float64) {
	n := len(f.Knots)
	if n < 2 {
		return -1, w
	}
	i := sort.Search(n-2, func(i int) bool { return f.Knots[i+1].Host > host })
	a, b := f.Knots[i].Host, f.Knots[i+1].Host
	x := max(0, min(1, float64(host-a)/float64(b-a)))
	return 2 * i, [3]float64{1 - x, 4 * x * (1 - x), x}
}

// ErrorVar is the variance of an error by its number, in s².
func (f *Fit) ErrorVar(n int) float64 {
	if n%2 == 1 {
		return f.Knots[n/2].Bend
	}
	return f.Knots[n/2].Var
}

// Off is the knots' correction of the line; zero without knots.
func (f *Fit) Off(host measure.Seconds) measure.Seconds {
	if len(f.Knots) < 2 {
		return 0
	}
	n, w := f.Errors(host)
	return measure.Seconds(w[0])*f.Knots[n/2].Off + measure.Seconds(w[2])*f.Knots[n/2+1].Off
}

// shared is the covariance that the knots make between the device times of two host times, in s².
func (f *Fit) shared(s, t measure.Seconds) (c float64) {
	n, v := f.Errors(s)
	m, w := f.Errors(t)
	for i := range v {
		if k := n + i - m; n >= 0 && k >= 0 && k < len(w) {
			c += v[i] * w[k] * f.ErrorVar(n+i)
		}
	}
	return c
}

// Bend returns f bent through marks, each the mean of one marker's edges. It holds from the first of them to the last:
// the correction is constant beyond. common is the standard uncertainty that all marks share.
//
// How far the clocks are off the straight line between two marks follows from how far each mark is off the line
// between its neighbours, the next ones and those behind them, under a rate that walks at random: by q·a²b²/3(a+b)
// at the distances a and b from them. What does not grow with the distance is each mark's own, beyond its U. Both have
// Student's factor. Between two marks at a distance of T it is at least wander·T/4, for a relative wander of the rates.
//
// Marks that are far off their neighbours, by five times what the others are, are left out and counted. Fewer than
// three marks, or more than a quarter left out, are ErrObservations.
func (f Fit) Bend(marks []Obs, common measure.Seconds, wander float64) (bent Fit, left int, err error) {
	k := make([]Knot, len(marks))
	for i, m := range marks {
		at := f.A + measure.Seconds(f.B)*m.Host
		k[i] = Knot{Host: m.Host, Off: m.Meter - at, Var: float64(m.U * m.U)}
		if !measure.Known(k[i].Off) || !(k[i].Var > 0) || math.IsInf(k[i].Var, 0) {
			return f, 0, fmt.Errorf("%w: mark %d (host %v, meter %v, u %v)", ErrObservations, i, m.Host, m.Meter, m.U)
		}
	}
	slices.SortFunc(k, func(a, b Knot) int { return cmp.Compare(a.Host, b.Host) })
	k = slices.CompactFunc(k, func(a, b Knot) bool { return a.Host == b.Host })
	for n := outlier(k); n > 0; n = outlier(k) {
		if left++; 4*left > len(marks) {
			return f, left, fmt.Errorf("%w: more than a quarter of %d marks are far off the others", ErrObservations,
				len(marks))
		}
		k = slices.Delete(k, n, n+1)
	}
	if len(k) < 3 {
		return f, left, fmt.Errorf("%w: %d marks, want three", ErrObservations, len(k))
	}
	own, q := scatter(k)
	for i := range k {
		if k[i].Var += own; i+1 < len(k) {
			t := float64(k[i+1].Host - k[i].Host)
			k[i].Bend = max(q*t*t*t/48, wander*wander*t*t/16)
		}
	}
	f.Knots, f.VarA, f.VarB, f.CovAB = k, float64(common*common), 0, 0
	return f, left, nil
}

// triple is how far a knot is off the line between two others, squared: in s², as their U make it, and the factors of
// what is each mark's own beyond, of the walk and of the square of a sudden change of the rate.
type triple struct{ square, stated, own, walk, kink float64 }

func triples(k []Knot, skip int) (out []triple) {
	for i := skip; i+skip < len(k); i++ {
		l, m, r := k[i-skip], k[i], k[i+skip]
		a, b := float64(m.Host-l.Host), float64(r.Host-m.Host)
		x := a / (a + b)
		e := float64(m.Off) - (1-x)*float64(l.Off) - x*float64(r.Off)
		out = append(out, triple{
			e * e, m.Var + (1-x)*(1-x)*l.Var + x*x*r.Var, 1 + (1-x)*(1-x) + x*x, x * x * b * b * (a + b) / 3, x * x * b * b,
		})
	}
	return out
}

// kink is a sudden change of the rate, relative, that is no fault of a mark.
const kink = 0.4e-6

// outlier returns the knot that is furthest off its neighbours, where that is too far; 0 for none.
func outlier(k []Knot) (worst int) {
	z := lists.Map(triples(k, 1), func(t triple) float64 { return math.Sqrt(t.square / (t.stated + kink*kink*t.kink)) })
	if len(z) < 3 {
		return 0
	}
	limit := reject * max(1, madToSigma*median(slices.Clone(z)))
	for i := range z {
		if z[i] > limit {
			worst, limit = i+1, z[i]
		}
	}
	return worst
}

// scatter estimates the variance of each mark's own beyond its U, in s², and that of the walk of the rate in a second.
// Each triple has the weight of its own variance under the estimate before.
func scatter(k []Knot) (own, walk float64) {
	near, far := triples(k, 1), triples(k, 2)
	for range 20 {
		sums := func(list []triple) (square, o, w float64) {
			for _, t := range list {
				v := t.stated + own*t.own + walk*t.walk
				square, o, w = square+(t.square-t.stated)/(v*v), o+t.own/(v*v), w+t.walk/(v*v)
			}
			return square, o, w
		}
		s1, o1, w1 := sums(near)
		s2, o2, w2 := sums(far)
		det := o1*w2 - o2*w1
		own, walk = (s1*w2-s2*w1)/det, (o1*s2-o2*s1)/det
		switch {
		case !(det > 0) || own < 0:
			own, walk = 0, max(0, s1/w1)
		case walk < 0:
			own, walk = max(0, s1/o1), 0
		}
	}
	// Neighbouring triples share marks: half of them are independent.
	nu := max(1, float64(len(near))/2)
	student := distuv.StudentsT{Sigma: 1, Nu: nu}.Quantile(0.97725) / 2
	return own * student * student, walk * student * student
}

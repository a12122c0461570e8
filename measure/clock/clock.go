// Package clock relates the host's clock to the meter's: t_meter = a + b·t_host,
// fitted robustly to chip edges seen by both.
package clock

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/stat"
)

// Obs is one edge seen on both clocks. Host is counted from Fit's origin.
type Obs struct {
	Host  measure.Seconds
	Meter measure.Seconds
	U     measure.Seconds // standard uncertainty of Meter
	// Group numbers the observations of one marker, and Shared is the standard uncertainty that
	// they have in common: it does not average out among them. Zero for none.
	Group  int
	Shared measure.Seconds
}

// Prior is the knowledge before the first observation.
type Prior struct {
	// Origin is the host instant that Obs.Host counts from, on whatever scale the
	// caller uses; it is only copied to the fit. Seconds since 1970 leave a
	// float64 no more than a quarter of a microsecond: subtract before converting.
	Origin measure.Seconds
	// URate is the relative standard uncertainty of the two clocks' rates against
	// each other, around B = 1: the meter's Timebase.UTickHz is part of it. Zero
	// stands for DefaultURate. A fit whose B lies several URate from 1 shows that
	// the meter's nominal tick rate is wrong, and every joule with it.
	URate float64
	// UOffset is the standard uncertainty of a delay common to all observations
	// (power follows the kernel's time stamp late): it does not average out.
	UOffset measure.Seconds
}

// HostRate is the relative standard uncertainty of an undisciplined host clock: an ordinary quartz.
const HostRate = 50e-6

// OffRate returns how much faster the meter's clock runs than the host's, relative, and whether that is more than three
// times what both may be off, beside two standard uncertainties of the fit. uTick is the relative standard
// uncertainty that is stated for the meter's clock.
func (f *Fit) OffRate(uTick float64) (off float64, beyond bool) {
	off = f.B - 1
	return off, math.Abs(off)-2*math.Sqrt(f.VarB) > 3*math.Hypot(uTick, HostRate)
}

// DefaultURate is two ordinary quartz clocks at 100 ppm each, with some room.
const DefaultURate = 200e-6

// Fit is t_meter = A + B·(t_host − Origin) with its covariance.
type Fit struct {
	Origin measure.Seconds `json:"-"`
	A      measure.Seconds `json:"a_s"`
	B      float64         `json:"b"`
	VarA   float64         `json:"-"` // s²
	VarB   float64         `json:"-"`
	CovAB  float64         `json:"-"` // s
	RMS    measure.Seconds `json:"rms_s"`
	// Jitter is the standard deviation of a single host stamp by which the observations scatter more than
	// their own uncertainties: a stamp of the work is off by as much. Zero where they do not.
	Jitter   measure.Seconds `json:"-"`
	Used     int             `json:"observations"`
	Rejected int             `json:"rejected"`
	// Knots correct the line (Bend); nil for none. They are not stored.
	Knots []Knot `json:"-"`
}

// Meter maps a host time, counted from Origin, to device time with its
// standard uncertainty.
func (f Fit) Meter(host measure.Seconds) (t, u measure.Seconds) {
	return f.A + measure.Seconds(f.B)*host + f.Off(host), measure.Seconds(math.Sqrt(f.covariance(host, host)))
}

// Host maps a device time back to the host's, counted from Origin, with its
// standard uncertainty. It is the inverse of Meter.
func (f Fit) Host(meter measure.Seconds) (t, u measure.Seconds) {
	t = (meter - f.A) / measure.Seconds(f.B)
	for range 3 { // a correction by knots changes by some ppm of a step
		t = (meter - f.A - f.Off(t)) / measure.Seconds(f.B)
	}
	return t, measure.Seconds(math.Sqrt(f.covariance(t, t)) / f.B)
}

// Edges returns the uncertainty of a window's ends, given as stamps of the host counted
// from Origin, with their correlation. The stamps' jitter is each end's own.
func (f Fit) Edges(from, to measure.Seconds) measure.Edges {
	own := float64(f.Jitter * f.Jitter)
	vf, vt := f.covariance(from, from)+own, f.covariance(to, to)+own
	e := measure.Edges{UFrom: measure.Seconds(math.Sqrt(vf)), UTo: measure.Seconds(math.Sqrt(vt))}
	if vf > 0 && vt > 0 {
		e.Correlation = max(-1, min(1, f.covariance(from, to)/math.Sqrt(vf*vt)))
	}
	return e
}

// covariance of the device times of two host times, in s².
func (f Fit) covariance(s, t measure.Seconds) float64 {
	x, y := float64(s), float64(t)
	c := f.VarA + f.CovAB*(x+y) + f.VarB*x*y + f.shared(s, t)
	if s == t {
		return max(c, 0) // rounding may leave a trace below zero
	}
	return c
}

// ErrObservations is wrapped by errors about observations that cannot be fitted.
var ErrObservations = errors.New("cannot fit the clocks")

const (
	// huber is where the loss turns from square to linear, in standard
	// uncertainties: 95 % efficient on normal errors (P. J. Huber, Robust
	// Statistics, 1981).
	huber = 1.345
	// reject is the distance from which an observation is an outlier of weight zero: one
	// normal error in two million lies further out.
	reject = 5.0
	rounds = 50
	// few is how many points have all their pairs looked at.
	few = 16
	// farthest is how far from their origin host times may lie, in seconds: beyond,
	// A and B cancel to worse than microseconds.
	farthest = 1e7
	// madToSigma turns the median of absolute deviations into a standard deviation.
	madToSigma = 1.4826
)

// FitClock fits the meter's clock to the host's by weighted least squares with
// Huber's weights. The prior on the rate makes one marker, even one
// observation, enough. Observations further off than reject robust standard
// deviations are dropped and counted. Where the residuals scatter more than the
// stated uncertainties allow, the covariance is scaled up by χ² per degree of
// freedom (R. T. Birge, Phys. Rev. 40 (1932) 207). Errors wrap ErrObservations.
func FitClock(obs []Obs, prior Prior) (Fit, error) {
	prior.URate = cmp.Or(prior.URate, DefaultURate)
	if err := check(obs, prior); err != nil {
		return Fit{}, err
	}
	s := newSolver(obs, prior)
	l := s.start()
	for range rounds {
		s.reweigh(l)
		sw, sx, sxx, sy, sxy := s.normal(s.scale)
		// Centring on the weighted mean makes the equations independent.
		mx, my := sx/sw, sy/sw
		next := line{slope: (sxy - sx*my) / (sxx - sx*mx)}
		next.d = my - next.slope*mx
		moved := math.Abs(next.d-l.d) + math.Abs(next.slope-l.slope)*s.span
		l = next
		if moved < 1e-15 {
			break
		}
	}
	return s.finish(l)
}

func check(obs []Obs, prior Prior) error {
	if len(obs) == 0 {
		return fmt.Errorf("%w: no observations: was a marker found?", ErrObservations)
	}
	for i, o := range obs {
		if !measure.Known(o.Host) || !measure.Known(o.Meter) || !measure.Known(o.U) || o.U <= 0 {
			return fmt.Errorf("%w: observation %d (host %v, meter %v, u %v): times must be finite and u positive",
				ErrObservations, i, float64(o.Host), float64(o.Meter), float64(o.U))
		}
	}
	if far := math.Abs(float64(obs[0].Host)); far > farthest {
		return fmt.Errorf("%w: host times lie %.3g s after their origin: count them from one nearby", ErrObservations,
			far)
	}
	if !(prior.URate > 0 && measure.Known(prior.URate)) {
		return fmt.Errorf("%w: uncertainty %v of the rate: must be positive and finite", ErrObservations, prior.URate)
	}
	if !(prior.UOffset >= 0) || !measure.Known(prior.UOffset) {
		return fmt.Errorf("%w: uncertainty %v of the offset: must be zero or positive and finite", ErrObservations,
			float64(prior.UOffset))
	}
	return nil
}

// line is meter − host = d + slope·(host − centre): the remainder after the
// clocks' common part, so that nothing large is subtracted from anything large.
type line struct{ d, slope float64 }

// solver holds the centred observations. The slope is B − 1, 0 a priori.
type solver struct {
	prior  Prior
	centre float64   // host time that x counts from
	shift  float64   // meter − host that y counts from
	x, y   []float64 // seconds
	u      []float64 // seconds, as stated
	w      []float64 // Huber's weights, 0 for an outlier
	group  []int
	shared map[int]float64 // variance that a group has in common, s²
	scale  float64         // how much larger than stated the scatter is, at least 1
	span   float64
}

func newSolver(obs []Obs, prior Prior) *solver {
	n := len(obs)
	s := &solver{
		prior: prior, scale: 1, group: make([]int, n), shared: map[int]float64{},
		x: make([]float64, n), y: make([]float64, n), u: make([]float64, n), w: make([]float64, n),
	}
	var weights float64
	for i, o := range obs {
		s.u[i] = float64(o.U)
		s.group[i], s.shared[o.Group] = o.Group, float64(o.Shared*o.Shared)
		w := 1 / (s.u[i] * s.u[i])
		weights += w
		s.centre += (float64(o.Host) - s.centre) * w / weights
	}
	s.shift = float64(obs[0].Meter) - float64(obs[0].Host)
	for i, o := range obs {
		s.x[i] = float64(o.Host) - s.centre
		s.y[i] = float64(o.Meter) - float64(o.Host) - s.shift
		s.span = max(s.span, math.Abs(s.x[i]))
	}
	return s
}

// start returns a line that a minority of outliers cannot move: the slope of the observations, then that of the medians
// of their groups beside it, be there many in a group or one: a marker of which one edge is placed would else be off
// the others' line by more than that edge's u, and taken for an outlier. The offset is the median.
func (s *solver) start() (l line) {
	l.slope = s.slope(s.x, s.y)
	rest := make([]float64, len(s.x))
	byGroup := map[int][2][]float64{}
	for i := range rest {
		rest[i] = s.y[i] - l.slope*s.x[i]
		g := byGroup[s.group[i]]
		byGroup[s.group[i]] = [2][]float64{append(g[0], s.x[i]), append(g[1], rest[i])}
	}
	var x, y []float64
	for _, g := range byGroup {
		x, y = append(x, median(g[0])), append(y, median(g[1]))
	}
	turn := s.slope(x, y)
	l.slope += turn
	for i := range rest {
		rest[i] -= turn * s.x[i]
	}
	l.d = median(rest)
	return l
}

// slope returns the median slope of pairs half the points apart, or of all pairs of few points (H. Theil, 1950),
// each of the weight of its distance, so that pairs within one marker do not outvote those of two; drawn towards
// the prior.
func (s *solver) slope(x, y []float64) float64 {
	n := len(x)
	order := lists.Order(n, func(a, b int) int { return cmp.Compare(x[a], x[b]) })
	var slopes, weights []float64
	pair := func(a, b int) {
		if x[b] > x[a] {
			slopes, weights = append(slopes, (y[b]-y[a])/(x[b]-x[a])), append(weights, x[b]-x[a])
		}
	}
	for i, a := range order {
		if n > few && i+n/2 < n {
			pair(a, order[i+n/2])
		}
		for k := i + 1; n <= few && k < n; k++ {
			pair(a, order[k])
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	limit := 3 * s.prior.URate
	stat.SortWeighted(slopes, weights)
	return max(-limit, min(limit, stat.Quantile(0.5, stat.Empirical, slopes, weights)))
}

// reweigh sets the scale and the weights for the residuals from a line.
func (s *solver) reweigh(l line) {
	r := make([]float64, len(s.x))
	for i := range r {
		r[i] = math.Abs(s.residual(l, i)) / s.u[i]
	}
	s.scale = max(1, madToSigma*median(slices.Clone(r)))
	for i, z := range r {
		z /= s.scale
		switch {
		case z <= huber:
			s.w[i] = 1
		case z <= reject:
			s.w[i] = huber / z
		default:
			s.w[i] = 0
		}
	}
}

func (s *solver) residual(l line, i int) float64 { return s.y[i] - l.d - l.slope*s.x[i] }

// normal returns the normal equations' sums for stated uncertainties times k;
// the prior on the slope is one more observation. The weight of a group is that of its mean, whose
// variance is 1/Σw and that which the group shares.
func (s *solver) normal(k float64) (sw, sx, sxx, sy, sxy float64) {
	sums := map[int]float64{}
	for i, w := range s.w {
		sums[s.group[i]] += w / (k * k * s.u[i] * s.u[i])
	}
	for i, w := range s.w {
		w /= k * k * s.u[i] * s.u[i]
		w /= 1 + s.shared[s.group[i]]*sums[s.group[i]]
		sw += w
		sx += w * s.x[i]
		sxx += w * s.x[i] * s.x[i]
		sy += w * s.y[i]
		sxy += w * s.x[i] * s.y[i]
	}
	return sw, sx, sxx + 1/(s.prior.URate*s.prior.URate), sy, sxy
}

// finish computes the covariance and moves the line to the caller's origin.
func (s *solver) finish(l line) (Fit, error) {
	f := Fit{Origin: s.prior.Origin}
	var chi2, squares, stated float64
	for i, w := range s.w {
		if w == 0 {
			f.Rejected++
			continue
		}
		f.Used++
		r := s.residual(l, i)
		squares += r * r
		stated += s.u[i] * s.u[i]
		chi2 += r * r / (s.u[i] * s.u[i])
	}
	// The offset costs a degree of freedom, the slope as much of one as the
	// observations rather than the prior have determined it.
	birge, prior := 1.0, 1/(s.prior.URate*s.prior.URate)
	sw, sx, sxx, _, _ := s.normal(s.scale)
	dof := float64(f.Used-1) - (1 - prior/(sxx-sx*sx/sw))
	if dof > 0.5 {
		birge = math.Sqrt(max(1, chi2/dof))
	}
	// What exceeds the stated uncertainties by more than two standard deviations of χ² is the stamps'.
	if chi2 > dof+2*math.Sqrt(2*dof) {
		f.Jitter = measure.Seconds(math.Sqrt(max(0, squares/dof-stated/float64(f.Used))))
	}
	sw, sx, sxx, _, _ = s.normal(birge)
	mx := sx / sw
	f.VarB = 1 / (sxx - sx*mx)
	// The line at x is d + slope·x; the origin lies at x = −centre.
	at := -s.centre - mx
	f.VarA = 1/sw + f.VarB*at*at + float64(s.prior.UOffset*s.prior.UOffset)
	f.CovAB = f.VarB * at
	f.B = 1 + l.slope
	f.A = measure.Seconds(s.shift + l.d - l.slope*s.centre)
	f.RMS = measure.Seconds(math.Sqrt(squares / float64(f.Used)))
	if !measure.Known(f.A) || !measure.Known(f.VarA) || !(f.VarB > 0) || !(f.B > 0) {
		return Fit{}, fmt.Errorf("%w: the equations have no finite solution: are the times in seconds?",
			ErrObservations)
	}
	return f, nil
}

// median returns the middle of v, which it sorts.
func median(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

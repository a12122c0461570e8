package predict

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// line is a weighted least-squares line. Its coefficients are sums over the
// values, slope = Σ slopeOf·y and intercept = Σ interceptOf·y, which is how
// uncertainties are carried from the points to whatever is made of the line.
type line struct {
	slope, intercept     float64
	slopeOf, interceptOf []float64
	// sigma is the standard deviation of each value up to scale, and residual the
	// value less the line, over sigma.
	sigma, residual []float64
	scale           float64 // factor that the residuals put on sigma
}

// fitLine draws the line. sigma holds the values' standard deviations, at least
// up to a common factor; the x differ, as checkPoints has made sure.
func fitLine(x, y, sigma []float64) line {
	w := make([]float64, len(x))
	for i, s := range sigma {
		w[i] = 1 / (s * s)
	}
	l := line{sigma: sigma}
	l.intercept, l.slope = stat.LinearRegression(x, y, w, false)
	mean := stat.Mean(x, w)
	var sum, spread float64
	for i := range x {
		sum += w[i]
		spread += w[i] * (x[i] - mean) * (x[i] - mean)
	}
	var chi2 float64
	for i := range x {
		slope := w[i] * (x[i] - mean) / spread
		l.slopeOf = append(l.slopeOf, slope)
		l.interceptOf = append(l.interceptOf, w[i]/sum-mean*slope)
		r := (y[i] - l.intercept - l.slope*x[i]) / sigma[i]
		l.residual = append(l.residual, r)
		chi2 += r * r
	}
	l.scale = math.Sqrt(chi2 / float64(len(x)-2))
	return l
}

// sdSlope is the slope's standard deviation.
func (l *line) sdSlope() float64 { return l.scale * weighted(l.slopeOf, l.sigma) }

// sdIntercept is the intercept's.
func (l *line) sdIntercept() float64 { return l.scale * weighted(l.interceptOf, l.sigma) }

// weighted is the root of Σ(c·s)².
func weighted(c, s []float64) float64 {
	var sum float64
	for i := range c {
		sum += c[i] * c[i] * s[i] * s[i]
	}
	return math.Sqrt(sum)
}

// birge keeps stated uncertainties, unless the residuals contradict them: beyond
// the 95th percentile of χ² all are enlarged by the Birge ratio. It returns the
// probability of residuals as large as these.
func (l *line) birge() (p float64) {
	dof := float64(len(l.residual) - 2)
	p = distuv.ChiSquared{K: dof}.Survival(l.scale * l.scale * dof)
	if p >= 0.05 {
		l.scale = 1
	}
	return p
}

// quantile is the two-sided factor of a level, as 0.95: of Student's
// distribution, or of the normal one without degrees of freedom.
func quantile(level, dof float64) float64 {
	if dof <= 0 {
		return distuv.UnitNormal.Quantile((1 + level) / 2)
	}
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: dof}.Quantile((1 + level) / 2)
}

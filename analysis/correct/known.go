package correct

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"wattmark/analysis/sensor"
	"wattmark/measure"
)

// Activity is a stretch in which the GPU did one thing. Stretches of one name are
// taken to draw one power.
type Activity struct {
	Name string
	Span
}

// Levels are the powers of activities that are known from elsewhere, found by
// least squares: what a sensor of a known profile would show of each of them at one
// watt, times its power, adds up to what it showed.
type Levels struct {
	Names []string
	Power []measure.Watt
	U     []measure.Watt // expanded, 95 %, Student's with the effective number of renewals
	// Seen is the share of an activity's time that lay in some window of the sensor;
	// a lag sees all.
	Seen     []float64
	Residual measure.Watt
	// Correlation is that of one renewal's residual with the next; it shrinks the
	// number of renewals that count.
	Correlation float64
	Renewals    int
	DOF         float64
	cov         *mat.SymDense // of the powers, W²
	factor      float64       // of coverage
	activities  []Activity
	uGain       float64
	uOffset     measure.Watt
}

// leastSeen is the least share of an activity that must have been looked at.
const leastSeen = 0.02

// FindLevels fits the activities' powers. They are in order of time and do not
// overlap; what lies between them is the activity "". Renewals are as [Renewals]
// gives them. It fails where an activity was hardly looked at, or two of them only
// ever together: what nobody saw is no number.
func FindLevels(renewals []Reading, p *sensor.Profile, activities []Activity) (*Levels, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	all, err := fill(renewals, p, activities)
	if err != nil {
		return nil, err
	}
	l := &Levels{activities: all, uGain: p.UGain, uOffset: p.UOffset}
	for _, a := range all {
		if !slices.Contains(l.Names, a.Name) {
			l.Names = append(l.Names, a.Name)
		}
	}
	// The first window begins before the first renewal, where nothing is known.
	settle := p.Delay + p.Window + 5*p.Tau
	var use []Reading
	for _, r := range renewals {
		if r.At-settle >= all[0].From {
			use = append(use, r)
		}
	}
	l.Renewals = len(use)
	if len(use) < len(l.Names)+2 {
		return nil, fmt.Errorf("correct: %w: %d renewals of the sensor for %d powers", ErrReadings, len(use), len(l.Names))
	}
	x, err := l.design(use, p)
	if err != nil {
		return nil, err
	}
	return l, l.fit(x, use, p)
}

// fill lays activities end to end, from the first renewal's to the last one's time.
func fill(renewals []Reading, p *sensor.Profile, activities []Activity) ([]Activity, error) {
	if len(renewals) < 3 {
		return nil, fmt.Errorf("correct: %w: %d renewals", ErrReadings, len(renewals))
	}
	at := renewals[0].At - p.Delay - p.Window
	end := renewals[len(renewals)-1].At - p.Delay
	var out []Activity
	for i, a := range activities {
		if i > 0 && a.From < activities[i-1].To-1e-6 || a.To < a.From {
			return nil, fmt.Errorf("correct: %w: activity %d (%q) begins at %.6f s, before the one before it has ended", ErrReadings, i+1, a.Name, float64(a.From))
		}
		a.From, a.To = max(a.From, at), min(a.To, end)
		if a.From >= a.To {
			continue
		}
		if a.From > at+1e-9 {
			out = append(out, Activity{"", Span{From: at, To: a.From}})
		}
		out, at = append(out, a), a.To
	}
	if at < end {
		out = append(out, Activity{"", Span{From: at, To: end}})
	}
	return out, nil
}

// design has a row a renewal and a column a name: what the sensor shows of it at 1 W.
func (l *Levels) design(use []Reading, p *sensor.Profile) (*mat.Dense, error) {
	unit := *p
	unit.Gain, unit.Offset, unit.Quantum = 1, 0, 0
	at := make([]measure.Seconds, len(use))
	for i, r := range use {
		at[i] = r.At
	}
	edges := []measure.Seconds{l.activities[0].From}
	for _, a := range l.activities {
		edges = append(edges, a.To)
	}
	x := mat.NewDense(len(use), len(l.Names), nil)
	for c, name := range l.Names {
		watts := make([]measure.Watt, len(l.activities))
		length := measure.Seconds(0)
		for i, a := range l.activities {
			if a.Name == name {
				watts[i] = 1
				length += a.Length()
			}
		}
		load, err := sensor.NewLoad(edges, watts)
		if err != nil {
			return nil, err
		}
		seen, last := 0.0, math.Inf(-1)
		for r, w := range unit.PredictAt(load, at) {
			x.Set(r, c, float64(w))
			seen += float64(w) * min(float64(p.Window), float64(at[r])-last)
			last = float64(at[r])
		}
		share := 1.0
		if p.Model == sensor.Boxcar {
			share = min(seen/float64(length), 1)
		}
		l.Seen = append(l.Seen, share)
		if share < leastSeen {
			return nil, fmt.Errorf("correct: %w: the sensor looked at %.1f %% of the time of %q: its power is not to be known from these readings", ErrReadings, 100*share, name)
		}
	}
	return x, nil
}

func (l *Levels) fit(x *mat.Dense, use []Reading, p *sensor.Profile) error {
	n, k := x.Dims()
	y := mat.NewVecDense(n, nil)
	for i, r := range use {
		y.SetVec(i, float64(r.Power-p.Offset)/p.Gain)
	}
	var svd mat.SVD
	if !svd.Factorize(x, mat.SVDThin) || svd.Cond() > 1e4 {
		return fmt.Errorf("correct: %w: the sensor saw %q only in the same mixture: their powers cannot be told apart", ErrReadings, l.Names)
	}
	var b, fit mat.VecDense
	if err := b.SolveVec(x, y); err != nil {
		return fmt.Errorf("correct: %w: %w", ErrReadings, err)
	}
	fit.MulVec(x, &b)
	rss, next, last := 0.0, 0.0, 0.0
	for i := range n {
		d := y.AtVec(i) - fit.AtVec(i)
		rss, next, last = rss+d*d, next+d*last, d
	}
	dof := float64(n - k)
	l.Residual = measure.Watt(math.Sqrt(rss / dof))
	if rss > 0 {
		l.Correlation = max(0, min(next/rss, 0.98))
	}
	wide := (1 + l.Correlation) / (1 - l.Correlation)
	l.DOF = max(dof/wide, 1)
	l.factor = distuv.StudentsT{Sigma: 1, Nu: l.DOF}.Quantile(0.975)
	var xtx mat.SymDense
	xtx.SymOuterK(1, x.T())
	var chol mat.Cholesky
	if !chol.Factorize(&xtx) {
		return fmt.Errorf("correct: %w: singular", ErrReadings)
	}
	l.cov = mat.NewSymDense(k, nil)
	if err := chol.InverseTo(l.cov); err != nil {
		return fmt.Errorf("correct: %w: %w", ErrReadings, err)
	}
	l.cov.ScaleSym(rss/dof*wide, l.cov)
	for c := range k {
		w := b.AtVec(c)
		l.Power = append(l.Power, measure.Watt(w))
		l.U = append(l.U, measure.Watt(math.Sqrt(square(l.factor*math.Sqrt(l.cov.At(c, c)))+square(w*l.uGain)+square(float64(l.uOffset)))))
	}
	return nil
}

func square(v float64) float64 { return v * v }

// Energy is the energy of a span: each activity's power times its time.
func (l *Levels) Energy(span Span) (Energy, error) {
	first, last := l.activities[0], l.activities[len(l.activities)-1]
	if !(span.From < span.To) || span.From < first.From-1e-6 || span.To > last.To+1e-6 {
		return Energy{}, fmt.Errorf("correct: %w: %.6f s to %.6f s; the activities are known from %.6f s to %.6f s", ErrSpan, float64(span.From), float64(span.To), float64(first.From), float64(last.To))
	}
	times := make([]float64, len(l.Names))
	for _, a := range l.activities {
		if t := min(a.To, span.To) - max(a.From, span.From); t > 0 {
			times[slices.Index(l.Names, a.Name)] += float64(t)
		}
	}
	e := Energy{Span: span, Raw: measure.Joule(math.NaN()), Readings: l.Renewals}
	variance := 0.0
	for i, t := range times {
		e.Energy += measure.Joule(t * float64(l.Power[i]))
		for j, s := range times {
			variance += t * s * l.cov.At(i, j)
		}
	}
	e.budget([]measure.Contribution{
		{Source: "fit of the powers", U: measure.Joule(math.Sqrt(variance) * l.factor / 2)},
		{Source: "gain", U: measure.Joule(math.Abs(float64(e.Energy)) * l.uGain / 2), Systematic: true},
		{Source: "offset", U: measure.Joule(float64(span.Length()) * float64(l.uOffset) / 2), Systematic: true},
	})
	return e, nil
}

// Course is the powers as a trace: two points a stretch.
func (l *Levels) Course() []Reading {
	out := make([]Reading, 0, 2*len(l.activities))
	for _, a := range l.activities {
		p := l.Power[slices.Index(l.Names, a.Name)]
		out = append(out, Reading{At: a.From, Power: p}, Reading{At: a.To, Power: p})
	}
	return out
}

package correct

import (
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/mat"
)

// Activity is a stretch of one kind of work. Stretches of one name are taken to draw
// the same power.
type Activity = validate.Kernel

// Levels are the powers of activities with known times, found by least squares: the
// response of a sensor of a known profile to each of them at one watt, times its power,
// adds up to the readings.
type Levels struct {
	Names []string
	Power []measure.Watt
	U     []measure.Watt // expanded, 95 %, Student's with the effective number of renewals
	// Seen is the share of an activity's time that lay in some window of the sensor;
	// a lag sees all.
	Seen []float64
	// Correlation is that of one renewal's residual with the next; it lowers the
	// effective number of renewals.
	Correlation float64
	Renewals    int
	DOF         float64
	cov         *mat.SymDense // of the powers, W²
	factor      float64       // of coverage
	activities  []Activity
	uGain       float64
	uOffset     measure.Watt
}

// leastSeen is the least share of an activity that windows must cover.
const leastSeen = 0.02

// FindLevels fits the activities' powers. They are in order of time and do not overlap;
// the time between them is the activity "". Renewals come from [Renewals]. It fails
// where the windows cover less than 2 % of an activity, or show two activities only in
// the same mixture. Errors wrap ErrReadings or sensor.ErrProfile.
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
		l.Names = lists.AddNew(l.Names, a.Name)
	}
	// The first window begins before the first renewal, where the power is unknown.
	settle := p.Delay + p.Window + 5*p.Tau
	use := lists.Filter(renewals, func(r *Reading) bool { return r.At-settle >= all[0].From })
	l.Renewals = len(use)
	if len(use) < len(l.Names)+2 {
		return nil, fmt.Errorf("correct: %w: %d renewals of the sensor for %d powers", ErrReadings, len(use),
			len(l.Names))
	}
	x, err := l.design(use, p)
	if err != nil {
		return nil, err
	}
	return l, l.fit(x, use, p)
}

// fill clips activities to the time from the first window to the last renewal, and fills
// the gaps by activities without a name.
func fill(renewals []Reading, p *sensor.Profile, activities []Activity) ([]Activity, error) {
	if len(renewals) < 3 {
		return nil, fmt.Errorf("correct: %w: %d renewals", ErrReadings, len(renewals))
	}
	at := renewals[0].At - p.Delay - p.Window
	end := renewals[len(renewals)-1].At - p.Delay
	var out []Activity
	for i, a := range activities {
		if i > 0 && a.From < activities[i-1].To-1e-6 || a.To < a.From {
			return nil, fmt.Errorf("correct: %w: activity %d (%q) begins at %.6f s, before the one before it has "+
				"ended", ErrReadings, i+1, a.Name, float64(a.From))
		}
		a.From, a.To = max(a.From, at), min(a.To, end)
		if a.From >= a.To {
			continue
		}
		if a.From > at+1e-9 {
			out = append(out, Activity{Span: Span{From: at, To: a.From}})
		}
		out, at = append(out, a), a.To
	}
	if at < end {
		out = append(out, Activity{Span: Span{From: at, To: end}})
	}
	return out, nil
}

// design returns the response of the sensor at each renewal (row) to each name at 1 W
// (column), and sets Seen.
func (l *Levels) design(use []Reading, p *sensor.Profile) (*mat.Dense, error) {
	unit := *p
	unit.Gain, unit.Offset, unit.Quantum = 1, 0, 0
	at := lists.Map(use, func(r Reading) measure.Seconds { return r.At })
	ends := lists.Map(l.activities, func(a Activity) measure.Seconds { return a.To })
	edges := append([]measure.Seconds{l.activities[0].From}, ends...)
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
		// Overlapping windows see the same time: each counts for what is new in it.
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
			return nil, fmt.Errorf("correct: %w: the sensor looked at %.1f %% of the time of %q: its power is not "+
				"to be known from these readings", ErrReadings, 100*share, name)
		}
	}
	return x, nil
}

// fit solves for the powers by singular value decomposition, and takes the covariance
// from the residuals, widened by (1+ρ)/(1−ρ) for their first autocorrelation ρ.
func (l *Levels) fit(x *mat.Dense, use []Reading, p *sensor.Profile) error {
	n, k := x.Dims()
	y := mat.NewVecDense(n, nil)
	for i, r := range use {
		y.SetVec(i, float64(r.Power-p.Offset)/p.Gain)
	}
	var svd mat.SVD
	if !svd.Factorize(x, mat.SVDThin) || svd.Cond() > 1e4 {
		return fmt.Errorf("correct: %w: the sensor saw %q only in the same mixture: their powers cannot be told apart",
			ErrReadings, l.Names)
	}
	var b, rest mat.VecDense
	_ = b.SolveVec(x, y) // it fails by the condition alone, as the inverse below
	rest.MulVec(x, &b)
	rest.SubVec(y, &rest)
	rss, dof := mat.Dot(&rest, &rest), float64(n-k)
	l.Correlation = max(0, min(stats.Autocorrelation(rest.RawVector().Data), 0.98))
	wide := (1 + l.Correlation) / (1 - l.Correlation)
	l.DOF = max(dof/wide, 1)
	l.factor = stats.Student(0.975, l.DOF)
	var xtx mat.SymDense
	xtx.SymOuterK(1, x.T())
	var chol mat.Cholesky
	l.cov = mat.NewSymDense(k, nil)
	chol.Factorize(&xtx)
	_ = chol.InverseTo(l.cov)
	l.cov.ScaleSym(rss/dof*wide, l.cov)
	for c := range k {
		w := b.AtVec(c)
		l.Power = append(l.Power, measure.Watt(w))
		variance := square(l.factor)*l.cov.At(c, c) + square(w*l.uGain) + square(float64(l.uOffset))
		l.U = append(l.U, measure.Watt(math.Sqrt(variance)))
	}
	return nil
}

func square(v float64) float64 { return v * v }

// Energy returns the energy of a span: each activity's power times its time. Errors wrap
// ErrSpan.
func (l *Levels) Energy(span Span) (Energy, error) {
	first, last := l.activities[0], l.activities[len(l.activities)-1]
	if !(span.From < span.To) || span.From < first.From-1e-6 || span.To > last.To+1e-6 {
		return Energy{}, fmt.Errorf("correct: %w: %.6f s to %.6f s; the activities are known from %.6f s to %.6f s",
			ErrSpan, float64(span.From), float64(span.To), float64(first.From), float64(last.To))
	}
	times := make([]float64, len(l.Names))
	for _, a := range l.activities {
		if t := min(a.To, span.To) - max(a.From, span.From); t > 0 {
			times[slices.Index(l.Names, a.Name)] += float64(t)
		}
	}
	e := Energy{Span: span, Raw: measure.Joule(math.NaN())}
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

// Course returns the powers as a trace, two points a stretch.
func (l *Levels) Course() []Reading {
	out := make([]Reading, 0, 2*len(l.activities))
	for _, a := range l.activities {
		p := l.Power[slices.Index(l.Names, a.Name)]
		out = append(out, Reading{At: a.From, Power: p}, Reading{At: a.To, Power: p})
	}
	return out
}

// Unseen is the time of a span that no window of the sensor covered, and the bounds of
// the span's energy: covered time counts by the readings, uncovered time as anything
// from the least to the greatest power of the card.
type Unseen struct {
	Span  `json:"-"`
	Seen  measure.Seconds `json:"-"`
	Share float64         `json:"share_seen"` // Seen of the span, from 0 to 1
	Low   measure.Joule   `json:"low_j"`
	High  measure.Joule   `json:"high_j"`
	Floor measure.Watt    `json:"floor_w"`
	Cap   measure.Watt    `json:"cap_w"`
}

func (u Unseen) String() string {
	return fmt.Sprintf("seen %.0f %% of %v; with %v to %v in the rest the energy lies between %v and %v",
		100*u.Share, u.Length(), u.Floor, u.Cap, u.Low, u.High)
}

// FindUnseen bounds a span's energy by the windows of a boxcar sensor. Renewals come from [Renewals]. Overlapping
// windows count once, with the later one's mean; a window that reaches out of the span counts its mean for the part
// within. floor and cap bound the card's power. Errors wrap ErrWindow for a lag, which sees all of the time, or
// ErrSpan.
func FindUnseen(renewals []Reading, p *sensor.Profile, span Span, floor, cap measure.Watt) (Unseen, error) {
	u := Unseen{Span: span, Floor: floor, Cap: cap}
	if err := p.Validate(); err != nil {
		return u, err
	}
	if p.Model != sensor.Boxcar {
		return u, fmt.Errorf("correct: %w: a sensor that lags looks all the time", ErrWindow)
	}
	if !(floor <= cap) || !(span.From < span.To) {
		return u, fmt.Errorf("correct: %w: power from %v to %v over %v", ErrSpan, floor, cap, span.Length())
	}
	at, seen := span.From, 0.0
	for _, r := range renewals {
		b := min(r.At-p.Delay, span.To)
		a := max(r.At-p.Delay-p.Window, at)
		if a >= b {
			continue
		}
		w := float64(r.Power-p.Offset) / p.Gain
		seen += float64(b-a) * w
		u.Seen += b - a
		at = b
	}
	unseen := float64(span.Length() - u.Seen)
	u.Share = float64(u.Seen / span.Length())
	u.Low, u.High = measure.Joule(seen+unseen*float64(floor)), measure.Joule(seen+unseen*float64(cap))
	return u, nil
}

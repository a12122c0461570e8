package predict

import (
	"wattmark/measure"
)

// Score is how well a model tells points that it was not made from.
type Score struct {
	Time, Energy       Errors
	TimeHit, EnergyHit int // points inside of the band of prediction
}

// Scored is one such point.
type Scored struct {
	Point
	Prediction
}

// Evaluation is a model held against points.
type Evaluation struct {
	Points                  []Scored
	Linear, ByRounds, Mixed Score
}

// Evaluate predicts points, all of which should be new to the model.
func (m *Model) Evaluate(points []Point) (Evaluation, error) {
	var out Evaluation
	for _, p := range points {
		if err := p.Validate(); err != nil {
			return out, err
		}
		q, err := m.At(p.Blocks, Target{})
		if err != nil {
			return out, err
		}
		out.Points = append(out.Points, Scored{p, q})
	}
	var err error
	if out.Linear, err = score(out.Points, func(p Prediction) Forecast { return p.Linear }); err == nil {
		out.ByRounds, err = score(out.Points, func(p Prediction) Forecast { return p.ByRounds })
	}
	if err == nil {
		out.Mixed, err = score(out.Points, func(p Prediction) Forecast { return p.Mixed })
	}
	return out, err
}

func score(points []Scored, of func(Prediction) Forecast) (s Score, err error) {
	var t, tp []measure.Seconds
	var e, ep []measure.Joule
	for _, p := range points {
		f := of(p.Prediction)
		t, tp = append(t, p.Time), append(tp, f.Time.Value)
		e, ep = append(e, p.Energy), append(ep, f.Energy.Value)
		if f.Time.Within(p.Time) {
			s.TimeHit++
		}
		if f.Energy.Within(p.Energy) {
			s.EnergyHit++
		}
	}
	if s.Time, err = RelativeErrors(t, tp); err != nil {
		return s, err
	}
	s.Energy, err = RelativeErrors(e, ep)
	return s, err
}

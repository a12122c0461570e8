package correct

import (
	"sort"

	"wattmark/measure"
)

// Piece is the energy of a piece of work whose span was found by [Work] in these
// readings. A step of the power is a ramp over some readings once it is corrected.
// The instant of the step is where it must be for the ramp's area to be right, and
// the energy is the integral over both ramps less what was drawn before and after.
// So an instant that is off costs the power beside the work, not that of the work.
// The span of the result is between those instants. Work too short to have a middle
// is integrated as it stands.
func (l Lag) Piece(rs []Reading, work Span) (Energy, error) {
	if err := Check(rs); err != nil {
		return Energy{}, err
	}
	n := l.Slope.reach() + 1
	first := sort.Search(len(rs), func(i int) bool { return rs[i].At > work.From }) - 1
	last := sort.Search(len(rs), func(i int) bool { return rs[i].At >= work.To })
	if first-n < 2 || last+n > len(rs)-3 || last-n-1 < first+n+2 {
		return l.Energy(rs, work)
	}
	rise, err := l.step(rs, first-n, first+1+n)
	if err != nil {
		return Energy{}, err
	}
	fall, err := l.step(rs, last-1-n, last+n)
	if err != nil {
		return Energy{}, err
	}
	whole := Span{From: rs[first-n].At, To: rs[last+n].At}
	e, err := l.Energy(rs, whole)
	if err != nil || !(rise.at < fall.at) {
		return e, err
	}
	out := rise.before*float64(rise.at-whole.From) + fall.after*float64(whole.To-fall.at)
	e.Energy -= measure.Joule((out - float64(l.Offset)*float64(whole.Length()-(fall.at-rise.at))) / l.gain())
	raw, err := Integrate(rs, Span{From: rise.at, To: fall.at})
	if err != nil {
		return Energy{}, err
	}
	e.Span, e.Raw = Span{From: rise.at, To: fall.at}, raw
	base := (rise.before + fall.after) / 2
	e.budget(append(e.Budget, measure.Contribution{Source: "instants of the steps", U: measure.Joule(base * float64(Spacing(rs)) / 4)}))
	return e, nil
}

// step is a change of the corrected power, before the static line.
type step struct {
	at            measure.Seconds
	before, after float64 // W
}

// step places a step between two readings by the area under the corrected power.
func (l Lag) step(rs []Reading, a, b int) (step, error) {
	three := func(i int) float64 {
		return median([]float64{l.at(rs, max(i-1, 0)), l.at(rs, i), l.at(rs, min(i+1, len(rs)-1))})
	}
	s := step{before: three(a - 1), after: three(b + 1)}
	plain := Lag{C: l.C, Slope: l.Slope, Noise: 1}
	e, err := plain.Energy(rs, Span{From: rs[a].At, To: rs[b].At})
	if err != nil {
		return s, err
	}
	length := float64(rs[b].At - rs[a].At)
	late := (s.after*length - float64(e.Energy)) / (s.after - s.before)
	s.at = rs[a].At + measure.Seconds(max(0, min(late, length)))
	return s, nil
}

package predict

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"wattmark/measure"
)

// Staircase is a number of resident blocks that explains measured times.
type Staircase struct {
	Resident uint64
	Round    measure.Seconds // T_r: the step
	Start    measure.Seconds // what a launch costs beside its rounds
	RMS      measure.Seconds // of the residuals
}

// FitStaircase finds how many blocks a multiprocessor holds from the steps of the
// times (Fig. 2 of the paper): for each number up to most it fits T = Start +
// Round·⌈NB/(sms·r)⌉. The best comes first. It fails where the points do not tell
// two numbers apart, or show no steps better than a straight line.
func FitStaircase(points []Point, sms, most uint64) ([]Staircase, error) {
	for _, p := range points {
		if err := p.Validate(); err != nil {
			return nil, err
		}
	}
	if sms == 0 || sms > mostSMs || most == 0 || most > mostResident {
		return nil, fmt.Errorf("%w: a staircase of %d multiprocessors with up to %d resident blocks", ErrInput, sms, most)
	}
	if len(points) < 4 {
		return nil, fmt.Errorf("%w: %d of them: steps need four at least, on both sides of one", ErrPoints, len(points))
	}
	var out []Staircase
	for r := uint64(1); r <= most; r++ {
		s, ok := fitStairs(points, func(b uint64) float64 { return float64(Rounds(b, sms, r)) })
		if ok {
			s.Resident = r
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: all lie within one round: measure more blocks", ErrPoints)
	}
	slices.SortStableFunc(out, func(a, b Staircase) int { return cmp.Compare(a.RMS, b.RMS) })
	straight, _ := fitStairs(points, func(b uint64) float64 { return float64(b) })
	best := out[0]
	if best.RMS >= straight.RMS {
		return out, fmt.Errorf("%w: a straight line explains the times as well (%v rms) as steps do (%v): give the resident blocks yourself", ErrPoints, straight.RMS, best.RMS)
	}
	if len(out) > 1 && float64(out[1].RMS) <= 1.2*float64(best.RMS) {
		return out, fmt.Errorf("%w: %d and %d resident blocks explain the times alike (%v and %v rms): measure just below and above a multiple of %d blocks", ErrPoints, best.Resident, out[1].Resident, best.RMS, out[1].RMS, sms*best.Resident)
	}
	return out, nil
}

func fitStairs(points []Point, of func(uint64) float64) (s Staircase, ok bool) {
	var x, y, one []float64
	for _, p := range points {
		x, y, one = append(x, of(p.Blocks)), append(y, float64(p.Time)), append(one, 1)
	}
	if slices.Min(x) == slices.Max(x) {
		return s, false
	}
	l := fitLine(x, y, one)
	var sum float64
	for _, r := range l.residual {
		sum += r * r
	}
	s = Staircase{Round: measure.Seconds(l.slope), Start: measure.Seconds(l.intercept), RMS: measure.Seconds(math.Sqrt(sum / float64(len(x))))}
	return s, l.slope > 0
}

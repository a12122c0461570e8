package correct

import (
	"fmt"

	"wattmark/analysis/sensor"
	"wattmark/measure"
)

// Unseen says how much of a span no window of the sensor covered, and between what
// the span's energy must lie: seen time counts as the sensor told, unseen time as
// anything from the least power that the card draws to the most.
type Unseen struct {
	Span
	Seen, Unseen measure.Seconds
	Low, High    measure.Joule
	Floor, Cap   measure.Watt
}

// Share is how much of the span was seen, from 0 to 1.
func (u Unseen) Share() float64 { return float64(u.Seen / u.Length()) }

func (u Unseen) String() string {
	return fmt.Sprintf("seen %.0f %% of %v; with %v to %v in the rest the energy lies between %v and %v",
		100*u.Share(), u.Length(), u.Floor, u.Cap, u.Low, u.High)
}

// FindUnseen bounds a span's energy by what a boxcar sensor saw of it. Renewals are
// as [Renewals] gives them. Windows that overlap are counted once, with the later
// one's mean; of a window that reaches out of the span the mean is taken for the
// part within. floor and cap bound the card's power. A lag sees all of the time.
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
	u.Unseen = span.Length() - u.Seen
	u.Low = measure.Joule(seen + float64(u.Unseen)*float64(floor))
	u.High = measure.Joule(seen + float64(u.Unseen)*float64(cap))
	return u, nil
}

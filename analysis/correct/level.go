package correct

import (
	"errors"
	"fmt"

	"wattmark/measure"
)

// Mode is a power at which the GPU stayed.
type Mode struct {
	Power measure.Watt
	SD    measure.Watt // of the corrected readings around it
	Share float64      // of the time
}

// Level is the power of a GPU that waits for work, and where work begins. A K20
// keeps 52.5 W for some seconds after a kernel, its active idle, before it goes
// down to its idle power; other cards go down at once, and both are the same.
type Level struct {
	Idle, Active measure.Watt
	// Threshold is above what corrected power counts as work.
	Threshold measure.Watt
	Modes     []Mode // in order of power
	// Valley is how densely the time lies at the emptiest power between the level and
	// the work above it, as a share of the lower of the two peaks. Near 0 the two are
	// apart; Clear tells that it is below a fifth.
	Valley    float64
	Clear     bool
	Statement string
}

// ErrLevel is wrapped where readings do not tell rest from work.
var ErrLevel = errors.New("the readings do not tell rest from work")

const (
	levelBins  = 400
	modeShare  = 0.02 // of the time that makes a mode
	modeValley = 0.6  // of the lower peak: shallower valleys are no valleys
	clear      = 0.2
)

// FindLevel finds the active idle in corrected power: the time is laid out over the
// power as a histogram, smoothed; its peaks are the powers at which the GPU stayed.
// Otsu's cut (1979), which parts the time into two classes that are as narrow as
// can be, parts rest from work, and the highest peak of rest is the active idle.
// The threshold lies just above it, at most in the valley to the work.
//
// sigma is the standard deviation of the corrected readings, as [Lag.Sigma] has it.
func FindLevel(corrected []Reading, sigma measure.Watt) (Level, error) {
	if err := Check(corrected); err != nil {
		return Level{}, err
	}
	h := newHistogram(corrected, float64(sigma))
	if span := h.top - h.bottom; span < 4 || span < 12*float64(sigma) {
		return Level{}, fmt.Errorf("correct: %w: the corrected power stays within %.3g W, with a noise of %.2g W: give the level", ErrLevel, span, float64(sigma))
	}
	peaks := h.peaks()
	cut := h.otsu()
	rest := 0
	for i, p := range peaks {
		if p.bin < cut {
			rest = i
		}
	}
	if rest == len(peaks)-1 {
		return Level{}, fmt.Errorf("correct: %w: the time has %d peak(s) over the power, and none is work: give the level", ErrLevel, len(peaks))
	}
	var l Level
	for i := range peaks {
		l.Modes = append(l.Modes, h.mode(peaks, i))
	}
	l.Active = l.Modes[rest].Power
	l.Idle = l.Active
	most := 0.0
	for _, m := range l.Modes[:rest] { // of what lies below, where the most time was spent
		if m.Share > most {
			l.Idle, most = m.Power, m.Share
		}
	}
	a, b := peaks[rest], peaks[rest+1]
	valley := h.lowest(a.bin, b.bin)
	l.Valley = h.smooth[valley] / min(h.smooth[a.bin], h.smooth[b.bin])
	l.Clear = l.Valley < clear
	// Not the valley itself: a step of the power is a ramp of two readings, which a low cut loses least of.
	margin := max(5*float64(l.Modes[rest].SD), 0.04*(h.top-h.bottom))
	l.Threshold = measure.Watt(min(float64(l.Active)+margin, h.power(valley)))
	l.Statement = l.statement(rest)
	return l, nil
}

func (l *Level) statement(rest int) string {
	s := fmt.Sprintf("idle %.1f W", float64(l.Idle))
	if rest > 0 {
		s += fmt.Sprintf(", active idle %.1f W for %.0f %% of the time", float64(l.Active), 100*l.Modes[rest].Share)
	} else {
		s += ", no active idle apart from it"
	}
	s += fmt.Sprintf("; work counts above %.1f W", float64(l.Threshold))
	if !l.Clear {
		s += fmt.Sprintf("; work at %.1f W is not clearly apart (the valley is %.0f %% as dense as the lower peak): check the plot, or give the level",
			float64(l.Modes[rest+1].Power), 100*l.Valley)
	}
	return s
}

package correct

import (
	"fmt"
	"math"

	"wattmark/measure"
)

// Sigma is the standard deviation of a corrected reading: the readings' noise, as
// the slope magnifies it.
func (l Lag) Sigma(rs []Reading) measure.Watt {
	noise := l.Noise
	if noise == 0 {
		noise = Noise(rs)
	}
	dt := float64(Spacing(rs))
	n := float64(l.Slope.reach())
	gain := 1 / (2 * dt * dt) // Σ w² of the symmetric slope
	if l.Slope.half > 0 {
		gain = 3 / (n * (n + 1) * (2*n + 1) * dt * dt)
	}
	return noise * measure.Watt(math.Sqrt(1+float64(l.C*l.C)*gain)/l.gain())
}

// Work finds the spans in which corrected power exceeds a threshold (step 4). An
// instant of crossing is interpolated between the two readings around it. A lone
// reading on the other side of the threshold is noise, and so is work no longer than
// what the slope makes of one reading's jump.
func Work(corrected []Reading, threshold measure.Watt, slope Slope) []Span {
	above := make([]bool, len(corrected))
	for i, r := range corrected {
		above[i] = r.Power > threshold
	}
	for i := 1; i+1 < len(above); i++ {
		if above[i] != above[i-1] && above[i] != above[i+1] {
			above[i] = above[i-1]
		}
	}
	cross := func(i int) measure.Seconds { // between readings i−1 and i
		a, b := corrected[i-1], corrected[i]
		if (a.Power > threshold) == (b.Power > threshold) {
			return b.At
		}
		return a.At + (b.At-a.At)*measure.Seconds((threshold-a.Power)/(b.Power-a.Power))
	}
	var out []Span
	for i := 0; i < len(above); i++ {
		if !above[i] {
			continue
		}
		s := Span{From: corrected[i].At, To: corrected[len(corrected)-1].At}
		if i > 0 {
			s.From = cross(i)
		}
		first := i
		for i < len(above) && above[i] {
			i++
		}
		if i < len(above) {
			s.To = cross(i)
		}
		if i-first > 2*slope.reach() {
			out = append(out, s)
		}
	}
	return out
}

// ShortReadings is how many readings a kernel wants for an energy within about 5 %
// (Burtscher et al., section 4.3): 150 ms on a K20.
const ShortReadings = 10

// Warnings says what of a piece of work the readings cannot carry.
func Warnings(rs []Reading, s Span, period measure.Seconds) (out []string) {
	if n := float64(s.Length() / period); n < ShortReadings {
		out = append(out, fmt.Sprintf("%v of work is %.1f looks of the sensor; about 5 %% want %d, which is %v: repeat the work",
			s.Length(), n, ShortReadings, ShortReadings*period))
	}
	longest := measure.Seconds(0)
	for i := 1; i < len(rs); i++ {
		if rs[i].At > s.From && rs[i-1].At < s.To {
			longest = max(longest, rs[i].At-rs[i-1].At)
		}
	}
	if longest > 4*period && longest > s.Length()/20 {
		out = append(out, fmt.Sprintf("no reading for %v within the work", longest))
	}
	return out
}

// SlowSampling says when readings come more slowly than the sensor looks (step 1);
// empty where they do not.
func SlowSampling(rs []Reading, period measure.Seconds) string {
	if d := Spacing(rs); d > 1.1*period {
		return fmt.Sprintf("sampled every %v (%.1f Hz): the sensor looks every %v, sample at %.1f Hz or more", d, 1/float64(d), period, 1/float64(period))
	}
	return ""
}

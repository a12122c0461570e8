package sensor

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"wattmark/measure"
)

// stretch is how many changes are looked at together: the beat of a sensor wanders,
// and over few changes hardly.
const stretch = 16

// beatOf is the longest period at which the changes gather at one phase, zero where
// there is none above the polls' distance. The measure is Rayleigh's: the length of
// the mean of exp(2πi·t/T), taken over short stretches and averaged, so that a
// beat that wanders keeps its peak. A half, a third of the period gathers them as
// well, twice the period does not.
func beatOf(changes []Update, polling measure.Seconds) float64 {
	var gaps []float64
	for i := 1; i < len(changes); i++ {
		gaps = append(gaps, float64(changes[i].At-changes[i-1].At))
	}
	slices.Sort(gaps)
	// One gap in three at least is a single period; a jump of two values between
	// them (the tail of an update) makes short gaps.
	longest := 1.3 * gaps[len(gaps)*9/10]
	shortest := max(1.15*float64(polling), gaps[len(gaps)/10]/4)
	if shortest >= longest {
		return 0
	}
	span := float64(changes[min(stretch, len(changes)-1)].At - changes[0].At)
	step := 1 / (6 * max(span, longest))
	type candidate struct{ t, r float64 }
	var all []candidate
	best := 0.0
	for f := 1 / longest; f <= 1/shortest; f += step {
		r := gathering(changes, f)
		all = append(all, candidate{1 / f, r})
		best = max(best, r)
	}
	if best < 2.2/math.Sqrt(stretch)*0.7 {
		return 0
	}
	for i, c := range all {
		// The first peak, from the longest period on, that is about as high as any.
		if c.r >= 0.85*best && (i+1 == len(all) || c.r >= all[i+1].r) {
			return refine(changes, c.t, step)
		}
	}
	return 0
}

// refine climbs to the top of a peak.
func refine(changes []Update, period, step float64) float64 {
	f := 1 / period
	for d := step / 2; d > step/64; d /= 2 {
		for _, g := range []float64{f - d, f + d} {
			if gathering(changes, g) > gathering(changes, f) {
				f = g
			}
		}
	}
	return 1 / f
}

// gathering is Rayleigh's measure at a frequency, averaged over stretches.
func gathering(changes []Update, f float64) float64 {
	var sum, n float64
	for i := 0; i < len(changes); i += stretch / 2 {
		j := min(i+stretch, len(changes))
		if j-i < stretch/2 && i > 0 {
			break
		}
		var re, im float64
		for _, c := range changes[i:j] {
			s, k := math.Sincos(2 * math.Pi * f * float64(c.At-changes[i].At))
			re, im = re+k, im+s
		}
		sum += math.Hypot(re, im) / float64(j-i)
		n++
	}
	return sum / n
}

// number counts the renewals from change to change by following the beat: the
// phase is corrected by a part of what each change is off.
func number(changes []Update, period float64) {
	var width []float64
	for _, c := range changes {
		width = append(width, float64(c.Late-c.Early))
	}
	gain := 0.3
	if float64(median(width)) > 0.3*period {
		gain = 0.1
	}
	at := float64(changes[0].At)
	for i := 1; i < len(changes); i++ {
		t := float64(changes[i].At)
		n := int(math.Round((t - at) / period))
		if n < 1 {
			n = 0 // twice within a period: the polls, or a sensor that corrects itself
		}
		at += float64(n) * period
		at += gain * (t - at)
		changes[i].N = changes[i-1].N + n
	}
}

// meanPeriod is the median of the periods of stretches, with an uncertainty from
// how they differ, and from how well the ends of all are known.
func meanPeriod(changes []Update, period float64) (measure.Seconds, measure.Seconds) {
	blocks := min(12, len(changes)/6)
	var p []float64
	for b := range blocks {
		i, j := b*(len(changes)-1)/blocks, (b+1)*(len(changes)-1)/blocks
		if n := changes[j].N - changes[i].N; n > 0 {
			p = append(p, float64(changes[j].At-changes[i].At)/float64(n))
		}
	}
	first, last := changes[0], changes[len(changes)-1]
	n := float64(last.N - first.N)
	whole := float64(last.At-first.At) / n
	if len(p) < 2 {
		return measure.Seconds(whole), measure.Seconds(period)
	}
	mid := float64(median(p))
	if math.Abs(whole-mid) < 0.02*mid {
		mid = whole // no number was missed: the ends tell most
	}
	var s, polls float64
	for _, v := range p {
		s += (v - mid) * (v - mid)
	}
	for _, c := range changes {
		polls += math.Pow(float64(c.Late-c.Early), 2) / 12 / float64(len(changes))
	}
	// What the polls' distance does to a stretch its neighbour makes good: it must not
	// be counted as the beat's own wandering.
	each := n / float64(blocks)
	wander := max(s/float64(len(p)-1)-2*polls/(each*each), 0)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(p) - 1)}.Quantile(0.975)
	return measure.Seconds(mid), measure.Seconds(math.Hypot(t*math.Sqrt(wander/float64(len(p))), 1.96*math.Sqrt(2*polls)/n))
}

func median(v []float64) measure.Seconds {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	return measure.Seconds((s[(len(s)-1)/2] + s[len(s)/2]) / 2)
}

package measure

import (
	"math"

	"gonum.org/v1/gonum/dsp/fourier"
)

const (
	beatBins    = 2048 // stretches that are kept at most
	beatLeast   = 64   // stretches that show a beat at least
	beatPeriods = 2.5  // in the window at least: three slopes at random look like fewer
	beatFine    = 4    // trial frequencies a period in the window
	beatParts   = 8    // stretches a period at least; a faster ripple counts as noise
	beatAlarm   = 1e-3 // probability that noise makes a beat in a window
)

// beats looks for a slow ripple of the total power within the window. A load that goes on and off at a frequency
// near a multiple of the scan rate is read as one, at the distance to that multiple (Nyquist's criterion). Over whole
// periods of the ripple the readings' mean is that of the load; over the part of a period that is left it is not.
type beats struct {
	sums []float64 // of the power, by stretches of per scans
	per  int
	n    int // scans in the last stretch, 0 where it is full
}

// take adds the next readings. Gaps are closed up.
func (b *beats) take(power []float64) {
	for len(power) > 0 {
		if b.n == 0 {
			b.next()
		}
		n := min(b.per-b.n, len(power))
		var even, odd float64 // two sums, since an addition waits for the one before
		for i := 1; i < n; i += 2 {
			even, odd = even+power[i-1], odd+power[i]
		}
		if n%2 == 1 {
			even += power[n-1]
		}
		b.sums[len(b.sums)-1] += even + odd
		if b.n += n; b.n == b.per {
			b.n = 0
		}
		power = power[n:]
	}
}

// next begins a stretch; where there are enough of them, two become one.
func (b *beats) next() {
	if b.per = max(b.per, 1); len(b.sums) == beatBins {
		for i := range beatBins / 2 {
			b.sums[i] = b.sums[2*i] + b.sums[2*i+1]
		}
		b.sums, b.per = b.sums[:beatBins/2], 2*b.per
	}
	b.sums = append(b.sums, 0)
}

// find returns the standard uncertainty of the energy by the strongest ripple, half of the most that a part of its
// period holds, for scans a time dt apart; zero where the ripple is no more than noise, or has steps. A load's steps
// last some part of its own period, and as large a part of the ripple's where the scans fold it: what steps faster
// is a slow load itself. While the power settles after the window's begin and before its end it is left out.
//
// Fisher's test holds the line against the spectrum around it that is left without it and its harmonics
// (Proc. R. Soc. A 125 (1929) 54), taken to fall with the square of the frequency: power that wanders is no line.
func (b *beats) find(dt Seconds) Joule {
	bin := float64(b.per) * float64(dt)
	settles := int(math.Ceil(float64(PowerSettles) / bin))
	n := len(b.sums) - 1 - 2*settles
	if n < beatLeast {
		return 0
	}
	x := make([]float64, n*beatFine)
	for i := range n {
		x[i] = b.sums[settles+i] / float64(b.per)
	}
	straighten(x[:n])
	fft := fourier.NewFFT(len(x))
	c := fft.Coefficients(nil, x)
	best, periods, last := 0.0, 0.0, n/beatParts
	for j := int(beatPeriods * beatFine); j < last*beatFine; j++ {
		if p := square(c[j]); p > best && p > square(c[j-1]) && p > square(c[j+1]) {
			best, periods = p, float64(j)/beatFine
		}
	}
	if best == 0 {
		return 0
	}
	rest := append([]float64(nil), x...)
	for h := 1.0; h <= 3; h++ {
		takeWave(rest[:n], h*periods)
	}
	straighten(rest[:n])
	c = fft.Coefficients(c, rest)
	var floor, m float64
	for j := 1.0; j < min(float64(last), 3*periods+12); j++ {
		if math.Abs(j-periods) > 1.25 && math.Abs(j-2*periods) > 0.75 {
			w := max(1, j/periods)
			floor, m = floor+square(c[int(j)*beatFine])*w*w, m+1
		}
	}
	limit := m * (math.Pow(2*float64(last)/beatAlarm, 1/m) - 1)
	amplitude := 2 * math.Sqrt(best) / float64(n)
	if !(best > limit*floor/m) || steep(x[:n], rest, max(1, int(float64(n)/periods/64)), amplitude) {
		return 0
	}
	return Joule(amplitude * float64(n) * bin / (2 * math.Pi * periods))
}

// steep reports whether means of k values that follow each other differ by more than the amplitude and than noise,
// which the rest shows.
func steep(x, rest []float64, k int, amplitude float64) bool {
	var noise float64
	for i := 1; i < len(x); i++ {
		noise += (rest[i] - rest[i-1]) * (rest[i] - rest[i-1]) / float64(len(x)*k)
	}
	limit := float64(k) * max(amplitude, 6*math.Sqrt(noise))
	sums := make([]float64, len(x)+1)
	for i, v := range x {
		sums[i+1] = sums[i] + v
	}
	for i := 2 * k; i < len(sums); i++ {
		if math.Abs(sums[i]-2*sums[i-k]+sums[i-2*k]) > limit {
			return true
		}
	}
	return false
}

func square(c complex128) float64 { return real(c)*real(c) + imag(c)*imag(c) }

// straighten takes mean and slope off.
func straighten(x []float64) {
	n := float64(len(x))
	var mean, slope float64
	for i, v := range x {
		mean, slope = mean+v/n, slope+v*(float64(i)-(n-1)/2)
	}
	for i := range x {
		x[i] -= mean + slope*12/(n*(n*n-1))*(float64(i)-(n-1)/2)
	}
}

// takeWave takes off the wave of that many periods that fits best.
func takeWave(x []float64, periods float64) {
	var cc, cs, ss, xc, xs float64
	w := 2 * math.Pi * periods / float64(len(x))
	for i, v := range x {
		s, c := math.Sincos(w * float64(i))
		cc, cs, ss, xc, xs = cc+c*c, cs+c*s, ss+s*s, xc+v*c, xs+v*s
	}
	a, b, det := xc*ss-xs*cs, xs*cc-xc*cs, cc*ss-cs*cs
	for i := range x {
		s, c := math.Sincos(w * float64(i))
		x[i] -= (a*c + b*s) / det
	}
}

package measure

import (
	"cmp"
	"math"

	"gonum.org/v1/gonum/dsp/fourier"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mathext"
)

const (
	beatBins    = 2048 // stretches that are kept at most
	beatLeast   = 64   // stretches that show a beat at least
	beatPeriods = 2.5  // in the window at least: three slopes at random look like fewer
	beatFine    = 4    // trial frequencies a period in the window
	beatParts   = 8    // stretches a period at least; a faster ripple counts as noise
	beatAlarm   = 1e-3 // probability that noise makes a beat in a window
	beatStep    = 0.02 // periods between trial frequencies of readings that alternate
	beatPhases  = 64   // trial phases of a half period
)

// beats looks for a slow ripple of the total power within the window. A load that goes on and off at a frequency
// near a multiple of the scan rate is read as one, at the distance to that multiple (Nyquist's criterion). Over whole
// periods of the ripple the readings' mean is that of the load; over the part of a period that is left it is not.
type beats struct {
	sums  []float64 // of the power, by stretches of per scans
	turns []float64 // of the same with every second reading's sign turned
	per   int
	n     int    // scans in the last stretch, 0 where it is full
	first uint64 // number of the first scan
}

// take adds the next readings, from a scan of that number on. Gaps are closed up.
func (b *beats) take(power []float64, scan uint64) {
	if len(b.sums) == 0 {
		b.first = scan
	}
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
		last := len(b.sums) - 1
		b.sums[last] += even + odd
		b.turns[last] += (even - odd) * float64(1-2*int((scan-b.first)&1))
		if b.n += n; b.n == b.per {
			b.n = 0
		}
		power, scan = power[n:], scan+uint64(n)
	}
}

// next begins a stretch; where there are enough of them, two become one.
func (b *beats) next() {
	if b.per = max(b.per, 1); len(b.sums) == beatBins {
		b.halve()
	}
	b.sums, b.turns = append(b.sums, 0), append(b.turns, 0)
}

// halve makes one stretch of each two; the last one of an odd number goes on to be filled.
func (b *beats) halve() {
	n := len(b.sums)
	if n%2 == 1 {
		b.n = cmp.Or(b.n, b.per)
		b.sums, b.turns = append(b.sums, 0), append(b.turns, 0)
	} else if b.n > 0 {
		b.n += b.per
	}
	for i := range len(b.sums) / 2 {
		b.sums[i], b.turns[i] = b.sums[2*i]+b.sums[2*i+1], b.turns[2*i]+b.turns[2*i+1]
	}
	b.sums, b.turns, b.per = b.sums[:len(b.sums)/2], b.turns[:len(b.turns)/2], 2*b.per
}

// find returns the standard uncertainty of the energy by a load that beats with the scans, a time dt apart.
func (b *beats) find(dt Seconds) Joule {
	bin := float64(b.per) * float64(dt)
	settles := int(math.Ceil(float64(PowerSettles) / bin))
	n := len(b.sums) - 1 - 2*settles
	if n < beatLeast {
		return 0
	}
	return Joule(float64(n) * bin * max(b.ripple(settles, n), b.alternates(settles, n)))
}

// ripple returns the standard uncertainty of the mean power by the strongest ripple, half of the most that a part of
// its period holds; zero where the ripple is no more than noise, or has steps. A load's steps last some part of its own
// period, and as large a part of the ripple's where the scans fold it: what steps faster is a slow load itself. While
// the power settles after the window's begin and before its end it is left out.
func (b *beats) ripple(settles, n int) float64 {
	x := make([]float64, n*beatFine)
	for i := range n {
		x[i] = b.sums[settles+i] / float64(b.per)
	}
	straighten(x[:n])
	amplitude, periods, rest := strongest(x, n)
	if amplitude == 0 || steep(x[:n], rest, max(1, int(float64(n)/periods/64)), amplitude) {
		return 0
	}
	return amplitude / (2 * math.Pi * periods)
}

// strongest returns the strongest line among the first n of x, which have no mean and no slope: its amplitude, its
// periods in them, and what is left without it and its harmonics. The rest of x is zero, for finer trial frequencies.
// The amplitude is zero where the line is no more than noise.
//
// Fisher's test holds the line against the spectrum around it that is left without it and its harmonics
// (Proc. R. Soc. A 125 (1929) 54), taken to fall with the square of the frequency: power that wanders is no line.
func strongest(x []float64, n int) (amplitude, periods float64, rest []float64) {
	fft := fourier.NewFFT(len(x))
	c := fft.Coefficients(nil, x)
	best, last := 0.0, n/beatParts
	for j := int(beatPeriods * beatFine); j < last*beatFine; j++ {
		if p := square(c[j]); p > best && p > square(c[j-1]) && p > square(c[j+1]) {
			best, periods = p, float64(j)/beatFine
		}
	}
	if best == 0 {
		return 0, 0, nil
	}
	rest = append(rest, x...)
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
	if !(best > limit*floor/m) {
		return 0, 0, nil
	}
	return 2 * math.Sqrt(best) / float64(n), periods, rest[:n]
}

// alternates returns the standard uncertainty of the mean power by a load near an odd multiple of half of the scan
// rate; zero where the readings do not alternate more than noise makes them. The load's fundamental, of amplitude A, is
// a line s periods in the window from half of the scan rate; its second harmonic is read as a ripple of 2s periods,
// which shows neither its amplitude nor its mean while they are few. Of pulses of any duty the square of that amplitude
// is A²/2 in the mean: the mean power is off by A/2 · sin(2πs)/(2πs), rms over the phase.
//
// What the readings leave open of A, s and phase is averaged over by their likelihood, under a prior without a scale
// for A, up to twice the mean power: none is negative. Odd harmonics fold to the same line, so that what a wave does
// not fit, a hundredth of the line at least, counts as one error of the fit and not as noise.
func (b *beats) alternates(settles, n int) float64 {
	z, mean := b.turned(settles, n)
	m, all, noise, most := float64(len(z)), 0.0, 0.0, 0.0
	for i, v := range z {
		step := v - z[max(i-1, 0)]
		all, noise = all+v*v, noise+step*step/(2*(m-1))
	}
	var waves []wave
	for s := beatStep; s < beatPeriods/2+0.25; s += beatStep {
		w := waveOf(z, s)
		waves, most = append(waves, w), max(most, w.c*w.c/w.cc+w.s*w.s/w.ss)
	}
	if rest := max(all-most, 0); !(most > 0) || mathext.RegIncBeta((m-3)/2, 1.5, rest/all) > beatAlarm {
		return 0
	}
	misfit := noise + max(all-most-(m-3)*noise, 0.01*all)
	var weight, squares float64
	for _, w := range waves {
		share := math.Sin(2*math.Pi*w.periods) / (2 * math.Pi * w.periods)
		for k := range beatPhases {
			sin, cos := math.Sincos(math.Pi * (float64(k) + 0.5) / beatPhases)
			x, d := cos*w.c+sin*w.s, cos*cos*w.cc+sin*sin*w.ss
			if a := math.Abs(x) / d; a > 0 && a <= 2*mean {
				p := math.Exp((x*x/d-most)/(2*misfit)) / (math.Sqrt(d) * a)
				weight, squares = weight+p, squares+p*a*a*share*share
			}
		}
	}
	return math.Sqrt(squares/max(weight, math.SmallestNonzeroFloat64)) / 2
}

// wave holds products of values with a cosine and a sine, even and odd about the middle, and of these with themselves.
type wave struct{ periods, cc, ss, c, s float64 }

func waveOf(z []float64, periods float64) wave {
	w := wave{periods: periods}
	for i, v := range z {
		sin, cos := math.Sincos(2 * math.Pi * periods * ((float64(i)+0.5)/float64(len(z)) - 0.5))
		w.cc, w.ss, w.c, w.s = w.cc+cos*cos, w.ss+sin*sin, w.c+v*cos, w.s+v*sin
	}
	return w
}

// turned returns means of readings whose every second sign is turned, less what a slope adds, and the size of all's
// mean.
func (b *beats) turned(settles, n int) (z []float64, mean float64) {
	k := max(1, n/64)
	if b.per == 1 {
		k, settles = k+k%2, settles+settles%2
	}
	scans := float64(k * b.per)
	for i := settles + k; i+2*k <= settles+n; i += k {
		slope := (floats.Sum(b.sums[i+k:i+2*k]) - floats.Sum(b.sums[i-k:i])) / (2 * scans * scans)
		z = append(z, floats.Sum(b.turns[i:i+k])/scans+slope/2)
		mean += floats.Sum(b.sums[i : i+k])
	}
	return z, math.Abs(mean) / (float64(len(z)) * scans)
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
	w := waveOf(x, periods)
	for i := range x {
		sin, cos := math.Sincos(2 * math.Pi * periods * ((float64(i)+0.5)/float64(len(x)) - 0.5))
		x[i] -= w.c/w.cc*cos + w.s/w.ss*sin
	}
}

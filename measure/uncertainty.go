package measure

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// The budget follows JCGM 100:2008 (GUM), chapter 5: every source has a
// standard uncertainty and a sensitivity coefficient, the derivative of the
// energy by the source. The derivatives are exact, from the rail's moments.
//
//   - A gain, an offset, a shunt, an assumed voltage is one unknown for the
//     whole window: it does not average out. What it does to current and to
//     voltage of the same rail is added before squaring. Different sources are
//     independent.
//   - Noise is new with every reading and averages out.
//   - Quantisation is in part the one, in part the other (see Quantisation).
//   - The tick rate, the window's ends and gaps act on all rails at once: the
//     total's contribution comes from the total power, not from a root of squares.

// A noise that is not stated is seen in the readings themselves: an evaluation
// of type A, with degrees of freedom. All else is of type B and has none to lose.

// normalFactor is k for a normal distribution: 95.45 % (GUM, 6.3.3).
const normalFactor = 2

// term is a line of a budget with its degrees of freedom; zero for as many as
// one likes.
type term struct {
	Contribution
	dof float64
}

// terms are lines of a budget. Lines that are zero are left out.
type terms []term

func (t *terms) add(source string, u float64, systematic bool) { t.addSeen(source, u, systematic, 0) }

// addSeen adds a line of an uncertainty that was seen in readings.
func (t *terms) addSeen(source string, u float64, systematic bool, dof float64) {
	if u = math.Abs(u); u > 0 {
		*t = append(*t, term{Contribution{source, Joule(u), systematic}, dof})
	}
}

// CoverageFactor returns the k that holds 95.45 % of Student's distribution with
// that many degrees of freedom, rounded down by GUM G.4.1; 2 for +Inf. It
// is the Cornish–Fisher expansion (Abramowitz and Stegun, 26.7.5), within 1 %
// from three on, and GUM's table G.2 below.
func CoverageFactor(dof float64) float64 {
	switch n := math.Floor(dof); {
	case n <= 1:
		return 13.97
	case n == 2:
		return 4.53
	default:
		return normalFactor + 2.5/n + 3.0625/(n*n) + 2.859/(n*n*n)
	}
}

// FactorOf returns the k that a budget was expanded with: 2, or more where the
// noise was seen in few readings. NaN for an empty budget.
func FactorOf(e Estimate, budget []Contribution) float64 {
	var s float64
	for _, c := range budget {
		s += float64(c.U) * float64(c.U)
	}
	return float64(e.U) / math.Sqrt(s)
}

// railStats holds the terms of a rail's budget.
type railStats struct {
	rail   Rail
	lin    Linear
	x, y   Channel // y is zero for a rail of one channel
	nx, ny scatter // of a reading
	ox, oy disturbance
	m      Moments
	// spacing is the mean distance of two independent readings, in seconds.
	spacing float64
	// gainY is the variance of one second reading by that of the converter's: less
	// than one where it was interpolated.
	gainY float64
}

// sensitivities are the derivatives of power by the value of each channel, and
// the parts of the channels' values that their gains scale, as linear forms of
// the counts.
type sensitivities struct{ dx, dy, gainX, gainY form }

func (s *railStats) sensitivities() sensitivities {
	i, v := s.lin.forms()
	out := sensitivities{dx: v, gainX: form{c: s.x.Offset, x: s.x.Gain}, gainY: form{c: s.y.Offset, y: s.y.Gain}}
	switch s.rail.Wiring {
	case WiringShunt: // P = (X − Y)·Y/R
		k := 1 / float64(s.rail.Shunt)
		out.dx, out.dy = v.scale(k), i.plus(v.scale(-k))
	case WiringClamp: // P = X·Y
		out.dy = i
	}
	return out
}

// scatter is the standard deviation of a reading in counts, with its degrees of
// freedom; zero of those where it is stated.
type scatter struct{ sigma, dof float64 }

// disturbance is what a channel's readings hold beside white, normal noise.
type disturbance struct {
	slow scatter // of the mean over the window
	lone lone
}

// LoneReadings begins the budget's lines of readings that stand alone; a channel's name follows. They may
// be work or a disturbance, anything between none and all of them: with b joules of them u = b/√3, the
// root mean square of a uniform distribution from 0 to b.
const LoneReadings = "lone readings "

// budget lists the contributions that belong to this rail alone.
func (s *railStats) budget() (out terms) {
	d := s.sensitivities()
	channel := func(c Channel, n scatter, o disturbance, d, gain form) {
		byGain, byOffset := s.m.product(gain, d), s.m.integral(d)
		out.add("gain "+c.Name, c.UGain*byGain, true)
		out.add("offset "+c.Name, c.UOffset*byOffset, true)
		out.add("age "+c.Name, math.Hypot(c.Drift.AgeGain*byGain, c.Drift.AgeOffset*byOffset), true)
		out.add("temperature "+c.Name, math.Hypot(c.Drift.TemperatureGain*byGain, c.Drift.TemperatureOffset*byOffset), true)
		random := math.Abs(c.Gain) * math.Sqrt(s.spacing*max(s.m.product(d, d), 0))
		out.addSeen("noise "+c.Name, n.sigma*random, false, n.dof)
		fixed, dithered := Quantisation(n.sigma)
		fixedU, ditheredU := fixed*c.Gain*s.m.integral(d), dithered*random
		out.addSeen("slow noise "+c.Name, o.slow.sigma*math.Abs(c.Gain*s.m.integral(d)), true, o.slow.dof)
		out.add("heavy tail "+c.Name, math.Sqrt(o.lone.variance)*random, false)
		out.add(LoneReadings+c.Name, o.lone.mean*c.Gain*s.m.integral(d)/math.Sqrt(3), true)
		out.add("quantisation "+c.Name, math.Hypot(fixedU, ditheredU), math.Abs(fixedU) > ditheredU)
	}
	channel(s.x, s.nx, s.ox, d.dx, d.gainX)
	if s.rail.Y >= 0 {
		channel(s.y, s.ny, s.oy, d.dy, d.gainY)
	}
	i, v := s.lin.forms()
	switch s.rail.Wiring {
	case WiringShunt:
		out.add("shunt "+s.rail.Name, s.rail.UShunt*s.m.product(i, v), true)
		out.add("age shunt "+s.rail.Name, s.rail.Drift.AgeGain*s.m.product(i, v), true)
		out.add("temperature shunt "+s.rail.Name, s.rail.Drift.TemperatureGain*s.m.product(i, v), true)
		// Y enters squared, so its scatter shifts the mean by σ²/R. It is not
		// corrected: scatter that both channels share would not do it.
		_, dithered := Quantisation(s.ny.sigma)
		scatter := s.gainY * (s.ny.sigma*s.ny.sigma + dithered*dithered) * s.y.Gain * s.y.Gain
		out.add("squared noise "+s.y.Name, scatter/float64(s.rail.Shunt)*float64(s.m.One), true)
	case WiringAssumed:
		out.add("assumed voltage "+s.rail.Name, float64(s.rail.UAssumed)*s.m.integral(i), true)
	}
	return out
}

// SteadyU returns U (k = 2) of rail r's mean power while its readings rest at a current and a voltage, or at a power
// where the rail is read as such: gains, offsets, shunt, ages and rounding, which no average removes; no noise.
func (s *Setup) SteadyU(r int, i Ampere, v Volt, p Watt) Watt {
	rail := s.Rails[r]
	count := func(c Channel, value float64) float64 { return (value - c.Offset) / c.Gain }
	st := railStats{rail: rail, lin: rail.Linear(s.Channels), x: s.Channels[rail.X], m: Moments{One: 1}}
	switch rail.Wiring {
	case WiringShunt:
		st.m.X = count(st.x, float64(v)+float64(i)*float64(rail.Shunt))
	case WiringPower:
		st.m.X = count(st.x, float64(p))
	default:
		st.m.X = count(st.x, float64(i))
	}
	if rail.Y >= 0 {
		st.y = s.Channels[rail.Y]
		st.m.Y = count(st.y, float64(v))
	}
	st.m.XX, st.m.XY, st.m.YY = st.m.X*st.m.X, st.m.X*st.m.Y, st.m.Y*st.m.Y
	u, _ := expand(st.budget())
	return Watt(u)
}

// Quantisation splits the standard uncertainty of rounding to whole counts,
// 1/√12, for readings that scatter by sigma counts, into the part that stays the same while the signal rests and the
// part that is new with every reading, both in counts. Without noise every reading of a resting signal is rounded
// alike, and nothing averages out; noise of σ counts smears the rounding: the mean error of a signal that rests at
// phase φ of a count is Σ (−1)^k/(πk)·exp(−2π²k²σ²)·sin(2πkφ), whose mean square over φ is taken here (B. Widrow, I.
// Kollár, Quantization Noise, 2008, chapters 4 and 19). At σ = 0.5 the fixed part is 0.0016 count.
func Quantisation(sigma float64) (fixed, dithered float64) {
	const full = 1.0 / 12
	var v float64
	if sigma < 0.02 {
		return math.Sqrt(full), 0 // the series converges slowly, and to this
	}
	for k := 1.0; k <= 100; k++ {
		term := math.Exp(-4*math.Pi*math.Pi*k*k*sigma*sigma) / (2 * math.Pi * math.Pi * k * k)
		v += term
		if term < 1e-12 {
			break
		}
	}
	v = min(v, full)
	return math.Sqrt(v), math.Sqrt(full - v)
}

// edgeVariance returns the mean square of the change of the energy by shifts of the
// window's ends, in (W·ticks)², for normal shifts with a correlation; u are the ends'
// standard uncertainties in ticks. The trace around the ends shows the power that a shift
// passes over (Monte Carlo's question, JCGM 101, asked on a grid of half standard
// deviations): where the power steps at an end that is no multiple of the shift,
// and shifts that both ends share cancel or add up as the power does.
func edgeVariance(from, to *edge, r int, uFrom, uTo, correlation float64) float64 {
	if uFrom == 0 && uTo == 0 {
		return 0
	}
	const step, steps = 0.5, 8 // to four standard deviations
	sf, st := from.shifts(r), to.shifts(r)
	rest := math.Sqrt(max(1-correlation*correlation, 0))
	var square, weight float64
	for i := -steps; i <= steps; i++ {
		z1 := step * float64(i)
		lost := sf.by(uFrom * z1)
		for j := -steps; j <= steps; j++ {
			z2 := step * float64(j)
			w := math.Exp(-(z1*z1 + z2*z2) / 2)
			d := st.by(uTo*(correlation*z1+rest*z2)) - lost
			square, weight = square+w*d*d, weight+w
		}
	}
	return square / weight
}

// gapVariance returns the variance of the energy of the bridged gaps, in J². A
// gap of length g between powers P₀ and P₁ has g²·((P₁ − P₀)²/12 + s²): the
// first term is a step that fell anywhere within it, as likely here as there;
// the second is any other change of the power meanwhile, taken as its
// standard deviation s over the window for the whole of the gap. Gaps are
// independent of each other.
func (s *railSums) gapVariance(one, mean, gap2, tick float64) float64 {
	if gap2 == 0 {
		return 0
	}
	spread := max(s.pp.Value()/one-mean*mean, 0)
	return (s.step2 + spread*gap2) * tick * tick
}

// expand returns the expanded uncertainty and the budget's lines, the largest
// first. The effective degrees of freedom are Welch's and Satterthwaite's (GUM,
// G.4.1).
func expand(lines terms) (Joule, []Contribution) {
	var s, quartic float64
	budget := make([]Contribution, 0, len(lines))
	for _, t := range lines {
		v := float64(t.U) * float64(t.U)
		s += v
		if t.dof > 0 {
			quartic += v * v / t.dof
		}
		budget = append(budget, t.Contribution)
	}
	slices.SortStableFunc(budget, func(a, b Contribution) int { return cmp.Compare(b.U, a.U) })
	k := float64(normalFactor)
	if quartic > 0 {
		k = CoverageFactor(s * s / quartic)
	}
	return Joule(k * math.Sqrt(s)), budget
}

// noiseMeter estimates the scatter of a channel's readings from the median of
// the differences of neighbouring readings: steps and drifts of the signal
// are rare among the differences and do not move their median. Once it has seen
// enough it looks at the first noisePairs differences of each group, which is
// plenty and costs little. A load that ripples from scan to scan moves them, so there are four forms, each blind to a
// part of the spectrum: one that is significantly smaller than the first is nearer to the noise.
type noiseMeter [4]differences

type differences struct {
	bins  [linearBins + octaves*subBins]uint32
	total uint64
}

// forms are the differences' coefficients, the sum of their squares, and each one's degrees of freedom: a median holds
// 0.37 of the information of a standard deviation, and differences of neighbours share readings.
var forms = [4]struct {
	k            [4]int64
	squares, dof float64
}{
	{[4]int64{1, -1}, 2, 0.3},
	{[4]int64{1, -3, 3, -1}, 20, 0.2}, // no slopes, nor ripples below a fifth of the scan rate
	{[4]int64{1, -1, -1, 1}, 4, 0.25}, // nor those near half of it,
	{[4]int64{1, -1, 1, -1}, 4, 0.17}, // nor those near a quarter
}

const (
	noisePairs  = 32
	noiseEnough = 1024
	linearBins  = 64 // differences below are counted exactly
	subBins     = 8  // bins an octave above
	octaves     = 30
	maxHold     = groupScans / 2
)

// holdScans returns the distance in scans of two readings that are independent:
// more than one where a sensor shows each value several times.
func holdScans(s *Setup) int {
	hold := math.Round(float64(s.Response.Update) * float64(s.Timebase.SampleRate()))
	return int(min(max(hold, 1), maxHold))
}

// observe takes a group of counts; readings stride scans apart are compared.
func (m *noiseMeter) observe(x []Count, stride int) {
	reach, pairs := stride, noisePairs
	for f := range m {
		n, k := len(x)-reach, &forms[f].k
		if m[f].total >= noiseEnough {
			n = min(n, pairs)
		}
		for i := range max(n, 0) {
			d := int64(x[i]) + k[1]*int64(x[i+stride])
			if f > 0 {
				d += k[2]*int64(x[i+2*stride]) + k[3]*int64(x[i+3*stride])
			}
			m[f].bins[noiseBin(uint64(max(d, -d)))]++
			m[f].total++
		}
		reach, pairs = 3*stride, noisePairs/4
	}
}

// noiseBin returns the bin of a difference: exact, then eight bins an octave.
func noiseBin(d uint64) int {
	if d < linearBins {
		return int(d)
	}
	octave := bits.Len64(d) - 7 // 0 for 64..127
	return min(linearBins+octave*subBins+int(d>>(octave+3))-subBins, linearBins+octaves*subBins-1)
}

// binRange returns the differences that fall into a bin, as reals: a
// difference of whole counts stands for all that round to it.
func binRange(bin int) (from, to float64) {
	if bin < linearBins {
		return max(float64(bin)-0.5, 0), float64(bin) + 0.5
	}
	octave, sub := (bin-linearBins)/subBins, (bin-linearBins)%subBins
	return math.Ldexp(float64(subBins+sub), octave+3), math.Ldexp(float64(subBins+sub+1), octave+3)
}

// sigma returns the standard deviation of one reading in counts by differences of a form, without the
// part that rounding to whole counts adds (1/12 count²).
func (m *noiseMeter) sigma(form int) float64 {
	d, squares := &m[form], forms[form].squares
	// For a normal scatter the median of |difference| is 0.6745·√2·σ, of the first form.
	s := d.median() / (0.674489750196082 * math.Sqrt(squares))
	v := s * s
	if s < 1 {
		// So few bins hold the scatter that a median is coarse: take the mean
		// square, up to differences that a scatter so small does not make.
		v = d.meanSquare(int(8*math.Sqrt(squares/2))) / squares
	}
	return math.Sqrt(max(v-1.0/12, 0))
}

// scatter returns the least standard deviation by differences of any form.
func (m *noiseMeter) scatter() scatter {
	out := scatter{m.sigma(0), m.dof(0)}
	for f := 1; f < len(m); f++ {
		if s, dof := m.sigma(f), m.dof(f); s < out.sigma*(1-3/math.Sqrt(2*dof)) {
			out = scatter{s, dof}
		}
	}
	return out
}

func (m *noiseMeter) dof(form int) float64 { return max(forms[form].dof*float64(m[form].total), 1) }

// median returns the median difference, interpolated within its bin.
func (m *differences) median() float64 {
	half, below := float64(m.total)/2, 0.0
	for bin, n := range m.bins {
		c := float64(n)
		if c > 0 && below+c >= half {
			from, to := binRange(bin)
			return from + (to-from)*(half-below)/c
		}
		below += c
	}
	return 0
}

// meanSquare returns the mean square of the differences up to limit counts.
func (m *differences) meanSquare(limit int) float64 {
	var squares, n float64
	for d, c := range m.bins[:limit+1] {
		squares += float64(c) * float64(d*d)
		n += float64(c)
	}
	return squares / max(n, 1)
}

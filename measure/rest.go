package measure

import (
	"cmp"
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mathext"
)

// The noise line of a budget takes readings as independent: the mean of m of them then scatters
// by σ/√m. Real converters also have flicker and drift, which averaging does not remove. Where the
// capture has rest, how the means of longer and longer blocks scatter there is held against
// that, and what is more becomes a line of its own, "slow noise".
//
// The variance of a mean over a time T about the mean over a far longer one is, by Haar's
// decomposition, half the sum of the Allan variances at T, 2T, 4T, …: for white noise ½·(1 + ½ + ¼ + …) = 1
// of σ²/m. The sum ends at blocks as long as the capture: the zero was taken in another recording,
// and what is slower than both is in the channel's stated zero error.
//
// Mains hum and other lines of the spectrum are no such noise: the mean over T of a wave of amplitude A and frequency
// f scatters by A/(√2·πfT) with its phase. They are taken off before, and added so.
//
// A step of the card ends the rest; bursts after which the level is back do not, and count. A card that is restless without steps is taken for noise of the meter, so
// that U is then too large.

const (
	// restMost is how many scans of rest are kept on either side of the work: 256 KiB a channel.
	restMost = 1 << 16
	// restLeast is how many second differences an averaging time needs: with the 4 degrees of
	// freedom of eight the deviation is known to a third.
	restLeast = 8
	// restBlock is the number of readings averaged to find steps of the card; a step exceeds restStep
	// standard deviations of the differences of such averages.
	restBlock = 32
	restStep  = 8
	// restBurst is the number of such blocks after which a level that comes back was no step: a burst.
	restBurst = 4
	// restLines is how many lines of the spectrum are taken off, each with its harmonics.
	restLines = 3
	// restAlarm is the probability that white, normal noise of one channel is taken for slow noise.
	restAlarm = 1e-3
)

// rest keeps the readings before and behind the work.
type rest struct {
	spans [2]struct{ lo, hi float64 } // in ticks; empty for none
	runs  []restRun
}

// restRun is a stretch of rest without a gap.
type restRun struct {
	span int
	next uint64 // the scan behind it
	cols [][]Count
}

// Rest announces where the card rests, in device time: before the first instant, and behind
// the second; NaN where it is not known to. It is called before the first Add. Blocks up to Done
// are then of use.
func (g *Integrator) Rest(before, behind Seconds) {
	tb := g.setup.Timebase
	long := restMost * tb.TicksPerScan
	if t := tb.Ticks(before); !math.IsNaN(t) {
		g.rest.spans[0].lo, g.rest.spans[0].hi = max(t-long, 0), t
	}
	if t := tb.Ticks(behind); !math.IsNaN(t) {
		g.rest.spans[1].lo, g.rest.spans[1].hi = t, t+long
	}
}

// Done reports whether no later block bears on the result.
func (g *Integrator) Done() bool {
	_, last, ok := g.Covered()
	return ok && last > g.to && g.setup.Timebase.Ticks(last) > g.rest.spans[1].hi
}

// observe keeps the scans of a block that lie in the rest.
func (r *rest) observe(s *stretch[Count]) {
	for i, span := range r.spans {
		lo := s.find(func(t float64) bool { return t >= span.lo })
		hi := s.find(func(t float64) bool { return t >= span.hi })
		if hi <= lo {
			continue
		}
		if n := len(r.runs); n == 0 || r.runs[n-1].span != i || r.runs[n-1].next != s.first+uint64(lo) {
			r.runs = append(r.runs, restRun{span: i, cols: make([][]Count, len(s.cols))})
		}
		run := &r.runs[len(r.runs)-1]
		for c := range s.cols {
			run.cols[c] = append(run.cols[c], s.cols[c][lo:hi]...)
		}
		run.next = s.first + uint64(hi)
	}
}

// steady cuts the rest to what lies next to the work without a step in any channel: a warm-up, another
// program, or a card that goes to sleep end it. Readings lie stride scans apart. It is idempotent.
func (r *rest) steady(stride int) {
	for i := range r.runs {
		run := &r.runs[i]
		lo, hi := 0, len(run.cols[0])
		for _, x := range run.cols {
			first, last := steps(x, restBlock*stride)
			if run.span == 0 {
				lo = max(lo, last)
			} else {
				hi = min(hi, first)
			}
		}
		all := len(run.cols[0])
		for c, x := range run.cols {
			run.cols[c] = x[min(lo, hi):hi]
		}
		switch { // runs beyond the step are no rest
		case lo > 0:
			for k := range i {
				if r.runs[k].span == 0 {
					clear(r.runs[k].cols)
				}
			}
		case hi < all:
			r.runs = r.runs[:i+1]
			return
		}
	}
}

// steps returns the scans where the first step of a channel begins and where the last one is over, in
// blocks of m scans; the length and 0 where there is none.
func steps(x []Count, m int) (first, last int) {
	first = len(x)
	var sums, d []float64
	for b := 0; (b+1)*m <= len(x); b++ {
		var s int64
		for _, v := range x[b*m : (b+1)*m] {
			s += int64(v)
		}
		if sums = append(sums, float64(s)); b > 0 {
			d = append(d, math.Abs(sums[b]-sums[b-1]))
		}
	}
	if len(d) < restLeast {
		return first, 0
	}
	slices.Sort(d)
	limit := restStep * max(d[len(d)/2]/0.674489750196082, math.Sqrt(float64(m)))
	same := func(a, b float64) bool { return math.Abs(a-b) <= limit }
	for k := 0; k+1 < len(sums); k++ {
		if same(sums[k], sums[k+1]) {
			continue
		}
		end := k + 2 + restBurst
		back := slices.IndexFunc(sums[k+2:min(end, len(sums))], func(s float64) bool { return same(sums[k], s) })
		switch {
		case back >= 0:
			k += 1 + back
		case k >= restBurst && end <= len(sums): // nearer to an end of the rest it may be a part of a burst
			first, last = min(first, k*m), (k+2)*m
		}
	}
	return first, last
}

// restOctave is the variance of means of 2^k readings, in count², by second differences of
// neighbouring blocks, in which a drift does not count (Hadamard variance, NIST SP 1065, 5.2.9).
// all is the variance with every difference, bursts what bursts add to the mean of a reading, in counts.
type restOctave struct{ v, dof, all, bursts float64 }

// line is a line of the spectrum of a channel's rest.
type line struct {
	amplitude float64 // counts
	hertz     float64
}

// lines returns a copy of a channel's rest without the lines of its spectrum, and these lines, scans being dt seconds
// apart. They are found in the longest run, and taken off each with the phase that it has there. A meter that shows held
// values folds any wave to another frequency: where readings are not live, there are none.
func (r *rest) lines(channel int, dt float64, live bool) (runs [][]float64, found []line) {
	var longest []float64
	for _, run := range r.runs {
		x := lists.Map(run.cols[channel], func(v Count) float64 { return float64(v) })
		straighten(x) // second differences do not show it
		if runs = append(runs, x); len(x) > len(longest) {
			longest = x
		}
	}
	per := max(1, (len(longest)+beatBins-1)/beatBins)
	n := len(longest) / per
	if n < beatLeast || !live {
		return runs, nil
	}
	x := make([]float64, n*beatFine)
	for range restLines {
		for i := range n {
			x[i] = floats.Sum(longest[i*per:(i+1)*per]) / float64(per)
		}
		straighten(x[:n])
		amplitude, periods, _ := strongest(x, n)
		if amplitude == 0 {
			break
		}
		scans := float64(n*per) / finest(x[:n], periods) // a period
		found = append(found, line{amplitude, 1 / (scans * dt)})
		for _, run := range runs {
			for h := 1.0; h <= 3 && float64(len(run)) > scans; h++ {
				takeWave(run, h*float64(len(run))/scans)
			}
		}
	}
	return runs, found
}

// finest returns the number of periods, within a trial frequency of the one given, of the wave that leaves least of x.
func finest(x []float64, periods float64) float64 {
	lo, hi := periods-1./beatFine, periods+1./beatFine
	left := func(periods float64) float64 {
		y := slices.Clone(x)
		takeWave(y, periods)
		return floats.Dot(y, y)
	}
	for range 16 { // by thirds, to 1/600 of that
		a, b := lo+(hi-lo)/3, hi-(hi-lo)/3
		if left(a) < left(b) {
			hi = b
		} else {
			lo = a
		}
	}
	return (lo + hi) / 2
}

// octavesOf returns the variances for k = 0, 1, … as far as the rest allows, of readings that
// lie stride scans apart.
//
// Differences beyond four standard deviations by their median are left out: a card that changes
// its state at rest makes steps. Where the outer two of three blocks agree the middle one has a burst of size a: it
// makes differences a, −2a and a, which count. Second differences of independent blocks that overlap by two
// of three are correlated by −2/3 and 1/6, so that n of them have n/(1 + 2·(4/9 + 1/36)) = 18n/35
// degrees of freedom.
func octavesOf(runs [][]float64, stride int) (out []restOctave) {
	for m := stride; ; m *= 2 {
		var d []bend
		for _, run := range runs {
			d = append(d, bendsOf(run, m, stride)...)
		}
		if len(d) < restLeast {
			return out
		}
		slices.SortFunc(d, func(a, b bend) int { return cmp.Compare(math.Abs(a.second), math.Abs(b.second)) })
		// Sums of whole counts: a scatter below one is as good as one.
		limit := 4 * max(math.Abs(d[len(d)/2].second)/0.674489750196082, 1)
		var squares, n, all, bursts float64
		for _, x := range d {
			square := x.second * x.second
			all += square / float64(len(d))
			switch {
			case math.Abs(x.second) <= limit:
				squares, n = squares+square, n+1
			case math.Abs(x.outer) <= limit/math.Sqrt(3): // of variance 2, where second has 6
				squares, n, bursts = squares+1.5*square, n+3, bursts-x.second/2
			}
		}
		size := float64(m / stride)
		out = append(out, restOctave{
			squares / n / 6 / (size * size), min(n, float64(len(d))) * 18 / 35, all / 6 / (size * size),
			bursts / float64(len(d)) / size,
		})
	}
}

// bend holds, of the sums a, b and c of three blocks, a − 2b + c and c − a.
type bend struct{ second, outer float64 }

// bendsOf returns the bends of the sums of blocks of m scans, of which every stride-th is taken.
func bendsOf(x []float64, m, stride int) (out []bend) {
	var sums [2]float64 // of the two blocks before
	for b := 0; (b+1)*m <= len(x); b++ {
		var s float64
		for i := b * m; i < (b+1)*m; i += stride {
			s += x[i]
		}
		if b >= 2 {
			out = append(out, bend{sums[0] - 2*sums[1] + s, s - sums[0]})
		}
		sums[0], sums[1] = sums[1], s
	}
	return out
}

// slow returns the standard deviation in counts by which the mean of a channel over the window
// is more uncertain than white noise makes it, with its degrees of freedom; zero where the rest is
// white. n is the scatter of one reading, spacing the distance of readings in seconds.
func (g *Integrator) slow(channel int, n scatter, spacing float64) scatter {
	g.rest.steady(g.stride)
	runs, lines := g.rest.lines(channel, spacing/float64(g.stride), g.setup.Response.Update == 0)
	octaves := octavesOf(runs, g.stride)
	if len(octaves) < 3 {
		return scatter{}
	}
	length := float64(g.to - g.from)
	var sum float64
	for _, l := range lines {
		u := l.amplitude / (math.Sqrt2 * math.Pi * l.hertz * length)
		sum += u * u
	}
	fixed, _ := Quantisation(n.sigma)
	white := max(n.sigma*n.sigma+1.0/12, octaves[0].all) // with outliers, which are in means of readings too
	if !slower(octaves, white) {
		return scatter{math.Sqrt(sum), octaves[0].dof}
	}
	long := g.span()
	var dof, bursts float64
	for _, o := range octaves { // those of one sign shift the mean
		bursts = max(bursts, math.Abs(o.bursts))
	}
	sum += bursts * bursts
	for ; length <= max(long, float64(g.to-g.from)); length *= 2 {
		v, bias, of := restAt(octaves, math.Log2(length/spacing))
		dof = of
		sum += bias * max(v-white*spacing/length-fixed*fixed, 0) / 2
	}
	return scatter{math.Sqrt(sum), dof}
}

// span is the length of the capture that was looked at, from the rest before the work to the rest
// behind it, in seconds.
func (g *Integrator) span() float64 {
	lo, hi := g.lo, g.hi
	for _, s := range g.rest.spans {
		if s.hi > s.lo {
			lo, hi = min(lo, s.lo), max(hi, min(s.hi, g.lastTick))
		}
	}
	return (hi - lo) / float64(g.setup.Timebase.TickHz)
}

// slower reports whether means scatter more than those of white noise of that variance: Fisher's
// test for each averaging time, at restAlarm for all together (Bonferroni).
func slower(octaves []restOctave, white float64) bool {
	for k, o := range octaves[1:] {
		f := math.Ldexp(o.v/white, k+1)
		d0 := octaves[0].dof
		if mathext.RegIncBeta(d0/2, o.dof/2, d0/(d0+o.dof*f)) < restAlarm/float64(len(octaves)-1) {
			return true
		}
	}
	return false
}

// restAt returns the variance of means of 2^k readings, its degrees of freedom, and the factor
// from it to the Allan variance: 1 for white noise, 2·ln 2 / (½·ln(256/27)) for flicker, 2 for a random walk.
//
// It is a power law through the three nearest averaging times, by least squares with their
// degrees of freedom as weights; ln of χ²/ν is 1/ν too low in the mean. Beyond the longest
// time the law is that of a kind of noise, whose slope is a whole number, for the rest is too short
// to know fractions of it: flicker, unless the slope is nearer to another by a standard error.
func restAt(octaves []restOctave, k float64) (v, bias, dof float64) {
	last := max(min(int(math.Round(k))+1, len(octaves)-1), 2)
	var w, x, y float64
	for i := last - 2; i <= last; i++ {
		o := octaves[i]
		w, x, y = w+o.dof, x+o.dof*float64(i), y+o.dof*(math.Log2(max(o.v, 1e-30))+math.Log2E/o.dof)
	}
	x, y = x/w, y/w
	var xx, xy float64
	for i := last - 2; i <= last; i++ {
		o := octaves[i]
		d := float64(i) - x
		xx, xy = xx+o.dof*d*d, xy+o.dof*d*(math.Log2(max(o.v, 1e-30))+math.Log2E/o.dof-y)
	}
	slope := max(min(xy/xx, 1), -1)
	kind := 0.0
	// ln of χ²/ν has the variance 2/ν.
	if u := math.Log2E * math.Sqrt(2/xx); slope+u < -0.5 {
		kind = -1
	} else if slope-u > 0.5 {
		kind = 1
	}
	if k > float64(len(octaves)-1) {
		slope = kind
	}
	bias = map[float64]float64{-1: 1, 0: 4 * math.Ln2 / math.Log(256.0/27), 1: 2}[kind]
	return math.Exp2(y + slope*(k-x)), bias, w
}

package marker

import (
	"math"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// correlator is the normalised matched filter. It lays the trace on a grid of
// bins, a whole number a chip, and correlates the means of chips with guard and
// code. Chip means come from prefix sums, so that a lag costs some forty
// subtractions whatever the sample rate; one pass serves start and stop, whose
// codes are each other's inverse behind the same guard.
type correlator struct {
	bins  int     // a chip
	width float64 // of a bin, seconds
	code  []float64
	guard int // chips of the guard that are read

	origin float64 // time of bin 0
	begun  bool
	base   float64 // level taken off the prefix sums, to keep them exact
	cur    int64   // the bin under way
	sum    float64
	n      int
	hold   float64 // the mean of the last bin that had points

	prefix *ring[float64] // prefix[i] is the sum of bins before i
	out    *lags
	also   *correlator // another code on the same bins
}

// newCorrelator returns a correlator that hands every lag it completes to out.
func newCorrelator(spec Spec, bins int, width float64, out *lags) correlator {
	c := correlator{
		out: out, bins: bins, width: width, guard: max(1, min(spec.Guard-1, guardUsed)),
		code: lists.Map(spec.Code.Chips(), sign),
	}
	c.prefix = new(newRing[float64]((c.guard+len(c.code)+1)*bins + 2))
	c.restart()
	return c
}

func sign(high bool) float64 {
	if high {
		return 1
	}
	return -1
}

// restart begins a new grid at the next point.
func (c *correlator) restart() {
	c.begun = false
	c.cur, c.sum, c.n = 0, 0, 0
	c.prefix.clear()
	c.prefix.push(0)
}

// add takes a point and correlates every lag that it completes.
func (c *correlator) add(p point) {
	if !c.begun {
		c.begun, c.origin, c.base, c.hold = true, p.t-c.width/2, p.p, p.p
	}
	for bin := int64((p.t - c.origin) / c.width); c.cur < bin; c.cur++ {
		// A bin without a point shows the last value: jitter of the stamps
		// leaves some empty, a gap leaves many.
		if c.n > 0 {
			c.hold = c.sum / float64(c.n)
		}
		c.sum, c.n = 0, 0
		c.prefix.push(*c.prefix.at(c.cur) + c.hold - c.base)
		c.correlate()
		if c.also != nil {
			c.also.correlate()
		}
	}
	c.sum += p.p
	c.n++
}

// correlate works out the lag whose code ends with the bin just closed.
func (c *correlator) correlate() {
	at := c.prefix.n - 1 - int64(len(c.code)*c.bins)
	from := at - int64(c.guard*c.bins)
	if from < 0 {
		// Lags are counted from bin 0: keep the numbering of the rings.
		if at >= 0 {
			c.out.push(0, 0)
		}
		return
	}
	var guard, all, match, square float64
	inv := 1 / float64(c.bins)
	prev := *c.prefix.at(from)
	for range c.guard {
		from += int64(c.bins)
		next := *c.prefix.at(from)
		m := (next - prev) * inv
		prev = next
		guard += m
		square += m * m
	}
	for _, sign := range c.code {
		from += int64(c.bins)
		next := *c.prefix.at(from)
		m := (next - prev) * inv
		prev = next
		all += m
		match += sign * m
		square += m * m
	}
	c.out.push(c.score(guard, all, match, square))
}

// score turns the sums of one lag into Pearson's correlation with start and
// with stop.
func (c *correlator) score(guard, all, match, square float64) (start, stop float64) {
	n := float64(c.guard + len(c.code))
	var balance float64
	for _, s := range c.code {
		balance += s
	}
	spread := square - (guard+all)*(guard+all)/n
	if !(spread > 1e-12*square) {
		return 0, 0
	}
	var rho [2]float64
	for k, s := range [2]float64{1, -1} {
		mean := (s*balance - float64(c.guard)) / n
		rho[k] = (s*match - guard - mean*(guard+all)) / math.Sqrt(n*(1-mean*mean)*spread)
	}
	return rho[0], rho[1]
}

// time returns the time of a lag.
func (c *correlator) time(lag float64) float64 { return c.origin + lag*c.width }

// settleChips is how long after the marker the sidelobes are watched.
const settleChips = 4

// lags follows the correlations with start and stop from lag to lag, and hands
// on those that stand out: local maxima above a threshold, once the lags around
// them are known and lower.
type lags struct {
	chip  int   // lags a chip
	code  int   // chips of the code
	near  int64 // lags on either side of a peak that are the peak itself
	wait  int64 // lags from a peak to its judgement
	kinds int   // that can be distinguished
	least float64
	pslr  measure.Decibel
	rho   [2]ring[float64]
	peaks [2]peak // the best candidate under way, by kind
	judge func(Kind, peak)
}

// peak is a local maximum of the correlation.
type peak struct {
	lag   int64   // the lag at which the code begins
	at    float64 // the same, placed between lags
	rho   float64
	pslr  measure.Decibel
	alive bool
}

// newLags returns lags of which a chip has the given number. chips is the
// number of chips whose correlation counts; blur is the instrument's memory, in
// chips, that widens peaks.
func newLags(spec Spec, perChip, chips int, blur float64, judge func(Kind, peak)) *lags {
	l := &lags{
		chip: perChip, code: spec.CodeLen(), judge: judge,
		near: int64((1.25 + min(blur, float64(spec.CodeLen())/2)) * float64(perChip)),
		wait: int64((2*spec.TagBits + spec.Guard + settleChips) * perChip),
		// A candidate has no tag and only half of the guards yet: let more through,
		// the fit judges.
		least: leastRho(chips) - 0.2,
		kinds: len(lags{}.peaks),
		pslr:  leastPSLR(spec.Code, blur),
	}
	if spec.ambiguous() {
		l.kinds = 1
	}
	for k := range l.rho {
		l.rho[k] = newRing[float64]((spec.Len()+spec.CodeLen()+settleChips+2)*perChip + 2)
	}
	return l
}

// leastPSLR is the smallest peak-to-sidelobe ratio of a marker. The code alone
// has 17.8 dB (m-sequence 31); noise as strong as the step and the work beside
// the guards leave 4 to 8. The up-down pattern is its own sidelobe, and a memory
// of many chips (blur) blends a peak into its sidelobes; there the correlation
// itself must be the higher, see updates.leastRho.
func leastPSLR(c Code, blur float64) measure.Decibel {
	if c == UpDown {
		return 0.5
	}
	return measure.Decibel(2.5 / (1 + blur/4))
}

// leastRho is the correlation, over n chips, that noise exceeds once in 10¹²
// trials: Fisher's z is 7.2 standard deviations then.
func leastRho(n int) float64 {
	return max(0.75, math.Tanh(7.2/math.Sqrt(float64(max(n-3, 1)))))
}

// push takes the correlations of the next lag.
func (l *lags) push(start, stop float64) {
	l.rho[0].push(start)
	l.rho[1].push(stop)
	newest := l.newest()
	at := newest - int64(l.chip)
	for k := range l.kinds {
		p := &l.peaks[k]
		if rho := l.at(k, at); rho >= l.least && l.isPeak(k, at) && (!p.alive || rho > p.rho) {
			*p = peak{lag: at, rho: rho, alive: true}
		}
		if p.alive && newest-p.lag >= l.wait {
			l.close(k)
		}
	}
}

// finish judges the candidates that wait for sidelobes that will not come.
func (l *lags) finish() {
	order := [2]int{0, 1}
	if l.peaks[1].lag < l.peaks[0].lag {
		order = [2]int{1, 0}
	}
	for _, k := range order {
		if l.peaks[k].alive {
			l.close(k)
		}
	}
}

func (l *lags) restart() {
	for k := range l.rho {
		l.rho[k].clear()
		l.peaks[k].alive = false
	}
}

// close hands a peak on where its sidelobes are low enough.
func (l *lags) close(k int) {
	p := l.peaks[k]
	l.peaks[k].alive = false
	if p.pslr = l.sidelobes(k, p.lag); p.pslr < l.pslr {
		return
	}
	// The parabola through the neighbours places the peak between the lags.
	a, b, c := l.at(k, p.lag-1), l.at(k, p.lag), l.at(k, p.lag+1)
	p.at = float64(p.lag)
	if bend := a - 2*b + c; bend < 0 {
		p.at += max(-0.5, min(0.5, (a-c)/(2*bend)))
	}
	l.judge(Kind(k+1), p)
}

// newest returns the newest lag.
func (l *lags) newest() int64 { return l.rho[0].n - 1 }

// at returns the correlation at a lag; 0 where there is none.
func (l *lags) at(k int, lag int64) float64 {
	if r := &l.rho[k]; lag >= r.first() && lag < r.n {
		return *r.at(lag)
	}
	return 0
}

// isPeak reports whether no lag within a chip beats this one.
func (l *lags) isPeak(k int, lag int64) bool {
	rho := l.at(k, lag)
	for d := int64(1); d <= int64(l.chip); d++ {
		if l.at(k, lag-d) >= rho || l.at(k, lag+d) > rho {
			return false
		}
	}
	return true
}

// sidelobes compares a peak with the highest correlation, of either kind, that
// lies beside the peak and less than a code away.
func (l *lags) sidelobes(k int, lag int64) measure.Decibel {
	far := int64(l.chip * l.code)
	worst := 1e-3
	for i := lag - far; i <= min(lag+far, l.newest()); i++ {
		if i >= lag-l.near && i <= lag+l.near {
			continue
		}
		for k := range l.kinds {
			worst = max(worst, l.at(k, i))
		}
	}
	return measure.Decibel(20 * math.Log10(l.at(k, lag)/worst))
}

// quality correlates the means of chips with the model and compares the residuals
// with the noise of neighbouring points. The work on a GPU may
// well correlate with a marker; its residuals are not mere noise.
func (s *sampled) quality(f *fitted, chips []bool) (rho float64, good bool) {
	w, chip := &s.work, float64(s.spec.Chip)
	s.rest(f)
	begin := f.origin + f.par[parT0] - float64(s.spec.CodeStart())*chip
	var n, sx, sy, sxx, syy, sxy, rest, share float64
	for i, k := 0, 0; k < len(chips) && i < len(f.pts); k++ {
		end := begin + float64(k+1)*chip
		var x, r float64
		from := i
		for ; i < len(f.pts) && f.pts[i].t < end; i++ {
			x += w.levels[i]
			r += w.residuals[i]
		}
		m := float64(i - from)
		if m < chip/s.space/2 {
			continue
		}
		x, r = x/m, r/m
		y := f.par[parStep]*x + r
		n, sx, sy, sxx, syy, sxy = n+1, sx+x, sy+y, sxx+x*x, syy+y*y, sxy+x*y
		rest += r * r
		share += 1 / m
	}
	if n < 6 {
		return 0, false
	}
	rho = (sxy - sx*sy/n) / math.Sqrt((sxx-sx*sx/n)*(syy-sy*sy/n))
	noise := whiteNoise(len(w.residuals), func(i int) float64 { return w.residuals[i] })
	allowed := 2.5*noise*share/n + misfit*misfit*f.par[parStep]*f.par[parStep]
	return rho, rho >= leastRho(int(n)) && rest/(n-5) <= allowed
}

// rest sets the residuals of the points, and their levels by the model.
func (s *sampled) rest(f *fitted) {
	w := &s.work
	w.residuals, w.levels = w.residuals[:0], w.levels[:0]
	f.each(&f.par, func(level, r float64, _ *vector, _ int, _ bool) {
		w.residuals, w.levels = append(w.residuals, r), append(w.levels, level)
	})
}

// refine lets falls be slower than rises and chips longer than specified where the
// trace demands it, works out the uncertainty, and places the single edges.
func (s *sampled) refine(f *fitted) []Edge {
	s.trySplit(f)
	s.uncertainty(f)
	s.marginalise(f)
	edges := s.place(f)
	if slope, u, _ := f.stretch(f.placements(edges)); math.Abs(slope) > outstanding*u && math.Abs(slope) > 20e-6 {
		trial := *f
		trial.scale = true
		trial.par[parStretch] = slope
		if s.minimise(&trial) && trial.variance < f.variance {
			*f = trial
			s.uncertainty(f)
			edges = s.place(f)
		}
	}
	if len(edges) > 0 {
		return edges
	}
	return []Edge{{Chip: 0, T: measure.Seconds(f.origin + f.par[parT0]), U: measure.Seconds(f.uT0)}}
}

// trySplit fits rises and falls apart and keeps that where it is clearly better.
func (s *sampled) trySplit(f *fitted) {
	trial := *f
	trial.split = true
	trial.par[parFall] = trial.par[parTau]
	if !s.minimise(&trial) {
		return
	}
	n := float64(len(f.pts))
	if (f.variance-trial.variance)*n > outstanding*outstanding*trial.variance {
		*f = trial
	}
}

// uncertainty sets the standard uncertainty of t0: the larger of the one for
// white noise and the one that the edges' own scatter shows (the cluster-robust
// sandwich of Liang and Zeger, one cluster an edge).
func (s *sampled) uncertainty(f *fitted) {
	lean := f.inverse[parT0]
	var sum, squares, clusters float64
	last := 0
	f.each(&f.par, func(_, r float64, row *vector, begun int, _ bool) {
		if begun != last {
			squares += sum * sum
			sum, last = 0, begun
			clusters++
		}
		var h float64
		for a := range params {
			h += lean[a] * row[a]
		}
		sum += h * r
	})
	squares = (squares + sum*sum) * clusters / max(clusters-1, 1)
	f.uT0 = math.Sqrt(max(f.inverse[parT0][parT0]*f.variance, squares))
}

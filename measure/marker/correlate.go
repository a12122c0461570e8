package marker

import "math"

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
	c := correlator{out: out, bins: bins, width: width, guard: max(1, min(spec.Guard-1, guardUsed))}
	for _, high := range spec.Code.Chips() {
		c.code = append(c.code, sign(high))
	}
	prefix := newRing[float64]((c.guard+len(c.code)+1)*bins + 2)
	c.prefix = &prefix
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
		// A bin without a point shows what was last seen: jitter of the stamps
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

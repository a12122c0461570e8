package checkup

import (
	"math"
	"time"

	"wattmark/measure"
)

// pace fits a straight line to arrivals: scans by the host's clock. It keeps sums
// only; both are counted from the first arrival.
type pace struct {
	n                     float64
	begin                 time.Time
	first                 float64
	st, ss, stt, sts, sss float64
}

// observe takes the arrival of everything before a scan.
func (p *pace) observe(at time.Time, scan float64) {
	if p.n == 0 {
		p.begin, p.first = at, scan
	}
	t, s := at.Sub(p.begin).Seconds(), scan-p.first
	p.n++
	p.st += t
	p.ss += s
	p.stt += t * t
	p.sts += t * s
	p.sss += s * s
}

// leastArrivals is how many arrivals a rate needs.
const leastArrivals = 8

// rate returns scans a second by the host's clock and its standard uncertainty;
// zeros where there were too few arrivals. Arrivals scatter by what the host was
// doing, and each is late by what its neighbour was, so the residuals' part is
// widened as if only one in four were new.
func (p *pace) rate() (rate, u measure.Hertz) {
	if p.n < leastArrivals {
		return 0, 0
	}
	tt, ts, ss := p.stt-p.st*p.st/p.n, p.sts-p.st*p.ss/p.n, p.sss-p.ss*p.ss/p.n
	if !(tt > 0) {
		return 0, 0
	}
	slope := ts / tt
	residual := max(ss-slope*ts, 0) / (p.n - 2)
	return measure.Hertz(slope), measure.Hertz(2 * math.Sqrt(residual/tt))
}

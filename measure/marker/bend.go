package marker

import "math"

// placement is an edge as it was found: its place by the fit in seconds behind the begin of the code, how far
// behind that place it lies, the weight of that, and whether it is a fall, 1.
type placement struct {
	at, off, w float64
	direction  int
}

// placements returns those of edges; none of a single one.
func (f *fitted) placements(edges []Edge) []placement {
	if len(edges) < 2 {
		return nil
	}
	out, k := make([]placement, len(edges)), 0
	for i, e := range edges {
		for f.edges[k].chip != e.Chip {
			k++
		}
		x := f.edges[k].at
		out[i] = placement{
			at: x, off: float64(e.T) - f.origin - f.par[parT0] - x*(1+f.par[parStretch]),
			w: f.birge * f.birge / float64(e.U*e.U),
		}
		if f.edges[k].sign < 0 {
			out[i].direction = 1
		}
	}
	return out
}

// stretch is the weighted slope of the edges' places over those that they should have, less 1, its standard
// uncertainty, and the factor by which the edges scatter more than noise explains, at least 1.
func (f *fitted) stretch(places []placement) (slope, u, scatter float64) {
	if len(places) < 4 {
		return 0, math.Inf(1), 1
	}
	l := lineThrough(places, (*placement).behind)
	var rest float64
	for i := range places {
		p := &places[i]
		rest += p.w * math.Pow(p.off-l.at(p), 2)
	}
	scatter = math.Sqrt(max(1, rest/float64(len(places)-3)))
	return f.par[parStretch] + l.slope, scatter / math.Sqrt(l.xx), scatter
}

func (p *placement) behind() float64 { return p.off }

// line is a weighted fit of a value of edges over their places. The exponentials place rises and falls wrong by
// different amounts: each direction has a mean of its own.
type line struct {
	slope, begin float64 // begin is its value at the begin of the code, by both directions
	xx           float64
	x, y         [2]float64 // means
}

func lineThrough(places []placement, value func(*placement) float64) (l line) {
	var w [2]float64
	for i := range places {
		p := &places[i]
		d := p.direction
		w[d], l.x[d], l.y[d] = w[d]+p.w, l.x[d]+p.w*p.at, l.y[d]+p.w*value(p)
	}
	all := w[0] + w[1]
	x, y := (l.x[0]+l.x[1])/all, (l.y[0]+l.y[1])/all
	for d := range w {
		l.x[d], l.y[d] = l.x[d]/max(w[d], 1e-300), l.y[d]/max(w[d], 1e-300)
	}
	var xy float64
	for i := range places {
		p := &places[i]
		dx := p.at - l.x[p.direction]
		l.xx, xy = l.xx+p.w*dx*dx, xy+p.w*dx*(value(p)-l.y[p.direction])
	}
	l.slope = xy / l.xx
	l.begin = y - l.slope*x
	return l
}

func (l *line) at(p *placement) float64 { return l.y[p.direction] + l.slope*(p.at-l.x[p.direction]) }

const (
	bendTrials = 16 // instants at which a clock may change its rate
	// bendScales are the changes of a clock's rate that are tried, from half of what is stated on, each twice the
	// one before. That it does not change is as likely as all of them together.
	bendScales = 11
)

// bend is a change of a line's slope by 1 at an instant: with q the part of it that no line explains and r the
// residuals of a line, weighted sums over the edges; and how far the begin of the best line lies behind the
// begin of the bent one.
type bend struct{ qq, qr, rr, lever float64 }

func bendAt(places []placement, at float64) (b bend) {
	before := func(p *placement) float64 { return max(0, at-p.at) }
	straight, bent := lineThrough(places, (*placement).behind), lineThrough(places, before)
	for i := range places {
		p := &places[i]
		q, r := before(p)-bent.at(p), p.off-straight.at(p)
		b.qq, b.qr, b.rr = b.qq+p.w*q*q, b.qr+p.w*q*r, b.rr+p.w*r*r
	}
	b.lever = bent.begin - at
	return b
}

// explained is how much less of rr the best bend leaves.
func (b *bend) explained() float64 { return b.qr * b.qr / max(b.qq, 1e-300) }

// bent returns where the code begins behind the place that a straight line through the edges gives it, as the
// meter's clock may change its rate once within the marker: mean and spread over all instants and sizes of the
// change, weighted by how well the bent line fits. Sizes are normal; the scale of them is that of the
// rate's own error too, so that a clock as far off as stated makes changes unlikely, and one further off does not.
func (s *sampled) bent(places []placement, slope, us float64) foot {
	const free = 5 // parameters of a bent line
	if len(places) <= free {
		return foot{}
	}
	var bends [bendTrials]bend
	end, best := places[len(places)-1].at, 0.0
	for i := range bends {
		bends[i] = bendAt(places, end*(float64(i)+0.5)/bendTrials)
		best = max(best, bends[i].explained())
	}
	noise := max((bends[0].rr-best)/float64(len(places)-free), 1e-12) // edges know their uncertainty up to a factor
	var w, wx, wxx float64
	for k := range bendScales + 1 {
		scale, prior := 0.0, float64(bendScales)
		if k > 0 {
			scale, prior = s.uClock*math.Ldexp(1, k-2), 1
		}
		rate := us*us + s.uClock*s.uClock + scale*scale
		prior *= math.Exp(-slope*slope/(2*rate)) / math.Sqrt(rate)
		for _, b := range bends {
			v := 1 / (b.qq/noise + 1/(scale*scale)) // of the change, whose mean is m
			m := v * b.qr / noise
			p := prior * math.Sqrt(noise/(noise+b.qq*scale*scale)) * math.Exp((m*b.qr-best)/(2*noise))
			x := -m * b.lever
			w, wx, wxx = w+p, wx+p*x, wxx+p*(x*x+v*b.lever*b.lever)
		}
	}
	x := wx / w
	return foot{x, math.Sqrt(max(0, wxx/w-x*x))}
}

package measure

import "math"

// Extremes takes runs of RunScans scans, the last of which may be shorter, and at most
// MaxRuns of them.
const (
	RunScans = 128
	MaxRuns  = 2
)

// Extreme holds the range and the sum of a rail's power over a run of scans.
type Extreme struct {
	Min, Max Watt
	Sum      float64 // of the watts
}

// Extremes computes each rail's extremes over runs of the scans [from, to) of the
// columns, and behind the rails, where there are so many series, those of their sum. dst
// has the series of the first run, then those of the next. The readings of a scan are
// taken as of one instant.
//
// It works on how far the power is from that of the first scan. Those distances are small,
// so that single precision holds them to a millionth of the swing of current and voltage,
// and a processor takes eight at a time.
func (m *PowerMeter) Extremes(cols [][]Count, from, to, series int, dst []Extreme) {
	var scans [RunScans * MaxRuns]float32
	var runs [MaxRuns]distance
	total := scans[:to-from]
	first := 0.0
	for r := range m.rails {
		rail := &m.rails[r]
		x := cols[rail.x][from:to]
		y := x // counts for nothing
		l := rail.lin
		if rail.y < 0 {
			l.IY, l.VY = 0, 0
		} else {
			y = cols[rail.y][from:to]
		}
		s, p := swingOf(&l, x[0], y[0])
		s.over(x, y, total, &runs, vector && !rail.far)
		spread(&runs, p, len(total), series, dst[r:])
		first += p
	}
	m.together(total, first, series, dst)
}

// spread puts one rail's extremes over n scans into every series-th of dst.
func spread(runs *[MaxRuns]distance, p float64, n, series int, dst []Extreme) {
	for k := 0; k*RunScans < n; k++ {
		dst[k*series] = runs[k].from(p, min(RunScans, n-k*RunScans))
	}
}

// together puts the extremes of the rails' sum behind them, where there are so many series.
func (m *PowerMeter) together(total []float32, first float64, series int, dst []Extreme) {
	for k := 0; k*RunScans < len(total) && series > len(m.rails); k++ {
		t := total[k*RunScans : min((k+1)*RunScans, len(total))]
		e, of := distances(t).from(first, len(t)), dst[k*series:(k+1)*series]
		e.Sum = 0
		for r := range m.rails {
			e.Sum += of[r].Sum
		}
		of[len(m.rails)] = e
	}
}

// swing is how a rail's power moves from that of a scan with the counts x0 and y0. With
// x and y less these, it moves by (ix·x + iy·y)·(v + vy·y) + vi·y.
type swing struct {
	ix, iy, v, vy, vi float32
	x0, y0            Count
}

// swingOf returns the swing from a scan, and the power of that.
func swingOf(l *Linear, x0, y0 Count) (s swing, power float64) {
	i := l.I0 + l.IX*float64(x0) + l.IY*float64(y0)
	v := l.V0 + l.VY*float64(y0)
	return swing{float32(l.IX), float32(l.IY), float32(v), float32(l.VY), float32(i * l.VY), x0, y0}, i * v
}

// distance is how far a power went below and above that of the first scan, and the sum of
// all scans' distances from it.
type distance struct{ lo, hi, sum float32 }

var nowhere = distance{lo: float32(math.Inf(1)), hi: float32(math.Inf(-1))}

// from is the power that was so far from another one over n scans.
func (d distance) from(p float64, n int) Extreme {
	return Extreme{Watt(p + float64(d.lo)), Watt(p + float64(d.hi)), float64(n)*p + float64(d.sum)}
}

// far reports whether counts of a channel may be so far apart that their difference is none.
func (c *Channel) far() bool { return int64(c.MaxCount)-int64(c.MinCount) >= 1<<31 }

// over is one rail over runs, eight scans at a time or one; it adds the rail's distances to
// total.
func (s *swing) over(x, y []Count, total []float32, runs *[MaxRuns]distance, eight bool) {
	*runs = [MaxRuns]distance{nowhere, nowhere}
	y, total = y[:len(x)], total[:len(x)]
	at := 0
	if whole := len(x) / RunScans; eight && whole > 0 {
		swingFMA(s, &x[0], &y[0], RunScans, whole, &total[0], &runs[0])
		at = whole * RunScans
	}
	for ; at < len(x); at += RunScans {
		end := min(at+RunScans, len(x))
		s.run(x[at:end], y[at:end], total[at:end], &runs[at/RunScans], eight)
	}
}

// run is a part of a run, or all of it.
func (s *swing) run(x, y []Count, total []float32, d *distance, eight bool) {
	if whole := len(x) &^ 7; eight && whole > 0 {
		swingFMA(s, &x[0], &y[0], whole, 1, &total[0], d)
		x, y, total = x[whole:], y[whole:], total[whole:]
	}
	y, total = y[:len(x)], total[:len(x)]
	for i, c := range x {
		fx, fy := float32(int64(c)-int64(s.x0)), float32(int64(y[i])-int64(s.y0))
		p := (s.ix*fx+s.iy*fy)*(s.v+s.vy*fy) + s.vi*fy
		total[i] += p
		d.sum += p
		d.lo, d.hi = min(d.lo, p), max(d.hi, p)
	}
}

// distances are the least and the greatest of some; the sum is left out.
func distances(t []float32) distance {
	d := nowhere
	if whole := len(t) &^ 7; vector && whole > 0 {
		boundsAVX(&t[0], whole, &d)
		t = t[whole:]
	}
	for _, p := range t {
		d.lo, d.hi = min(d.lo, p), max(d.hi, p)
	}
	return d
}

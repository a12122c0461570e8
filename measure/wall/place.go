package wall

import (
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
)

const (
	// outside and inside are the updates beyond an end of the window, and within it, of which the wall's steps are
	// compared with the card's; cells divide the card's energy in an update.
	outside, inside, cells = 2.5, 8, 50
	// least and most of a step at the wall by one of the card's: supplies lose a part, and processors step with the
	// card.
	leastSlope, mostSlope = 0.8, 1.7
	// astray is how probable it is, before the samples are looked at, that the host's clock misplaces the readings by
	// anything up to farthest: a machine that is too busy to read its meters.
	astray = 0.05
	// leastSteps is how many of the wall's steps place the readings.
	leastSteps = 3
)

// farthest is how far off the readings are looked for.
func farthest(update measure.Seconds) measure.Seconds { return max(update, 0.25) }

// zone is the card's energy about an end of the window, in cells.
type zone struct {
	from, cell measure.Seconds
	upTo       []float64          // J: of the cell before, and once summed of all cells before
	seen       [2]measure.Seconds // the time of the first and the last scan
	lastT      []float64          // where each rail's last scan stands, in cells
	lastP      []measure.Watt     // and its power
	summed     bool
	follows    bool // the next scan follows the last one
}

// newZone prepares the zone of an end, which is the begin of a cell.
func newZone(s *measure.Setup, end measure.Seconds, begin bool, update measure.Seconds) zone {
	z := zone{cell: max(update/cells, s.Timebase.Seconds(s.Timebase.TicksPerScan))}
	out, in := outside*update+farthest(update), inside*update+farthest(update)
	if !begin {
		out, in = in, out
	}
	before, behind := math.Ceil(float64(out/z.cell)), math.Ceil(float64(in/z.cell))
	z.from = end - measure.Seconds(before)*z.cell
	z.upTo = make([]float64, int(before+behind)+1)
	z.lastT, z.lastP = make([]float64, len(s.Rails)), make([]measure.Watt, len(s.Rails))
	return z
}

func (z *zone) to() measure.Seconds { return z.from + measure.Seconds(len(z.upTo)-1)*z.cell }

// wants reports whether scans of a stretch bear on the zone.
func (z *zone) wants(from, to measure.Seconds) bool {
	const around = 0.1 // seconds: of the rails' skews
	return to >= z.from-around && from <= z.to()+around
}

// touches reports whether a reading may lie in the zone, wherever it is placed.
func (z *zone) touches(w measure.Window) bool { return w.To > z.from && w.From < z.to() }

// add takes the card's power, which counts as straight between scans.
func (z *zone) add(s *measure.Setup, p *measure.Powers) {
	if p.Scans() == 0 {
		return
	}
	if from, to := s.Timebase.Seconds(p.Tick(0)), s.Timebase.Seconds(p.Tick(p.Scans()-1)); !z.wants(from, to) {
		z.follows = false
		return
	}
	for r := range p.Rails {
		skew := s.Instant(s.Rails[r].X)
		for i, w := range p.Rails[r].P {
			t := float64((s.Timebase.Seconds(p.Tick(i)) + skew - z.from) / z.cell)
			if z.follows || i > 0 {
				z.sum(z.lastT[r], t, float64(z.lastP[r]+w)/2)
			}
			z.lastT[r], z.lastP[r] = t, w
		}
	}
	at := func(t float64) measure.Seconds { return z.from + measure.Seconds(t)*z.cell }
	if !z.follows {
		z.seen[0] = at(float64((s.Timebase.Seconds(p.Tick(0)) + s.Instant(s.Rails[0].X) - z.from) / z.cell))
	}
	z.seen[1], z.follows = at(z.lastT[0]), true
}

// sum adds a power over a stretch, given in cells.
func (z *zone) sum(from, to, w float64) {
	from, to = max(from, 0), min(to, float64(len(z.upTo)-1))
	for from < to {
		n := int(from)
		end := min(to, float64(n+1))
		z.upTo[n+1] += w * (end - from) * float64(z.cell)
		from = end
	}
}

// energy is the card's over a stretch; ok is false where the zone does not hold it.
func (z *zone) energy(w measure.Window) (joules float64, ok bool) {
	if !z.summed {
		for i := 1; i < len(z.upTo); i++ {
			z.upTo[i] += z.upTo[i-1]
		}
		z.summed = true
	}
	if w.From < max(z.from, z.seen[0]) || w.To > min(z.to(), z.seen[1]) {
		return 0, false
	}
	at := func(t measure.Seconds) float64 {
		x := float64((t - z.from) / z.cell)
		n := min(int(x), len(z.upTo)-2)
		return z.upTo[n] + (x-float64(n))*(z.upTo[n+1]-z.upTo[n])
	}
	return at(w.To) - at(w.From), true
}

// even puts the ends of the readings where they are by an even pace: the meter has one, and what a reading is late by
// of its own is the link's. By the scatter the pace is uncertain: the window's ends by so much, either way.
func (m *Meter) even() {
	var n, x, t, xx, xt, tt float64
	for _, r := range m.near {
		if r.seen {
			k, to := float64(r.n-m.near[0].n), float64(r.To-m.near[0].To)
			n, x, t, xx, xt, tt = n+1, x+k, t+to, xx+k*k, xt+k*to, tt+to*to
		}
	}
	xx, xt, tt = xx-x*x/n, xt-x*t/n, tt-t*t/n
	if n <= leastSteps {
		return
	}
	pace := xt / xx
	m.uPace = measure.Seconds(math.Sqrt(max(tt-pace*xt, 0) / (n - 2) / n))
	first := m.near[0].To + measure.Seconds((t-pace*x)/n)
	number := m.near[0].n
	for i := range m.near {
		r := &m.near[i]
		from, to := first+measure.Seconds(float64(r.n-r.updates-number)*pace), first+measure.Seconds(float64(r.n-number)*pace)
		r.From, r.To = from, to
	}
}

// stands is a reading moved by so much, and by more or less towards the window's ends.
func (m *Meter) stands(r run, by, tilt measure.Seconds) measure.Window {
	middle, half := (m.window.From+m.window.To)/2, (m.window.To-m.window.From)/2
	return measure.Window{From: r.From + by + tilt*(r.From-middle)/half, To: r.To + by + tilt*(r.To-middle)/half}
}

// placed is where the readings stand, moved by so much, and what the machine took over the window by them.
type placed struct {
	by, uBy         measure.Seconds
	energy, uEnergy float64 // J
	shared          float64 // how much more of the updates that the ends cut lies within than their means have, J
	slope, uSlope   float64 // of the wall's power by the card's
	agrees          float64 // the logarithm of how probable the wall's steps are
}

// place finds where the readings stand: each placing is as probable as the host's clock has it, and as the card's steps
// agree with the wall's under it. The energy is the mean over all of them.
func (m *Meter) place() (placed, error) {
	if m.alone {
		x, ok := m.at(0, 0)
		if !ok {
			return placed{}, m.short()
		}
		return x, nil
	}
	for _, by := range []measure.Seconds{-UTime, 0, UTime} {
		if _, ok := m.at(by, 0); !ok {
			return placed{}, m.short()
		}
	}
	reach := farthest(m.update)
	n := int(math.Ceil(float64(4 * reach / m.zones[0].cell)))
	var all []placed
	var weights []float64
	most := math.Inf(-1)
	for i := -n; i <= n; i++ {
		by := reach * measure.Seconds(i) / measure.Seconds(n)
		if x, ok := m.at(by, 0); ok {
			all, weights = append(all, x), append(weights, x.agrees+prior(by, reach))
			most = max(most, weights[len(weights)-1])
		}
	}
	var mean placed
	total := 0.0
	for i := range all {
		weights[i] = math.Exp(weights[i] - most)
		total += weights[i]
	}
	for i, x := range all {
		w := weights[i] / total
		mean.by, mean.slope = mean.by+measure.Seconds(w)*x.by, mean.slope+w*x.slope
		mean.energy, mean.shared = mean.energy+w*x.energy, mean.shared+w*x.shared
	}
	for i, x := range all {
		w := weights[i] / total
		mean.uBy += measure.Seconds(w) * (x.by - mean.by) * (x.by - mean.by)
		d, step, bent := x.energy-mean.energy, x.energy-all[max(i-1, 0)].energy, x.shared/x.slope*x.uSlope
		mean.uEnergy += w * (d*d + step*step/12 + bent*bent)
	}
	mean.uBy += reach * reach / measure.Seconds(12*n*n)
	mean.uBy, mean.uEnergy = measure.Seconds(math.Sqrt(float64(mean.uBy))), math.Sqrt(mean.uEnergy)
	for _, tilt := range []measure.Seconds{-m.uPace, m.uPace} {
		x, _ := m.at(mean.by, tilt)
		mean.uEnergy = math.Hypot(mean.uEnergy, (x.energy-mean.energy)/math.Sqrt2)
	}
	return mean, nil
}

// prior is the logarithm of a placing's probability by the host's clock alone.
func prior(by, reach measure.Seconds) float64 {
	x := float64(by / UTime)
	core := math.Exp(-x*x/2) / (math.Sqrt(2*math.Pi) * float64(UTime))
	return math.Log((1-astray)*core + astray/float64(2*reach))
}

// agrees is the logarithm of how probable the wall's steps are by the card's, the readings moved by so much: of the
// differences between neighbouring readings, by the card's means over them, with a slope and a scatter that nothing
// else is known of. Steps of the rest of the machine are a part of the scatter.
func (m *Meter) agrees(by measure.Seconds) (slope, uSlope, agrees float64) {
	var xx, xy, yy float64
	n := 0
	for k := range m.zones {
		z := &m.zones[k]
		reach := farthest(m.update)
		for i := 1; i < len(m.near); i++ {
			a, b := m.near[i-1], m.near[i]
			if a.From < max(z.from, z.seen[0])+reach || b.To > min(z.to(), z.seen[1])-reach || a.none || b.none || a.To != b.From ||
				k == 1 && a.From >= m.zones[0].from && b.To <= m.zones[0].to() { // seen there
				continue
			}
			ea, _ := z.energy(m.stands(a, by, 0))
			eb, _ := z.energy(m.stands(b, by, 0))
			x, y := eb/length(b.Window)-ea/length(a.Window), b.w-a.w
			xx, xy, yy, n = xx+x*x, xy+x*y, yy+y*y, n+1
		}
	}
	if n < leastSteps {
		return 1, (mostSlope - leastSlope) / math.Sqrt(12), 0
	}
	slope = min(max(xy/max(xx, 1e-9), leastSlope), mostSlope)
	scatter := yy - 2*slope*xy + slope*slope*xx
	// The readings are rounded and noisy, and the card's energy counts as even within a cell.
	own := 2*float64(m.wall.Noise*m.wall.Noise) + m.wall.Gain*m.wall.Gain/6
	own = float64(n)*own + yy/(16*cells*cells)
	scatter += own + 1e-12
	uSlope = min(math.Sqrt(scatter/(float64(n-1)*max(xx, 1e-9))), (mostSlope-leastSlope)/math.Sqrt(12))
	return slope, uSlope, -float64(n-1) / 2 * math.Log(scatter)
}

// at is the energy where the readings are moved by so much, and tilted; ok is false where they do not reach over the
// window.
func (m *Meter) at(by, tilt measure.Seconds) (x placed, ok bool) {
	x = placed{by: by}
	seen := measure.Seconds(0)
	if k := m.mid.first; m.mid.n > 0 && k > 0 && k < len(m.near) {
		seen = m.stands(m.near[k], by, tilt).From - m.stands(m.near[k-1], by, tilt).To
		x.energy = m.mid.sum / float64(m.mid.n) * float64(seen)
	}
	x.slope, x.uSlope, x.agrees = m.agrees(by)
	for _, r := range m.near {
		in := length(within(m.stands(r, by, tilt), m.window))
		x.energy, seen = x.energy+in*r.w, seen+measure.Seconds(in)
	}
	if float64(seen) < 0.999999*length(m.window) {
		return x, false
	}
	for k := range m.zones {
		n := m.cutAt(k, by, tilt)
		if n < 0 || m.near[n].none {
			return x, false
		}
		r := m.stands(m.near[n], by, tilt)
		in := within(r, m.window)
		all, ok := m.zones[k].energy(r)
		if !ok {
			return x, false
		}
		part, _ := m.zones[k].energy(in)
		x.shared += x.slope * (part - all*length(in)/length(r))
	}
	x.energy += x.shared
	return x, true
}

// cutAt is the index of the reading that an end of the window cuts, -1 for none.
func (m *Meter) cutAt(k int, by, tilt measure.Seconds) int {
	end := []measure.Seconds{m.window.From, m.window.To}[k]
	return slices.IndexFunc(m.near, func(r run) bool {
		w := m.stands(r, by, tilt)
		return w.From <= end && w.To > end
	})
}

func (m *Meter) short() error {
	return fmt.Errorf("%w: its readings do not reach over %v to %v: let the work last longer, or the meter update faster",
		ErrShort, m.window.From, m.window.To)
}

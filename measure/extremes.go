package measure

import "math"

// RunScans is the most scans that Extremes takes.
const RunScans = 128

// Extreme holds the range and the sum of a rail's power over a run of scans.
type Extreme struct {
	Min, Max Watt
	Sum      float64 // of the watts
}

var noExtreme = Extreme{Min: Watt(math.Inf(1)), Max: Watt(math.Inf(-1))}

func (e *Extreme) add(p Watt) {
	e.Min, e.Max, e.Sum = min(e.Min, p), max(e.Max, p), e.Sum+float64(p)
}

// Extremes computes each rail's extremes over the scans [from, to) of the columns, at most RunScans; where dst is
// longer than there are rails, those of their sum follow. The readings of a scan are taken as of one instant.
func (m *PowerMeter) Extremes(cols [][]Count, from, to int, dst []Extreme) {
	var scans [RunScans]Watt
	total := scans[:to-from]
	for r := range m.rails {
		dst[r] = m.rails[r].extremes(cols, from, total)
	}
	if len(dst) > len(m.rails) {
		sum := noExtreme
		for _, p := range total {
			sum.add(p)
		}
		dst[len(m.rails)] = sum
	}
}

// extremes returns the rail's extremes over the scans from one on, and adds its powers to total, one value a scan.
func (r *railMeter) extremes(cols [][]Count, from int, total []Watt) Extreme {
	e := noExtreme
	for i := range total {
		p := Watt(r.power(pairAt(r, cols, from+i)))
		e.add(p)
		total[i] += p
	}
	return e
}

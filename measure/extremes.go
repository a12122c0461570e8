package measure

// RunScans is the most scans that Extremes takes.
const RunScans = 128

// Extreme holds the range and the sum of a rail's power over a run of scans.
type Extreme struct {
	Min, Max Watt
	Sum      float64 // of the watts
}

// Extremes computes each rail's extremes over the scans [from, to) of the columns, at most RunScans; where dst is
// longer than there are rails, those of their sum follow. The readings of a scan are taken as of one instant.
func (m *PowerMeter) Extremes(cols [][]Count, from, to int, dst []Extreme) {
	var scans [RunScans]Watt
	all := scans[:to-from]
	for r := range m.rails {
		var powers [RunScans]Watt
		rail := powers[:len(all)]
		addPower(&m.rails[r], cols, from, rail)
		dst[r] = extremeOf(rail)
		for i, p := range rail {
			all[i] += p
		}
	}
	if len(dst) > len(m.rails) {
		dst[len(m.rails)] = extremeOf(all)
	}
}

// extremeOf returns the extremes of powers, one or more.
func extremeOf(p []Watt) Extreme {
	lo, hi, sum := p[0], p[0], 0.0
	for _, w := range p {
		if w < lo {
			lo = w
		}
		if w > hi {
			hi = w
		}
		sum += float64(w)
	}
	return Extreme{lo, hi, sum}
}

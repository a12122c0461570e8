package benchwatch

import (
	"slices"

	"wattmark/hostagent/monitorclient"
)

// absorb adds a newer moment to one that was not told yet. Of averages of the same
// rails under the same capture one mean is made, of all their time; else the newer
// one stands alone, as the older ones are of something that is over.
func (m *Moment) absorb(n Moment) {
	same := m.CaptureID == n.CaptureID && n.T > m.T && slices.EqualFunc(m.Rails, n.Rails, func(a, b monitorclient.RailValue) bool { return a.Rail == b.Rail })
	if !same {
		*m = n
		return
	}
	// The monitor's averages are of equal lengths.
	old, fresh := float64(m.Merged), float64(n.Merged)
	mean := func(a, b float64) float64 { return (a*old + b*fresh) / (old + fresh) }
	rails := slices.Clone(n.Rails) // they are shared with other viewers
	for i, r := range m.Rails {
		x := &rails[i]
		x.Power = mixed(r.Power, x.Power, mean)
		x.Voltage = mixed(r.Voltage, x.Voltage, mean)
		x.Current = mixed(r.Current, x.Current, mean)
	}
	n.Rails, n.Total, n.Peak, n.Merged = rails, mixed(m.Total, n.Total, mean), max(m.Peak, n.Peak), m.Merged+n.Merged
	*m = n
}

func mixed[T ~float64](a, b T, mean func(a, b float64) float64) T {
	return T(mean(float64(a), float64(b)))
}

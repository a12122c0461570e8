package attribute

import "sort"

// trace is the power over time around the edge that is being booked.
type trace struct {
	t, p []float64
	head int // what lies before it is dropped when there is much of it
}

func (r *trace) push(t, p float64) {
	if r.head > 1024 && r.head > len(r.t)/2 {
		n := copy(r.t, r.t[r.head:])
		copy(r.p, r.p[r.head:])
		r.t, r.p, r.head = r.t[:n], r.p[:n], 0
	}
	r.t, r.p = append(r.t, t), append(r.p, p)
}

// drop forgets the scans that no instant from t on needs.
func (r *trace) drop(t float64) {
	for r.head+1 < len(r.t) && r.t[r.head+1] <= t {
		r.head++
	}
}

// at is the power at an instant: on the straight line between two scans, and
// that of the first or last one beyond them.
func (r *trace) at(t float64) float64 {
	ts, ps := r.t[r.head:], r.p[r.head:]
	i := sort.SearchFloat64s(ts, t)
	switch {
	case i == 0:
		return ps[0]
	case i == len(ts):
		return ps[i-1]
	}
	return ps[i-1] + (ps[i]-ps[i-1])*(t-ts[i-1])/(ts[i]-ts[i-1])
}

func (r *trace) last() float64 { return r.t[len(r.t)-1] }

package sensor

import (
	"errors"
	"fmt"
	"math"
	"sort"

	"wattmark/measure"
)

// Poll is one look at the register.
type Poll struct {
	At    measure.Seconds
	Power measure.Watt
	// Stamp is the register's own time, on a clock of its own; zero where it has none.
	Stamp measure.Seconds
}

// Update is a renewal of the register.
type Update struct {
	At    measure.Seconds // as well as can be told
	Power measure.Watt
	// The renewal was seen between two polls; for one that left the value as it was,
	// Early and Late are At.
	Early, Late measure.Seconds
	Changed     bool
	N           int // number of the renewal; the first is 0
}

// ErrSeries is wrapped by errors about readings that tell too little.
var ErrSeries = errors.New("these readings do not tell what the sensor does")

// fewest changes of the register that a period is told from.
const fewest = 12

// Updates is the register's life: its renewals, and their beat.
type Updates struct {
	List    []Update
	Period  measure.Seconds
	UPeriod measure.Seconds // expanded, 95 %
	Jitter  measure.Seconds // of a renewal about its smoothed place
	Polling measure.Seconds // median distance of polls
	Notes   []string
}

// FindUpdates collapses polls to renewals and finds their beat, robustly: missed
// renewals (those that left the value as it was), a beat that wanders slowly and
// polls at uneven distances do no harm. Polls are in order of time.
func FindUpdates(polls []Poll) (*Updates, error) {
	for i := range polls {
		p := &polls[i]
		if math.IsNaN(float64(p.Power+measure.Watt(p.At))) || i > 0 && p.At < polls[i-1].At {
			return nil, fmt.Errorf("sensor: %w: reading %d (%v at %v) is no number or goes back in time", ErrSeries, i+1, p.Power, p.At)
		}
	}
	u := &Updates{Polling: median(distances(polls))}
	changes := u.collapse(polls)
	if len(changes) < fewest {
		return nil, fmt.Errorf("sensor: %w: the register changed %d times in %d readings, want %d: record for longer, with a load that changes", ErrSeries, len(changes), len(polls), fewest)
	}
	period := beatOf(changes, u.Polling)
	if period == 0 {
		return nil, fmt.Errorf("sensor: %w: its changes follow no beat slower than the polls, every %v: poll faster", ErrSeries, u.Polling)
	}
	number(changes, period)
	u.Period, u.UPeriod = meanPeriod(changes, period)
	u.place(changes, polls)
	return u, nil
}

func distances(polls []Poll) []float64 {
	var d []float64
	for i := 1; i < len(polls); i++ {
		d = append(d, float64(polls[i].At-polls[i-1].At))
	}
	return d
}

// collapse keeps the polls at which the value, or the register's own time stamp,
// was another than before. A stamp that is new with every poll is the time of the
// call, and says nothing.
func (u *Updates) collapse(polls []Poll) []Update {
	moved, same := 0, 0
	for i := 1; i < len(polls); i++ {
		if polls[i].Stamp != polls[i-1].Stamp {
			moved++
		}
		if polls[i].Power == polls[i-1].Power {
			same++
		}
	}
	stamped := moved > 0 && moved <= len(polls)-1-same/2
	if moved > 0 && !stamped {
		u.Notes = append(u.Notes, "the time stamps are those of the calls, not of the register: not used")
	}
	var out []Update
	for i := 1; i < len(polls); i++ {
		a, b := polls[i-1], polls[i]
		if a.Power == b.Power && !(stamped && a.Stamp != b.Stamp) {
			continue
		}
		// A hole in the polling hides any number of renewals: the value came at some
		// time within it, and which is not known.
		if float64(b.At-a.At) > 8*float64(u.Polling) && len(out) > 0 {
			u.note("a change within a hole in the readings was left out")
			continue
		}
		out = append(out, Update{At: (a.At + b.At) / 2, Early: a.At, Late: b.At, Power: b.Power, Changed: true})
	}
	return out
}

func (u *Updates) note(text string) {
	for _, n := range u.Notes {
		if n == text {
			return
		}
	}
	u.Notes = append(u.Notes, text)
}

// place puts every renewal on the beat: those seen where a straight line through
// their neighbours has them, as far as the polls allow, those between that left
// the value as it was at even distances. Renewals before the first change and
// after the last are not known to have been.
func (u *Updates) place(changes []Update, polls []Poll) {
	const side = 4
	at := make([]float64, len(changes))
	var spread, n float64
	for i := range changes {
		lo, hi := max(0, i-side), min(len(changes)-1, i+side)
		fit := lineAt(changes[lo:hi+1], changes[i].N, float64(u.Period))
		at[i] = min(max(fit, float64(changes[i].Early)), float64(changes[i].Late))
		d := float64(changes[i].At) - fit
		w := float64(changes[i].Late - changes[i].Early)
		spread += d*d - w*w/12 // of the polls
		n++
	}
	u.Jitter = measure.Seconds(math.Sqrt(max(spread/n, 0)))
	for i, c := range changes {
		if i > 0 {
			u.between(changes[i-1], at[i-1], c, at[i], polls)
		}
		c.At = measure.Seconds(at[i])
		u.List = append(u.List, c)
	}
	for i := range u.List {
		u.List[i].N -= changes[0].N
	}
}

// between adds the renewals between two changes at which somebody looked: within a
// hole in the readings the value may have been anything.
func (u *Updates) between(a Update, atA float64, b Update, atB float64, polls []Poll) {
	if b.N <= a.N+1 {
		return
	}
	step := (atB - atA) / float64(b.N-a.N)
	i := sort.Search(len(polls), func(i int) bool { return float64(polls[i].At) >= atA })
	for k := a.N + 1; k < b.N; k++ {
		t := atA + step*float64(k-a.N)
		for i < len(polls) && float64(polls[i].At) < t+0.3*step {
			i++
		}
		if i == len(polls) || float64(polls[i].At) > t+step {
			continue
		}
		s := measure.Seconds(t)
		u.List = append(u.List, Update{At: s, Early: s, Late: s, Power: polls[i].Power, N: k})
	}
}

// lineAt is where a line through renewals has number n. Its slope is held near the
// period: a handful of changes must not tilt it.
func lineAt(c []Update, n int, period float64) float64 {
	var sx, sy, sxx, sxy, m float64
	for _, u := range c {
		x, y := float64(u.N-n), float64(u.At)-period*float64(u.N-n)
		sx, sy, sxx, sxy, m = sx+x, sy+y, sxx+x*x, sxy+x*y, m+1
	}
	det := m*sxx - sx*sx
	if det <= 0 {
		return sy / m
	}
	slope := (m*sxy - sx*sy) / det
	if math.Abs(slope) > 0.1*period {
		return sy / m
	}
	return (sy - slope*sx) / m
}

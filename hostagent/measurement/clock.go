package measurement

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/witness"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/internal/machineid"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// HostSeconds is an instant on the host's wall clock as a clock fit counts it:
// from the fit's origin, a whole number of seconds since 1970.
func HostSeconds(f clock.Fit, t time.Time) measure.Seconds {
	return measure.SecondsOf(t.Sub(time.Unix(int64(f.Origin), 0)))
}

// HostTime is the inverse of HostSeconds.
func HostTime(f clock.Fit, s measure.Seconds) time.Time {
	return time.Unix(int64(f.Origin), 0).Add(s.Duration())
}

// Carry returns a span of the host's wall clock in device time, and the uncertainty of its ends.
func Carry(f *clock.Fit, s gpu.Span) (w Window, e measure.Edges) {
	from, to := HostSeconds(*f, s.Start), HostSeconds(*f, s.End)
	w.From, _ = f.Meter(from)
	w.To, _ = f.Meter(to)
	return w, f.Edges(from, to)
}

// offRate returns a note on a meter's clock that runs faster or slower than its uncertainty
// allows ([clock.Fit.OffRate]): its joules are off by as much. Empty for a clock within its uncertainty.
func offRate(tb measure.Timebase, f *clock.Fit) string {
	if f == nil {
		return ""
	}
	off, beyond := f.OffRate(tb.UTickHz)
	if !beyond {
		return ""
	}
	return fmt.Sprintf("the meter's clock runs %+.0f ppm off the host's, where ±%.0f ppm are stated: its joules are "+
		"off by as much; correct its tick rate", 1e6*off, 1e6*tb.UTickHz)
}

// marked compares a task's clock fit with the hardware marks that a monitor on this machine asked its meter for, in
// words; empty without a fit or such marks. Marks of another machine carry times of another clock. The delay from
// request to mark has no upper bound, so only the shortest one bounds the clocks' error.
func marked(t *store.Task, f *clock.Fit) string {
	if f == nil {
		return ""
	}
	tb := t.Setup.Timebase
	soonest, u, n := measure.Seconds(math.Inf(1)), measure.Seconds(0), 0
	for i := range t.Events {
		m, ok := t.Events[i].HardwareMark()
		if !ok || m.Machine == "" || m.Machine != machineid.Boot() {
			continue
		}
		at, uAt := f.Host(tb.Seconds(float64(t.Events[i].FirstScan) * tb.TicksPerScan))
		if n++; at-HostSeconds(*f, m.Asked) < soonest {
			soonest, u = at-HostSeconds(*f, m.Asked), uAt
		}
	}
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf("the soonest of %s came %.2f ms ± %.2f ms after it was asked for, as the marker kernels place it",
		measure.Plural(n, "hardware mark"), 1e3*float64(soonest), 2e3*float64(u))
	if soonest < -2*u {
		text += ": a mark cannot come before its request, so one of the two clocks is off by at least that"
	}
	return text
}

// wired compares when a line that this host switched (Config.Witness) changed in the meter's channel with where the
// clock fit places the calls that switched it, in words; empty without a fit or such a line. The line may always change
// at the same part of a call: that uncertainty, of the shortest call's length, does not average out.
func wired(ctx context.Context, db Store, t *store.Task, f *clock.Fit) (string, error) {
	if f == nil {
		return "", nil
	}
	span := func(at measure.Seconds) time.Time { h, _ := f.Host(at); return HostTime(*f, h) }
	scans := t.Setup.Timebase.Seconds(float64(t.Scans) * t.Setup.Timebase.TicksPerScan)
	readings, err := db.ReadingsWithin(ctx, t.ID, witness.Method, span(0), span(scans))
	if err != nil || len(readings) == 0 {
		return "", err
	}
	channel := witness.ChannelOf(&t.Setup)
	if channel < 0 {
		return fmt.Sprintf("a line was switched, and no channel of the meter is named %s", witness.Channel), nil
	}
	most := 2 * len(readings)
	changes, err := changesOf(ctx, db, t, channel, most)
	if err != nil {
		return "", err
	}
	late, width, took, uFit := matched(f, readings, changes)
	text := fmt.Sprintf("of %s of the witness line the meter saw %d", measure.Plural(len(readings), "change"),
		len(late))
	if len(changes) > most {
		text = "the channel of the witness line changes far more often than the line"
	}
	if len(late) < 2 || len(changes) > most {
		return fmt.Sprintf("%s: is it wired to the channel %s?", text, witness.Channel), nil
	}
	mean, sd := stat.MeanStdDev(late, nil)
	own := max(sd, stat.Mean(width, nil)/math.Sqrt(12)) / math.Sqrt(float64(len(late)))
	u := 2 * math.Hypot(math.Hypot(own, took/math.Sqrt(12)), float64(uFit))
	text += fmt.Sprintf(", on the average %+.3f ms ± %.3f ms behind where the marker kernels place them",
		1e3*mean, 1e3*u)
	if math.Abs(mean) > u {
		text += ": the two do not agree"
	}
	return text, nil
}

// matched pairs calls with the channel's changes of the same direction near them. It returns each change's lag behind the
// middle of its call and its width, the length of the shortest call, and the fit's greatest uncertainty, in seconds.
func matched(f *clock.Fit, calls []store.Reading, changes []witness.Change) (
	late, width []float64, took float64, uFit measure.Seconds,
) {
	took = math.Inf(1)
	for _, r := range calls {
		took = min(took, math.Abs(r.Value))
		at, u := f.Meter(HostSeconds(*f, r.At) + measure.Seconds(math.Abs(r.Value)/2))
		near := measure.SecondsOf(witness.Apart)
		n := sort.Search(len(changes), func(n int) bool { return changes[n].Middle() > at-near })
		for ; n < len(changes) && changes[n].Middle() < at+near; n++ {
			if c := changes[n]; c.On == (r.Value > 0) {
				late, width = append(late, float64(c.Middle()-at)), append(width, float64(c.To-c.From))
				uFit = max(uFit, u)
			}
		}
	}
	return late, width, took, uFit
}

// changesOf returns the changes of a channel between its least and its greatest reading. It ends in the block that
// has more than most.
func changesOf(ctx context.Context, db Store, t *store.Task, channel, most int) ([]witness.Change, error) {
	low, high := measure.Count(math.MaxInt32), measure.Count(math.MinInt32)
	err := eachBlock(ctx, db, t, func(b *measure.Block) (bool, error) {
		low, high = min(low, slices.Min(b.Counts[channel])), max(high, slices.Max(b.Counts[channel]))
		return false, nil
	})
	if err != nil || low >= high {
		return nil, err
	}
	f := witness.NewFinder(&t.Setup, channel, low, high)
	err = eachBlock(ctx, db, t, func(b *measure.Block) (bool, error) {
		f.Add(b)
		return len(f.Changes) > most, nil
	})
	return f.Changes, err
}

// firstScans is how much time the first scans cover at most before they arrive at the monitor: a judgement.
const firstScans = 200 * time.Millisecond

// unmarkedClock relates the clocks by when the capture began, its device time zero: the monitor answers the request for
// it as the first scans arrive. Nil for a task with markers.
func (s *attempt) unmarkedClock() *clock.Fit {
	if !s.cfg.Unmarked {
		return nil
	}
	from, to := lists.Latest(s.began.End.Add(-s.answers-firstScans), s.began.Start), s.began.End
	origin, half := from.Truncate(time.Second), to.Sub(from)/2
	zero, u := measure.SecondsOf(from.Add(half).Sub(origin)), float64(measure.SecondsOf(half))/math.Sqrt(3)
	rate := math.Hypot(clock.HostRate, s.bench.Setup.Timebase.UTickHz)
	return &clock.Fit{Origin: measure.Seconds(origin.Unix()), A: -zero, B: 1, VarA: u * u, VarB: rate * rate}
}

// relate fits the meter's clock to the host's from the chip edges of markers that were both
// played and found. An averaging instrument does not define where in its average a value
// lies: half of the average's length enters as the uncertainty of the offset. The rates may
// lie apart by twice the meter's statement about its own clock, as a relative standard
// uncertainty.
func relate(setup *measure.Setup, played []store.Played, found []marker.Found) (*clock.Fit, error) {
	if len(played) == 0 {
		return nil, errors.New("no marker was played to its end")
	}
	edges, origin := observe(played, found)
	shared := 0.0
	for _, o := range edges {
		shared += float64(o.Shared*o.Shared) / float64(len(edges))
	}
	fit, err := clock.FitClock(edges, clock.Prior{
		Origin:  measure.Seconds(origin.Unix()),
		UOffset: delayU(setup, shared),
		URate:   max(clock.DefaultURate, 2*setup.Timebase.UTickHz),
	})
	if err != nil {
		return nil, err
	}
	return &fit, nil
}

// delayU is the standard uncertainty of the delay that all markers have in common. They are played on one card: of the
// variance that the edges of each share, which comes of the card's response, half is common to all.
func delayU(setup *measure.Setup, shared float64) measure.Seconds {
	u := float64(measure.UPowerDelay)
	if setup.Response.Update > 0 { // a sensor's delay wanders from none to twice the mean, for all markers alike
		u = math.Hypot(u, float64(setup.Response.Window)/2)
		u = math.Hypot(u, float64(setup.Channels[setup.Rails[0].X].Skew)/math.Sqrt(3))
	}
	return measure.Seconds(math.Hypot(u, math.Sqrt(shared/2)))
}

// observe returns the edges that were both played and found; their host times count from origin.
func observe(played []store.Played, found []marker.Found) (edges []clock.Obs, origin time.Time) {
	first := slices.MinFunc(played, func(a, b store.Played) int { return a.At.Compare(b.At) })
	origin = first.At.Truncate(time.Second)
	for i, p := range pairs(markersOf(notAmid(played)), found) {
		for _, o := range p.edges(origin) {
			o.Group = i
			edges = append(edges, o)
		}
	}
	return edges, origin
}

// rateU returns the relative standard uncertainty of the meter's seconds, from the stated one and from the rate of the
// fit against the host's clock; 0 without a fit. The clocks' variances divide the difference between them: the meter's
// share is added in full, as joules are not corrected for it, to the variance that remains, which grows by Birge's
// ratio where the difference exceeds its standard uncertainty. Beyond 3 of them all of the difference counts as the
// meter's. So does the rate within one marker where it exceeds 3 of its own.
func rateU(stated float64, fit *clock.Fit, played []store.Played, found []marker.Found) float64 {
	if fit == nil || len(played) == 0 {
		return 0
	}
	own, other := stated*stated, clock.HostRate*clock.HostRate+fit.VarB
	off, both := (fit.B-1)*(fit.B-1), own+other
	part := own / both
	most := part*part*off + part*other*max(1, off/both)
	if off > 9*both {
		most = max(most, off-other)
	}
	edges, _ := observe(played, found)
	for len(edges) > 0 {
		n := slices.IndexFunc(edges, func(o clock.Obs) bool { return o.Group != edges[0].Group })
		if n < 0 {
			n = len(edges)
		}
		x, y, w := make([]float64, n), make([]float64, n), make([]float64, n)
		for i, o := range edges[:n] {
			x[i], y[i], w[i] = float64(o.Host), float64(o.Meter-o.Host), 1/float64(o.U*o.U)
		}
		_, off := stat.LinearRegression(x, y, w, false)
		_, v := stat.MeanVariance(x, nil)
		if square := 1 / (floats.Sum(w) * v); n > 2 && off*off > 9*square {
			most = max(most, off*off-square-clock.HostRate*clock.HostRate)
		}
		edges = edges[n:]
	}
	return math.Sqrt(most)
}

// playedMarker is a marker as the host played it.
type playedMarker struct {
	kind  marker.Kind
	first time.Time // of its chip 0
	at    map[int]time.Time
}

// markersOf gathers edges to markers, in the order of their times.
func markersOf(edges []store.Played) (out []playedMarker) {
	type key struct {
		kind   marker.Kind
		number int
	}
	index := map[key]int{}
	for _, e := range edges {
		k := key{e.Kind, e.Number}
		i, ok := index[k]
		if !ok {
			i = len(out)
			index[k], out = i, append(out, playedMarker{kind: e.Kind, first: e.At, at: map[int]time.Time{}})
		}
		out[i].at[e.Chip] = e.At
		if e.Chip == 0 {
			out[i].first = e.At
		}
	}
	slices.SortFunc(out, func(a, b playedMarker) int { return a.first.Compare(b.first) })
	return out
}

// pair is a marker that was played, and where it was found.
type pair struct {
	played *playedMarker
	found  *marker.Found
}

// edges are those of the marker that were both played and found; their host times count from origin.
func (p pair) edges(origin time.Time) (out []clock.Obs) {
	seen := p.found.Edges
	if len(seen) == 0 { // the marker's own time counts, as chip 0
		seen = []marker.Edge{{Chip: 0, T: p.found.T, U: p.found.U}}
	}
	for _, e := range seen {
		if t, ok := p.played.at[e.Chip]; ok && e.U > 0 {
			out = append(out, clock.Obs{
				Host: measure.SecondsOf(t.Sub(origin)), Meter: e.T, U: e.U, Shared: p.found.SharedU(),
			})
		}
	}
	return out
}

// pairs matches the markers that were found with those that were played. One marker of a
// kind has one match. With several of a kind some may be missing, and the clocks are not
// yet related: every pair of one kind in turn is taken as simultaneous, and the offset
// under which most markers meet wins; of equal ones the smallest sum of distances.
func pairs(played []playedMarker, found []marker.Found) []pair {
	single := once(lists.Map(played, func(p playedMarker) marker.Kind { return p.kind })) &&
		once(lists.Map(found, func(f marker.Found) marker.Kind { return f.Kind }))
	var best []pair
	bestOff := math.Inf(1)
	for i := range found {
		for j := range played {
			switch {
			case found[i].Kind != played[j].kind:
				continue
			case single:
				best = append(best, pair{&played[j], &found[i]})
				continue
			}
			got, off := meet(played, found, played[j].first, found[i].T, 1)
			if len(got) > len(best) || len(got) == len(best) && off < bestOff {
				best, bestOff = got, off
			}
		}
	}
	return best
}

// once reports whether there is at most one of each kind. It sorts them.
func once(kinds []marker.Kind) bool {
	slices.Sort(kinds)
	return len(slices.Compact(kinds)) == len(kinds)
}

// meet pairs the markers that lie together when the host's instant is the meter's t and its clock runs at b: each one
// that was found with the nearest of its kind that was played. It returns the sum of their
// distances in s. A pair may be apart by a quarter of a marker's length, plus 1 ms for each
// second from t: two quartz clocks part by less.
func meet(
	played []playedMarker, found []marker.Found, host time.Time, t measure.Seconds, b float64,
) (out []pair, off float64) {
	const rate, slack = 1e-3, 0.25
	taken := make([]bool, len(played))
	for i := range found {
		f := &found[i]
		best, distance := -1, math.Inf(1)
		at := host.Add(((f.T - t) / measure.Seconds(b)).Duration())
		after, _ := slices.BinarySearchFunc(played, at,
			func(p playedMarker, at time.Time) int { return p.first.Compare(at) })
		// Kinds take turns, so the nearest of a kind is one of the next few.
		for j := max(0, after-3); j < min(len(played), after+3); j++ {
			d := math.Abs(played[j].first.Sub(at).Seconds())
			if played[j].kind == f.Kind && !taken[j] && d < distance {
				best, distance = j, d
			}
		}
		if best >= 0 && distance <= slack*float64(f.End-f.Begin)+rate*math.Abs(float64(f.T-t)) {
			taken[best] = true
			out, off = append(out, pair{&played[best], f}), off+distance
		}
	}
	return out, off
}

// timeline puts the host's times of a measurement on one line:
//
//	line(t) = wall clock at the begin + monotonic time since then
//
// A step of the wall clock meanwhile moves no time on it. Times from another program have no
// monotonic reading of this process: they stay as they are, and a step of the wall clock is
// then noted in the task. It is safe for concurrent use.
type timeline struct {
	now  func() time.Time
	base time.Time // with a monotonic reading

	mu      sync.Mutex
	foreign bool          // times of other programs were taken
	step    time.Duration // by how much the wall clock was off the line, the most that was seen
	told    time.Duration // the part of step that the task has a note of
}

// newTimeline starts a line at the present time of a clock, time.Now when nil.
func newTimeline(now func() time.Time) *timeline {
	if now == nil {
		now = time.Now
	}
	return &timeline{now: now, base: now()}
}

// at is a time of the host's on the line.
func (l *timeline) at(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if t == t.Round(0) { // no monotonic reading
		l.others()
		return t
	}
	return l.base.Round(0).Add(t.Sub(l.base))
}

// others notes that times of other programs are taken.
func (l *timeline) others() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.foreign = true
}

// readings puts the readings' times on the line, in place.
func (l *timeline) readings(r []store.Reading) []store.Reading {
	for i := range r {
		r[i].At = l.at(r[i].At)
	}
	return r
}

// leastStep is the least step of the wall clock that counts: above the error of reading it
// twice, below the uncertainty of a window's ends.
const leastStep = 10 * time.Microsecond

// look compares the wall clock with the line. It returns the step of the wall clock; tell is
// true where it matters and the task has no note of it yet.
func (l *timeline) look() (step time.Duration, tell bool) {
	// The two clocks are read one after the other, the wall's first: of some readings of how
	// far it is ahead of the line the largest was delayed least.
	off := time.Duration(math.MinInt64)
	for range 8 {
		now := l.now()
		off = max(off, now.Round(0).Sub(l.base.Round(0))-now.Sub(l.base))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if off.Abs() > l.step.Abs() {
		l.step = off
	}
	if !l.foreign || l.step.Abs() < leastStep || (l.step-l.told).Abs() < leastStep {
		return 0, false
	}
	l.told = l.step
	return l.step, true
}

// watchClock stores an event where the host's clock was set and times depend on it. It is
// called before such times are stored.
func (s *attempt) watchClock(ctx context.Context) error {
	step, tell := s.line.look()
	if !tell {
		return nil
	}
	e := measure.Event{Kind: measure.EventClock, Channel: -1, Detail: clockSet(step)}
	return playing("store that the clock was set",
		s.cfg.DB.PutEvents(context.WithoutCancel(ctx), s.id, []measure.Event{e}))
}

// clockSet words a step of the wall clock, with the remedy.
func clockSet(step time.Duration) string {
	return fmt.Sprintf("the host's clock was set by %+.6f s while it was measured, and another program took times by "+
		"it: the window may lie beside the work; measure again, with a clock that is slewed rather than set",
		step.Seconds())
}

// clockNote returns the note on the clock for a task's reason; empty for none.
func (l *timeline) clockNote() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == 0 {
		return ""
	}
	return clockSet(l.told)
}

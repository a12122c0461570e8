// Package wall works out what a whole machine took over a window, by a slow meter before its power
// supply, and what of that the card's rails did not take: the rest of the machine.
//
//	blocks ─▶ Meter.Add ─▶ runs: the updates of the wall's meter, each shown by many scans
//	                        └▶ Spans: stretches of which the card's energy is wanted
//	                             └▶ Meter.Result ─▶ wall E ± U, rest E ± U
//
// An update is a mean, and a window's end cuts one: how much of that update's energy lies on either side it does
// not show. The card's rails do, at each scan. So an end takes the card's energy as the rails have it, and of the
// update only the rest, wall less card, as steady. By what the rest changes from update to update an end is
// uncertain.
//
// The wall's meter is placed among the scans by the host's clock, within UTime: the result is worked out for
// readings that lie as much earlier and later, too.
package wall

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
)

// UTime is the standard uncertainty of the wall's readings in time, where its meter is another instrument than the
// card's: links hide delays of up to some 20 ms (USB frames, latency timers).
const UTime measure.Seconds = 10e-3

// leastUpdates is how many whole updates a window must hold: what fewer show is of its ends.
const leastUpdates = 2

// Reach is how much before and behind a window the wall's readings are wanted: the updates that its ends cut, with
// their neighbours. Zero without such a meter, of which a reading stands half an update from its time.
func Reach(s *measure.Setup) measure.Seconds {
	if i := s.Wall(); i >= 0 {
		return 5*measure.Seconds(math.Abs(float64(s.Channels[i].Skew))) + 3*UTime
	}
	return 0
}

// Errors that leave a window without a figure.
var (
	// ErrNone: the bench has no meter at the wall.
	ErrNone = errors.New("no meter at the wall")
	// ErrShort: the window is shorter than the meter resolves.
	ErrShort = errors.New("the window is too short for the meter at the wall")
	// ErrRange: a reading stood at the end of the meter's range.
	ErrRange = errors.New("the meter at the wall was over its range")
)

// Result is what the whole machine took over a window.
type Result struct {
	Wall     measure.Estimate `json:"wall"`
	WallMean measure.Watt     `json:"wall_mean_w"`
	// Rest is of all but the card's measured rails: the supply's losses, too.
	Rest     measure.Estimate `json:"rest"`
	RestMean measure.Watt     `json:"rest_mean_w"`
	// Updates are the wall's readings that lie wholly in the window.
	Updates int `json:"updates"`
	// Budget is Rest's.
	Budget []measure.Contribution `json:"rest_budget"`
}

// run is a stretch of scans that show one update. Its times are where the meter averaged.
type run struct {
	from, to measure.Seconds
	w        measure.Watt
	none     bool // the reading was lost
}

func (r run) span() measure.Window { return measure.Window{From: r.from, To: r.to} }
func (r run) length() float64      { return float64(r.to - r.from) }
func (r run) within(w, to measure.Seconds) float64 {
	return max(0, float64(min(r.to, to)-max(r.from, w)))
}

// end is an end of the window: the update that it lies in, with its neighbours. Those that are not known are zero.
type end struct{ before, at, after run }

// placed are the sums for one placing of the wall's readings.
type placed struct {
	shift, sum, seen float64
	ends             [2]end
}

// Meter gathers the wall's readings over a window. It is not safe for concurrent use; its memory does not grow with
// the data.
type Meter struct {
	setup  measure.Setup
	window measure.Window
	wall   measure.Channel
	column int
	update measure.Seconds
	places [3]placed // as they stand, earlier and later by their uncertainty

	next         uint64 // the scan expected next
	first, last  measure.Seconds
	begun, whole bool // the run under way began within the data
	count        measure.Count
	begin        measure.Seconds
	before       float64 // the power of the run before, W

	updates          int
	squares          float64 // W²·s
	gap, gap2, gap2w float64 // the length of gaps, its square, and that times the square of the step, in the window
	over             bool
}

// New prepares a window of device time; ErrNone where the bench has no meter at the wall.
func New(s *measure.Setup, w measure.Window) (*Meter, error) {
	m := &Meter{setup: *s, window: w, column: s.Wall()}
	if m.column < 0 || len(s.Rails) == 0 {
		return nil, ErrNone
	}
	m.wall = s.Channels[m.column]
	m.update = max(2*measure.Seconds(math.Abs(float64(m.wall.Skew))), s.Timebase.Seconds(s.Timebase.TicksPerScan))
	u := UTime
	if m.wall.Skew == s.Channels[s.Rails[0].X].Skew {
		u = 0 // one instrument has both
	}
	for i, d := range []measure.Seconds{0, -u, u} {
		m.places[i].shift = float64(m.wall.Skew + d)
	}
	return m, nil
}

// Add takes the next block, in order. They begin some updates before the window, where there are samples.
func (m *Meter) Add(b *measure.Block) error {
	tb := m.setup.Timebase
	if err := b.Validate(tb, len(m.setup.Channels)); err != nil {
		return fmt.Errorf("wall: scan %d: %w", b.FirstScan, err)
	}
	for i, c := range b.Counts[m.column] {
		t := tb.Seconds(b.TickAt(tb, i))
		lost := i == 0 && m.begun && b.FirstScan > m.next
		switch {
		case !m.begun:
			m.first, m.begin, m.count, m.begun = t, t, c, true
		case c != m.count || lost || t-m.begin > 1.5*m.update:
			at := (m.last + t) / 2
			if c == m.count && !lost { // two readings that are equal
				at = m.begin + m.update
			}
			if lost {
				m.lose(m.last, t, m.value(c)-m.value(m.count))
			}
			m.end(at, c)
			m.begin, m.count, m.whole = at, c, true
		}
		m.last = t
	}
	m.next = b.FirstScan + uint64(b.Scans())
	return nil
}

// value is the power of a count; without a reading it is the power before.
func (m *Meter) value(c measure.Count) float64 {
	if c == measure.NoReading {
		return m.before
	}
	return m.wall.Value(c)
}

// lose notes a gap between two scans, over which the power changed by a step.
func (m *Meter) lose(from, to measure.Seconds, step float64) {
	g := run{from: from, to: to}.within(m.window.From, m.window.To)
	m.gap2w, m.gap2, m.gap = m.gap2w+g*g*step*step, m.gap2+g*g, m.gap+g
}

// end ends the run under way, before a count. One without a reading is bridged.
func (m *Meter) end(at measure.Seconds, next measure.Count) {
	w, none := m.value(m.count), m.count == measure.NoReading
	if none {
		m.lose(m.begin, at, m.value(next)-w)
		w = (w + m.value(next)) / 2
	}
	m.before = w
	if !m.whole {
		return // of the first one it is not known how long it had lasted
	}
	for i := range m.places {
		p := &m.places[i]
		d := measure.Seconds(p.shift)
		r := run{m.begin + d, at + d, measure.Watt(w), none}
		in := r.within(m.window.From, m.window.To)
		p.sum, p.seen = p.sum+in*float64(r.w), p.seen+in
		for k, t := range []measure.Seconds{m.window.From, m.window.To} {
			switch e := &p.ends[k]; {
			case r.to <= t:
				e.before = r
			case r.from <= t:
				e.at = r
			case e.after == run{}:
				e.after = r
			}
		}
		if i == 0 && in > 0 {
			m.squares += in * float64(r.w*r.w)
			m.over = m.over || m.wall.OverRange(m.count)
			if in == r.length() && !none {
				m.updates++
			}
		}
	}
}

// Done reports whether no later block bears on the result.
func (m *Meter) Done() bool {
	return !slices.ContainsFunc(m.places[:], func(p placed) bool { return p.ends[1].after == run{} })
}

// Spans returns the stretches about one end of the window, 0 or 1, of which Result wants the card's energy,
// in the order of their ends. Errors leave the window without a figure.
func (m *Meter) Spans(which int) (out []measure.Window, err error) {
	if m.over {
		return nil, fmt.Errorf("%w: choose a larger one", ErrRange)
	}
	for i := range m.places {
		p := &m.places[i]
		e := &p.ends[which]
		if e.at == (run{}) || e.at.none || p.seen < 0.999999*float64(m.window.To-m.window.From) || e.at.from < m.first {
			return nil, fmt.Errorf("%w: its readings do not reach over %v to %v: let the work last longer, or the meter "+
				"update faster", ErrShort, m.window.From, m.window.To)
		}
		out = append(out, e.at.span())
		if in := m.inside(e.at); in.From < in.To {
			out = append(out, in)
		}
		for _, r := range []run{e.before, e.after} {
			if i == 0 && r != (run{}) && r.from >= m.first && r.to <= m.last {
				out = append(out, r.span())
			}
		}
	}
	if m.updates < leastUpdates {
		return nil, fmt.Errorf("%w: it has %s within %v, want %d: let the work last longer, or the meter update faster",
			ErrShort, measure.Plural(m.updates, "update"), m.window.To-m.window.From, leastUpdates)
	}
	slices.SortFunc(out, func(a, b measure.Window) int { return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From)) })
	return slices.Compact(out), nil
}

// inside is the part of an update in the window.
func (m *Meter) inside(r run) measure.Window {
	return measure.Window{From: max(r.from, m.window.From), To: min(r.to, m.window.To)}
}

// Result returns the energies, given the card's over the window with the uncertainty of its ends, and the card's
// energies over the Spans of both ends.
func (m *Meter) Result(card *measure.Result, e measure.Edges, of map[measure.Window]measure.Joule) Result {
	length := float64(m.window.To - m.window.From)
	mean := func(r run) float64 {
		if card, ok := of[r.span()]; ok {
			return float64(card) / r.length()
		}
		return math.NaN()
	}
	// shared is how much more of the updates that the ends cut lies within than their means have.
	shared := func(p *placed) (sum float64) {
		for k := range p.ends {
			at := p.ends[k].at
			in := m.inside(at)
			sum += float64(of[in]) - mean(at)*float64(in.To-in.From)
		}
		return sum
	}
	wall := m.places[0].sum + shared(&m.places[0])
	rest := wall - float64(card.Total.Energy)

	var common, lines []measure.Contribution
	add := func(to *[]measure.Contribution, source string, u float64, systematic bool) {
		if u > 0 {
			*to = append(*to, measure.Contribution{Source: source, U: measure.Joule(u), Systematic: systematic})
		}
	}
	c := m.wall
	add(&common, "gain "+c.Name, math.Hypot(math.Hypot(c.UGain, c.Drift.AgeGain), c.Drift.TemperatureGain)*
		math.Abs(wall-c.Offset*length), true)
	add(&common, "offset "+c.Name, math.Hypot(math.Hypot(c.UOffset, c.Drift.AgeOffset), c.Drift.TemperatureOffset)*length, true)
	add(&common, "noise "+c.Name, c.Noise*length/math.Sqrt(float64(m.updates)), false)
	late := 0.0
	for i := range m.places {
		late = max(late, math.Abs(m.places[i].sum+shared(&m.places[i])-wall))
	}
	add(&common, "time of "+c.Name, late, true)
	steps, edges := m.cut(mean, e)
	add(&common, "updates at the ends", steps, false)
	spread := max(m.squares/length-wall*wall/(length*length), 0)
	add(&common, "gaps", math.Sqrt(m.gap2w/12+m.gap2*spread), false)

	var own, clock, ends float64
	for _, l := range card.Budget {
		switch u := float64(l.U); l.Source {
		case "tick rate":
			clock = u / math.Abs(float64(card.Total.Energy))
		case "window edges":
			ends = u
		default:
			own = math.Hypot(own, u)
		}
	}
	lines = slices.Clone(common)
	add(&lines, "the card's rails", own, true)
	add(&lines, "tick rate", clock*math.Abs(rest), true)
	add(&lines, "window edges", edges, true)
	add(&common, "tick rate", clock*math.Abs(wall), true)
	add(&common, "window edges", ends+edges, true) // an end that moves takes of both
	add(&common, "the card's rails at the ends", own*math.Abs(shared(&m.places[0])/float64(card.Total.Energy)), true)
	slices.SortStableFunc(lines, func(a, b measure.Contribution) int { return cmp.Compare(b.U, a.U) })
	return Result{
		Wall: estimate(wall, common), WallMean: measure.Watt(wall / length), Rest: estimate(rest, lines),
		RestMean: measure.Watt(rest / length), Updates: m.updates, Budget: lines,
	}
}

// cut returns the standard uncertainties by the updates that the ends cut, and by the ends themselves, of the rest
// of the machine. Where it differs by d among such an update and its neighbours, it may have stepped by d anywhere
// within: of T seconds, a share of x in the window, x·(1 − x)·T·d at most is on the wrong side.
func (m *Meter) cut(mean func(run) float64, e measure.Edges) (steps, edges float64) {
	var w [2]float64
	for k, x := range m.places[0].ends {
		w[k] = float64(x.at.w) - mean(x.at)
		least, most := w[k], w[k]
		for _, r := range []run{x.before, x.after} {
			if rest := float64(r.w) - mean(r); !math.IsNaN(rest) {
				least, most = min(least, rest), max(most, rest)
			}
		}
		in := float64(m.inside(x.at).To - m.inside(x.at).From)
		steps = math.Hypot(steps, in*(1-in/x.at.length())*(most-least)/math.Sqrt(3))
	}
	a, b := w[0]*float64(e.UFrom), w[1]*float64(e.UTo)
	return steps, math.Sqrt(max(a*a+b*b-2*e.Correlation*a*b, 0))
}

// estimate expands a budget, k = 2.
func estimate(energy float64, budget []measure.Contribution) measure.Estimate {
	u := 0.0
	for _, c := range budget {
		u = math.Hypot(u, float64(c.U))
	}
	return measure.Estimate{Energy: measure.Joule(energy), U: measure.Joule(2 * u)}
}

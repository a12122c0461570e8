// Package wall works out what a whole machine took over a window, by a slow meter before its power
// supply, and what of that the card's rails did not take: the rest of the machine.
//
// The meter's updates are means, and a window's ends cut two of them. How an update's energy lies on either side of
// an end the card's rails show, at each scan; the rest, wall less card, counts as steady there. By what it changes
// from update to update an end is uncertain.
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
// card's and the host's clock relates them: links hide delays of up to some 20 ms (USB frames, latency timers).
const UTime measure.Seconds = 10e-3

// leastUpdates is how many whole updates a window must hold: what fewer show is of its ends.
const leastUpdates = 2

// Errors that leave a window without a figure.
var (
	ErrNone  = errors.New("no meter at the wall")
	ErrShort = errors.New("the window is too short for the meter at the wall")
	ErrRange = errors.New("the meter at the wall was over its range")
)

// Reach is how much before and behind a window the wall's readings are wanted: the updates that its ends cut, with
// their neighbours. Zero without such a meter, of which a reading stands half an update from its time.
func Reach(s *measure.Setup) measure.Seconds {
	if i := s.Wall(); i >= 0 {
		return 5*measure.Seconds(math.Abs(float64(s.Channels[i].Skew))) + 3*UTime
	}
	return 0
}

// Result is the energy of the whole machine over a window, and of the rest of it.
type Result struct {
	Wall     measure.Estimate `json:"wall"`
	WallMean measure.Watt     `json:"wall_mean_w"`
	// Rest is of all but the card's measured rails: the supply's losses, too.
	Rest     measure.Estimate       `json:"rest"`
	RestMean measure.Watt           `json:"rest_mean_w"`
	Updates  int                    `json:"updates"` // wholly in the window
	Budget   []measure.Contribution `json:"rest_budget"`
}

// run is a stretch of scans that show one update. Its times are where the meter averaged.
type run struct {
	measure.Window
	w    float64
	none bool // the reading was lost, and is bridged
}

// within is the part of a stretch in another.
func within(r, w measure.Window) measure.Window {
	return measure.Window{From: max(r.From, w.From), To: max(r.From, w.From, min(r.To, w.To))}
}

func length(w measure.Window) float64 { return float64(w.To - w.From) }

// placed are the sums for one placing of the wall's readings. Each end of the window has the update that it
// lies in between its neighbours; what is not known is zero.
type placed struct {
	shift     measure.Seconds
	sum, seen float64
	ends      [2][3]run
}

// Meter gathers the wall's readings over a window. It is not safe for concurrent use; its memory does not grow with
// the data.
type Meter struct {
	setup  *measure.Setup
	window measure.Window
	column int
	wall   measure.Channel
	update measure.Seconds
	places [3]placed // as they stand, earlier and later by UTime

	next               uint64 // the scan expected next
	first, last, begin measure.Seconds
	begun, whole       bool // the run under way began within the data
	count              measure.Count
	before             float64 // the power of the run before, W
	updates            int
	squares            float64 // W²·s
	gap2, gap2w        float64 // squares of gaps in the window, and times the square of the step
	over               bool
}

// New prepares a window of device time; ErrNone where the bench has no meter at the wall.
func New(s *measure.Setup, w measure.Window) (*Meter, error) {
	m := &Meter{setup: s, window: w, column: s.Wall()}
	if m.column < 0 || len(s.Rails) == 0 {
		return nil, ErrNone
	}
	m.wall = s.Channels[m.column]
	m.update = max(measure.Seconds(2*math.Abs(float64(m.wall.Skew))), s.Timebase.Seconds(s.Timebase.TicksPerScan))
	u := UTime
	if m.wall.Skew == s.Channels[s.Rails[0].X].Skew {
		u = 0 // one instrument has both
	}
	m.places[0].shift, m.places[1].shift, m.places[2].shift = m.wall.Skew, m.wall.Skew-u, m.wall.Skew+u
	return m, nil
}

// Add takes the next block, in order. They begin Reach before the window, where there are samples.
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
		case lost:
			m.lose(measure.Window{From: m.last, To: t}, m.value(c)-m.value(m.count))
			m.end((m.last+t)/2, c)
		case c != m.count:
			m.end((m.last+t)/2, c)
		case t-m.begin > 1.5*m.update: // two readings that are equal
			m.end(m.begin+m.update, c)
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

// lose notes a stretch without readings, over which the power changed by a step.
func (m *Meter) lose(w measure.Window, step float64) {
	g := length(within(w, m.window))
	m.gap2w, m.gap2 = m.gap2w+g*g*step*step, m.gap2+g*g
}

// end ends the run under way where one of the next count begins. Of the first it is not known how long it had lasted.
func (m *Meter) end(at measure.Seconds, next measure.Count) {
	w, none := m.value(m.count), m.count == measure.NoReading
	if none {
		m.lose(measure.Window{From: m.begin, To: at}, m.value(next)-w)
		w = (w + m.value(next)) / 2
	}
	defer func() { m.begin, m.count, m.whole, m.before = at, next, true, w }()
	for i := range m.places {
		p := &m.places[i]
		r := run{measure.Window{From: m.begin + p.shift, To: at + p.shift}, w, none}
		in := length(within(r.Window, m.window))
		if !m.whole || p.ends[1][2] != (run{}) {
			continue
		}
		p.sum, p.seen = p.sum+in*w, p.seen+in
		for k, t := range []measure.Seconds{m.window.From, m.window.To} {
			switch e := &p.ends[k]; {
			case r.To <= t:
				e[0] = r
			case r.From <= t:
				e[1] = r
			case e[2] == run{}:
				e[2] = r
			}
		}
		if i == 0 && in > 0 {
			m.squares += in * w * w
			m.over = m.over || m.wall.OverRange(m.count)
			if in == length(r.Window) && !none {
				m.updates++
			}
		}
	}
}

// Done reports whether no later block bears on the result.
func (m *Meter) Done() bool {
	return !slices.ContainsFunc(m.places[:], func(p placed) bool { return p.ends[1][2] == run{} })
}

// Spans returns the stretches about the window's ends of which Result wants the card's energy,
// in the order of their own. Errors leave the window without a figure.
func (m *Meter) Spans() (out []measure.Window, err error) {
	if m.over {
		return nil, fmt.Errorf("%w: choose a larger one", ErrRange)
	}
	if m.updates < leastUpdates {
		return nil, fmt.Errorf("%w: it has %s within %v, want %d: let the work last longer, or the meter update faster",
			ErrShort, measure.Plural(m.updates, "update"), measure.Seconds(length(m.window)), leastUpdates)
	}
	for i := range m.places {
		p := &m.places[i]
		for _, e := range p.ends {
			if e[1] == (run{}) || e[1].none || p.seen < 0.999999*length(m.window) || e[1].From < m.first {
				return nil, fmt.Errorf("%w: its readings do not reach over %v to %v: let the work last longer, or the meter "+
					"update faster", ErrShort, m.window.From, m.window.To)
			}
			out = append(out, e[1].Window, within(e[1].Window, m.window))
			for _, r := range []run{e[0], e[2]} {
				if i == 0 && r != (run{}) && r.From >= m.first && r.To <= m.last {
					out = append(out, r.Window)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b measure.Window) int { return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From)) })
	return slices.DeleteFunc(slices.Compact(out), func(w measure.Window) bool { return w.From >= w.To }), nil
}

// budget is lines of standard uncertainties.
type budget []measure.Contribution

func (b *budget) add(source string, u float64) {
	if u > 0 {
		*b = append(*b, measure.Contribution{Source: source, U: measure.Joule(u), Systematic: true})
	}
}

// estimate expands the lines, k = 2.
func (b budget) estimate(energy float64) measure.Estimate {
	u := 0.0
	for _, c := range b {
		u = math.Hypot(u, float64(c.U))
	}
	return measure.Estimate{Energy: measure.Joule(energy), U: measure.Joule(2 * u)}
}

// Result returns the energies, given the card's over the window with the uncertainty of its ends, and the card's
// energies over the Spans.
func (m *Meter) Result(card *measure.Result, e measure.Edges, of map[measure.Window]measure.Joule) Result {
	seconds := length(m.window)
	// shared is how much more of the updates that the ends cut lies within than their means have.
	shared := func(p *placed) (sum float64) {
		for _, x := range p.ends {
			in := within(x[1].Window, m.window)
			sum += float64(of[in]) - float64(of[x[1].Window])*length(in)/length(x[1].Window)
		}
		return sum
	}
	inner := shared(&m.places[0])
	wall := m.places[0].sum + inner
	rest := wall - float64(card.Total.Energy)
	late := 0.0
	for i := range m.places {
		late = max(late, math.Abs(m.places[i].sum+shared(&m.places[i])-wall))
	}
	steps, edges := m.cut(e, of)
	spread := max(m.squares/seconds-wall*wall/(seconds*seconds), 0)
	c, d := m.wall, m.wall.Drift
	var both budget
	both.add("gain "+c.Name, math.Hypot(math.Hypot(c.UGain, d.AgeGain), d.TemperatureGain)*math.Abs(wall-c.Offset*seconds))
	both.add("offset "+c.Name, math.Hypot(math.Hypot(c.UOffset, d.AgeOffset), d.TemperatureOffset)*seconds)
	both.add("noise "+c.Name, c.Noise*seconds/math.Sqrt(float64(m.updates)))
	both.add("time of "+c.Name, late)
	both.add("updates at the ends", steps)
	both.add("gaps", math.Sqrt(m.gap2w/12+m.gap2*spread))

	var own, clock, ends float64 // of the card
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
	lines, whole := slices.Clone(both), both
	lines.add("the card's rails", own)
	lines.add("tick rate", clock*math.Abs(rest))
	lines.add("window edges", edges)
	whole.add("tick rate", clock*math.Abs(wall))
	whole.add("window edges", ends+edges) // an end that moves takes of both
	whole.add("the card's rails at the ends", own*math.Abs(inner/float64(card.Total.Energy)))
	slices.SortStableFunc(lines, func(a, b measure.Contribution) int { return cmp.Compare(b.U, a.U) })
	return Result{
		Wall: whole.estimate(wall), WallMean: measure.Watt(wall / seconds), Rest: lines.estimate(rest),
		RestMean: measure.Watt(rest / seconds), Updates: m.updates, Budget: lines,
	}
}

// cut returns the standard uncertainties of the rest by the updates that the ends cut, and by the ends themselves.
// Where the rest differs by d among such an update and its neighbours, it may have stepped by d anywhere
// within: of T seconds, a share of x in the window, x·(1 − x)·T·d at most is on the wrong side.
func (m *Meter) cut(e measure.Edges, of map[measure.Window]measure.Joule) (steps, edges float64) {
	var w [2]float64
	for k, x := range m.places[0].ends {
		least, most := math.Inf(1), math.Inf(-1)
		for i, r := range x {
			if card, ok := of[r.Window]; ok {
				rest := r.w - float64(card)/length(r.Window)
				least, most = min(least, rest), max(most, rest)
				if i == 1 {
					w[k] = rest
				}
			}
		}
		in, all := length(within(x[1].Window, m.window)), length(x[1].Window)
		steps = math.Hypot(steps, in*(1-in/all)*(most-least)/math.Sqrt(3))
	}
	a, b := w[0]*float64(e.UFrom), w[1]*float64(e.UTo)
	return steps, math.Sqrt(max(a*a+b*b-2*e.Correlation*a*b, 0))
}

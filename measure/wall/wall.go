// Package wall works out what a whole machine took over a window, by a slow meter before its power
// supply, and what of that the card's rails did not take: the rest of the machine.
//
// The meter's updates are means, and a window's ends cut two of them. How an update's energy lies on either side of
// an end the card's rails show, at each scan; the rest, wall less card, counts as steady there. By what it changes
// from update to update an end is uncertain. When the readings were taken is known by the host's clock, which a link or
// a busy machine may have misled, and by the steps of the card's power in them; see place.go.
package wall

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
)

// UTime is the standard uncertainty of the wall's readings in time by the host's clock alone, where its meter is
// another instrument than the card's: links hide delays of up to some 20 ms (USB frames, latency timers).
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
// their neighbours, wherever they are looked for. Zero without such a meter, of which a reading stands half an update
// from its time.
func Reach(s *measure.Setup) measure.Seconds {
	if i := s.Wall(); i >= 0 {
		update := 2 * measure.Seconds(math.Abs(float64(s.Channels[i].Skew)))
		return outside*update + farthest(update)
	}
	return 0
}

// Result is the energy of the whole machine over a window, and of the rest of it.
type Result struct {
	Wall     measure.Estimate `json:"wall"`
	WallMean measure.Watt     `json:"wall_mean_w"`
	// Rest is of all but the card's measured rails: the supply's losses, too.
	Rest     measure.Estimate `json:"rest"`
	RestMean measure.Watt     `json:"rest_mean_w"`
	Updates  int              `json:"updates"` // wholly in the window
	// Late is how much later than by the host's clock the card's steps have the readings, within ULate (k = 1).
	Late, ULate measure.Seconds        `json:"-"`
	Budget      []measure.Contribution `json:"rest_budget"`
}

// run is a stretch of scans that show one update. Its times are where the meter averaged.
type run struct {
	measure.Window
	w    float64
	none bool // the reading was lost, and is bridged
	// n is the update that it ends with, counted from the first, of those that it is long.
	n, updates int
	seen       bool // its end was seen, and not worked out
}

// within is the part of a stretch in another.
func within(r, w measure.Window) measure.Window {
	return measure.Window{From: max(r.From, w.From), To: max(r.From, w.From, min(r.To, w.To))}
}

func length(w measure.Window) float64 { return float64(w.To - w.From) }

// Meter gathers the wall's readings over a window, and the card's power about its ends. It is not safe for concurrent
// use; its memory does not grow with the data.
type Meter struct {
	setup  *measure.Setup
	window measure.Window
	column int
	wall   measure.Channel
	update measure.Seconds
	alone  bool // one instrument has both: the readings stand where the setup has them
	card   *measure.PowerStream
	zones  [2]zone
	near   []run           // those that lie in a zone
	uPace  measure.Seconds // of the readings' times at the window's ends, by their scatter
	mid    struct {
		first, n int     // how many of near are before, and how many updates are between the zones
		sum      float64 // of their powers, W
	}

	next         uint64 // the scan expected next
	last, begin  measure.Seconds
	begun, whole bool // the run under way began within the data
	n            int  // updates so far
	count        measure.Count
	before       float64 // the power of the run before, W
	updates      int
	squares      float64 // W²·s
	gap2, gap2w  float64 // squares of gaps in the window, and times the square of the step
	over         bool
}

// New prepares a window of device time; ErrNone where the bench has no meter at the wall.
func New(s *measure.Setup, w measure.Window) (*Meter, error) {
	m := &Meter{setup: s, window: w, column: s.Wall()}
	if m.column < 0 || len(s.Rails) == 0 {
		return nil, ErrNone
	}
	m.wall = s.Channels[m.column]
	m.alone = m.wall.Skew == s.Channels[s.Rails[0].X].Skew
	m.update = max(measure.Seconds(2*math.Abs(float64(m.wall.Skew))), s.Timebase.Seconds(s.Timebase.TicksPerScan))
	for k, t := range []measure.Seconds{w.From, w.To} {
		m.zones[k] = newZone(s, t, k == 0, m.update)
	}
	var err error
	m.card, err = measure.NewPowerStream(s, func(p *measure.Powers) error {
		m.zones[0].add(s, p)
		m.zones[1].add(s, p)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("wall: %w", err)
	}
	return m, nil
}

// Add takes the next block, in order. They begin Reach before the window, where there are samples.
func (m *Meter) Add(b *measure.Block) error {
	tb := m.setup.Timebase
	if err := b.Validate(tb, len(m.setup.Channels)); err != nil {
		return fmt.Errorf("wall: scan %d: %w", b.FirstScan, err)
	}
	if n := b.Scans(); n > 0 {
		from, to := tb.Seconds(b.TickAt(tb, 0)), tb.Seconds(b.TickAt(tb, n-1))
		if m.zones[0].wants(from, to) || m.zones[1].wants(from, to) {
			if err := m.card.Add(b); err != nil {
				return fmt.Errorf("wall: %w", err)
			}
		}
	}
	for i, c := range b.Counts[m.column] {
		t := tb.Seconds(b.TickAt(tb, i))
		lost := i == 0 && m.begun && b.FirstScan > m.next
		switch {
		case !m.begun:
			m.begin, m.count, m.begun = t, c, true
		case lost:
			m.lose(measure.Window{From: m.last, To: t}, m.value(c)-m.value(m.count))
			m.end((m.last+t)/2, c, false)
		case c != m.count:
			m.end((m.last+t)/2, c, true)
		case t-m.begin > 1.5*m.update: // two readings that are equal
			m.end(m.begin+m.update, c, false)
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

// end ends the run under way where one of the next count begins, which was seen or worked out. Of the first it is not
// known how long it had lasted.
func (m *Meter) end(at measure.Seconds, next measure.Count, seen bool) {
	w, none := m.value(m.count), m.count == measure.NoReading
	if none {
		m.lose(measure.Window{From: m.begin, To: at}, m.value(next)-w)
		w = (w + m.value(next)) / 2
	}
	k := max(int(math.Round(float64((at-m.begin)/m.update))), 1)
	m.n += k
	r := run{measure.Window{From: m.begin + m.wall.Skew, To: at + m.wall.Skew}, w, none, m.n, k, seen}
	whole := m.whole
	over := m.wall.OverRange(m.count)
	m.begin, m.count, m.whole, m.before = at, next, true, w
	if !whole {
		return
	}
	in := length(within(r.Window, m.window))
	switch {
	case m.zones[0].touches(r.Window) || m.zones[1].touches(r.Window):
		m.near = append(m.near, r)
	case in > 0:
		if m.mid.n == 0 {
			m.mid.first = len(m.near)
		}
		m.mid.sum, m.mid.n = m.mid.sum+w*float64(k), m.mid.n+k
	}
	if in > 0 {
		m.squares += in * w * w
		m.over = m.over || over
		if in == length(r.Window) && !none {
			m.updates++
		}
	}
}

// Done reports whether no later block bears on the result.
func (m *Meter) Done() bool {
	return m.last > m.zones[1].to()+m.update
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

// Result returns the energies, given the card's over the window with the uncertainty of its ends. Errors leave the
// window without a figure: ErrShort and ErrRange.
func (m *Meter) Result(card *measure.Result, e measure.Edges) (*Result, error) {
	if m.over {
		return nil, fmt.Errorf("%w: choose a larger one", ErrRange)
	}
	if m.updates < leastUpdates {
		return nil, fmt.Errorf("%w: it has %s within %v, want %d: let the work last longer, or the meter update faster",
			ErrShort, measure.Plural(m.updates, "update"), measure.Seconds(length(m.window)), leastUpdates)
	}
	if err := m.card.Close(); err != nil {
		return nil, fmt.Errorf("wall: %w", err)
	}
	m.even()
	at, err := m.place()
	if err != nil {
		return nil, err
	}
	seconds := length(m.window)
	wall, rest := at.energy, at.energy-float64(card.Total.Energy)
	steps, edges := m.cut(e, at)
	spread := max(m.squares/seconds-wall*wall/(seconds*seconds), 0)
	c, d := m.wall, m.wall.Drift
	var both budget
	both.add("gain "+c.Name, math.Hypot(math.Hypot(c.UGain, d.AgeGain), d.TemperatureGain)*math.Abs(wall-c.Offset*seconds))
	both.add("offset "+c.Name, math.Hypot(math.Hypot(c.UOffset, d.AgeOffset), d.TemperatureOffset)*seconds)
	both.add("noise "+c.Name, c.Noise*seconds/math.Sqrt(float64(m.updates)))
	both.add("time of "+c.Name, at.uEnergy)
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
	whole.add("the card's rails at the ends", own*math.Abs(at.shared/float64(card.Total.Energy)))
	slices.SortStableFunc(lines, func(a, b measure.Contribution) int { return cmp.Compare(b.U, a.U) })
	return &Result{
		Wall: whole.estimate(wall), WallMean: measure.Watt(wall / seconds), Rest: lines.estimate(rest),
		RestMean: measure.Watt(rest / seconds), Updates: m.updates, Budget: lines, Late: -at.by, ULate: at.uBy,
	}, nil
}

// cut returns the standard uncertainties of the rest by the updates that the ends cut, and by the ends themselves,
// where the readings stand as they are placed. Where the rest differs by d among such an update and its neighbours, it
// may have stepped by d anywhere within: of T seconds, a share of x in the window, x·(1 − x)·T·d at most is on the
// wrong side.
func (m *Meter) cut(e measure.Edges, at placed) (steps, edges float64) {
	var own [2]float64
	for k := range m.zones {
		z := &m.zones[k]
		n := m.cutAt(k, at.by, 0)
		least, most := math.Inf(1), math.Inf(-1)
		for i := max(n-1, 0); i <= min(n+1, len(m.near)-1); i++ {
			w := m.stands(m.near[i], at.by, 0)
			if card, ok := z.energy(w); ok {
				rest := m.near[i].w - at.slope*card/length(w)
				least, most = min(least, rest), max(most, rest)
				if i == n {
					own[k] = rest
				}
			}
		}
		x := m.stands(m.near[n], at.by, 0)
		in, all := length(within(x, m.window)), length(x)
		steps = math.Hypot(steps, in*(1-in/all)*(most-least)/math.Sqrt(3))
	}
	a, b := own[0]*float64(e.UFrom), own[1]*float64(e.UTo)
	return steps, math.Sqrt(max(a*a+b*b-2*e.Correlation*a*b, 0))
}

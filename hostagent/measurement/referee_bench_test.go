package measurement

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// The referee makes recordings of benches with known energy, to test the uncertainty that wattmark
// states. These files (referee_bench, referee_card, referee_meter) name nothing but the standard library and each
// other, so that they share no model with what they judge; TestRefereeSharesNothing holds them to it:
//
//	Card (levels, responses) ──▶ true power ──▶ energy, in closed form
//	                                 │
//	Meter (noise, errors, range, clock, losses) ──▶ Recording: counts as a converter gives them
//	                                 │
//	Host (clock, jitter) ──▶ time stamps of marker chips and of the work
//
// What a Bench leaves open (levels, edges, delays, gains, clocks, resolutions) is drawn anew for each
// recording. Powers are in W, times in s, unless stated.

// Bench is a kind of bench.
type Bench struct {
	Edges  Edges    // nil for any of them
	Work   Workload // nil for steady work
	Meter  Meter
	Length float64 // of the work, within a fifth
	Jitter float64 // standard deviation of each time stamp of the host
	Spans  int     // of 20 ms within the work, apart from each other, whose energies are known
	Every  float64 // within a tenth, from one marker amid the work to the next, while the card is idle; 0 for none
	Amid   Marker
}

// Marker is what the host plays: chips of equal length. Code begins the code, Tag the tag behind it.
type Marker struct {
	Chips     []bool
	Chip      float64
	Code, Tag int
}

// Edge is a chip's begin on the host's clock.
type Edge struct {
	Stop bool
	Chip int
	Host float64
	Amid int // the number of the marker amid the work, 0 for one at its ends
}

// Mark is a code that was played, by its begin on the meter's clock. Own is false for one within the work.
type Mark struct {
	Stop, Own bool
	At        float64
}

// Channel is an input: value = Gain·(count) + Offset within its stated errors.
type Channel struct {
	Name                         string
	Current                      bool
	Gain, Offset, UGain, UOffset float64
	Min, Max                     int32 // the converter's range; equal where it has none
}

// Run is a stretch without a gap.
type Run struct {
	First  uint64 // number of its first scan
	Counts [][]int32
}

// Recording is what meter and host know, and the truth.
type Recording struct {
	Channels []Channel // v, i of the first rail, then of the second
	Runs     []Run
	Edges    []Edge
	Marks    []Mark
	From, To float64 // of the work, on the host's clock
	Energy   float64 // J within the work
	Spans    []Span
}

// Span is a part of the work: its ends on the host's clock, and its energy in J.
type Span struct{ From, To, Energy float64 }

// Level is a power that the card wants from an instant on.
type Level struct{ At, W float64 }

// drawnCard is a GPU as it was drawn.
type drawnCard struct {
	rise, fall             Response
	idle, low, high, power float64 // without a kernel; marker chips; the work
}

func between(rng *rand.Rand, lo, hi float64) float64 { return lo + (hi-lo)*rng.Float64() }

func (b *Bench) card(rng *rand.Rand) drawnCard {
	edges := b.Edges
	if edges == nil {
		edges = AnyEdges
	}
	var c drawnCard
	c.rise, c.fall = edges(rng)
	c.idle = between(rng, 15, 90)
	c.low = c.idle + between(rng, 0, 8)
	c.high = c.low + between(rng, 80, 350)
	c.power = c.low + (c.high-c.low)*between(rng, 0.4, 1.2)
	return c
}

// Record plays start marker, work and stop marker and records them. The same seed gives the same
// recording.
func (b Bench) Record(seed uint64, start, stop Marker) *Recording {
	rng := rand.New(rand.NewPCG(seed, 0x726566))
	c := b.card(rng)
	const origin = 1000.0 // host time of the recording's begin, by a quartz that is not synchronised
	hostRate, hostLate := 1+50e-6*rng.NormFloat64(), rng.Float64()
	host := func(t float64) float64 { return origin + hostLate + t*hostRate + b.Jitter*rng.NormFloat64() }
	out := &Recording{}
	levels := []Level{{0, c.idle}}
	play := func(m Marker, at float64, stop bool) float64 {
		out.Marks = append(out.Marks, Mark{stop, true, at + float64(m.Code)*m.Chip})
		for i := range m.Chips {
			out.Edges = append(out.Edges, Edge{stop, i - m.Code, host(at + float64(i)*m.Chip), 0})
		}
		chips, end := m.levels(at, c.low, c.high)
		levels = append(append(levels, chips...), Level{end, c.idle})
		return end
	}
	from := play(start, between(rng, 0.12, 0.3), false) + between(rng, 2e-3, 15e-3)
	to := from + b.Length*between(rng, 0.8, 1.2)
	if b.Work == nil {
		levels = append(levels, Level{from, c.power})
	} else {
		work := b.Work(rng, Task{
			From: from, To: to, Power: c.power, Low: c.low, High: c.high, Rate: b.Meter.Rate, Markers: [2]Marker{start, stop},
		})
		levels, to = append(levels, work.Levels...), work.To
		out.Marks = append(out.Marks, work.Marks...)
	}
	levels = append(levels, Level{to, c.idle})
	var pauses []Level // At each begins a pause of W seconds
	for at := from + b.Every*between(rng, 0.9, 1.1); b.Every > 0 && at < to-b.Every/10; at += b.Every * between(rng, 0.9, 1.1) {
		const rest = 0.2
		chips, end := b.Amid.levels(at+rest, c.low, c.high)
		pauses = append(pauses, Level{at, end + rest - at})
		levels = pause(levels, at, end+rest, append(append([]Level{{at, c.idle}}, chips...), Level{end, c.idle}))
		for i := range b.Amid.Chips {
			out.Edges = append(out.Edges, Edge{false, i - b.Amid.Code, host(at + rest + float64(i)*b.Amid.Chip), len(pauses)})
		}
	}
	// The work's power is early or late of its stamps by some 20 µs, other than that of the markers.
	late := between(rng, -35e-6, 35e-6)
	out.From, out.To = host(from)-late, host(to)-late
	end := play(stop, to+between(rng, 2e-3, 15e-3), true) + between(rng, 0.1, 0.3)
	slices.SortStableFunc(levels, func(a, b Level) int { return cmp.Compare(a.At, b.At) })
	out.Energy = c.energy(levels, from, to)
	for i := range b.Spans {
		const length = 20e-3
		room := (to - from) / float64(b.Spans)
		at := from + float64(i)*room + between(rng, 0, room-length)
		for slices.ContainsFunc(pauses, func(p Level) bool { return at+length > p.At && at < p.At+p.W }) {
			at = from + float64(i)*room + between(rng, 0, room-length)
		}
		e := c.energy(c.around(levels, at, at+length), at, at+length)
		out.Spans = append(out.Spans, Span{host(at) - late, host(at+length) - late, e})
	}
	b.Meter.record(rng, &c, levels, end, out)
	return out
}

// pause puts other levels in the place of those from an instant to another, at which the level is that of before.
func pause(levels []Level, from, to float64, other []Level) []Level {
	slices.SortStableFunc(levels, func(a, b Level) int { return cmp.Compare(a.At, b.At) })
	find := func(t float64) int {
		i, _ := slices.BinarySearchFunc(levels, t, func(l Level, t float64) int { return cmp.Compare(l.At, t) })
		return i
	}
	i, j := find(from), find(to)
	return slices.Replace(levels, i, j, append(other, Level{to, levels[j-1].W})...)
}

// around are the levels that bear on a span.
func (c *drawnCard) around(levels []Level, from, to float64) []Level {
	settled := max(c.rise.length(), c.fall.length())
	before := func(t float64) int {
		i, _ := slices.BinarySearchFunc(levels, t, func(l Level, t float64) int { return cmp.Compare(l.At, t) })
		return i
	}
	return levels[max(before(from-settled)-1, 0):before(to)]
}

// levels returns the marker's levels when it is played at an instant, and its end.
func (m Marker) levels(at, low, high float64) (out []Level, end float64) {
	for i, on := range m.Chips {
		w := low
		if on {
			w = high
		}
		out = append(out, Level{at + float64(i)*m.Chip, w})
	}
	return out, at + float64(len(m.Chips))*m.Chip
}

// powerAt returns the true power at ever later times.
func (c *drawnCard) powerAt(levels []Level) func(t float64) float64 {
	settled := max(c.rise.length(), c.fall.length())
	base, first := levels[0].W, 1
	return func(t float64) float64 {
		for first < len(levels) && t-levels[first].At > settled {
			base, first = levels[first].W, first+1
		}
		p := base
		for k := first; k < len(levels) && levels[k].At < t; k++ {
			d := levels[k].W - levels[k-1].W
			p += d * c.response(d).At(t-levels[k].At)
		}
		return p
	}
}

// response is that to a step.
func (c *drawnCard) response(step float64) *Response {
	if step < 0 {
		return &c.fall
	}
	return &c.rise
}

// energy integrates the true power in closed form.
func (c *drawnCard) energy(levels []Level, from, to float64) float64 {
	e := levels[0].W * (to - from)
	for k := 1; k < len(levels); k++ {
		d := levels[k].W - levels[k-1].W
		r := c.response(d)
		e += d * (r.area(max(to-levels[k].At, 0)) - r.area(max(from-levels[k].At, 0)))
	}
	return e
}

// Response is how power follows a step: an exponential of a time constant, or straight lines
// through pairs of seconds behind it and the part of it that is done, 0 before and the last part behind.
type Response struct {
	Tau  float64
	Line [][2]float64
}

func (r *Response) length() float64 {
	if r.Tau > 0 {
		return 25 * r.Tau
	}
	return r.Line[len(r.Line)-1][0]
}

// At returns the part of the step that is done t after it.
func (r *Response) At(t float64) float64 {
	if r.Tau > 0 {
		return -math.Expm1(-t / r.Tau)
	}
	var last [2]float64
	for _, p := range r.Line {
		if t < p[0] {
			return last[1] + (p[1]-last[1])*max(t-last[0], 0)/(p[0]-last[0])
		}
		last = p
	}
	return last[1]
}

// area returns the integral of the response from 0 to t.
func (r *Response) area(t float64) (a float64) {
	if r.Tau > 0 {
		return t + r.Tau*math.Expm1(-t/r.Tau)
	}
	var last [2]float64
	for _, p := range r.Line {
		end := min(t, p[0])
		if end <= last[0] {
			return a
		}
		a += (end - last[0]) * (last[1] + r.At(end)) / 2
		last = p
	}
	return a + max(t-last[0], 0)*last[1]
}

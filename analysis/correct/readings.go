package correct

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

// Reading is one value of the sensor: when it was read, and watts.
type Reading = validate.Reading

// Span is a stretch of time on the readings' clock.
type Span = validate.Span

// ErrReadings is wrapped by errors about readings that cannot be corrected.
var ErrReadings = errors.New("the readings cannot be corrected")

const (
	// Near is the largest distance of equal readings that repeat one value of the
	// register (Burtscher et al., section 5, step 2).
	Near measure.Seconds = 0.004
	// K20Period is the time between renewals of a K20's register: 66.7 Hz (section 4.3).
	K20Period measure.Seconds = 0.015
)

// Check refuses unfit readings: fewer than three, not strictly ascending in time, not
// finite. Errors wrap ErrReadings.
func Check(rs []Reading) error {
	if len(rs) < 3 {
		return fmt.Errorf("correct: %w: %d of them: a slope needs three", ErrReadings, len(rs))
	}
	for i, r := range rs {
		if !measure.Known(r.At) || !measure.Known(r.Power) {
			return fmt.Errorf("correct: %w: reading %d is %v at %v", ErrReadings, i+1, r.Power, r.At)
		}
		if i > 0 && r.At <= rs[i-1].At {
			return fmt.Errorf("correct: %w: reading %d at %.6f s does not come after the one before at %.6f s: put "+
				"them in order of time, each time once", ErrReadings, i+1, float64(r.At), float64(rs[i-1].At))
		}
	}
	return nil
}

// Tidy keeps the last of several readings at one instant, which logs to the millisecond
// have, and the order.
func Tidy(rs []Reading) []Reading {
	out := make([]Reading, 0, len(rs))
	for _, r := range rs {
		if n := len(out); n > 0 && out[n-1].At == r.At {
			out[n-1] = r
			continue
		}
		out = append(out, r)
	}
	return out
}

// Collapse drops readings that repeat the one before: equal, and at most near later
// (step 2). A register constant for longer than a period was renewed with the same
// value: so one equal reading a period stays, which leaves no gap for a trapezoid to
// bridge by a ramp. The first and the last reading stay.
func Collapse(rs []Reading, near, period measure.Seconds) []Reading {
	out := make([]Reading, 0, len(rs))
	for i, r := range rs {
		if i > 0 && i < len(rs)-1 && r.Power == rs[i-1].Power && r.At-rs[i-1].At <= near &&
			r.At-out[len(out)-1].At <= period {
			continue
		}
		out = append(out, r)
	}
	return out
}

// Changes keeps the first reading of each run of equal ones, and the very last: the
// register's changes, as arXiv 2312.02741 treats readings. At rest this leaves a gap
// that ends in a ramp: use it to compare, not to integrate.
func Changes(rs []Reading) []Reading {
	out := make([]Reading, 0, len(rs))
	for i, r := range rs {
		if i == 0 || i == len(rs)-1 || r.Power != rs[i-1].Power {
			out = append(out, r)
		}
	}
	return out
}

// Renewals returns the renewals of the register: its changes, each half a poll before
// it was first seen, and renewals with the same value wherever it was constant for more
// than one and a half periods.
func Renewals(rs []Reading, period measure.Seconds) []Reading {
	var out []Reading
	for i, r := range rs {
		if i > 0 && r.Power == rs[i-1].Power {
			continue
		}
		at := r.At
		if i > 0 {
			at -= (r.At - rs[i-1].At) / 2
		}
		if n := len(out); n > 0 {
			last := out[n-1]
			for k := 1; at-last.At-measure.Seconds(k)*period > period/2; k++ {
				out = append(out, Reading{At: last.At + measure.Seconds(k)*period, Power: last.Power})
			}
		}
		out = append(out, Reading{At: at, Power: r.Power})
	}
	if len(out) == 0 {
		return nil
	}
	for last := out[len(out)-1]; rs[len(rs)-1].At-last.At > period; {
		last.At += period
		out = append(out, last)
	}
	return out
}

// Spacing returns the median time between readings, NaN for fewer than two.
func Spacing(rs []Reading) measure.Seconds {
	at := lists.Map(rs, func(r Reading) measure.Seconds { return r.At })
	return measure.Seconds(stats.Median(stats.Differences(at)))
}

// Noise returns the standard deviation of a reading about a smooth course: the median
// deviation from the line between its neighbours, divided by 0.6745, and at least that
// of rounding to the smallest step (step/√12). Zero without three readings that vary.
func Noise(rs []Reading) measure.Watt {
	var off []float64
	step := math.Inf(1)
	for i := 1; i+1 < len(rs); i++ {
		a, b, c := rs[i-1], rs[i], rs[i+1]
		if d := math.Abs(float64(b.Power - a.Power)); d > 1e-9 {
			step = min(step, d)
		}
		if a.Power == b.Power && b.Power == c.Power {
			continue // one value, read three times
		}
		f := float64((b.At - a.At) / (c.At - a.At))
		line := (1-f)*float64(a.Power) + f*float64(c.Power)
		off = append(off, math.Abs(float64(b.Power)-line)/math.Sqrt(1+f*f+(1-f)*(1-f)))
	}
	if len(off) == 0 {
		return 0
	}
	return measure.Watt(max(stats.Median(off)/0.6745, step/math.Sqrt(12)))
}

// PhaseKind names the state of a GPU and its sensor between two of the paper's instants.
type PhaseKind string

// The phases, in the order in which they follow each other (Burtscher et al.,
// figure 1). The reading lags in the first two.
const (
	AtWork     PhaseKind = "kernel"      // t1 to t2
	Decay      PhaseKind = "decay"       // from t2 on, until the reading shows the active idle
	ActiveIdle PhaseKind = "active idle" // to t3: about 3.5 s on a K20
	Steps      PhaseKind = "steps"       // t3 to t4: down by steps of about a second
	Idle       PhaseKind = "idle"
)

// Phase is a labelled stretch of the readings.
type Phase struct {
	Kind PhaseKind `json:"kind"`
	Span
	Raw measure.Joule `json:"raw_energy_j"` // integral of the uncorrected readings
}

// Phases labels readings, given the same corrected and the spans that [Work] found in
// those. sigma is the corrected readings' standard deviation. Readings must pass
// [Check].
func Phases(rs, corrected []Reading, work []Span, l Level, sigma measure.Watt) []Phase {
	p := phaser{rs: rs, corrected: corrected, l: l, tolerance: max(0.02*float64(l.Threshold-l.Idle), 0.2)}
	p.margin = max(6*float64(sigma), 0.1*float64(l.Active-l.Idle))
	at := rs[0].At
	for i, w := range work {
		if w.From > at {
			p.put(Idle, at, w.From)
		}
		p.put(AtWork, w.From, w.To)
		end := rs[len(rs)-1].At
		if i+1 < len(work) {
			end = work[i+1].From
		}
		at = p.tail(w.To, end)
	}
	p.put(Idle, at, rs[len(rs)-1].At)
	return p.out
}

type phaser struct {
	rs, corrected []Reading
	l             Level
	tolerance     float64 // of readings
	margin        float64 // of corrected power, below which it has left the active idle
	out           []Phase
}

// put appends a phase with its raw energy; it lies within the readings.
func (p *phaser) put(k PhaseKind, from, to measure.Seconds) {
	if !(from < to) {
		return
	}
	e, _ := Integrate(p.rs, Span{From: from, To: to})
	p.out = append(p.out, Phase{k, Span{From: from, To: to}, e})
}

// tail labels the time after a kernel, and returns the beginning of idle. The decay ends
// when the reading's deviation from the active idle has fallen to a tenth.
func (p *phaser) tail(from, end measure.Seconds) measure.Seconds {
	level, idle := float64(p.l.Active), float64(p.l.Idle)
	power := math.NaN() // the reading at the instant or after it; unknown behind the last
	if i := slices.IndexFunc(p.rs, func(r Reading) bool { return r.At >= from }); i >= 0 {
		power = float64(p.rs[i].Power)
	}
	rest := max(p.tolerance, 0.1*math.Abs(power-level))
	t3 := end
	if level-idle > 2*p.tolerance {
		// t3 is searched in the corrected power, which falls at once; the reading lags.
		settle := from + 4*Spacing(p.rs) // the fall itself may swing below
		t3 = first(p.corrected, settle, end, func(w float64) bool { return w < level-p.margin })
	}
	shown := first(p.rs, from, t3, func(w float64) bool { return math.Abs(w-level) <= rest })
	p.put(Decay, from, shown)
	if level-idle <= 2*p.tolerance {
		return shown
	}
	p.put(ActiveIdle, shown, t3)
	t4 := first(p.rs, t3, end, func(w float64) bool { return w <= idle+p.tolerance })
	p.put(Steps, t3, t4)
	return t4
}

// first returns the instant of the first reading in a span that satisfies f; the span's
// end if there is none.
func first(rs []Reading, from, end measure.Seconds, f func(float64) bool) measure.Seconds {
	for _, r := range rs {
		if r.At >= end {
			break
		}
		if r.At >= from && f(float64(r.Power)) {
			return r.At
		}
	}
	return end
}

// ErrCSV is wrapped by errors about files that are no table of readings.
var ErrCSV = errors.New("not a table of readings")

// ParseCSV reads a table with a heading: a column time_s, time_ms, time_us or time_ns, or
// timestamp (a date with a time, or a number since 1970), and power_w or power_mw. Times of
// day count from the first. Other columns are left alone. Errors name the line.
func ParseCSV(r io.Reader) ([]Reading, error) {
	t, err := logfile.Open(r, logfile.Options{Kind: ErrCSV, Want: "time_s,power_w"})
	if err != nil {
		return nil, err
	}
	at := t.First(func(c logfile.Column) bool {
		return c.Named("time") && c.Unit.Of == logfile.Second || c.Named("timestamp") && c.Unit.Of == ""
	})
	power := t.First(func(c logfile.Column) bool { return c.Named("power") && c.Unit.Of == measure.UnitWatt })
	if !at.Is() {
		return nil, t.Fault("want a column time_ms, time_ns, time_s, time_us, timestamp; got %q", t.Heading.Fields)
	}
	if !power.Is() {
		return nil, t.Fault("want a column power_mw, power_w; got %q", t.Heading.Fields)
	}
	var out []Reading
	var first int64
	for row, err := range t.Rows() {
		if err != nil {
			return nil, err
		}
		ns, form, err := row.Time(at)
		w, fault := row.Number(power)
		if err = cmp.Or(err, fault); err != nil {
			return nil, err
		}
		if len(out) == 0 && form != logfile.Counted {
			first = ns
		}
		x := Reading{At: measure.Seconds(float64(ns-first) / 1e9), Power: measure.Watt(w)}
		if n := len(out); n > 0 && x.At < out[n-1].At {
			return nil, row.Fault(at, "its time steps back by %v: put the lines in order of time", out[n-1].At-x.At)
		}
		out = append(out, x)
	}
	return Tidy(out), nil
}

// Model is a K20 and its sensor in software, after Burtscher et al.: it lags until t3,
// at which the card leaves its active idle, and shows the steps after it at once. It
// demonstrates the mechanism where no such card is at hand.
type Model struct {
	Tau        measure.Seconds
	Idle       measure.Watt
	Active     measure.Watt    // the active idle
	ActiveFor  measure.Seconds // from a kernel's end to t3
	Steps      []measure.Watt  // from t3 on, a second each, then idle
	Kernels    []ModelKernel   // in order of time
	End        measure.Seconds // of the recording, which begins at 0
	Noise      measure.Watt    // standard deviation of a look of the sensor
	Resolution measure.Watt    // of the register; zero for none
	Seed       uint64
	// SlowPoll is the duration of a call while the card steps down; each step delays one
	// call by StepStall.
	SlowPoll, StepStall measure.Seconds
}

// ModelKernel draws a steady power.
type ModelKernel struct {
	Span
	Power measure.Watt
}

// K20 is the model with the paper's constants, whose figure 1 it was fitted to
// (docs/sensor.md): a kernel of 5.346 s from 2 s on.
func K20() Model {
	return Model{
		Tau: 0.833333, Idle: 20.02, Active: 52.5, ActiveFor: 2.31, Steps: []measure.Watt{44, 36, 28, 22},
		Kernels: []ModelKernel{{Span{From: 2, To: 7.346}, 158.47}}, End: 18, SlowPoll: 0.000666,
		StepStall: 0.130, Resolution: 0.001,
	}
}

// The paper's polling: 38 calls of 0.283 ms repeat a look, then one of 4.7 ms brings
// the next (section 4.3).
const (
	pollRepeats                 = 38
	pollShort   measure.Seconds = 0.000283
	pollLong    measure.Seconds = 0.0047
)

// T3 returns the instant at which the card leaves the active idle after its last kernel.
func (m Model) T3() measure.Seconds { return m.Kernels[len(m.Kernels)-1].To + m.ActiveFor }

// T4 returns the instant at which the card is idle: T3 and one second a step.
func (m Model) T4() measure.Seconds { return m.T3() + measure.Seconds(len(m.Steps)) }

// Power returns the true power at an instant.
func (m Model) Power(t measure.Seconds) measure.Watt {
	p := m.Idle
	for _, k := range m.Kernels {
		switch {
		case t >= k.From && t < k.To:
			return k.Power
		case t >= k.To && t < k.To+m.ActiveFor:
			p = m.Active
		}
	}
	if s := int(math.Floor(float64(t - m.T3()))); s >= 0 && s < len(m.Steps) {
		p = m.Steps[s]
	}
	return p
}

// Energy returns the true energy of the kernels.
func (m Model) Energy() (e measure.Joule) {
	for _, k := range m.Kernels {
		e += measure.Joule(float64(k.Power) * float64(k.Length()))
	}
	return e
}

// changes returns the instants before t3 at which the power steps.
func (m Model) changes() (out []measure.Seconds) {
	for i, k := range m.Kernels {
		if i > 0 && m.Kernels[i-1].To+m.ActiveFor < k.From {
			out = append(out, m.Kernels[i-1].To+m.ActiveFor)
		}
		out = append(out, k.From, k.To)
	}
	return out
}

// Lagging returns the value of a sensor without noise at an instant.
func (m Model) Lagging(t measure.Seconds) measure.Watt {
	if t >= m.T3() {
		return m.Power(t)
	}
	// Exact for a power that is constant between changes: y ← p + (y − p)·e^(−Δt/τ).
	y, last := m.Idle, measure.Seconds(0)
	for _, c := range append(m.changes(), t) {
		c = min(c, t)
		p := m.Power(last)
		y, last = p+(y-p)*measure.Watt(math.Exp(-float64((c-last)/m.Tau))), c
	}
	return y
}

// Readings polls the model without pause, as the paper did.
func (m Model) Readings() []Reading {
	rng := rand.New(rand.NewPCG(m.Seed, 20))
	var out []Reading
	look := func(t measure.Seconds) measure.Watt {
		w := m.Lagging(t) + m.Noise*measure.Watt(rng.NormFloat64())
		if m.Resolution > 0 {
			w = m.Resolution * measure.Watt(math.Round(float64(w/m.Resolution)))
		}
		return w
	}
	step := func(t measure.Seconds) float64 { return math.Floor(float64(t - m.T3())) }
	shown, looked, before := look(0), measure.Seconds(0), measure.Seconds(0)
	for t, calls := measure.Seconds(0), 0; t < m.End; calls++ {
		out = append(out, Reading{At: t, Power: shown})
		call, may := pollShort, false // may: the register may be renewed by the next poll
		switch {
		case t >= m.T3() && t < m.T4() && step(t) != step(before):
			call, may = m.StepStall, true
		case t >= m.T3() && t < m.T4():
			call, may = m.SlowPoll, true
		case calls%(pollRepeats+1) == pollRepeats:
			call, may = pollLong, true
		}
		before, t = t, t+call
		if may && t-looked >= K20Period {
			shown, looked = look(t), t
		}
	}
	return out
}

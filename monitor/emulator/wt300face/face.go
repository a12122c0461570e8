// Package wt300face is a Yokogawa WT300 digital power meter in software: its
// commands, its data updates and its status registers, with the emulated board's
// rails on its elements.
package wt300face

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/meter"
	"wattmark/monitor/emulator/scpiface"
)

// Config describes the meter and what its elements measure.
type Config struct {
	Seed uint64
	// Model and Serial as *IDN? tells them; defaults WT310, C2AB00001V.
	Model, Serial string
	// Now is the board's time.
	Now func() time.Duration
	// Rails by name, one an element; nil for aux_12v_1 and the others behind it.
	Rails []string
	// Clock is how slow the meter's own clock runs, relative: updates come every
	// rate·(1 + Clock).
	Clock float64
	// Spread and Draw: see meter.Spread; gains are those of voltage and current,
	// and power has its own of UGainI. Without Draw the meter is perfect.
	Spread meter.Spread
	Draw   bool
}

// elements of each model: a WT332 has the first and the third.
var elements = map[string][]int{"WT310": {1}, "WT310HC": {1}, "WT332": {1, 3}, "WT333": {1, 2, 3}, "WT310E": {1}, "WT332E": {1, 3}, "WT333E": {1, 2, 3}}

const maxElements = 3

// element is one input of voltage and current.
type element struct {
	there                  bool
	rail                   int // −1 where nothing is connected
	gainU, gainI, gainP    float64
	offsetU, offsetI, zero float64
}

// values are what an element showed at the last update, in U, I, P.
type values [3]float64

// item is what one number of NUM:VAL? is.
type item struct {
	function string
	element  int
}

// Face is one meter. Its clients come and go through the embedded Instrument.
type Face struct {
	*scpiface.Instrument
	board    *board.Board
	cfg      Config
	elements [maxElements + 1]element

	// Settings.
	mode, sync, format     string
	volts, amperes, crest  float64
	rate                   time.Duration
	header, verbose, hold  bool
	remote, average, filt  bool
	autoU, autoI           bool
	items                  []item
	number                 int
	filter                 [16]string
	events, enabled, await uint16

	// Updates.
	origin   time.Duration // of the grid of updates
	count    int64         // updates completed since the grid began
	base     int64         // updates before that
	late     time.Duration // of the next update
	noData   int           // of the next reads
	overload int
	shown    [maxElements + 1]values
	reads    []Read
}

// Read is one NUM:VAL? and which update it showed, for those who want the truth.
type Read struct {
	Update int64
	End    time.Duration // board time at which that update's average ended
}

// New makes a meter on a board.
func New(b *board.Board, cfg Config) (*Face, error) {
	if cfg.Now == nil {
		return nil, fmt.Errorf("emulated WT300: nothing tells the time")
	}
	if cfg.Model == "" {
		cfg.Model = "WT310"
	}
	if cfg.Serial == "" {
		cfg.Serial = "C2AB00001V"
	}
	has, ok := elements[cfg.Model]
	if !ok {
		return nil, fmt.Errorf("emulated WT300: no model %q", cfg.Model)
	}
	if cfg.Rails == nil {
		cfg.Rails = []string{"aux_12v_1"}
		for _, r := range b.Rails() {
			if r.Name != cfg.Rails[0] && len(cfg.Rails) < len(has) {
				cfg.Rails = append(cfg.Rails, r.Name)
			}
		}
	}
	if len(cfg.Rails) > len(has) {
		return nil, fmt.Errorf("emulated WT300: %d rails: a %s has %d elements", len(cfg.Rails), cfg.Model, len(has))
	}
	if cfg.Draw && cfg.Spread == (meter.Spread{}) {
		cfg.Spread = meter.Spread{UGainI: 6e-4, UGainV: 6e-4, UOffsetI: 0.02, UOffsetV: 0.015, UClock: 5e-5}
	}
	f := &Face{board: b, cfg: cfg}
	if err := f.wire(has); err != nil {
		return nil, err
	}
	f.reset()
	f.Instrument = scpiface.New(fmt.Sprintf("YOKOGAWA,%s,%s,F1.03", cfg.Model, cfg.Serial), f.reset, f.commands())
	f.MoveErrorQuery("STATus:ERRor")
	f.Positive = true
	f.Cleared = func() { f.update(); f.events = 0 }
	return f, nil
}

// wire connects the rails and draws what is wrong with each element.
func (f *Face) wire(has []int) error {
	rng := rand.New(rand.NewPCG(f.cfg.Seed, 0x7774333030))
	draw := func(u float64) float64 {
		n := rng.NormFloat64()
		if !f.cfg.Draw {
			return 0
		}
		return n * u
	}
	s := f.cfg.Spread
	f.cfg.Clock += draw(s.UClock)
	for k, n := range has {
		e := &f.elements[n]
		*e = element{
			there: true, rail: -1, gainU: 1 + draw(s.UGainV), gainI: 1 + draw(s.UGainI), gainP: 1 + draw(s.UGainI),
			offsetU: draw(float64(s.UOffsetV)), offsetI: draw(float64(s.UOffsetI)), zero: draw(float64(s.UOffsetV) * 20),
		}
		if k >= len(f.cfg.Rails) {
			continue
		}
		r, err := f.board.Find(f.cfg.Rails[k])
		if err != nil {
			return fmt.Errorf("emulated WT300: %w", err)
		}
		e.rail = r
	}
	return nil
}

// reset is *RST. Replies then have headers, as the maker's initial setting says.
func (f *Face) reset() {
	f.mode, f.sync, f.format = "RMS", "VOLT", "ASC"
	f.volts, f.amperes, f.crest = 600, 20, 3
	f.header, f.verbose, f.hold, f.remote, f.average, f.filt = true, true, false, false, false, false
	f.autoU, f.autoI = true, true
	f.items, f.number = make([]item, 255), 3
	for i := range f.items {
		f.items[i] = item{function: "NONE"}
	}
	for i, fn := range []string{"U", "I", "P"} {
		f.items[i] = item{fn, 1}
	}
	for i := range f.filter {
		f.filter[i] = "NEV"
	}
	f.events, f.enabled = 0, 0
	f.setRate(250 * time.Millisecond)
}

// infinite and nothing are what FLOAT sends for over-range and for no data.
const (
	infinite = 9.9e37
	nothing  = 9.91e37
)

// Late lets the next update be completed so much later than it is due, by less
// than one update; its average ends when it was due.
func (f *Face) Late(d time.Duration) { f.Do(func() { f.update(); f.late = d }) }

// NoData makes the next reads give no data.
func (f *Face) NoData(reads int) { f.Do(func() { f.noData = reads }) }

// Overload makes the next reads give over-range.
func (f *Face) Overload(reads int) { f.Do(func() { f.overload = reads }) }

// Reads are the reads of the last time, at most some thousands.
func (f *Face) Reads() (out []Read) {
	f.Do(func() { out = append(out, f.reads...) })
	return out
}

const keptReads = 4096

// setRate begins a new grid of updates.
func (f *Face) setRate(d time.Duration) {
	f.base += f.count
	f.rate, f.origin, f.count, f.late = d, f.cfg.Now(), 0, 0
}

// period is the true distance of updates.
func (f *Face) period() float64 { return float64(f.rate) * (1 + f.cfg.Clock) }

// due is the board's time of update n, without its delay.
func (f *Face) due(n int64) time.Duration {
	return f.origin + time.Duration(math.Round(float64(n)*f.period()))
}

// update completes the updates that are due and returns how long it is to the
// next.
func (f *Face) update() time.Duration {
	now := f.cfg.Now()
	if next := f.due(f.count+1) + f.late; now < next {
		return next - now
	}
	f.late = 0
	f.count = max(f.count+1, int64(float64(now-f.origin)/f.period()))
	if !f.hold {
		f.latch(f.due(f.count)-time.Duration(f.period()), f.due(f.count))
	}
	if f.filter[0] == "FALL" || f.filter[0] == "BOTH" {
		f.events |= 1
	}
	return max(f.due(f.count+1)-now, time.Microsecond)
}

// latch works out what the elements show for an interval.
func (f *Face) latch(from, to time.Duration) {
	mean := f.board.MeanPower(from, to)
	f.board.Observe(to)
	for n := range f.elements {
		e := &f.elements[n]
		v := &f.shown[n]
		*v = values{e.offsetU, e.offsetI, e.zero}
		if !e.there || e.rail < 0 || math.IsNaN(float64(mean)) {
			continue
		}
		r := f.board.Rail(e.rail, measure.Watt(mean))
		v[0] += float64(r.V) * e.gainU
		v[1] += float64(r.I) * e.gainI
		v[2] += float64(r.P) * e.gainP
		if overU, overI := v[0] > 1.4*f.volts, v[1] > 1.4*f.amperes; overU || overI {
			v[2] = infinite
			if overU {
				v[0] = infinite
			}
			if overI {
				v[1] = infinite
			}
		}
	}
}

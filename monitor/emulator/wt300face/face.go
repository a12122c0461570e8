// Package wt300face is a Yokogawa WT300 digital power meter in software: its
// commands, its data updates and its status registers, with the emulated board's
// rails on its elements.
package wt300face

import (
	"fmt"
	"math/rand/v2"
	"time"

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

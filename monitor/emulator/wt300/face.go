// Package wt300 is a Yokogawa WT300 digital power meter in software, with the emulated board's
// rails on its elements.
//
//	INPut, RATE    ranges, mode, and the time of an update
//	NUMeric        the items of :NUM:VAL?, in text or IEEE floats
//	STATus, WAIT   a filter on the condition register marks each update, and :COMM:WAIT waits
//	               for it, so that a driver gets every update without polling
//
// Voltage, current and power are means of one update: power is the mean of u·i, not the product
// of the means. Replies have headers until they are switched off.
package wt300

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/internal/wiring"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// Config describes the meter and the quantities of its elements.
type Config struct {
	Seed uint64
	// Model as in *IDN?; default WT310.
	Model string
	// Now is the board's time.
	Now func() time.Duration
	// Rails by name, one an element; nil for aux_12v_1 and the others behind it.
	Rails []string
	// Wall puts the machine's supply, 230 V, on the first element in place of a rail: its mean power from one of
	// the board's times to another, given the card's.
	Wall func(card measure.Watt, from, to time.Duration) measure.Watt
	// Draw draws the meter's errors; without it the meter is perfect.
	Draw bool
}

// spread is that of the errors drawn; power has a gain of its own, of UGainI.
var spread = meter.Spread{UGainI: 6e-4, UGainV: 6e-4, UOffsetI: 0.02, UOffsetV: 0.015, UClock: 5e-5}

// elements of each model: a WT332 has the first and the third.
var elements = map[string][]int{
	"WT310": {1}, "WT310HC": {1}, "WT332": {1, 3}, "WT333": {1, 2, 3}, "WT310E": {1},
	"WT332E": {1, 3}, "WT333E": {1, 2, 3},
}

const (
	maxElements = 3   // of the largest model
	maxItems    = 255 // of NUM:VAL?
)

// element is one input of voltage and current.
type element struct {
	there                  bool
	rail                   int // −1 where nothing is connected
	gainU, gainI, gainP    float64
	offsetU, offsetI, zero float64
}

// values are an element's readings at the last update, in U, I, P.
type values [3]float64

// item describes one number of NUM:VAL?.
type item struct {
	function string
	element  int
}

// Face is one meter. Its clients come and go through the embedded Instrument.
type Face struct {
	*scpi.Instrument
	board    *board.Board
	cfg      Config
	clock    float64 // how slow its own runs, relative
	elements [maxElements + 1]element

	// Settings.
	mode, sync, format     string
	volts, amperes, crest  float64
	rate                   time.Duration
	header, verbose, hold  bool
	remote, average, filt  bool
	autoU, autoI           bool
	items                  [maxItems]item
	number                 int
	filter                 [16]string
	events, enabled, await uint16
	extra                  extra

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

// Read is one NUM:VAL? and the update that it showed, for tests that compare with the truth.
type Read struct {
	Update int64
	End    time.Duration // board time at which that update's average ended
}

// New makes a meter on a board.
func New(b *board.Board, cfg Config) (*Face, error) {
	if cfg.Now == nil {
		return nil, fmt.Errorf("emulated WT300: nothing tells the time")
	}
	cfg.Model = cmp.Or(cfg.Model, "WT310")
	has, ok := elements[cfg.Model]
	if !ok {
		return nil, fmt.Errorf("emulated WT300: no model %q", cfg.Model)
	}
	rails, err := wiring.Rails(b, cfg.Rails, len(has))
	if err != nil {
		return nil, fmt.Errorf("emulated WT300: %w", err)
	}
	f := &Face{board: b, cfg: cfg}
	draw, s := meter.Drawing(rand.New(rand.NewPCG(cfg.Seed, 0x7774333030)), cfg.Draw), spread
	f.clock = draw(s.UClock)
	for k, n := range has { // connect the rails and draw each element's errors
		e := &f.elements[n]
		*e = element{
			there: true, rail: -1, gainU: 1 + draw(s.UGainV), gainI: 1 + draw(s.UGainI), gainP: 1 + draw(s.UGainI),
			offsetU: draw(float64(s.UOffsetV)), offsetI: draw(float64(s.UOffsetI)), zero: draw(float64(s.UOffsetV) * 20),
		}
		if k < len(rails) {
			e.rail = rails[k]
		}
	}
	f.reset()
	f.Instrument = scpi.New(fmt.Sprintf("YOKOGAWA,%s,C2AB00001V,F1.03", cfg.Model), f.reset, f.commands())
	f.MoveErrorQuery("STATus:ERRor")
	f.Positive = true
	f.Cleared = func() { f.update(); f.events = 0 }
	return f, nil
}

// reset is *RST. Replies then have headers, the maker's initial setting.
func (f *Face) reset() {
	f.mode, f.sync, f.format = "RMS", "VOLT", "ASC"
	f.volts, f.amperes, f.crest = 600, 20, 3
	f.header, f.verbose, f.hold, f.remote, f.average, f.filt = true, true, false, false, false, false
	f.autoU, f.autoI = true, true
	f.number = 3
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
	f.extra = extra{compat: "WT300", kind: "LIN", math: "CFU1", mode: "NORM", state: "RESET", count: 8}
	f.setRate(250 * time.Millisecond)
}

var (
	rates   = []float64{0.1, 0.25, 0.5, 1, 2, 5}
	voltage = []float64{15, 30, 60, 150, 300, 600}
	current = []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20}
)

// multipliers of a quantity's suffix; MA is mega at volts and seconds, but milli
// at amperes.
var multipliers = map[string]float64{"": 1, "K": 1e3, "M": 1e-3, "U": 1e-6}

// quantity reads parameter 0 with an optional multiplier and unit.
func quantity(c scpi.Call, unit string) (float64, error) {
	if len(c.Args) == 0 {
		return 0, scpi.ErrMissing
	}
	s := strings.ToUpper(c.Args[0])
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		return v, nil
	}
	s = strings.TrimSuffix(s, unit)
	digits := strings.TrimRight(s, "KMU")
	v, err := strconv.ParseFloat(digits, 64)
	k, ok := multipliers[s[len(digits):]]
	if err != nil || !ok {
		return 0, scpi.ErrType
	}
	return v * k, nil
}

// choice is a setting out of a list of numbers.
func choice(pattern, unit string, of []float64, get func() float64, set func(float64)) scpi.Command {
	read := func(c scpi.Call, _ int) (float64, error) { return quantity(c, unit) }
	return scpi.Command{Pattern: pattern, Set: scpi.Take(read, func(v float64) error {
		if !slices.ContainsFunc(of, func(x float64) bool { return math.Abs(v-x) < 1e-9 }) {
			return scpi.ErrRange
		}
		set(v)
		return nil
	}), Query: scpi.Reply(func() string { return nr3(get()) })}
}

// nr3 writes a number as this maker does: 15.0E+00, 100.0E-03.
func nr3(v float64) string {
	exponent := 0
	for v != 0 && math.Abs(v) < 1 && exponent > -9 {
		v, exponent = v*1000, exponent-3
	}
	return fmt.Sprintf("%.1fE%+03d", v, exponent)
}

// commands is the tree.
func (f *Face) commands() []scpi.Command {
	currents := current // of the model
	switch {
	case strings.HasSuffix(f.cfg.Model, "HC"):
		currents = []float64{1, 2, 5, 10, 20, 40}
	case strings.HasPrefix(f.cfg.Model, "WT33"):
		currents = current[6:]
	}
	all := []scpi.Command{
		scpi.Switch("COMMunicate:HEADer", &f.header),
		scpi.Switch("COMMunicate:VERBose", &f.verbose),
		scpi.Switch("COMMunicate:REMote", &f.remote),
		scpi.Switch("HOLD", &f.hold),
		scpi.Switch("MEASure:AVERaging[:STATe]", &f.average),
		scpi.Switch("[:INPut]:FILTer:LINE", &f.filt),
		scpi.Switch("[:INPut]:VOLTage:AUTO", &f.autoU),
		scpi.Switch("[:INPut]:CURRent:AUTO", &f.autoI),
		scpi.Choice("[:INPut]:MODE", &f.mode, "RMS", "VMEan", "DC"),
		scpi.Choice("[:INPut]:SYNChronize", &f.sync, "VOLTage", "CURRent", "OFF"),
		scpi.Choice("NUMeric:FORMat", &f.format, "ASCii", "FLOat"),
		choice("[:INPut]:CFACtor", "", []float64{3, 6}, func() float64 { return f.crest },
			func(v float64) { f.crest = v }),
		choice("[:INPut]:VOLTage:RANGe", "V", voltage, func() float64 { return f.volts },
			func(v float64) { f.volts, f.autoU = v, false }),
		choice("[:INPut]:CURRent:RANGe", "A", currents, func() float64 { return f.amperes },
			func(v float64) { f.amperes, f.autoI = v, false }),
		choice("RATE", "S", rates, func() float64 { return f.rate.Seconds() },
			func(v float64) { f.setRate(time.Duration(math.Round(v * 1e9))) }),
		scpi.Whole("NUMeric[:NORMal]:NUMber", &f.number, 1, maxItems),
		numbered("NUMeric[:NORMal]:ITEM<n>", f.items[:], f.readItem, item.show),
		// The condition register's filter latches the end of each update into the extended event register.
		numbered("STATus:FILTer<n>", f.filter[:], func(c scpi.Call) (string, error) {
			w, err := c.Word(0, "RISE", "FALL", "BOTH", "NEVer")
			if err == nil {
				f.update()
			}
			return w, err
		}, strings.Clone),
		{Pattern: "STATus:EESE", Set: scpi.Within(&f.enabled, 0, math.MaxUint16), Query: scpi.Show("%d", &f.enabled)},
	}
	return slices.Concat(scpi.Headed(&f.header, nil, all...), f.extras(), f.readings())
}

// numbered is a setting of which there are several, chosen by the number in its header.
func numbered[T any](pattern string, all []T, read func(scpi.Call) (T, error), show func(T) string) scpi.Command {
	at := func(c scpi.Call) (*T, error) {
		if n := c.Suffixes[0]; n >= 1 && n <= len(all) {
			return &all[n-1], nil
		}
		return nil, scpi.ErrRange
	}
	return scpi.Command{Pattern: pattern, Set: func(c scpi.Call) error {
		to, err := at(c)
		if err != nil {
			return err
		}
		v, err := read(c)
		if err == nil {
			*to = v
		}
		return err
	}, Query: func(c scpi.Call) ([]byte, error) {
		of, err := at(c)
		if err != nil {
			return nil, err
		}
		return []byte(show(*of)), nil
	}}
}

// readings have no header: the values, and the registers by which a driver waits for an update
// without polling. The extended event register clears when read.
func (f *Face) readings() []scpi.Command {
	return []scpi.Command{
		{Pattern: "NUMeric[:NORMal]:VALue", Query: func(scpi.Call) ([]byte, error) { return f.read(), nil }},
		{Pattern: "STATus:EESR", Query: func(scpi.Call) ([]byte, error) {
			f.update()
			v := f.events
			f.events = 0
			return scpi.Text("%d", v)
		}},
		{Pattern: "STATus:CONDition", Query: func(scpi.Call) ([]byte, error) { // an element that is over its range
			bits := 0
			f.update()
			for n := 1; n <= maxElements; n++ {
				if f.shown[n][2] == infinite {
					bits |= 1 << (3 + 3*n)
				}
			}
			return scpi.Text("%d", bits)
		}},
		{Pattern: "COMMunicate:WAIT", Set: scpi.Within(&f.await, 0, math.MaxUint16), Pause: func() time.Duration {
			next := f.update()
			if f.events&f.await != 0 {
				return 0
			}
			return next
		}},
	}
}

// extra are settings that wattmark does not use, but other people's programs do: they are
// kept and read back, and change no value but for SAMPle's, which are the same as RATE and
// HOLD. The integrator's state is kept, its sums are not.
type extra struct {
	messages, keys, maxHold, frequency, lockout bool
	compat, kind, math, mode, state             string
	count                                       int
	timer                                       [3]int // h, min, s
}

// mathFunctions are those of MATH, for the first element.
var mathFunctions = []string{"CFU1", "CFI1", "AVW1", "EFFiciency", "ADD", "SUB", "MUL", "DIV", "DIVA", "DIVB"}

// extras is their part of the tree; replies have headers where those are on.
func (f *Face) extras() []scpi.Command {
	x := &f.extra
	run := func(state string) func() { return func() { x.state = state } }
	all := []scpi.Command{
		scpi.Switch("STATus:QMESsage", &x.messages),
		scpi.Switch("SYSTem:KLOCk", &x.keys),
		scpi.Switch("COMMunicate:LOCKout", &x.lockout),
		scpi.Switch("MEASure:MHOLd", &x.maxHold),
		scpi.Switch("[:INPut]:FILTer:FREQuency", &x.frequency),
		scpi.Switch("SAMPle:HOLD", &f.hold),
		scpi.Choice("SYSTem:COMMunicate:COMMand", &x.compat, "WT200", "WT300"),
		scpi.Choice("MEASure:AVERaging:TYPE", &x.kind, "LINear", "EXPonent"),
		scpi.Choice("INTEGrate:MODE", &x.mode, "NORMal", "CONTinuous"),
		scpi.Choice("MATH", &x.math, mathFunctions...),
		scpi.Whole("MEASure:AVERaging:COUNt", &x.count, 8, 64),
		choice("SAMPle:RATE", "S", rates, func() float64 { return f.rate.Seconds() },
			func(v float64) { f.setRate(time.Duration(v * float64(time.Second))) }),
		{Pattern: "INTEGrate:TIMer", Set: f.setTimer, Query: scpi.Reply(func() string {
			return fmt.Sprintf("%d,%d,%d", x.timer[0], x.timer[1], x.timer[2])
		})},
		{Pattern: "[:INPut]:WIRing", Query: scpi.Fixed("P1W2")},
		{Pattern: "INTEGrate:STATe", Query: scpi.Show("%s", &x.state)},
	}
	return append(scpi.Headed(&f.header, nil, all...), scpi.Asked("*OPT", func() string { return "NONE" }),
		scpi.Action("INTEGrate:STARt", run("START")), scpi.Action("INTEGrate:STOP", run("STOP")),
		scpi.Action("INTEGrate:RESet", run("RESET")))
}

// setTimer reads hours, minutes and seconds.
func (f *Face) setTimer(c scpi.Call) error {
	if len(c.Args) != len(f.extra.timer) {
		return scpi.ErrMissing
	}
	for i, most := range []int{10000, 59, 59} {
		n, err := strconv.Atoi(c.Args[i])
		if err != nil {
			return scpi.ErrType
		}
		if n < 0 || n > most {
			return scpi.ErrRange
		}
		f.extra.timer[i] = n
	}
	return nil
}

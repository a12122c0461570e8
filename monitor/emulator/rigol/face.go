// Package rigol is Rigol oscilloscopes in software: the SCPI commands of the DS1000Z, MSO5000
// and DHO800/900 over an emulated scope.
//
// A Family holds the differences: depths by the number of channels shown, rates, the form of
// codes, the spelling of nodes, and the moment that an MSO5000's reader needs after an
// acquisition. Depth can be set only while the scope runs; deep memory is read in pieces, by
// :WAV:STAR and :WAV:STOP.
package rigol

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// Family holds the differences between the families, from their manuals.
type Family struct {
	traits    scope.Traits
	divisions float64 // across the screen; memory spans it
	screen    int     // points of a screen
	maxRate   float64
	maxRead   int // points a read in BYTE; half in WORD
	// depths are the depths of a channel with so many sharing memory, ascending.
	depths func(share int) []int
	edge   string    // node of the edge trigger's commands
	level  float64   // the most divisions of its level off the middle
	offset []float64 // the table of scope.Channel.Reach
	// rates are those that there are, ascending; nil for any. Memory then spans the
	// screen or more, with its middle at the screen's.
	rates []float64
	// pages: the preamble has the size of the page that is set, and memory that
	// was not filled is read with its former contents, as only its size is known.
	pages bool
	// words: codes have 16 bits; in BYTE the upper eight.
	words bool
	// settle is how long after an acquisition reads come back empty, until mode and format are set again.
	settle    time.Duration
	showDepth func(int) string
}

// Face is one scope. Its clients come and go through the embedded Instrument.
type Face struct {
	scope.Scope
	family *Family

	timeScale, timeShift float64 // s a division; s
	roll                 string
	depth                int // points a channel as set; 0 for AUTO
	average              int
	acqType              string
	wav                  waveform
}

// New makes a scope of a family whose probes sit on a board.
func New(b *board.Board, family *Family, cfg scope.Config) (*Face, error) {
	f := &Face{family: family}
	return f, f.Init(b, cfg, family.traits, f, f.reset, f.commands)
}

// reset is *RST.
func (f *Face) reset() {
	f.Reset(channel{Scale: 1, Ratio: 10, Coupling: "DC", Invert: "0", Limit: "OFF", Units: "VOLT"})
	f.timeScale, f.timeShift, f.depth, f.average, f.acqType, f.roll = 1e-6, 0, 0, 2, "NORM", "1"
	f.Trig = scope.Trigger{Sweep: "AUTO", Slope: "POS", Coupling: "DC", Holdoff: 16e-9}
	f.Power()
	f.wav = waveform{mode: "NORM", format: "BYTE", start: 1, stop: f.family.screen}
}

type channel = scope.Channel

// Window is the time that memory spans.
func (f *Face) Window() float64 { return f.family.divisions * f.timeScale }

// Delay is where memory begins behind the trigger.
func (f *Face) Delay() float64 {
	if f.family.rates != nil {
		return f.timeShift - float64(f.Points())/f.Rate()/2
	}
	return f.timeShift - f.Window()/2
}

// Points is the memory's depth of one channel.
func (f *Face) Points() int {
	if f.depth > 0 {
		return f.depth
	}
	// AUTO takes the depth that the fastest rate needs, in the steps of the manual.
	known := f.family.depths(f.Share())
	for _, n := range known {
		if float64(n) >= f.Window()*f.family.maxRate/float64(f.Share()) {
			return n
		}
	}
	return known[len(known)-1]
}

// Rate is the nominal rate of a channel, in samples a second.
func (f *Face) Rate() float64 {
	// A family with rates of its own takes the next slower one: memory then spans more than the screen.
	rate := min(f.family.maxRate/float64(f.Share()), float64(f.Points())/f.Window())
	for i := len(f.family.rates) - 1; i >= 0; i-- {
		if f.family.rates[i] <= rate*(1+1e-9) {
			return f.family.rates[i]
		}
	}
	return rate
}

// setDepth is :ACQ:MDEP, which works only while the scope runs.
func (f *Face) setDepth(c scpi.Call) error {
	if !f.Running() {
		return scpi.ErrConflict
	}
	if w, err := c.Word(0, "AUTO"); err == nil && w == "AUTO" {
		f.depth = 0
		return nil
	}
	return scope.SetDepth(&f.depth, c, f.family.depths(f.Share()))
}

// DS1000Z is the DS1054Z and its sisters.
var DS1000Z = &Family{
	traits: scope.Traits{
		Name: "DS1000Z", ID: "RIGOL TECHNOLOGIES,DS1054Z,DS1ZA000000001,00.04.04.SP3", Channels: 4,
		PerDiv: 25, Middle: 127, Most: 255, WholeShift: true, GainLimit: 0.03, ZeroLimit: 0.1, ClockLimit: 25e-6,
	},
	divisions: 12, screen: 1200, maxRate: 1e9, maxRead: 250_000, edge: "EDGe", level: 5, offset: []float64{0.5, 2, 100},
	showDepth: strconv.Itoa,
	depths: func(share int) (out []int) {
		most := 12_000_000 / share
		for d := most / 1000; d <= most; d *= 10 {
			out = append(out, d)
		}
		return out
	},
}

// MSO5000 is the MSO5074 and its sisters, whose reader needs a moment after an acquisition.
var MSO5000 = &Family{
	traits: scope.Traits{
		Name: "MSO5000", ID: "RIGOL TECHNOLOGIES,MSO5074,MS5A000000001,00.01.03.03.00", Channels: 4,
		PerDiv: 25, Middle: 128, Most: 255, WholeShift: true, GainLimit: 0.02, ZeroLimit: 0.1, ClockLimit: 2e-6,
	},
	divisions: 10, screen: 1000, maxRate: 8e9, maxRead: 250_000, edge: "EDGE", level: 5,
	offset: []float64{0.0651, 1, 0.2601, 30, 100}, showDepth: strconv.Itoa,
	depths: shared(100_000_000, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000),
	settle: 40 * time.Millisecond,
}

// DHO is the DHO804 and its sisters, of 12 bits in words of 16.
var DHO = &Family{
	traits: scope.Traits{
		Name: "DHO800", ID: "RIGOL TECHNOLOGIES,DHO804,DHO8A000000001,00.01.03", Channels: 4, Quantum: 16,
		PerDiv: 7500, Middle: 32768, Most: 65535, WholeShift: true, GainLimit: 0.01, ZeroLimit: 0.1, ClockLimit: 25e-6,
	},
	divisions: 10, screen: 1000, maxRate: 1.25e9, maxRead: 250_000, edge: "EDGE", pages: true, words: true,
	level: 4.5, offset: []float64{0.06501, 1, 0.26001, 8, 2.6501, 20, 100},
	rates: []float64{
		200, 500, 1e3, 2e3, 5e3, 10e3, 20e3, 50e3, 100e3, 125e3, 250e3, 500e3, 1.25e6, 2.5e6, 6.25e6, 12.5e6, 31.25e6,
		62.5e6, 156.25e6, 312.5e6, 625e6, 1.25e9,
	},
	depths: shared(50_000_000, 1000, 10_000, 100_000, 1_000_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000),
	showDepth: func(n int) string { // 1.000E+6
		s := strconv.FormatFloat(float64(n), 'E', 3, 64)
		return strings.Replace(s, "E+0", "E+", 1)
	},
}

// Settling is the family with a reader that needs so long behind an acquisition.
func (f Family) Settling(d time.Duration) *Family {
	f.settle = d
	return &f
}

// shared are those of some depths that fit a share of a memory.
func shared(memory int, all ...int) func(int) []int {
	return func(share int) (out []int) {
		for _, d := range all {
			if d*share <= memory {
				out = append(out, d)
			}
		}
		return out
	}
}

// commands is the tree. Settings that only change the picture on the screen are kept and reported, no more.
func (f *Face) commands() []scpi.Command {
	return append([]scpi.Command{
		scpi.Action("RUN", func() { f.Start(false) }),
		scpi.Action("STOP", f.Stop),
		scpi.Action("SINGle", func() { f.Trig.Sweep = "SING"; f.Start(true) }),
		scpi.Action("TFORce", f.Force),
		scpi.Action("CLEar", func() {}),
		{Pattern: "TIMebase[:MAIN]:SCALe", Query: scpi.Number(&f.timeScale), Set: scpi.Set(func(v float64) error {
			return scope.Step125(&f.timeScale, v, 5e-9, 50)
		})},
		// The window moves back by half a screen at most, on by 1 s or 100 divisions.
		{Pattern: "TIMebase[:MAIN]:OFFSet", Query: scpi.Number(&f.timeShift), Set: func(c scpi.Call) error {
			return scpi.Within(&f.timeShift, -f.Window()/2*1.001, max(1, 100*f.timeScale))(c)
		}},
		scpi.Sole("TIMebase:MODE", "MAIN"),
		{Pattern: "TIMebase:DELay:ENABle", Set: scpi.Do(scpi.Call.Bool, func(bool) {}), Query: scpi.Fixed("0")},
		scpi.Choice("TIMebase:ROLL", &f.roll, "0", "1"),
		{Pattern: "ACQuire:MDEPth", Set: f.setDepth, Query: scpi.Reply(func() string {
			switch {
			case f.family.pages: // also where AUTO chose it
				return f.family.showDepth(f.Depth())
			case f.depth == 0:
				return "AUTO"
			}
			return f.family.showDepth(f.depth)
		})},
		// The rate follows from depth and time base.
		scpi.Asked("ACQuire:SRATe", func() string { return scpi.Exponent(f.Rate()) }),
		scpi.Choice("ACQuire:TYPE", &f.acqType, "NORMal", "AVERages", "PEAK", "HRESolution"),
		{Pattern: "ACQuire:AVERages", Query: scpi.Show("%d", &f.average)},
	}, slices.Concat(f.inputCommands(), f.triggerCommands(), f.waveCommands())...)
}

// inputCommands set how a channel's volts become codes, and its other settings.
func (f *Face) inputCommands() []scpi.Command {
	return []scpi.Command{
		f.Value("CHANnel<n>:SCALe", func(ch *channel) float64 { return ch.Scale }, func(ch *channel, v float64) error {
			return scope.Step125(&ch.Scale, v, 1e-3*ch.Ratio, 10*ch.Ratio)
		}),
		f.Value("CHANnel<n>:OFFSet", func(ch *channel) float64 { return ch.Shift }, func(ch *channel, v float64) error {
			most := ch.Reach(f.family.offset...)
			return scpi.Put(&ch.Shift, v, -most, most)
		}),
		f.Value("CHANnel<n>:PROBe", func(ch *channel) float64 { return ch.Ratio },
			func(ch *channel, v float64) error { return ch.SetRatio(v, 0.01, 1000) }),
		f.Display("CHANnel<n>:DISPlay", func() { f.depth = 0 }), // the share of memory has changed
		f.Keep("CHANnel<n>:COUPling", func(ch *channel) *string { return &ch.Coupling }, "DC", "AC", "GND"),
		f.Keep("CHANnel<n>:BWLimit", func(ch *channel) *string { return &ch.Limit }, "OFF", "20M"),
		f.Keep("CHANnel<n>:INVert", func(ch *channel) *string { return &ch.Invert }, "0", "OFF"),
		f.Keep("CHANnel<n>:UNITs", func(ch *channel) *string { return &ch.Units }, "VOLTage", "WATT", "AMPere", "UNKNown"),
	}
}

// states are the answers to :TRIG:STAT?.
var states = map[scope.State]string{
	scope.Stopped: "STOP", scope.Waiting: "WAIT", scope.Sampling: "RUN", scope.Free: "AUTO", scope.Triggered: "TD",
}

// triggerCommands set the trigger. SINGle rearms a scope that runs. The node of the edge's
// commands is spelt differently in the families.
func (f *Face) triggerCommands() []scpi.Command {
	t, edge := &f.Trig, "TRIGger:"+f.family.edge
	return []scpi.Command{
		scpi.Asked("TRIGger:STATus", func() string { return states[f.State()] }),
		{Pattern: "TRIGger:POSition", Query: scpi.Fixed("-1")},
		scpi.Sole("TRIGger:MODE", "EDGE"),
		scpi.Choice("TRIGger:COUPling", &t.Coupling, "DC", "AC", "LFReject", "HFReject"),
		{Pattern: "TRIGger:HOLDoff", Query: scpi.Number(&t.Holdoff)},
		{Pattern: "TRIGger:SWEep", Set: scpi.Do(scpi.OneOf("AUTO", "NORMal", "SINGle"), func(w string) {
			if t.Sweep = w; w == "SING" && f.Running() {
				f.Start(true)
			}
		}), Query: scpi.Show("%s", &t.Sweep)},
		f.SourceOf(edge+":SOURce", "CHANnel", &t.Source),
		scpi.Choice(edge+":SLOPe", &t.Slope, "POSitive", "NEGative", "RFALl"),
		f.Level(edge+":LEVel", f.family.level*1.001),
	}
}

// waveform holds the settings of :WAV.
type waveform struct {
	source       int
	mode, format string
	start, stop  int
	// fresh: mode and format were set since the last acquisition settled.
	fresh [2]bool
	codes []int32
}

// waveCommands choose source, mode, form and the points of a download, and give preamble and data.
func (f *Face) waveCommands() []scpi.Command {
	w, most := &f.wav, float64(slices.Max(f.family.depths(1)))
	// refresh notes a setting that the reader wants to hear again behind an acquisition, once that has settled.
	refresh := func(which int, c scpi.Command) scpi.Command {
		set := c.Set
		c.Set = func(a scpi.Call) error {
			w.fresh[which] = !f.Running() && f.Since() >= f.family.settle
			return set(a)
		}
		return c
	}
	return []scpi.Command{
		f.SourceOf("WAVeform:SOURce", "CHANnel", &w.source),
		refresh(0, scpi.Choice("WAVeform:MODE", &w.mode, "NORMal", "MAXimum", "RAW")),
		refresh(1, scpi.Choice("WAVeform:FORMat", &w.format, "BYTE", "WORD", "ASCii")),
		scpi.Whole("WAVeform:STARt", &w.start, 1, most), scpi.Whole("WAVeform:STOP", &w.stop, 1, most),
		{Pattern: "WAVeform:PREamble", Query: func(scpi.Call) ([]byte, error) {
			format := map[string]int{"BYTE": 0, "WORD": 1, "ASC": 2}[w.format]
			kind := map[string]int{"NORM": 0, "MAX": 1, "RAW": 2}[w.mode]
			v := f.view()
			points := v.Points
			if f.family.pages {
				points = max(0, w.stop-w.start+1)
			}
			inc, origin := f.scaling()
			return scpi.Text("%d,%d,%d,1,%s,%s,0,%s,%d,%d", format, kind, points, exact(v.Step*1e-9), exact(f.Delay()),
				exact(inc), origin, f.reference())
		}},
		{Pattern: "WAVeform:DATA", Query: func(scpi.Call) ([]byte, error) { return f.data() }},
		scpi.Asked("WAVeform:XINCrement", func() string { return exact(f.view().Step * 1e-9) }),
		scpi.Asked("WAVeform:YINCrement", func() string { inc, _ := f.scaling(); return exact(inc) }),
		scpi.Asked("WAVeform:YORigin", func() string { _, origin := f.scaling(); return fmt.Sprint(origin) }),
		scpi.Asked("WAVeform:YREFerence", func() string { return fmt.Sprint(f.reference()) }),
	}
}

// view is the points that can be read now.
func (f *Face) view() scope.View {
	if f.wav.mode == "NORM" || (f.wav.mode == "MAX" && f.Running()) {
		return f.Screen(f.family.screen)
	}
	return f.Memory()
}

// unit is how many of the converter's codes make one of those reported.
func (f *Face) unit() float64 {
	if f.family.words && f.wav.format != "WORD" {
		return 256
	}
	return 1
}

// reference is the code of the screen's middle, in the unit of the codes sent.
func (f *Face) reference() int { return int(f.Middle / f.unit()) }

// scaling turns the source's codes into volts.
func (f *Face) scaling() (inc float64, origin int) {
	inc = f.Increment(f.wav.source) * f.unit()
	return inc, int(math.Round(f.Channel[f.wav.source].Shift / inc))
}

// exact writes a number with all the digits that it has.
func exact(v float64) string { return fmt.Sprintf("%.9e", v) }

// data is the answer to :WAV:DATA?: the points from :WAV:STAR to :WAV:STOP.
// Deep memory is readable only while the scope stands; a read that cannot be
// gives an empty block.
func (f *Face) data() ([]byte, error) {
	v, w := f.view(), &f.wav
	first, n := w.start-1, w.stop-w.start+1
	most := f.family.maxRead / map[string]int{"BYTE": 1, "WORD": 2, "ASC": 16}[w.format]
	hasty := f.family.settle > 0 && (f.Since() < f.family.settle || w.fresh != [2]bool{true, true})
	if w.mode != "NORM" && (f.Running() || hasty) || !f.Channel[w.source].Shown {
		return scpi.Block(9, nil), nil
	}
	limit := v.Points
	if f.family.pages && w.mode != "NORM" {
		limit = f.Depth()
	}
	if n < 1 || n > most || first+n > limit {
		return scpi.Block(9, nil), scpi.ErrRange
	}
	w.codes = f.Codes(w.codes[:0], w.source, first, max(0, min(n, v.Points-first)), v)
	w.codes = append(w.codes, slices.Repeat([]int32{int32(f.Middle)}, n-len(w.codes))...) // never filled
	return scpi.Block(9, f.encode(w.codes)), nil
}

// encode writes codes as :WAV:FORM asks for: a byte, a word, or text in volts.
func (f *Face) encode(codes []int32) []byte {
	inc, origin := f.scaling()
	switch f.wav.format {
	case "WORD":
		return scope.Coded(nil, codes, 2, true, func(c int32) uint32 { return uint32(c) << 16 })
	case "BYTE":
		return scope.Coded(nil, codes, 1, true, func(c int32) uint32 { return uint32(c/int32(f.unit())) << 24 })
	}
	return scope.Listed(nil, codes, func(c int32) string {
		return scpi.Exponent((float64(c)/f.unit() - float64(origin+f.reference())) * inc)
	})
}

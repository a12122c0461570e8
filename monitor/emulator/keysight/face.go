// Package keysight is Keysight InfiniiVision oscilloscopes in software: the SCPI commands of
// the 1000 X-Series over an emulated scope.
//
// These scopes choose depth and rate by themselves: the window fills memory, of which a scope
// that runs freely keeps half for the acquisition to come. A value out of range is set to the
// nearest in silence. :AER? and :TER? read the events armed and triggered, once each.
package keysight

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// Model is one scope of the family.
type Model struct {
	name, serial string
	channels     int
	memory       int // points of a single acquisition, over all channels
	maxRate      float64
}

// The models. A rate and a memory belong to one channel and are divided among those that are shown.
var (
	EDUX1002G = Model{"EDU-X 1002G", "CN57000001", 2, 100_000, 1e9}
	DSOX1102G = Model{"DSO-X 1102G", "CN57000002", 2, 1_000_000, 2e9}
	DSOX1204G = Model{"DSO-X 1204G", "CN59000003", 4, 2_000_000, 2e9}
)

// Config describes the scope and its wiring.
type Config struct {
	scope.Config
	// Flaky makes every so manieth preamble a plain +0, as some do now and then; 0 for none.
	Flaky int
}

// The screen.
const (
	divisions = 10
	rows      = 8
	perDiv    = 32
	hole      = 0 // code of a point that was never taken
	middle    = 128
)

// Face is one scope. Its clients come and go through the embedded Instrument.
type Face struct {
	scope.Scope
	model Model
	cfg   Config

	timeRange, position float64 // s: across the screen; of the reference behind the trigger
	reference           string
	acqType, acqMode    string
	wav                 waveform
	armed, triggered    bool // the event registers AER and TER
	counted             bool // the trigger of a single acquisition was
	preambles           int
}

// New makes a scope whose probes sit on a board.
func New(b *board.Board, m Model, cfg Config) (*Face, error) {
	f := &Face{model: m, cfg: cfg}
	err := f.Init(b, cfg.Config, scope.Traits{
		Name: m.name, ID: "KEYSIGHT TECHNOLOGIES," + m.name + "," + m.serial + ",02.12.2021071625", Channels: m.channels,
		PerDiv: perDiv, Middle: middle, Least: 1, Most: 255, GainLimit: 0.03, ZeroLimit: 0.1, ClockLimit: 50e-6,
	}, f, f.reset, func() []scpi.Command {
		return slices.Concat(f.rootCommands(), f.timeCommands(), f.inputCommands(), f.waveCommands())
	})
	if err != nil {
		return nil, err
	}
	f.Signed, f.Cleared = true, func() { f.events(); f.armed, f.triggered = false, false }
	return f, nil
}

// reset is *RST.
func (f *Face) reset() {
	f.Reset(channel{Scale: 5, Ratio: 1, Coupling: "DC", Invert: "0", Limit: "0", Units: "VOLT"})
	for i := range f.Channel {
		f.Channel[i].Label = fmt.Sprint(i + 1)
	}
	f.timeRange, f.position, f.reference = 1e-3, 0, "CENT"
	f.acqType, f.acqMode = "NORM", "RTIM"
	f.Trig = scope.Trigger{Sweep: "AUTO", Slope: "POS", Coupling: "DC", Holdoff: 60e-9}
	f.armed, f.triggered = false, false
	f.Power()
	f.wav = waveform{mode: "NORM", format: "BYTE", order: "MSBF", unsigned: true, points: 1000}
}

// Window is the time across the screen, which memory spans.
func (f *Face) Window() float64 { return f.timeRange }

// Delay is where the screen begins behind the trigger.
func (f *Face) Delay() float64 {
	part := map[string]float64{"LEFT": 0.1, "CENT": 0.5, "RIGH": 0.9}[f.reference]
	return f.position - part*f.timeRange
}

// Rate is the nominal rate: memory over the window. A scope that runs freely
// keeps half of its memory for the acquisition to come.
func (f *Face) Rate() float64 {
	memory := float64(f.model.memory / f.Share())
	if !f.Single() {
		memory /= 2
	}
	return min(f.model.maxRate/float64(f.Share()), memory/f.timeRange)
}

// Points is the memory's depth of one channel.
func (f *Face) Points() int { return int(math.Round(f.Rate() * f.timeRange)) }

// start arms anew and clears the last acquisition's events.
func (f *Face) start(single bool) {
	f.armed, f.triggered, f.counted = true, false, false
	f.Start(single)
}

// events updates the trigger register.
func (f *Face) events() {
	f.Update()
	if f.Fired() && !(f.Single() && f.counted) {
		f.triggered, f.counted = true, true
	}
}

// take reads an event register and clears it.
func take(at *bool) string {
	was := *at
	*at = false
	return "+" + scpi.Flag(was)
}

type channel = scope.Channel

// nr3 is the form of the scope's numbers.
const nr3 = "%+.5E"

// short writes a number in that form.
func short(v float64) string { return fmt.Sprintf(nr3, v) }

// exact writes a number with all the digits that a preamble has.
func exact(v float64) string { return fmt.Sprintf("%+.8E", v) }

// rootCommands start and stop the scope, read its event registers, which clear when read, and set the
// edge trigger. Its level must lie within six divisions of the middle.
func (f *Face) rootCommands() []scpi.Command {
	t := &f.Trig
	return []scpi.Command{
		scpi.Action("RUN", func() { f.start(false) }),
		scpi.Action("STOP", func() { f.events(); f.Stop() }),
		scpi.Action("SINGle", func() { f.start(true) }),
		// Digitize takes whatever comes: the emulated one triggers at once.
		scpi.Action("DIGitize", func() { f.start(true); f.Force() }),
		scpi.Asked("TER", func() string { f.events(); return take(&f.triggered) }),
		scpi.Asked("AER", func() string { return take(&f.armed) }),
		scpi.Asked("OPERegister:CONDition", func() string {
			v := 0
			if f.Running() {
				v |= 1 << 3
			}
			if f.State() == scope.Waiting {
				v |= 1 << 5
			}
			return fmt.Sprintf("%+d", v)
		}),
		scpi.Asked("RSTate", func() string {
			switch {
			case !f.Running():
				return "STOP"
			case f.Single():
				return "SING"
			}
			return "RUN"
		}),
		scpi.Action("AUToscale", func() {}),
		scpi.Action("SYSTem:PRESet", f.reset),
		scpi.Action("TRIGger:FORCe", f.Force),
		scpi.Sole("TRIGger:MODE", "EDGE"),
		scpi.Choice("TRIGger:SWEep", &t.Sweep, "AUTO", "NORMal"),
		{Pattern: "TRIGger:HOLDoff", Query: scpi.Number(&t.Holdoff)},
		f.SourceOf("TRIGger[:EDGE]:SOURce", "CHANnel", &t.Source),
		scpi.Choice("TRIGger[:EDGE]:SLOPe", &t.Slope, "POSitive", "NEGative", "EITHer"),
		scpi.Choice("TRIGger[:EDGE]:COUPling", &t.Coupling, "DC", "AC", "LFReject"),
		f.Level("TRIGger[:EDGE]:LEVel", 6),
	}
}

// timeCommands set time base and acquisition. Range and scale are one setting: the screen has ten divisions.
func (f *Face) timeCommands() []scpi.Command {
	return []scpi.Command{
		scpi.Sole("TIMebase:MODE", "MAIN"),
		scpi.Choice("TIMebase:REFerence", &f.reference, "LEFT", "CENTer", "RIGHt"),
		scpi.Numeric("TIMebase[:MAIN]:RANGe", short, &f.timeRange, scpi.Within(&f.timeRange, 50e-9, 500)),
		{Pattern: "TIMebase[:MAIN]:SCALe", Set: scpi.Set(func(v float64) error {
			return scpi.Put(&f.timeRange, divisions*v, 50e-9, 500)
		}), Query: scpi.Reply(func() string { return short(f.timeRange / divisions) })},
		scpi.Numeric("TIMebase:POSition", short, &f.position, scpi.Within(&f.position, -500, 500)),
		{Pattern: "TIMebase", Query: scpi.Reply(func() string {
			return fmt.Sprintf(":TIM:MODE MAIN;REF %s;MAIN:RANG "+nr3+";POS "+nr3, f.reference, f.timeRange, f.position)
		})},
		// Rate and depth follow and can only be read.
		scpi.Choice("ACQuire:TYPE", &f.acqType, "NORMal", "AVERage", "HRESolution", "PEAK"),
		scpi.Choice("ACQuire:MODE", &f.acqMode, "RTIMe", "SEGMented"),
		scpi.Asked("ACQuire:SRATe", func() string { return exact(f.Rate()) }),
		scpi.Asked("ACQuire:POINts", func() string { return fmt.Sprintf("%+d", f.Points()) }),
	}
}

// flag is a channel's setting that is on or off.
func (f *Face) flag(pattern string, at func(*channel) *string) scpi.Command {
	k := f.Keep(pattern, at)
	k.Set = f.On(func(ch *channel) func(scpi.Call) error {
		return scpi.Do(scpi.Call.Bool, func(on bool) { *at(ch) = scpi.Flag(on) })
	})
	return k
}

// inputCommands set how volts become codes, and a channel's other settings. A value out of range is
// set to the nearest that is not, in silence.
func (f *Face) inputCommands() []scpi.Command {
	setScale := func(ch *channel, v float64) error {
		ch.Scale = min(max(v, 5e-4*ch.Ratio), 10*ch.Ratio)
		return nil
	}
	return []scpi.Command{
		f.Value("CHANnel<n>:SCALe", func(ch *channel) float64 { return ch.Scale }, setScale),
		f.Value("CHANnel<n>:RANGe", func(ch *channel) float64 { return ch.Scale * rows },
			func(ch *channel, v float64) error { return setScale(ch, v/rows) }),
		f.Value("CHANnel<n>:OFFSet", func(ch *channel) float64 { return -ch.Shift }, func(ch *channel, v float64) error {
			most := ch.Reach(0.2, 2, 25)
			ch.Shift = -min(max(v, -most), most)
			return nil
		}),
		f.Value("CHANnel<n>:PROBe", func(ch *channel) float64 { return ch.Ratio },
			func(ch *channel, v float64) error { return ch.SetRatio(v, 0.1, 10000) }),
		f.Display("CHANnel<n>:DISPlay", func() {}),
		f.Keep("CHANnel<n>:COUPling", func(ch *channel) *string { return &ch.Coupling }, "DC", "AC"),
		f.flag("CHANnel<n>:BWLimit", func(ch *channel) *string { return &ch.Limit }),
		f.flag("CHANnel<n>:INVert", func(ch *channel) *string { return &ch.Invert }),
		f.Keep("CHANnel<n>:UNITs", func(ch *channel) *string { return &ch.Units }, "VOLT", "AMPere"),
		{Pattern: "CHANnel<n>:LABel", Set: f.On(func(ch *channel) func(scpi.Call) error {
			return scpi.Do(scpi.Call.Text, func(label string) { ch.Label = label[:min(10, len(label))] })
		}), Query: f.Of(func(ch *channel) string { return strconv.Quote(ch.Label) })},
		{Pattern: "CHANnel<n>", Query: f.Of(func(ch *channel) string {
			return fmt.Sprintf(":CHAN%d:RANG "+nr3+";OFFS "+nr3+";COUP %s;IMP ONEM;DISP %s;BWL %s;INV %s;LAB %q;UNIT %s;"+
				"PROB "+nr3+";PROB:SKEW +0.00E+00;STYP SING", ch.No+1, ch.Scale*rows, -ch.Shift, ch.Coupling,
				scpi.Flag(ch.Shown), ch.Limit, ch.Invert, ch.Label, ch.Units, ch.Ratio)
		})},
	}
}

// waveform holds the settings of :WAV.
type waveform struct {
	source              int
	mode, format, order string
	unsigned            bool
	points              int
	codes               []int32
}

// screenMost is the most points of a measurement record, in mode NORMal.
const screenMost = 62_500

// steps are the numbers of points that can be asked for, beside all there are.
var steps = []int{
	100, 250, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 62_500, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
}

// waveCommands choose source, form and number of points of a download, and give preamble and data.
func (f *Face) waveCommands() []scpi.Command {
	w := &f.wav
	source := f.SourceOf("WAVeform:SOURce", "CHANnel", &w.source)
	set := source.Set
	source.Set = func(c scpi.Call) error { // which also puts the channel on the screen
		err := set(c)
		if err == nil {
			f.Channel[w.source].Shown = true
		}
		return err
	}
	return []scpi.Command{
		source,
		scpi.Choice("WAVeform:FORMat", &w.format, "BYTE", "WORD", "ASCii"),
		scpi.Choice("WAVeform:BYTeorder", &w.order, "MSBFirst", "LSBFirst"),
		scpi.Switch("WAVeform:UNSigned", &w.unsigned),
		scpi.Choice("WAVeform:POINts:MODE", &w.mode, "NORMal", "MAXimum", "RAW"),
		{
			Pattern: "WAVeform:POINts", Set: func(c scpi.Call) error { // a number of the table; MAX sets that mode, too
				if word, err := c.Word(0, "MAXimum"); err == nil && word == "MAX" {
					w.points, w.mode = steps[len(steps)-1], "MAX"
					return nil
				}
				return scpi.Set(func(v float64) error {
					if !slices.Contains(steps, int(v)) {
						return scpi.ErrRange
					}
					w.points = int(v)
					return nil
				})(c)
			},
			Query: scpi.Reply(func() string { return fmt.Sprintf("%+d", f.view().Points) }),
		},
		{Pattern: "WAVeform:PREamble", Query: func(scpi.Call) ([]byte, error) { return f.preamble() }},
		{Pattern: "WAVeform:DATA", Query: func(scpi.Call) ([]byte, error) { return f.data() }},
		{Pattern: "WAVeform:TYPE", Query: scpi.Show("%s", &f.acqType)},
	}
}

// view is the points that would be sent now. Deep memory that has more than are
// wanted gives every second, third, … point.
func (f *Face) view() scope.View {
	if f.wav.mode == "NORM" || f.wav.mode == "MAX" && f.Running() {
		return f.Screen(min(f.wav.points, screenMost, max(1, f.Points())))
	}
	depth, step := f.Depth(), f.Memory().Step
	every := max(1, (depth+f.wav.points-1)/f.wav.points)
	return scope.View{Points: depth / every, Step: step * float64(every)}
}

// preamble is the answer to :WAV:PRE?.
func (f *Face) preamble() ([]byte, error) {
	f.preambles++
	if f.cfg.Flaky > 0 && f.preambles%f.cfg.Flaky == 0 {
		return scpi.Text("+0")
	}
	format := map[string]int{"BYTE": 0, "WORD": 1, "ASC": 4}[f.wav.format]
	kind := map[string]int{"NORM": 0, "PEAK": 1, "AVER": 2, "HRES": 3}[f.acqType]
	v, unit := f.view(), 1
	if f.wav.format == "WORD" {
		unit = 256
	}
	reference := middle * unit
	if !f.wav.unsigned {
		reference = 0
	}
	return scpi.Text("%+d,%+d,%+d,+1,%s,%s,+0,%s,%s,%+d", format, kind, v.Points, exact(v.Step*1e-9), exact(f.Delay()),
		exact(f.Increment(f.wav.source)/float64(unit)), exact(-f.Channel[f.wav.source].Shift), reference)
}

// data is the answer to :WAV:DATA?. What it cannot give is an empty block.
func (f *Face) data() ([]byte, error) {
	v, w := f.view(), &f.wav
	if w.mode == "RAW" && f.Running() {
		return scpi.Block(8, nil), scpi.ErrConflict
	}
	w.codes = f.Codes(w.codes[:0], w.source, 0, f.Taken(v), v)
	w.codes = append(w.codes, slices.Repeat([]int32{hole}, v.Points-len(w.codes))...)
	return scpi.Block(8, f.encode(w.codes)), nil
}

// encode writes codes in the form that :WAV:FORM asks for. Signed codes count from the middle;
// in WORD the eight bits stand in the upper byte.
func (f *Face) encode(codes []int32) []byte {
	w, zero := &f.wav, int32(0)
	if !w.unsigned {
		zero = middle
	}
	if w.format == "ASC" {
		inc, shift := f.Increment(w.source), f.Channel[w.source].Shift
		return scope.Listed(nil, codes, func(c int32) string { return fmt.Sprintf("%+.6E", float64(c-middle)*inc-shift) })
	}
	size := map[string]int{"BYTE": 1, "WORD": 2}[w.format]
	return scope.Coded(nil, codes, size, w.order == "LSBF", func(c int32) uint32 { return uint32(c-zero) << 24 })
}

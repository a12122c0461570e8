// Package rohdeschwarz is Rohde & Schwarz RTB2000 oscilloscopes in software: the remote-control commands of
// the user manual over an emulated scope.
//
// The record length is set and the rate follows from the window. Waveforms are scaled by queries of their own,
// in the form that FORMat sets. *OPC? answers when a single acquisition has ended.
package rohdeschwarz

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// Model is one scope of the family.
type Model struct {
	name, serial string
	channels     int
}

// The models.
var (
	RTB2002 = Model{"RTB2002", "1333.1005k02/100002", 2}
	RTB2004 = Model{"RTB2004", "1333.1005k04/100001", 4}
)

const (
	divisions = 12      // across the screen
	quantum   = 1 << 6  // codes of 16 bits a step of the 10-bit converter
	perDiv    = 25 << 8 // codes of 16 bits
	middle    = 32640   // code of the screen's middle: 127.5 in 8 bits
	maxRate   = 1.25e9  // of each of a pair of channels; one alone has twice that
	screen    = 10_000  // points of a waveform as displayed
)

// depths are the record lengths; the last is there where one channel of a pair is on.
var depths = []int{
	10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000,
}

// Face is one scope. Its clients come and go through the embedded Instrument.
type Face struct {
	scope.Scope

	timeScale, position, reference float64 // s a division; s; percent of the screen
	depth                          int     // as set
	roll                           bool    // without an effect here
	broken                         bool    // STOP came, or ACQuire:STATe BREak
	words                          map[string]string
	format, order, points          string
	bits                           int // a value
}

// New makes a scope whose probes sit on a board.
func New(b *board.Board, m Model, cfg scope.Config) (*Face, error) {
	f := &Face{}
	err := f.Init(b, cfg, scope.Traits{
		Name: m.name, ID: "Rohde&Schwarz," + m.name + "," + m.serial + ",02.400", Channels: m.channels,
		PerDiv: perDiv, Middle: middle, Least: 0, Most: 1<<16 - quantum, Form: number,
		Quantum: quantum, GainLimit: 0.02, ZeroLimit: 0.1, ClockLimit: 2.5e-6,
	}, f, f.reset, func() []scpi.Command {
		return slices.Concat(f.rootCommands(), f.timeCommands(), f.inputCommands(), f.triggerCommands(), f.waveCommands())
	})
	if err != nil {
		return nil, err
	}
	f.Busy = func() time.Duration {
		if f.Running() && f.Single() {
			return time.Millisecond
		}
		return 0
	}
	return f, nil
}

// reset is *RST.
func (f *Face) reset() {
	f.Reset(channel{Placed: true, Scale: 5e-3, Ratio: 1, Coupling: "DCL", Invert: "NORM", Limit: "FULL", Units: "V"})
	f.timeScale, f.position, f.reference, f.depth = 1e-4, 0, 50, depths[0]
	f.Trig = scope.Trigger{Sweep: "AUTO", Slope: "POS", Coupling: "DC"}
	f.words = map[string]string{"ACQuire:TYPE": "REFR", "CHANnel<n>:TYPE": "SAMP"}
	f.format, f.bits, f.order, f.points = "ASC", 0, "MSBF", "DEF"
	f.broken, f.roll = false, true
	f.Power()
}

// Window is the time across the screen, which memory spans.
func (f *Face) Window() float64 { return divisions * f.timeScale }

// Delay is where memory begins behind the trigger: one point behind the screen's left edge.
func (f *Face) Delay() float64 { return f.position - f.reference/100*f.Window() + 1/f.Rate() }

// record is the record length. The channels of a pair share the longest.
func (f *Face) record() int { return min(f.depth, depths[len(depths)-1]/f.Pairs()) }

// Rate is in samples a second. The converters' is divided, so that the record length spans the window.
func (f *Face) Rate() float64 {
	return min(2*maxRate/float64(f.Pairs()), float64(f.record())/f.Window())
}

// Points is the number of points of one channel.
func (f *Face) Points() int { return int(math.Round(f.Rate() * f.Window())) }

type channel = scope.Channel

// number writes a number as these scopes do, from single precision.
func number(v float64) string { return fmt.Sprintf("%.9E", float32(v)) }

// start begins an acquisition. A single one whose trigger comes by itself does not wait.
func (f *Face) start(single bool) {
	f.broken = false
	f.Start(single)
	f.hurry()
}

// hurry triggers what waits in the mode AUTO.
func (f *Face) hurry() {
	if f.Single() && f.Trig.Sweep == "AUTO" {
		f.Force()
	}
}

// interrupt ends an acquisition at once.
func (f *Face) interrupt() {
	f.broken = f.broken || f.Running()
	f.Stop()
}

// rootCommands start and stop the scope and give its state.
func (f *Face) rootCommands() []scpi.Command {
	run, one := func() { f.start(false) }, 1
	return []scpi.Command{
		scpi.Action("RUN", run), scpi.Action("SINGle", func() { f.start(true) }),
		scpi.Action("STOP", f.interrupt), scpi.Action("*TRG", f.Force),
		{Pattern: "ACQuire:STATe", Set: scpi.Do(scpi.OneOf("RUN", "STOP", "BREak"), func(w string) {
			if w == "RUN" {
				run()
			} else if w == "BRE" || f.State() != scope.Sampling { // STOP lets an acquisition end
				f.interrupt()
			}
		}), Query: scpi.Reply(func() string {
			switch {
			case f.Running():
				return "RUN"
			case f.broken:
				return "BRE"
			}
			return "COMP"
		})},
		scpi.Asked("STATus:OPERation:CONDition", func() string {
			if f.State() == scope.Waiting {
				return "8"
			}
			return "0"
		}),
		scpi.Whole("ACQuire:NSINgle:COUNt", &one, 1, 1),
		scpi.Kept(&f.words, "ACQuire:TYPE", "REFResh"),
		scpi.Kept(&f.words, "CHANnel<n>:TYPE", "SAMPle", "HRESolution"),
	}
}

// timeCommands set time base and record length. A length that is none of the scope's becomes the nearest.
func (f *Face) timeCommands() []scpi.Command {
	scale := func(v float64) error { return scope.Step125(&f.timeScale, v, 1e-9, 50) }
	return []scpi.Command{
		scpi.Numeric("TIMebase:SCALe", number, &f.timeScale, scpi.Set(scale)),
		scpi.Asked("TIMebase:ACQTime", func() string { return number(f.Window()) }),
		scpi.Asked("TIMebase:DIVisions", func() string { return fmt.Sprint(divisions) }),
		scpi.Numeric("TIMebase:POSition", number, &f.position, scpi.Within(&f.position, -500, 500)),
		scpi.Numeric("TIMebase:REFerence", number, &f.reference, scpi.Set(func(v float64) error {
			if !slices.Contains([]float64{8.33, 50, 91.67}, v) {
				return scpi.ErrRange
			}
			f.reference = v
			return nil
		})),
		scpi.Switch("TIMebase:ROLL:AUTomatic", &f.roll),
		{Pattern: "ACQuire:POINts[:VALue]", Set: scpi.Set(func(v float64) error {
			f.depth = slices.MinFunc(depths, func(a, b int) int { return int(math.Abs(float64(a)-v) - math.Abs(float64(b)-v)) })
			return nil
		}), Query: scpi.Reply(func() string { return fmt.Sprint(f.record()) })},
		scpi.Asked("ACQuire:SRATe", func() string { return number(f.Rate()) }),
	}
}

// inputCommands set how volts become codes, and a channel's other settings. A scale or an offset out of range is set
// to the range's end.
func (f *Face) inputCommands() []scpi.Command {
	return []scpi.Command{
		f.Display("CHANnel<n>:STATe", func() {}),
		f.Value("CHANnel<n>:SCALe", func(ch *channel) float64 { return ch.Scale }, func(ch *channel, v float64) error {
			ch.Scale = min(max(v, 1e-3*ch.Ratio), 10*ch.Ratio)
			return nil
		}),
		f.Value("CHANnel<n>:POSition", func(ch *channel) float64 { return ch.Position }, func(ch *channel, v float64) error {
			return scpi.Put(&ch.Position, v, -5, 5)
		}),
		f.Value("CHANnel<n>:OFFSet", func(ch *channel) float64 { return ch.Offset }, func(ch *channel, v float64) error {
			most := ch.Reach(0.2, 2, 40)
			ch.Offset = min(max(v, -most), most)
			return nil
		}),
		f.Value("PROBe<n>:SETup:ATTenuation:MANual", func(ch *channel) float64 { return ch.Ratio },
			func(ch *channel, v float64) error { return ch.SetRatio(v, 1e-4, 1e7) }),
		f.Keep("PROBe<n>:SETup:ATTenuation:UNIT", func(ch *channel) *string { return &ch.Units }, "V", "A"),
		f.Keep("CHANnel<n>:COUPling", func(ch *channel) *string { return &ch.Coupling }, "DCLimit", "ACLimit", "GND"),
		f.Keep("CHANnel<n>:BANDwidth", func(ch *channel) *string { return &ch.Limit }, "FULL", "B20"),
		f.Keep("CHANnel<n>:POLarity", func(ch *channel) *string { return &ch.Invert }, "NORMal"),
	}
}

// triggerCommands set the edge trigger. The level is that of the source, within five divisions of the middle: of the
// others, which have levels of their own, it is refused here.
func (f *Face) triggerCommands() []scpi.Command {
	t := &f.Trig
	level := f.Level("TRIGger:A:LEVel<n>[:VALue]", 5)
	set := level.Set
	level.Set = func(c scpi.Call) error {
		if c.Suffixes[0] != t.Source+1 {
			return scpi.ErrConflict
		}
		return set(c)
	}
	return []scpi.Command{
		level, f.SourceOf("TRIGger:A:SOURce", "CH", &t.Source),
		{Pattern: "TRIGger:A:MODE", Set: scpi.Do(scpi.OneOf("AUTO", "NORMal"), func(w string) {
			t.Sweep = w
			f.hurry()
		}), Query: scpi.Show("%s", &t.Sweep)},
		scpi.Sole("TRIGger:A:TYPE", "EDGE"),
		scpi.Choice("TRIGger:A:EDGE:SLOPe", &t.Slope, "POSitive", "NEGative", "EITHer"),
		scpi.Choice("TRIGger:A:EDGE:COUPling", &t.Coupling, "DC", "AC", "LFReject"),
	}
}

// waveCommands choose form and points of a download, describe a waveform and give it.
func (f *Face) waveCommands() []scpi.Command {
	of := func(name string, get func(n int, v scope.View) string) scpi.Command {
		query := f.Of(func(ch *channel) string { return get(ch.No, f.view(ch.No)) })
		return scpi.Command{Pattern: "CHANnel<n>:DATA:" + name, Query: query}
	}
	points := of("POINts", func(_ int, v scope.View) string { return fmt.Sprint(v.Points) })
	points.Set = scpi.Word(&f.points, "DEFault", "MAXimum", "DMAXimum")
	return []scpi.Command{
		{Pattern: "FORMat[:DATA]", Set: f.setFormat, Query: scpi.Reply(func() string {
			return fmt.Sprintf("%s,%d", f.format, f.bits)
		})},
		scpi.Choice("FORMat:BORDer", &f.order, "MSBFirst", "LSBFirst"),
		points,
		of("HEADer", func(_ int, v scope.View) string {
			step := v.Step * 1e-9
			return fmt.Sprintf("%s,%s,%d,1", number(f.Delay()), number(f.Delay()+float64(v.Points-1)*step), v.Points)
		}),
		of("XORigin", func(int, scope.View) string { return number(f.Delay()) }),
		of("XINCrement", func(_ int, v scope.View) string { return number(v.Step * 1e-9) }),
		of("YINCrement", func(n int, _ scope.View) string { return number(f.Increment(n) * f.unit()) }),
		of("YORigin", func(n int, _ scope.View) string { return number(f.volts(n, 0)) }),
		of("YRESolution", func(int, scope.View) string { return "10" }),
		{Pattern: "CHANnel<n>:DATA", Query: f.Of(func(ch *channel) string { return string(f.data(ch.No)) })},
	}
}

// setFormat is FORMat: a word, and the bits of a value where there is a choice.
func (f *Face) setFormat(c scpi.Call) error {
	w, err := c.Word(0, "ASCii", "REAL", "UINTeger")
	if err != nil {
		return err
	}
	bits := map[string]int{"REAL": 32, "UINT": 8}[w]
	if len(c.Args) > 1 {
		v, err := c.Number(1)
		if err != nil {
			return err
		}
		bits = int(v)
	}
	if !slices.Contains(map[string][]int{"ASC": {0}, "REAL": {32}, "UINT": {8, 16, 32}}[w], bits) {
		return scpi.ErrValue
	}
	f.format, f.bits = w, bits
	return nil
}

// unit is how many codes of 16 bits a value counts.
func (f *Face) unit() float64 {
	if f.format == "UINT" {
		return math.Ldexp(1, 16-f.bits)
	}
	return 1
}

// volts is a code at the probe's tip.
func (f *Face) volts(n int, code int32) float64 {
	return (float64(code)-middle)*f.Increment(n) - f.Channel[n].Shift
}

// view is the points that would be sent now: none of a channel that is off, the screen while it runs.
func (f *Face) view(n int) scope.View {
	switch {
	case !f.Channel[n].Shown:
		return scope.View{}
	case f.Running() || f.points == "DEF":
		return f.Screen(min(screen, f.Points()))
	}
	return scope.View{Points: f.Depth(), Step: f.Memory().Step}
}

// data is the answer to CHANnel:DATA?. What a break left untaken is zero.
func (f *Face) data(n int) []byte {
	v := f.view(n)
	taken := f.Taken(v)
	out := make([]byte, 0, v.Points*f.bits/8)
	f.Each(n, 0, taken, v, func(codes []int32) { out = f.encode(out, n, codes) })
	out = f.encode(out, n, make([]int32, v.Points-taken))
	if f.format == "ASC" {
		return out
	}
	return scpi.Block(0, out)
}

// encode appends codes in the form that FORMat asks for.
func (f *Face) encode(out []byte, n int, codes []int32) []byte {
	word := func(c int32) uint32 { return uint32(c) << 16 } // the value at the top of 32 bits
	switch f.format {
	case "ASC":
		return scope.Listed(out, codes, func(c int32) string { return fmt.Sprintf("%.6f", f.volts(n, c)) })
	case "REAL":
		word = func(c int32) uint32 { return math.Float32bits(float32(f.volts(n, c))) }
	}
	return scope.Coded(out, codes, f.bits/8, f.order == "LSBF", word)
}

// Package siglent is Siglent oscilloscopes with the E11 command set in software: the SDS2000X
// Plus and HD models over an emulated scope.
//
// The preamble is a binary block in LeCroy's WAVEDESC form, of which this maker fills a part.
// Firmware differs in where a word has its converter's bits and in the codes a division that it
// states; a Family has these as fields. Values out of range are set to the range's end.
package siglent

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// Family holds the differences between the families, from their manuals.
type Family struct {
	traits    scope.Traits
	bits      int  // of the converter
	low       bool // words carry them at the bottom, without their sign
	digits    int  // of a block's length; 0 for as many as it needs
	maxRead   int  // bytes a read
	maxRate   float64
	wordCodes bool // the descriptor states the codes of words, also for bytes
}

// SDS2000XPlus is the SDS2104X Plus and its sisters, of 8 bits.
var SDS2000XPlus = &Family{
	traits: scope.Signed("SDS2000X Plus", maker+"SDS2104X Plus,SDS2PEED6R0001,1.3.9R10", 8, perDiv, 0.03, 25e-6, number),
	bits:   8, digits: 9, maxRead: 5_000_000, maxRate: 2e9,
}

// SDS2000XHD is the SDS2104X HD and its sisters, of 12 bits.
var SDS2000XHD = &Family{
	traits: scope.Signed("SDS2000X HD", maker+"SDS2104X HD,SDS2HBAD6R0001,1.2.3.1", 12, perDiv, 0.03, 25e-6, number),
	bits:   12, maxRead: 4_000_000, maxRate: 2e9, wordCodes: true,
}

// LowBits is an HD whose words carry the converter's bits at their bottom.
var LowBits = &Family{
	traits: scope.Signed("SDS2000X HD", maker+"SDS2104X HD,SDS2HBAD6R0002,1.0.0.1", 12, perDiv, 0.03, 25e-6, number),
	bits:   12, low: true, maxRead: 4_000_000, maxRate: 2e9,
}

const (
	maker     = "Siglent Technologies,"
	perDiv    = 7680 // codes of words; 30 of bytes
	divisions = 10   // across the screen; memory spans it
)

// Face is one scope. Its clients come and go through the embedded Instrument.
type Face struct {
	scope.Scope
	family *Family

	timeScale, delay float64 // s a division; s
	depth            int     // the most points a channel, as set
	words            map[string]string
	mode             string // of the trigger, as reported
	wav              waveform
}

// New makes a scope of a family whose probes sit on a board.
func New(b *board.Board, family *Family, cfg scope.Config) (*Face, error) {
	f := &Face{family: family}
	return f, f.Init(b, cfg, family.traits, f, f.reset, func() []scpi.Command {
		return slices.Concat(f.timeCommands(), f.inputCommands(), f.triggerCommands())
	})
}

// reset is *RST.
func (f *Face) reset() {
	f.Reset(channel{Scale: 1, Ratio: 1, Coupling: "DC", Invert: "OFF", Limit: "FULL", Units: "V"})
	f.timeScale, f.delay, f.depth, f.mode = 1e-6, 0, 20_000_000, "AUTO"
	f.Trig = scope.Trigger{Sweep: "AUTO", Slope: "POS", Coupling: "DC", Holdoff: 8e-9}
	f.words = map[string]string{
		"ACQuire:TYPE": "NORMal", "ACQuire:MODE": "YT", "ACQuire:MMANagement": "AUTO", "ACQuire:SEQuence": "OFF",
		"TIMebase:REFerence": "DELay",
	}
	f.wav = waveform{width: "BYTE", interval: 1}
	f.Power()
}

type channel = scope.Channel

// Window is the time that memory spans.
func (f *Face) Window() float64 { return divisions * f.timeScale }

// Delay is where memory begins behind the trigger.
func (f *Face) Delay() float64 { return f.delay - f.Window()/2 }

// Rate is the fastest of the scope's rates (1, 2, 4, …) that depth has room for.
func (f *Face) Rate() float64 {
	most := min(f.family.maxRate/float64(f.Pairs()), float64(f.depth)/f.Window())
	decade := math.Pow(10, math.Floor(math.Log10(most)+1e-9))
	for _, m := range []float64{4, 2} {
		if m*decade <= most*(1+1e-9) {
			return m * decade
		}
	}
	return decade
}

// Points is the number of points of one channel.
func (f *Face) Points() int { return int(math.Round(f.Rate() * f.Window())) }

// setDepth is :ACQ:MDEP, which works only while the scope runs freely.
func (f *Face) setDepth(c scpi.Call) error {
	if s := f.State(); len(c.Args) > 0 && s != scope.Free && s != scope.Triggered {
		return scpi.ErrConflict
	}
	return scope.SetDepth(&f.depth, c, f.depths())
}

// depths are those of a channel, ascending.
func (f *Face) depths() (all []int) {
	for d := 20_000 / f.Pairs(); d <= 200_000_000/f.Pairs(); d *= 10 {
		all = append(all, d)
	}
	return all
}

// ratio reads a probe's: DEFault, or VALue and a number.
func ratio(c scpi.Call, i int) (float64, error) {
	w, err := c.Word(i, "DEFault", "VALue")
	if w == "VAL" {
		return c.Number(i + 1)
	}
	return 1, err
}

// suffixes of a number of points, the largest first.
var suffixes = []struct {
	unit string
	v    float64
}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}}

// number writes a setting as this maker does: three digits.
func number(v float64) string { return fmt.Sprintf("%.2E", v) }

// timeCommands set time base and memory. A value out of range is set to the range's end.
func (f *Face) timeCommands() []scpi.Command {
	return []scpi.Command{
		scpi.Numeric("TIMebase:SCALe", number, &f.timeScale, scpi.Set(func(v float64) error {
			return scope.Step125(&f.timeScale, min(max(v, 1e-9), 1000), 1e-9, 1000)
		})),
		scpi.Numeric("TIMebase:DELay", number, &f.delay, scpi.Set(func(v float64) error {
			f.delay = min(max(v, -5*f.timeScale), 5000*f.timeScale)
			return nil
		})),
		{Pattern: "ACQuire:MDEPth", Set: f.setDepth, Query: scpi.Reply(func() string {
			for _, x := range suffixes {
				if v := float64(f.depth) / x.v; v >= 1 {
					return strconv.FormatFloat(v, 'g', -1, 64) + x.unit
				}
			}
			return fmt.Sprint(f.depth)
		})},
		scpi.Asked("ACQuire:SRATe", func() string { return number(f.Rate()) }),
		scpi.Asked("ACQuire:POINts", func() string { return number(float64(f.readable())) }),
		scpi.Kept(&f.words, "ACQuire:TYPE", "NORMal", "PEAK"),
		scpi.Kept(&f.words, "ACQuire:MODE", "YT", "XY", "ROLL"),
		scpi.Kept(&f.words, "ACQuire:MMANagement", "AUTO", "FSRate", "FMDepth"),
		scpi.Kept(&f.words, "ACQuire:SEQuence", "ON", "OFF"),
		scpi.Kept(&f.words, "TIMebase:REFerence", "DELay", "POSition"),
	}
}

// shift sets a channel's offset; its range depends on the scale.
func shift(ch *channel, v float64) error {
	most := ch.Reach(0.12, 2, 1.02, 20, 200)
	ch.Shift = min(max(v, -most), most)
	return nil
}

// inputCommands set how volts become codes, and a channel's other settings.
func (f *Face) inputCommands() []scpi.Command {
	shown := f.Display("CHANnel<n>:SWITch", func() { // the depth stays on the steps of as many channels as are on
		all := f.depths()
		i, _ := slices.BinarySearch(all, f.depth)
		f.depth = all[min(i, len(all)-1)]
	})
	shown.Query = f.Of(func(ch *channel) string { return map[bool]string{true: "ON", false: "OFF"}[ch.Shown] })
	return []scpi.Command{
		f.Value("CHANnel<n>:SCALe", func(c *channel) float64 { return c.Scale }, func(c *channel, v float64) error {
			c.Scale = min(max(v, 500e-6*c.Ratio), 10*c.Ratio)
			return shift(c, c.Shift)
		}),
		f.Value("CHANnel<n>:OFFSet", func(ch *channel) float64 { return ch.Shift }, shift),
		{Pattern: "CHANnel<n>:PROBe", Set: f.On(func(ch *channel) func(scpi.Call) error {
			return scpi.Take(ratio, func(v float64) error { return ch.SetRatio(v, 1e-6, 1e6) })
		}), Query: f.Of(func(ch *channel) string { return number(ch.Ratio) })},
		shown,
		f.Keep("CHANnel<n>:COUPling", func(ch *channel) *string { return &ch.Coupling }, "DC", "AC", "GND"),
		f.Keep("CHANnel<n>:BWLimit", func(ch *channel) *string { return &ch.Limit }, "FULL", "20M", "200M"),
		f.Keep("CHANnel<n>:INVert", func(ch *channel) *string { return &ch.Invert }, "OFF"),
		f.Keep("CHANnel<n>:UNIT", func(ch *channel) *string { return &ch.Units }, "V", "A"),
	}
}

// begin carries out a trigger mode.
func (f *Face) begin(mode string) {
	f.mode = mode
	if mode == "AUTO" || mode == "NORM" {
		f.Trig.Sweep = mode
		f.Start(false)
		return
	}
	now := mode == "FTRIG" // one frame at once, whatever it did
	if !now || f.State() != scope.Waiting || f.Trig.Sweep != "SING" {
		f.Trig.Sweep = "SING"
		f.Start(true)
	}
	if now {
		f.Force()
	}
}

// triggerCommands start and stop the scope: the trigger's mode decides how it runs. The level of its
// edge stays within 4.1 divisions of the middle. The last choose source, width and points of a
// download, and give descriptor and data.
func (f *Face) triggerCommands() []scpi.Command {
	const most = 1e9 // of points
	t, w := &f.Trig, &f.wav
	status := map[scope.State]string{
		scope.Stopped: "Stop", scope.Waiting: "Ready", scope.Sampling: "Trig'd", scope.Free: "Auto",
		scope.Triggered: "Trig'd",
	}
	return []scpi.Command{
		{
			Pattern: "TRIGger:MODE", Set: scpi.Do(scpi.OneOf("AUTO", "NORMal", "SINGle", "FTRIG"), f.begin),
			Query: scpi.Reply(func() string {
				return map[string]string{"AUTO": "AUTO", "NORM": "NORMal", "SING": "SINGle", "FTRIG": "FTRIG"}[f.mode]
			}),
		},
		scpi.Action("TRIGger:RUN", func() { f.begin(f.mode) }),
		scpi.Action("TRIGger:STOP", f.Stop),
		scpi.Asked("TRIGger:STATus", func() string { return status[f.State()] }),
		scpi.Sole("TRIGger:TYPE", "EDGE"),
		f.SourceOf("TRIGger:EDGE:SOURce", "C", &t.Source),
		f.Slope("TRIGger:EDGE:SLOPe", strings.Clone, "RISing", "FALLing", "ALTernate"),
		scpi.Choice("TRIGger:EDGE:COUPling", &t.Coupling, "DC", "AC", "LFREJect", "HFREJect"),
		{Pattern: "TRIGger:EDGE:LEVel", Set: scpi.Set(func(v float64) error {
			ch, most := f.Channel[t.Source], 4.1
			t.Level = min(max(v, -most*ch.Scale-ch.Shift), most*ch.Scale-ch.Shift)
			return nil
		}), Query: scpi.Reply(func() string { return number(t.Level) })},
		f.SourceOf("WAVeform:SOURce", "C", &w.source),
		scpi.Choice("WAVeform:WIDTh", &w.width, "BYTE", "WORD"),
		scpi.Whole("WAVeform:STARt", &w.start, 0, most), scpi.Whole("WAVeform:POINt", &w.point, 0, most),
		scpi.Whole("WAVeform:INTerval", &w.interval, 0, most),
		scpi.Asked("WAVeform:MAXPoint", func() string { return fmt.Sprint(f.family.maxRead / f.bytes()) }),
		{Pattern: "WAVeform:PREamble", Query: func(scpi.Call) ([]byte, error) { return f.block(f.descriptor()), nil }},
		{Pattern: "WAVeform:DATA", Query: func(scpi.Call) ([]byte, error) { return f.data() }},
	}
}

// waveform holds the settings of :WAV.
type waveform struct {
	source                 int
	width                  string
	start, point, interval int
}

// bytes of a code.
func (f *Face) bytes() int { return map[string]int{"BYTE": 1, "WORD": 2}[f.wav.width] }

// readable is the points that can be read: none of a recording that was stopped
// before memory was full, which the manual does not describe.
func (f *Face) readable() int {
	if v := f.Memory(); v.Points == f.Depth() {
		return v.Points
	}
	return 0
}

// block makes a block; this maker ends it with two line feeds.
func (f *Face) block(data []byte) []byte { return append(scpi.Block(f.family.digits, data), '\n') }

// descriptor is the answer to :WAV:PRE?: LeCroy's WAVEDESC, of which this maker
// fills a part. Volts are those at the input, in front of them the probe.
func (f *Face) descriptor() []byte {
	b := make([]byte, 346)
	copy(b[0:], "WAVEDESC")
	copy(b[16:], "WAVEACE")
	copy(b[76:], "Siglent SDS")
	ch, v, le := f.Channel[f.wav.source], f.Memory(), binary.LittleEndian
	codes := perDiv / 256.0 // a division
	switch {
	case f.wav.width == "WORD" && f.family.low:
		codes = perDiv / math.Ldexp(1, 16-f.family.bits)
	case f.wav.width == "WORD", f.family.wordCodes:
		codes = perDiv
	}
	word := func(at, v int) { le.PutUint16(b[at:], uint16(v)) }
	long := func(at, v int) { le.PutUint32(b[at:], uint32(v)) }
	single := func(at int, v float64) { le.PutUint32(b[at:], math.Float32bits(float32(v))) }
	word(32, f.bytes()-1)
	long(36, len(b))
	long(60, f.readable()*f.bytes())
	long(116, f.readable())
	long(132, f.wav.start)
	long(136, f.wav.interval)
	single(156, ch.Scale/ch.Ratio)
	single(160, ch.Shift/ch.Ratio)
	single(164, codes)
	word(172, f.family.bits)
	single(176, v.Step*1e-9)
	le.PutUint64(b[180:], math.Float64bits(f.delay))
	single(328, ch.Ratio)
	word(344, f.wav.source)
	return b
}

// data is the answer to :WAV:DATA?: :WAV:POIN points (all where it is 0) behind
// :WAV:STAR, no more than :WAV:MAXP at a time and than there are.
func (f *Face) data() ([]byte, error) {
	w, v, size := &f.wav, f.Memory(), f.bytes()
	n := min(f.readable()-w.start, f.family.maxRead/size)
	if w.point > 0 {
		n = min(n, w.point)
	}
	if f.Running() || !f.Channel[w.source].Shown || n <= 0 || w.interval > 1 {
		return f.block(nil), nil
	}
	out, shift := make([]byte, 0, n*size), 0
	if f.family.low && size == 2 {
		shift = 16 - f.family.bits
	}
	f.Each(w.source, w.start, n, v, func(codes []int32) {
		out = scope.Coded(out, codes, size, true, func(c int32) uint32 { return uint32(uint16(c)>>shift) << 16 })
	})
	return f.block(out), nil
}

// Package tektronix is Tektronix oscilloscopes in software: the commands of the MDO3000 and of
// the 4 Series MSO over an emulated scope.
//
// Replies may have headers, in the long or short form (HEADer, VERBose). Errors go through the
// event queue of *ESR? and ALLEv?, not SYSTem:ERRor. The two families differ in how the rate is
// set and in whether the preamble has offset and position as one number.
package tektronix

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// Family holds the differences between the families, from their manuals.
type Family struct {
	traits  scope.Traits
	maxRate float64
	// series: a 4, 5 or 6 Series MSO, with commands of its own for display, probe and
	// sample rate, and preambles of more fields.
	series bool
	depths []int // of a channel; nil for any up to the longest
	most   int
	rates  []float64 // of a decade
	// NoID leaves the description out of preambles, as some firmware does.
	noID bool
}

// MDO3000 is the MDO3014 and its sisters, of 8 bits.
var MDO3000 = &Family{
	traits:  scope.Signed("MDO3000", "TEKTRONIX,MDO3014,C012345,CF:91.1CT FV:v1.30", 8, perDiv, 0.02, 10e-6, thousands),
	maxRate: 2.5e9, depths: []int{1000, 10_000, 100_000, 1_000_000, 5_000_000, 10_000_000}, most: 10_000_000,
}

// MSO4 is the MSO44, of 12 bits.
var MSO4 = &Family{
	traits: scope.Signed("4 Series MSO", "TEKTRONIX,MSO44,C023456,CF:91.1CT FV:1.44.3", 12,
		perDiv, 0.01, 2.5e-6, thousands),
	maxRate: 6.25e9, series: true, most: 31_250_000, rates: []float64{6.25, 5, 3.125, 2.5, 1.25, 1},
}

// MSO4NoID is one whose firmware leaves WFID out.
var MSO4NoID = &Family{
	traits: scope.Signed("4 Series MSO", "TEKTRONIX,MSO44,C023457,CF:91.1CT FV:1.28.5", 12,
		perDiv, 0.01, 2.5e-6, thousands),
	maxRate: 6.25e9, series: true, most: 31_250_000, rates: MSO4.rates, noID: true,
}

const (
	perDiv    = 6400 // codes of two bytes; 25 of one
	divisions = 10   // across the screen; memory spans it
)

// Face is one scope. Its clients come and go through the embedded Instrument.
type Face struct {
	scope.Scope
	family *Family
	now    func() time.Duration

	header, verbose bool
	delay           bool    // the trigger's place counts from the middle
	timeScale       float64 // s a division
	position        float64 // of the trigger, percent of the record
	rate            float64 // as set, with manual
	manual          bool    // rate and depth make the window
	depth           int     // points a channel
	stopAfter, mode string
	began           time.Duration // board time of the last ACQuire:STATE RUN
	data            transfer
}

// New makes a scope of a family whose probes sit on a board.
func New(b *board.Board, family *Family, cfg scope.Config) (*Face, error) {
	f := &Face{family: family, now: cfg.Now, header: true, verbose: true}
	if err := f.Init(b, cfg, family.traits, f, f.reset, f.commands); err != nil {
		return nil, err
	}
	f.UseEvents()
	return f, nil
}

// reset is *RST. It leaves HEADer and VERBose alone.
func (f *Face) reset() {
	f.Reset(channel{Placed: true, Scale: 0.1, Ratio: 1, Coupling: "DC", Invert: "0", Limit: "FUL"})
	f.timeScale, f.position, f.depth, f.manual, f.rate, f.stopAfter = 4e-6, 50, 10_000, false, 62.5e6, "RUNSTOP"
	f.Trig = scope.Trigger{Sweep: "AUTO", Slope: "POS", Coupling: "DC"}
	f.mode, f.delay = "SAMPLE", true
	f.data = transfer{encoding: "RIB", width: 1, start: 1, stop: 10_000}
	f.Power()
}

// Window is the time that memory spans.
func (f *Face) Window() float64 {
	if f.manual {
		return float64(f.depth) / f.rate
	}
	return divisions * f.timeScale
}

// Delay is where memory begins behind the trigger.
func (f *Face) Delay() float64 {
	before := f.position / 100
	if f.delay { // the trigger stands in the middle
		before = 0.5
	}
	return -before * f.Window()
}

// Points is the memory's depth of one channel.
func (f *Face) Points() int { return f.depth }

// Rate is in samples a second.
func (f *Face) Rate() float64 {
	if f.manual {
		return f.rate
	}
	return min(f.family.maxRate, float64(f.depth)/f.Window())
}

// setRate takes the rate nearest to the one wanted.
func (f *Face) setRate(v float64) error {
	if !(v > 0) || math.IsInf(v, 0) {
		return scpi.ErrRange
	}
	// Nearest is meant by ratio; the next decade's first rate competes with this decade's.
	v = min(max(v, 1.5625), f.family.maxRate)
	decade, best := math.Pow(10, math.Floor(math.Log10(v))), math.Inf(1)
	for _, m := range append([]float64{10}, f.family.rates...) {
		if math.Abs(math.Log(m*decade/v)) < math.Abs(math.Log(best/v)) {
			best = m * decade
		}
	}
	f.rate = min(best, f.family.maxRate)
	return nil
}

// setDepth takes a number of points, and sets the next larger depth that there is.
func (f *Face) setDepth(v float64) error {
	n := int(v)
	if v != math.Trunc(v) || n < 1000 || n > f.family.most {
		return scpi.ErrRange
	}
	if i, _ := slices.BinarySearch(f.family.depths, n); i < len(f.family.depths) {
		n = f.family.depths[i] // the next that there is
	}
	f.depth = n
	return nil
}

type channel = scope.Channel

// commands is the tree. With HEADer ON each reply begins with its header.
func (f *Face) commands() []scpi.Command {
	// Of the 3000 and 4000 series alone.
	own := []scpi.Command{f.Display("SELect:CH<n>", func() {}), f.probe("CH<n>:PRObe:GAIN")}
	if f.family.series {
		own = []scpi.Command{
			{
				Pattern: "HORizontal:MODe", Set: scpi.Do(scpi.OneOf("AUTO", "MANual"), func(w string) { f.manual = w == "MAN" }),
				Query: scpi.Reply(func() string { return map[bool]string{true: "MANUAL", false: "AUTO"}[f.manual] }),
			},
			number("HORizontal:MODe:SAMPLERate", f.Rate, f.setRate),
			{Pattern: "HORizontal:MODe:RECOrdlength", Set: scpi.Set(f.setDepth), Query: scpi.Show("%d", &f.depth)},
			{Pattern: "HORizontal:ROLL", Query: scpi.Fixed("OFF")},
			f.Display("DISplay:GLObal:CH<n>:STATE", func() {}), f.probe("CH<n>:PROBEFunc:EXTAtten"),
		}
	}
	all := slices.Concat(f.acquireCommands(), f.timeCommands(), f.inputCommands(), f.triggerCommands(),
		f.waveCommands(), own)
	return append(scpi.Headed(&f.header, &f.verbose, all...), scpi.Switch("HEADer", &f.header),
		scpi.Switch("VERBose", &f.verbose))
}

// number is a setting with its reply in steps of thousands: 400.0000E-12.
func number(pattern string, get func() float64, set func(float64) error) scpi.Command {
	return scpi.Command{Pattern: pattern, Set: scpi.Set(set), Query: scpi.Reply(func() string { return thousands(get()) })}
}

// thousands writes a number as this maker does.
func thousands(v float64) string {
	if v == 0 {
		return "0.0E+0"
	}
	// The exponent is a multiple of three; the small number keeps 1000 from becoming 999.9999.
	e := 3 * int(math.Floor(math.Log10(math.Abs(v))/3+1e-12))
	return fmt.Sprintf("%.4fE%+d", v/math.Pow(10, float64(e)), e)
}

// modes are those of ACQuire:MODe, which is reported in the form that VERBose had when it was set.
var modes = []string{"SAMple", "PEAKdetect", "HIRes", "AVErage", "ENVelope"}

// acquireCommands start and stop the scope and count its acquisitions.
func (f *Face) acquireCommands() []scpi.Command {
	return []scpi.Command{
		{Pattern: "ACQuire:STATE", Set: scpi.Do(scpi.OneOf("RUN", "STOP", "ON", "OFF", "1", "0"), func(w string) {
			if w == "STOP" || w == "OFF" || w == "0" {
				f.Stop()
				return
			}
			f.began = f.now()
			f.Start(f.stopAfter == "SEQ")
			if f.stopAfter == "SEQ" && f.Trig.Sweep == "AUTO" {
				f.Force() // it does not wait for long
			}
		}), Query: scpi.Reply(func() string { return scpi.Flag(f.Running()) })},
		scpi.Choice("ACQuire:STOPAfter", &f.stopAfter, "RUNSTop", "SEQuence"),
		scpi.Asked("ACQuire:NUMACq", func() string { // acquisitions finished since the last start
			n := 0
			if f.stopAfter != "SEQ" {
				n = int((f.now() - f.began).Seconds() / f.Window())
			} else if !f.Running() && f.whole() {
				n = 1
			}
			return fmt.Sprint(n)
		}),
		{Pattern: "ACQuire:MODe", Set: scpi.Do(scpi.OneOf(modes...), func(w string) {
			if f.mode = w; f.verbose {
				i := slices.IndexFunc(modes, func(long string) bool { return scpi.Short(long) == w })
				f.mode = strings.ToUpper(modes[i])
			}
		}), Query: scpi.Show("%s", &f.mode)},
	}
}

// whole reports whether memory holds a record that was finished.
func (f *Face) whole() bool { return f.Memory().Points == f.Depth() }

// timeCommands set the time base, the depth and the place of the trigger; the rate follows.
func (f *Face) timeCommands() []scpi.Command {
	return []scpi.Command{
		number("HORizontal:SCAle", func() float64 { return f.Window() / divisions }, func(v float64) error {
			err := scope.Step(&f.timeScale, v, 1e-9, 1000, 1, 2, 4, 10)
			if err == nil {
				f.manual = false
			}
			return err
		}),
		{Pattern: "HORizontal:RECOrdlength", Set: scpi.Set(f.setDepth), Query: scpi.Show("%d", &f.depth)},
		scpi.Asked("HORizontal:SAMPLERate", func() string { return thousands(f.Rate()) }),
		scpi.Numeric("HORizontal:POSition", thousands, &f.position, scpi.Within(&f.position, 0, 100)),
		scpi.Switch("HORizontal:DELay:MODe", &f.delay),
	}
}

// Package tekface is Tektronix oscilloscopes in software: the commands of the
// MDO3000 and of the 4 Series MSO over an emulated scope.
package tekface

import (
	"math"
	"strconv"
	"strings"
	"time"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
)

// Config describes the scope and its wiring.
type Config = scopeface.Config

// Family is what is different between the families, from their manuals.
type Family struct {
	traits                  scopeface.Traits
	model, serial, firmware string
	maxRate                 float64
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
	traits: traits("MDO3000", 8, 0.02, 10e-6),
	model:  "MDO3014", serial: "C012345", firmware: "CF:91.1CT FV:v1.30", maxRate: 2.5e9,
	depths: []int{1000, 10_000, 100_000, 1_000_000, 5_000_000, 10_000_000}, most: 10_000_000,
}

// MSO4 is the MSO44, of 12 bits.
var MSO4 = &Family{
	traits: traits("4 Series MSO", 12, 0.01, 2.5e-6),
	model:  "MSO44", serial: "C023456", firmware: "CF:91.1CT FV:1.44.3", maxRate: 6.25e9, series: true, most: 31_250_000,
	rates: []float64{6.25, 5, 3.125, 2.5, 1.25, 1},
}

// MSO4NoID is one whose firmware leaves WFID out.
var MSO4NoID = &Family{
	traits: MSO4.traits, model: "MSO44", serial: "C023457", firmware: "CF:91.1CT FV:1.28.5", maxRate: 6.25e9, series: true,
	most: 31_250_000, rates: MSO4.rates, noID: true,
}

const (
	perDiv    = 6400 // codes of two bytes; 25 of one
	divisions = 10   // across the screen; memory spans it
)

// traits are those of a converter of so many bits, at the top of 16.
func traits(name string, bits int, gain, clock float64) scopeface.Traits {
	quantum := 1 << (16 - bits)
	return scopeface.Traits{
		Name: name, Channels: 4, PerDiv: perDiv, Least: math.MinInt16, Most: math.MaxInt16 + 1 - quantum, Quantum: quantum,
		GainLimit: gain, ZeroLimit: 0.1, ClockLimit: clock,
	}
}

// input is what the face keeps of a channel beside the scope.
type input struct{ offset, position float64 }

// Face is one scope. Its clients come and go through the embedded Instrument.
type Face struct {
	*scopeface.Scope
	family *Family
	now    func() time.Duration

	header, verbose bool
	inputs          []input
	timeScale       float64 // s a division
	position        float64 // of the trigger, percent of the record
	rate            float64 // as set, with manual
	manual          bool    // rate and depth make the window
	depth           int     // points a channel
	stopAfter       string
	words           map[string]string
	began           time.Duration // board time of the last ACQuire:STATE RUN
	data            transfer
}

// New makes a scope of a family whose probes sit on a board.
func New(b *board.Board, family *Family, cfg Config) (*Face, error) {
	f := &Face{family: family, now: cfg.Now, header: true, verbose: true}
	var err error
	if f.Scope, err = scopeface.New(b, cfg, family.traits, f); err != nil {
		return nil, err
	}
	f.inputs = make([]input, len(f.Channel))
	f.reset()
	id := cfg.Identity("TEKTRONIX", family.model, family.serial, family.firmware)
	f.Instrument = scpiface.New(id, f.reset, f.commands())
	f.UseEvents()
	return f, nil
}

// reset is *RST. It leaves HEADer and VERBose alone.
func (f *Face) reset() {
	for i := range f.Channel {
		c := &f.Channel[i]
		c.Shown, c.Scale, c.Ratio = i == 0, 0.1, 1
		c.Coupling, c.Invert, c.Limit = "DC", "0", "FUL"
		f.inputs[i] = input{}
		f.shift(i)
	}
	f.timeScale, f.position, f.depth, f.manual, f.rate, f.stopAfter = 4e-6, 50, 10_000, false, 62.5e6, "RUNSTOP"
	f.Trig = scopeface.Trigger{Mode: "EDGE", Sweep: "AUTO", Slope: "POS", Coupling: "DC"}
	f.words = map[string]string{"ACQuire:MODe": "SAMPLE", "HORizontal:DELay:MODe": "1"}
	f.data = transfer{encoding: "RIB", width: 1, start: 1, stop: 10_000}
	f.Power()
}

// shift is what offset and position do in front of the converter.
func (f *Face) shift(i int) {
	c := &f.Channel[i]
	c.Shift = f.inputs[i].position*c.Scale - f.inputs[i].offset
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
	if f.words["HORizontal:DELay:MODe"] == "1" { // the trigger stands in the middle
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

// setRate takes the rate nearest to what is wanted.
func (f *Face) setRate(v float64) error {
	if !(v > 0) || math.IsInf(v, 0) {
		return scpiface.ErrRange
	}
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

func (f *Face) setDepth(v float64) error {
	n := int(v)
	if v != math.Trunc(v) || n < 1000 || n > f.family.most {
		return scpiface.ErrRange
	}
	for _, d := range f.family.depths { // the next that there is
		if n <= d {
			n = d
			break
		}
	}
	f.depth = n
	return nil
}

// setTimeScale takes the next of 1, 2, 4 and their decades.
func (f *Face) setTimeScale(v float64) error {
	if !(v >= 1e-9*0.999 && v <= 1000*1.001) {
		return scpiface.ErrRange
	}
	decade := math.Pow(10, math.Floor(math.Log10(v)+1e-9))
	for _, m := range []float64{1, 2, 4, 10} {
		if v <= m*decade*1.001 {
			f.timeScale, f.manual = m*decade, false
			return nil
		}
	}
	return nil
}

// told makes a header of a command's pattern, as HEADer ON puts it before replies.
func told(pattern string, suffixes []int, verbose bool) string {
	for _, n := range suffixes {
		pattern = strings.Replace(pattern, "<n>", strconv.Itoa(n), 1)
	}
	if !verbose {
		pattern = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' {
				return -1
			}
			return r
		}, pattern)
	}
	return ":" + strings.ToUpper(pattern) + " "
}

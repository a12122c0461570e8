// Package siglentface is Siglent oscilloscopes with the E11 command set in
// software: the SDS2000X Plus and an HD model over an emulated scope.
package siglentface

import (
	"fmt"
	"math"
	"strconv"
	"strings"

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
	bits                    int  // of the converter
	low                     bool // words carry them at the bottom, without their sign
	digits                  int  // of a block's length; 0 for as many as it needs
	maxRead                 int  // bytes a read
	maxRate                 float64
	wordCodes               bool // the descriptor states the codes of words, also for bytes
}

// SDS2000XPlus is the SDS2104X Plus and its sisters, of 8 bits.
var SDS2000XPlus = &Family{
	traits: traits("SDS2000X Plus", 8),
	model:  "SDS2104X Plus", serial: "SDS2PEED6R0001", firmware: "1.3.9R10", bits: 8, digits: 9, maxRead: 5_000_000, maxRate: 2e9,
}

// SDS2000XHD is the SDS2104X HD and its sisters, of 12 bits.
var SDS2000XHD = &Family{
	traits: traits("SDS2000X HD", 12),
	model:  "SDS2104X HD", serial: "SDS2HBAD6R0001", firmware: "1.2.3.1", bits: 12, maxRead: 4_000_000, maxRate: 2e9, wordCodes: true,
}

// LowBits is an HD whose words carry the converter's bits at their bottom.
var LowBits = &Family{
	traits: traits("SDS2000X HD", 12),
	model:  "SDS2104X HD", serial: "SDS2HBAD6R0002", firmware: "1.0.0.1", bits: 12, low: true, maxRead: 4_000_000, maxRate: 2e9,
}

// traits are those of a converter of so many bits, at the top of 16.
func traits(name string, bits int) scopeface.Traits {
	quantum := 1 << (16 - bits)
	return scopeface.Traits{
		Name: name, Channels: 4, PerDiv: perDiv, Least: math.MinInt16, Most: math.MaxInt16 + 1 - quantum, Quantum: quantum,
		GainLimit: 0.03, ZeroLimit: 0.1, ClockLimit: 25e-6,
	}
}

const (
	perDiv    = 7680 // codes of words; 30 of bytes
	divisions = 10   // across the screen; memory spans it
)

// Face is one scope. Its clients come and go through the embedded Instrument.
type Face struct {
	*scopeface.Scope
	family *Family

	timeScale, delay float64 // s a division; s
	depth            int     // the most points a channel, as set
	words            map[string]string
	mode             string // of the trigger, as it is told
	wav              waveform
}

// New makes a scope of a family whose probes sit on a board.
func New(b *board.Board, family *Family, cfg Config) (*Face, error) {
	f := &Face{family: family}
	var err error
	if f.Scope, err = scopeface.New(b, cfg, family.traits, f); err != nil {
		return nil, err
	}
	f.reset()
	id := cfg.Identity("Siglent Technologies", family.model, family.serial, family.firmware)
	f.Instrument = scpiface.New(id, f.reset, f.commands())
	return f, nil
}

// reset is *RST.
func (f *Face) reset() {
	for i := range f.Channel {
		c := &f.Channel[i]
		c.Shown, c.Scale, c.Shift, c.Ratio = i == 0, 1, 0, 1
		c.Coupling, c.Invert, c.Limit, c.Units = "DC", "OFF", "FULL", "V"
	}
	f.timeScale, f.delay, f.depth, f.mode = 1e-6, 0, 20_000_000, "AUTO"
	f.Trig = scopeface.Trigger{Mode: "EDGE", Sweep: "AUTO", Slope: "POS", Coupling: "DC", Holdoff: 8e-9}
	f.words = map[string]string{
		"ACQuire:TYPE": "NORMal", "ACQuire:MODE": "YT", "ACQuire:MMANagement": "AUTO", "ACQuire:SEQuence": "OFF", "TIMebase:REFerence": "DELay",
	}
	f.wav = waveform{width: "BYTE", interval: 1}
	f.Power()
}

// Window is the time that memory spans.
func (f *Face) Window() float64 { return divisions * f.timeScale }

// Delay is where memory begins behind the trigger.
func (f *Face) Delay() float64 { return f.delay - f.Window()/2 }

// Rate is the fastest of the scope's rates (1, 2, 4, …) that depth has room for.
func (f *Face) Rate() float64 {
	most := min(f.family.maxRate/float64(f.pairs()), float64(f.depth)/f.Window())
	decade := math.Pow(10, math.Floor(math.Log10(most)+1e-9))
	for _, m := range []float64{4, 2} {
		if m*decade <= most*(1+1e-9) {
			return m * decade
		}
	}
	return decade
}

// Points is what that makes of one channel.
func (f *Face) Points() int { return int(math.Round(f.Rate() * f.Window())) }

// pairs is 2 where both channels of a pair share a converter.
func (f *Face) pairs() int {
	for i := 0; i+1 < len(f.Channel); i += 2 {
		if f.Channel[i].Shown && f.Channel[i+1].Shown {
			return 2
		}
	}
	return 1
}

// setDepth is :ACQ:MDEP, which works only while the scope runs freely.
func (f *Face) setDepth(c scpiface.Call) error {
	if len(c.Args) == 0 {
		return scpiface.ErrMissing
	}
	if s := f.State(); s != scopeface.Free && s != scopeface.Triggered {
		return scpiface.ErrConflict
	}
	v, err := points(c.Args[0])
	if err != nil {
		return err
	}
	for d := 20_000 / f.pairs(); d <= 200_000_000/f.pairs(); d *= 10 {
		if v == float64(d) {
			f.depth = d
			return nil
		}
	}
	return scpiface.ErrValue
}

// share puts the depth on the steps of as many channels as are on.
func (f *Face) share() {
	least := 20_000 / f.pairs()
	for d := least; ; d *= 10 {
		if d >= f.depth || d >= 10_000*least {
			f.depth = d
			return
		}
	}
}

var suffixes = []struct {
	unit string
	v    float64
}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}}

// points reads a number of points, also as 10k or 1.25M.
func points(s string) (float64, error) {
	unit := 1.0
	for _, x := range suffixes {
		if t, ok := strings.CutSuffix(strings.ToUpper(s), strings.ToUpper(x.unit)); ok {
			s, unit = t, x.v
			break
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, scpiface.ErrType
	}
	return math.Round(v * unit), nil
}

// showPoints writes one.
func showPoints(n int) string {
	for _, x := range suffixes {
		if v := float64(n) / x.v; v >= 1 {
			return strconv.FormatFloat(v, 'g', -1, 64) + x.unit
		}
	}
	return fmt.Sprint(n)
}

// number writes a setting as this maker does: three digits.
func number(v float64) string { return fmt.Sprintf("%.2E", v) }

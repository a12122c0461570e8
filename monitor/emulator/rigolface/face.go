// Package rigolface is Rigol oscilloscopes in software: the SCPI commands of the
// DS1000Z, MSO5000 and DHO800/900 over an emulated scope.
package rigolface

import (
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
	divisions               float64 // across the screen; memory spans it
	screen                  int     // points of a screen
	maxRate                 float64
	maxRead                 int // points a read in BYTE; half in WORD
	// depths are the depths of a channel with so many sharing memory, ascending.
	depths func(share int) []int
	edge   string                      // node of the edge trigger's commands
	level  float64                     // the most divisions of its level off the middle
	offset func(scale float64) float64 // the most volts of offset at a scale, with a probe of 1:1
	// rates are those that there are, ascending; nil for any. Memory then spans the
	// screen or more, with its middle at the screen's.
	rates []float64
	// pages: the preamble tells the size of the page that is set, and memory that
	// was not filled is read as what lay there, as only its size is known.
	pages bool
	// words: codes have 16 bits; in BYTE the upper eight.
	words bool
	// settle is how long after an acquisition reads come back empty, until mode and
	// format are set again.
	settle    time.Duration
	showDepth func(int) string
}

// Face is one scope. Its clients come and go through the embedded Instrument.
type Face struct {
	*scopeface.Scope
	family *Family

	timeScale, timeShift float64 // s a division; s
	roll                 string
	depth                int // points a channel as set; 0 for AUTO
	average              int
	acqType              string
	wav                  waveform
}

// New makes a scope of a family whose probes sit on a board.
func New(b *board.Board, family *Family, cfg Config) (*Face, error) {
	f := &Face{family: family}
	var err error
	if f.Scope, err = scopeface.New(b, cfg, f.family.traits, f); err != nil {
		return nil, err
	}
	f.reset()
	id := cfg.Identity("RIGOL TECHNOLOGIES", f.family.model, f.family.serial, f.family.firmware)
	f.Instrument = scpiface.New(id, f.reset, f.commands())
	return f, nil
}

// reset is *RST.
func (f *Face) reset() {
	for i := range f.Channel {
		c := &f.Channel[i]
		c.Shown, c.Scale, c.Shift, c.Ratio = i == 0, 1, 0, 10
		c.Coupling, c.Invert, c.Limit, c.Units = "DC", "0", "OFF", "VOLT"
	}
	f.timeScale, f.timeShift, f.depth, f.average, f.acqType, f.roll = 1e-6, 0, 0, 2, "NORM", "1"
	f.Trig = scopeface.Trigger{Mode: "EDGE", Sweep: "AUTO", Slope: "POS", Coupling: "DC", Holdoff: 16e-9}
	f.Power()
	f.wav = waveform{mode: "NORM", format: "BYTE", start: 1, stop: f.family.screen}
}

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
	// AUTO takes what the fastest rate needs, in the steps of the manual.
	known := f.family.depths(f.Share())
	for _, n := range known {
		if float64(n) >= f.Window()*f.maxRate() {
			return n
		}
	}
	return known[len(known)-1]
}

func (f *Face) maxRate() float64 { return f.family.maxRate / float64(f.Share()) }

// Rate is the nominal rate of a channel, in samples a second.
func (f *Face) Rate() float64 {
	rate := min(f.maxRate(), float64(f.Points())/f.Window())
	for i := len(f.family.rates) - 1; i >= 0; i-- {
		if f.family.rates[i] <= rate*(1+1e-9) {
			return f.family.rates[i]
		}
	}
	return rate
}

// setDepth is :ACQ:MDEP, which works only while the scope runs.
func (f *Face) setDepth(c scpiface.Call) error {
	if !f.Running() {
		return scpiface.ErrConflict
	}
	if len(c.Args) == 0 {
		return scpiface.ErrMissing
	}
	if w, err := c.Word(0, "AUTO"); err == nil && w == "AUTO" {
		f.depth = 0
		return nil
	}
	v, err := points(c.Args[0])
	if err != nil {
		return err
	}
	for _, d := range f.family.depths(f.Share()) {
		if v == float64(d) {
			f.depth = d
			return nil
		}
	}
	return scpiface.ErrValue
}

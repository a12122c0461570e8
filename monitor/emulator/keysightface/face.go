// Package keysightface is Keysight InfiniiVision oscilloscopes in software: the
// SCPI commands of the 1000 X-Series over an emulated scope.
package keysightface

import (
	"fmt"
	"math"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
)

// Model is one scope of the family.
type Model struct {
	name, serial string
	channels     int
	memory       int // points of a single acquisition, over all channels
	maxRate      float64
}

// The models. A rate and a memory belong to one channel and are divided among
// those that are shown.
var (
	EDUX1002G = Model{"EDU-X 1002G", "CN57000001", 2, 100_000, 1e9}
	DSOX1102G = Model{"DSO-X 1102G", "CN57000002", 2, 1_000_000, 2e9}
	DSOX1204G = Model{"DSO-X 1204G", "CN59000003", 4, 2_000_000, 2e9}
)

// Config describes the scope and its wiring.
type Config struct {
	scopeface.Config
	// Flaky makes every so manieth preamble a plain +0, as some do now and then; 0
	// for none.
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
	*scopeface.Scope
	model Model
	cfg   Config

	timeRange, position float64 // s: across the screen; of the reference behind the trigger
	reference, mode     string
	acqType, acqMode    string
	wav                 waveform
	armed, triggered    bool // the event registers AER and TER
	counted             bool // the trigger of a single acquisition was
	preambles           int
}

// New makes a scope whose probes sit on a board.
func New(b *board.Board, m Model, cfg Config) (*Face, error) {
	f := &Face{model: m, cfg: cfg}
	var err error
	f.Scope, err = scopeface.New(b, cfg.Config, scopeface.Traits{
		Name: m.name, Channels: m.channels, PerDiv: perDiv, Middle: middle, Least: 1, Most: 255,
		GainLimit: 0.03, ZeroLimit: 0.1, ClockLimit: 50e-6,
	}, f)
	if err != nil {
		return nil, err
	}
	f.reset()
	f.Instrument = scpiface.New(cfg.Identity("KEYSIGHT TECHNOLOGIES", m.name, m.serial, "02.12.2021071625"), f.reset, f.commands())
	f.Signed, f.Cleared = true, func() { f.events(); f.armed, f.triggered = false, false }
	return f, nil
}

// reset is *RST.
func (f *Face) reset() {
	for i := range f.Channel {
		c := &f.Channel[i]
		c.Shown, c.Scale, c.Shift, c.Ratio = i == 0, 5, 0, 1
		c.Coupling, c.Invert, c.Limit, c.Units, c.Label = "DC", "0", "0", "VOLT", fmt.Sprint(i+1)
	}
	f.timeRange, f.position, f.reference, f.mode = 1e-3, 0, "CENT", "MAIN"
	f.acqType, f.acqMode = "NORM", "RTIM"
	f.Trig = scopeface.Trigger{Mode: "EDGE", Sweep: "AUTO", Slope: "POS", Coupling: "DC", Holdoff: 60e-9}
	f.armed, f.triggered = false, false
	f.Power()
	f.wav = waveform{mode: "NORM", format: "BYTE", order: "MSBF", unsigned: true, points: 1000}
}

// Window is the time across the screen, which is what memory gives.
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

// start arms anew and clears what the last acquisition left.
func (f *Face) start(single bool) {
	f.armed, f.triggered, f.counted = true, false, false
	f.Start(single)
}

// events lets the trigger register see what has happened since.
func (f *Face) events() {
	f.Update()
	if f.Fired() && !(f.Single() && f.counted) {
		f.triggered, f.counted = true, true
	}
}

// condition is the operation status condition register.
func (f *Face) condition() (v int) {
	if f.Running() {
		v |= 1 << 3
	}
	if f.State() == scopeface.Waiting {
		v |= 1 << 5
	}
	return v
}

// take reads an event register and clears it.
func take(at *bool) string {
	was := *at
	*at = false
	return "+" + scopeface.Flag(was)
}

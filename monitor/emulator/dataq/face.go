// Package dataq is a DATAQ DI-1100, DI-2108 or DI-2108-P in software, fed by the emulated
// board.
//
// Commands are words of text, ended by a carriage return, and echoed with the answer behind
// them; start is not echoed, and while the device scans it hears stop alone:
//
//	info N        maker, model, firmware, serial number, clock
//	slist I W     item I of the scan: input, range, or the digital inputs
//	srate, dec    the divisor of the clock: of scans on a DI-1100, of items on a DI-2108
//	ps N          the packet's size, 16 bytes << N
//
// The stream is 16-bit words, an item each, sent in whole packets. A DI-1100 has 12 bits and
// puts its two digital inputs into the low bits of the first item; a DI-2108 has the digital
// inputs as an item of their own. A device whose buffer is full sends "stop 01" and stops.
package dataq

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/internal/line"
	"github.com/wattmark/wattmark/monitor/emulator/internal/wiring"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// model holds the differences between the devices.
type model struct {
	number  string // the answer to info 1
	inputs  int
	divider bool // it has a dec command
	bits    int  // of its converter
	digital byte // its digital inputs, when nothing is connected
	ranges  []float64
	// least is the smallest srate for so many items in the scan list.
	least func(items int) uint32
	// items reports that srate counts items of the scan list, not whole scans.
	items bool
}

// models by the name in a bench file: converter, ranges in V, and the form of the stream.
var models = map[string]model{
	"DI-1100": {
		number: "1100", inputs: 4, bits: 12, digital: 0b11, ranges: []float64{10},
		least: func(n int) uint32 { return 1000 + 500*uint32(n) },
	},
	"DI-2108": {
		number: "2108", inputs: 8, divider: true, bits: 16, digital: 0x7F, ranges: []float64{10}, items: true,
		least: func(int) uint32 { return 375 },
	},
	"DI-2108-P": {
		number: "2109", inputs: 8, divider: true, bits: 16, digital: 0x7F, ranges: []float64{10, 5, 2.5}, items: true,
		least: func(int) uint32 { return 375 },
	},
}

// Config describes the device.
type Config struct {
	// Model is DI-1100 (the default), DI-2108 or DI-2108-P.
	Model string
	Seed  uint64
	// Rails by name; nil for aux_12v_1 and as many others as there are inputs for. Rail k is on
	// input 2k (voltage, through a divider) and 2k+1 (current, A a volt).
	Rails []string
	// Noise of a conversion in steps of the converter; default 0.5, negative for none.
	Noise float64
	// Numbered makes the first analog item carry the count of its scan, as many bits of it as there are.
	Numbered bool
	// Draw draws the device's errors; without it the device is true.
	Draw bool
}

const dividend = 60_000_000 // Hz, the clock that srate divides

// spread is that of the errors drawn; offsets are those at the input.
var spread = meter.Spread{UGainI: 0.005, UGainV: 0.005, UOffsetI: 0.02, UOffsetV: 0.02, UClock: 1e-4}

// Face is one device. Run serves one line at a time.
type Face struct {
	line.Device
	board  *board.Board
	cfg    Config
	model  model
	inputs *wiring.Inputs
	clock  float64 // relative error of its clock
	rng    *rand.Rand

	line     []byte // of the command being received
	scanList []uint16
	srate    uint32
	dec      uint32
	packet   int // bytes
	scanning bool
	beat     line.Beat
	power    [][]measure.Watt // by item
	out      []byte           // of the packet being filled

	digital atomic.Uint32
	started atomic.Int64
	scans   atomic.Uint64
}

// New makes a device that reads a board.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	cfg.Model = cmp.Or(cfg.Model, "DI-1100")
	m, ok := models[cfg.Model]
	if !ok {
		return nil, fmt.Errorf("emulated DATAQ: model %q: want DI-1100, DI-2108 or DI-2108-P", cfg.Model)
	}
	meter.Default(&cfg.Noise, 0.5)
	f := &Face{board: b, cfg: cfg, model: m, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365))}
	f.digital.Store(uint32(m.digital))
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6461746171))
	var err error
	if f.inputs, err = wiring.Connect(b, cfg.Rails, m.inputs, spread, cfg.Draw, rng); err != nil {
		return nil, fmt.Errorf("emulated DATAQ: %w", err)
	}
	f.clock = meter.Drawing(rng, cfg.Draw)(spread.UClock)
	f.beat.Pace = p
	f.Device = line.Device{
		Pace: p,
		Start: func() error {
			f.scanning, f.line = false, nil
			f.scanList, f.srate, f.dec, f.packet = []uint16{0}, 6000, 1, 16
			return nil
		},
		Command: f.received,
		Next:    func() (time.Duration, bool) { return f.beat.Now(), f.scanning },
		Batch: func(until time.Duration) error {
			if f.beat.Late(until) { // its buffer is full: it reports so in clear text and stops
				f.scanning = false
				return f.Line.Write([]byte("stop 01\r"))
			}
			return f.beat.Send(until, maxScans, nil, f.send)
		},
	}
	return f, nil
}

// Scans is the number of scans sent.
func (f *Face) Scans() uint64 { return f.scans.Load() }

// StreamStart is the board's time of the newest stream's first scan.
func (f *Face) StreamStart() time.Duration { return time.Duration(f.started.Load()) }

// SetDigital changes the state of the digital inputs; open ones read 1.
func (f *Face) SetDigital(state byte) { f.digital.Store(uint32(state & f.model.digital)) }

// maxLine bounds a command; further bytes are dropped until the carriage return.
const maxLine = 64

// received takes a byte of a command; a carriage return ends it.
func (f *Face) received(b byte) error {
	if b != '\r' {
		if len(f.line) < maxLine {
			f.line = append(f.line, b)
		}
		return nil
	}
	words := strings.Fields(string(f.line))
	f.line = f.line[:0]
	if len(words) == 0 {
		return nil
	}
	if f.scanning {
		if words[0] != "stop" {
			return nil // nothing else is heard while it scans
		}
		f.scanning, f.out = false, f.out[:0] // a packet that is not full is not sent
		return f.echo("stop")
	}
	var n []uint32
	for _, w := range words[1:] {
		v, err := strconv.ParseUint(w, 10, 32)
		if err != nil {
			n = nil // so that the command fits no pattern and gets no echo
			break
		}
		n = append(n, uint32(v))
	}
	return f.command(words[0], n)
}

// echo answers a command with itself.
func (f *Face) echo(words ...any) error {
	return f.Line.Write(append([]byte(strings.TrimSuffix(fmt.Sprintln(words...), "\n")), '\r'))
}

// command carries out a command; one that the device does not know, or cannot do, has no echo.
func (f *Face) command(name string, n []uint32) error {
	switch {
	case name == "stop":
		return f.echo(name)
	case name == "start" && len(n) <= 1:
		items := len(f.scanList)
		step := float64(max(f.srate, f.model.least(items))) * float64(f.dec) * 1e9 / dividend / (1 + f.clock)
		if f.model.items {
			step *= float64(items)
		}
		f.beat.Start, f.beat.Next, f.beat.Step = f.beat.Pace.Now(f.beat.Now()), 0, step
		f.started.Store(int64(f.beat.Start))
		f.scanning, f.out = true, f.out[:0]
		for len(f.power) < items {
			f.power = append(f.power, make([]measure.Watt, maxScans))
		}
		return nil // never echoed
	case name == "info" && len(n) == 1:
		about := map[uint32]string{ // maker, model, firmware, serial number, clock
			0: "DATAQ", 1: f.model.number, 2: "101", 6: fmt.Sprintf("%08X00", 0x59A0_0000+f.cfg.Seed&0xFFFF),
			9: strconv.Itoa(dividend),
		}
		return f.echo(name, n[0], cmp.Or(about[n[0]], "0"))
	case name == "slist" && len(n) == 2:
		at, item := int(n[0]), uint16(n[1])
		number, gain := int(item&0xFF), int(item>>8)
		known := number < f.model.inputs && gain < len(f.model.ranges) ||
			number == digitalItem && gain == 0 && f.model.divider
		if !known || at > len(f.scanList) || at > f.model.inputs {
			return nil
		}
		f.scanList = append(f.scanList[:at], item) // the first item begins a new list
	case name == "srate" && len(n) == 1 && n[0] >= 1 && n[0] <= 65535:
		f.srate = n[0]
	case name == "dec" && f.model.divider && len(n) == 1 && n[0] >= 1 && n[0] <= 512:
		f.dec = n[0]
	case name == "filter" && f.model.divider && len(n) == 2:
	case name == "ps" && len(n) == 1 && n[0] <= 7:
		f.packet = 16 << n[0]
	case name == "encode" && len(n) == 1 && n[0] == 0:
	default:
		return nil
	}
	args := []any{name}
	for _, v := range n {
		args = append(args, v)
	}
	return f.echo(args...)
}

// digitalItem is the number of the digital inputs in a scan list.
const digitalItem = 8

const maxScans = 256 // converted at once

// send converts so many scans and writes the packets that they fill.
func (f *Face) send(scans int) error {
	for i := range f.scanList {
		behind := 0.0 // the scan, in ns
		if f.model.items {
			behind = float64(i) * f.beat.Step / float64(len(f.scanList))
		}
		f.board.Trace(f.power[i][:scans], f.beat.Now()+time.Duration(behind), f.beat.Step)
	}
	digital := byte(f.digital.Load())
	for s := range scans {
		for i, item := range f.scanList {
			w := f.word(i, item, f.power[i][s], digital)
			f.out = binary.LittleEndian.AppendUint16(f.out, w)
		}
		f.beat.Next++
	}
	f.scans.Add(uint64(scans))
	whole := len(f.out) / f.packet * f.packet
	if whole == 0 {
		return nil
	}
	err := f.Line.Write(f.out[:whole])
	f.out = f.out[:copy(f.out, f.out[whole:])]
	return err
}

// word is the code that an item of the scan sends.
func (f *Face) word(i int, item uint16, p measure.Watt, digital byte) uint16 {
	if item == digitalItem {
		return uint16(digital) << 8
	}
	shift := 16 - f.model.bits
	full := f.model.ranges[item>>8]
	v := f.inputs.Volts(int(item&0xFF), p) / full * float64(int(1)<<(f.model.bits-1))
	most := float64(int(1)<<(f.model.bits-1) - 1)
	w := uint16(int16(meter.Code(v, f.cfg.Noise, f.rng, -most-1, most))) << shift
	if f.cfg.Numbered && (i == 0 || i == 1 && f.scanList[0] == digitalItem) {
		w = uint16(f.beat.Next) << shift
	}
	if i == 0 && f.model.bits == 12 {
		w |= uint16(digital) // which the first item carries
	}
	return w
}

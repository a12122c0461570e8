// Package pmd2 is an ElmorLabs PMD2, or a WireView Pro II, in software: a device that is asked, not one
// that sends by itself, fed by the emulated board.
//
//	00 welcome, 01 vendor and product, 02 its number, 04 one reading of all ten sensors
//
// A reading is the mean since the last update; two questions within one update get the same.
package pmd2

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/internal/line"
	"github.com/wattmark/wattmark/monitor/emulator/internal/wiring"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// The device's numbers.
const (
	Sensors    = 10
	ReplyBytes = 4 + 10*Sensors + 8 + Sensors
	pinBytes   = 100 // of a WireView
	// update is how often the device converts. What is asked for in between is the last reading again.
	update = time.Millisecond
)

// Config describes the device.
type Config struct {
	Seed uint64
	// Noise of a reading; default 2 mV and 5 mA, negative for none.
	NoiseV measure.Volt
	NoiseI measure.Ampere
	// Draw draws the device's errors; without it the device is true.
	Draw bool
	// Product that the device calls itself; default 0x15.
	Product byte
	// WireView makes it a WireView Pro II on the first plug, whose pins do not share evenly.
	WireView bool
}

// rails are the board's rails by sensor: ATX 12 V, 5 V, 5 VSB, 3.3 V, HPWR, EPS1,
// EPS2, PCIE1 to PCIE3. The slot's rails come through the mainboard and are not
// seen; the rest of the PC is steady.
var rails = [Sensors]string{4: "aux_12v_1", 7: "aux_12v_2", 8: "aux_12v_3"}

// rest are the steady readings of the sensors that see no rail of the card.
var rest = [Sensors]board.Reading{
	0: {V: 12.08, I: 1.4}, 1: {V: 5.02, I: 1.1}, 2: {V: 5.04, I: 0.2}, 3: {V: 3.31, I: 0.9}, 5: {V: 12.10, I: 3.2},
	6: {V: 12.10, I: 0.1},
}

// shares are the parts of a plug's current that its pins carry.
var shares = [...]float64{0.15, 0.18, 0.16, 0.17, 0.14, 0.20}

// Face is one device. Run serves one line at a time.
type Face struct {
	line.Device
	board   *board.Board
	pace    pace.Pace
	cfg     Config
	sensors []wiring.Pair
	rng     *rand.Rand

	welcome string
	vendor  [3]byte // with product and firmware
	greets  bool    // when it is opened
	fill    func(b []byte, p measure.Watt)

	last  int64 // number of the conversion that reply holds; −1 for none
	reply []byte
	mute  atomic.Int64
}

// New makes a device that reads a board. It needs a clock: a free pace stands still for a device that is asked.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	cfg.Product = cmp.Or(cfg.Product, 0x15)
	meter.Default(&cfg.NoiseV, 0.002)
	meter.Default(&cfg.NoiseI, 0.005)
	f := &Face{board: b, pace: p, cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365))}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x706d6432))
	on := rails[:]
	f.welcome, f.vendor, f.greets, f.fill = "ElmorLabs PMD2\x00", [3]byte{0xEE, cfg.Product, 0}, true, f.connectors
	f.reply = make([]byte, ReplyBytes)
	if cfg.WireView {
		on = slices.Repeat(rails[4:5], len(shares))
		f.welcome, f.vendor, f.greets, f.fill = "Thermal Grizzly WireView Pro II\x00", [3]byte{0xEF, 0x05, 3}, false, f.pins
		f.reply = make([]byte, pinBytes)
	}
	spread := meter.Spread{UGainI: 0.01, UGainV: 0.005, UOffsetI: 0.02, UOffsetV: 0.01}
	f.sensors = wiring.Pairs(b.Rails(), on, rest[:], spread, cfg.Draw, rng)
	if cfg.WireView {
		for i, part := range shares {
			f.sensors[i].Share = part
		}
	}
	f.Device = line.Device{Command: f.command, Start: func() error {
		if f.last = -1; !f.greets {
			return nil
		}
		return f.Line.Write([]byte(f.welcome))
	}}
	return f, nil
}

// Mute leaves the next n requests for readings without an answer.
func (f *Face) Mute(n int) { f.mute.Store(int64(n)) }

// command answers a command of one byte; those that it does not know, and those that change the device, it ignores.
func (f *Face) command(b byte) error {
	switch b {
	case 0x00:
		return f.Line.Write([]byte(f.welcome))
	case 0x01:
		return f.Line.Write(f.vendor[:])
	case 0x02:
		id := make([]byte, 12)
		binary.LittleEndian.PutUint64(id, 0x3231_5133_0042_0000+f.cfg.Seed)
		return f.Line.Write(id)
	case 0x04:
		if f.mute.Add(-1) >= 0 {
			return nil
		}
		f.convert()
		return f.Line.Write(f.reply)
	}
	return nil
}

// convert reads the sensors, if the time for it has come.
func (f *Face) convert() {
	n := int64(f.pace.Now(0) / update)
	if n == f.last {
		return
	}
	f.last = n
	at := time.Duration(n) * update
	f.fill(f.reply[:0], f.board.MeanPower(max(0, at-update), at))
}

// connectors makes a PMD2's reply.
func (f *Face) connectors(b []byte, p measure.Watt) {
	b = binary.LittleEndian.AppendUint16(b, 3300)
	b = binary.LittleEndian.AppendUint16(b, 350)
	var watts [Sensors]float64
	for i := range f.sensors {
		v, a := f.sensors[i].Read(f.board, p, f.cfg.NoiseV, f.cfg.NoiseI, f.rng)
		mV, mA := math.Round(v*1e3), math.Round(a*1e3)
		watts[i] = mV * mA / 1e6
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(mV)))
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(mA)))
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(math.Round(1e3*watts[i]))))
	}
	eps, pcie := watts[5]+watts[6], watts[4]+watts[7]+watts[8]+watts[9]
	board := watts[0] + watts[1] + watts[2] + watts[3]
	for _, w := range []float64{eps, pcie, board, eps + pcie + board} {
		b = binary.LittleEndian.AppendUint16(b, uint16(math.Round(max(0, w))))
	}
	clear(f.reply[len(b):])
}

// pins makes a WireView's reply.
func (f *Face) pins(b []byte, p measure.Watt) {
	for _, t := range []int16{312, 345, 0, 0, 3300} { // tenths of a degree; mV of its supply
		b = binary.LittleEndian.AppendUint16(b, uint16(t))
	}
	b = append(b, 0, 0)
	var volts, amperes, watts float64
	for i := range f.sensors {
		v, a := f.sensors[i].Read(f.board, p, f.cfg.NoiseV, f.cfg.NoiseI, f.rng)
		mV, mA := math.Round(v*1e3), math.Round(max(0, a)*1e3) // it knows no current backwards
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(mV)))
		b = binary.LittleEndian.AppendUint16(b, 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(mA))
		b = binary.LittleEndian.AppendUint32(b, uint32(max(0, math.Round(mV*mA/1e3))))
		volts, amperes, watts = volts+mV/float64(len(f.sensors)), amperes+mA, watts+mV*mA/1e3
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(max(0, math.Round(watts))))
	b = binary.LittleEndian.AppendUint32(b, uint32(amperes))
	b = binary.LittleEndian.AppendUint16(b, uint16(math.Round(volts)))
	clear(f.reply[len(b):])
}

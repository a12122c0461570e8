// Package labjack is a LabJack T7 or T8 in software, fed by the emulated board.
//
//	registers   Modbus TCP: settings, identity, inputs converted on demand, and the flash with
//	            the constants of calibration behind a pointer and a window
//	stream      a second connection: packets of 16-bit codes with backlog and status
//
// A T7 converts its inputs one after another, a T8 at once. Where the buffer runs full the
// stream goes on with a status, then with the number of scans lost. The flash may be erased or
// foreign, so that a driver's check of the constants can be tested.
package labjack

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/internal/wiring"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// Config describes the device and its wiring: rail k of Rails is on AIN 2k
// (voltage, through a divider by two) and AIN 2k+1 (current, a clamp of 0.1 V/A).
type Config struct {
	Seed uint64
	// Rails by name; nil for aux_12v_1 and the others behind it.
	Rails []string
	// Noise of a conversion in codes of the range of ±10 V; default 1.5, negative for none.
	Noise float64
	// Conversion is the time from one input's conversion to the next; default 10 µs on a T7, none on a T8.
	Conversion time.Duration
	// Draw draws the converters' slopes and centers, of which the flash holds the
	// maker's calibration, and its remaining error: 300 ppm and 3 mV. Without Draw
	// the nominal scale is true.
	Draw bool
	// Calibration is the flash's contents.
	Calibration Calibration
	// Codes16 makes a T8 keep its constants for 16-bit codes instead of 24-bit ones.
	Codes16 bool
	// Product that the device calls itself: 7, the default, for a T7, 8 for a T8; any
	// other is a T7 under another name.
	Product float32
	// Wrap is put around the stream's connection, for faults; may be nil.
	Wrap func(io.ReadWriteCloser) io.ReadWriteCloser
}

// Face is one device.
type Face struct {
	board *board.Board
	pace  pace.Pace
	cfg   Config
	model *model

	inputs     *wiring.Inputs
	converters [][]converter     // by input and range
	flash      map[uint32]uint32 // by address

	mu        sync.Mutex
	registers map[uint16]uint16
	conns     chan io.ReadWriteCloser // the one for the next stream
	cancel    context.CancelFunc      // of the stream, nil for none
	stopped   chan struct{}           // closed when the stream has ended

	injected       atomic.Uint32 // a status for the next packet
	lose           atomic.Int64  // scans to lose before the packet at loseAt or later
	loseAt         atomic.Uint64
	scans, skipped atomic.Uint64
	first          atomic.Int64 // board time of the newest stream's first scan
}

// New makes a device that reads a board.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	meter.Default(&cfg.Noise, 1.5)
	cfg.Product = cmp.Or(cfg.Product, 7)
	m := *models[7]
	if cfg.Product == 8 {
		m = *models[8]
	} else if cfg.Conversion == 0 {
		cfg.Conversion = 10 * time.Microsecond
	}
	if cfg.Codes16 {
		m.scale = 1
	}
	f := &Face{board: b, pace: p, cfg: cfg, model: &m, conns: make(chan io.ReadWriteCloser, 1)}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6c61626a))
	spread := meter.Spread{UGainI: 3e-4, UGainV: 3e-4, UOffsetI: 0.003, UOffsetV: 0.003}
	var err error
	if f.inputs, err = wiring.Connect(b, cfg.Rails, m.inputs, spread, cfg.Draw, rng); err != nil {
		return nil, fmt.Errorf("emulated %s: %w", m.name, err)
	}
	f.manufacture(rng)
	f.registers = map[uint16]uint16{} // as at power-on
	for _, r := range []uint16{
		regScanRate, regAddresses, regPerPacket, regSettling, regResolution, regBuffer,
		regTarget, regDataType, regScans, regEnable, regFlashPointer,
	} {
		f.put(r, 0)
	}
	for i := range uint16(m.inputs) {
		f.put(regScanList+2*i, 0)
		f.put(regRange+2*i, math.Float32bits(float32(m.ranges[0])))
	}
	f.put(regProduct, math.Float32bits(cfg.Product))
	f.put(regFirmware, math.Float32bits(1.0300))
	f.put(regSerial, 470010000+uint32(cfg.Seed))
	return f, nil
}

// Scans is the number of scans sent, Skipped of those lost; the stream reports so.
func (f *Face) Scans() uint64   { return f.scans.Load() }
func (f *Face) Skipped() uint64 { return f.skipped.Load() }

// StreamStart is the board's time of the newest stream's first scan.
func (f *Face) StreamStart() time.Duration { return time.Duration(f.first.Load()) }

// Lose makes the device lose so many scans of a stream, once, after scan at.
func (f *Face) Lose(at uint64, scans int) {
	f.loseAt.Store(at)
	f.lose.Store(int64(scans))
}

// Stop makes the device end the stream with a status.
func (f *Face) Stop(status uint16) { f.injected.Store(uint32(status)) }

// Registers of the device, from the T-series datasheet: pairs of 16 bits, big-endian. Scan rate,
// settling time (µs), ranges (V), product and firmware are IEEE floats, all others unsigned numbers.
const (
	regScanRate   = 4002
	regAddresses  = 4004
	regPerPacket  = 4006
	regSettling   = 4008
	regResolution = 4010
	regBuffer     = 4012
	regTarget     = 4016
	regDataType   = 4018
	regScans      = 4020
	regScanList   = 4100
	regEnable     = 4990
	regRange      = 40000
	regProduct    = 60000
	regFirmware   = 60004
	regSerial     = 60028

	regFlashPointer = 61810
	regFlashRead    = 61812
)

// Modbus exceptions: a refused request comes back with the top bit of its function set, and one of
// these as its only byte.
const (
	badFunction = 1
	badAddress  = 2
	failed      = 4
)

// put sets a register pair, big-endian; f.mu is held.
func (f *Face) put(address uint16, v uint32) {
	f.registers[address], f.registers[address+1] = uint16(v>>16), uint16(v)
}

// u32 reads a register pair, big-endian; f.mu is held.
func (f *Face) u32(address uint16) uint32 {
	return uint32(f.registers[address])<<16 | uint32(f.registers[address+1])
}

// f32 reads a register pair as an IEEE float; f.mu is held.
func (f *Face) f32(address uint16) float64 { return float64(math.Float32frombits(f.u32(address))) }

// session answers one client's requests until it hangs up, or ctx ends.
func (f *Face) session(ctx context.Context, c net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer c.Close()
	head := make([]byte, 8)
	for {
		// Transaction, protocol 0, length of all that follows it, unit, function.
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		length := int(binary.BigEndian.Uint16(head[4:])) - 2
		if length < 0 || length > 252 {
			return
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		reply, exception := f.answer(ctx, head[7], body)
		function := head[7]
		if exception != 0 {
			function, reply = function|0x80, []byte{exception}
		}
		out := append([]byte{head[0], head[1], 0, 0, 0, 0, head[6], function}, reply...)
		binary.BigEndian.PutUint16(out[4:], uint16(2+len(reply)))
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// answer carries out one request.
func (f *Face) answer(ctx context.Context, function byte, b []byte) (reply []byte, exception byte) {
	if len(b) < 4 {
		return nil, badAddress
	}
	address, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
	switch function {
	case 3, 4:
		return f.read(address, n)
	case 6:
		return b, f.write(ctx, address, b[2:4])
	case 16:
		if len(b) < 5 || len(b) != 5+2*n || int(b[4]) != 2*n {
			return nil, badAddress
		}
		return b[:4], f.write(ctx, address, b[5:])
	}
	return nil, badFunction
}

// read answers Modbus functions 3 and 4: registers as they are, inputs converted now, or the flash
// behind its pointer.
func (f *Face) read(address uint16, n int) ([]byte, byte) {
	if n < 1 || n > 125 {
		return nil, badAddress
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []byte{byte(2 * n)}
	if address == regFlashRead { // the flash, beginning where the pointer stands
		for i := range uint32(n+1) / 2 {
			v, ok := f.flash[f.u32(regFlashPointer)+4*i]
			if !ok {
				v = math.MaxUint32
			}
			out = binary.BigEndian.AppendUint32(out, v)
		}
		return out[:1+2*n], 0
	}
	at := f.pace.Now(0) // the present voltage of the inputs that are read, AINn at 2n
	for ain := int(address) / 2; ain < f.model.inputs && 2*ain < int(address)+n; ain++ {
		f.put(uint16(2*ain), math.Float32bits(float32(f.inputs.VoltsAt(ain, at))))
	}
	for i := range uint16(n) {
		v, ok := f.registers[address+i]
		if !ok {
			return nil, badAddress
		}
		out = binary.BigEndian.AppendUint16(out, v)
	}
	return out, 0
}

// write sets registers; the stream's own cannot be changed while it runs.
func (f *Face) write(ctx context.Context, address uint16, b []byte) byte {
	if address == regEnable && len(b) == 4 { // starts or stops the stream
		on := binary.BigEndian.Uint32(b) != 0
		f.mu.Lock()
		runs := f.cancel != nil
		f.mu.Unlock()
		switch {
		case on && (runs || f.startStream(ctx) != nil), !on && !runs:
			return failed
		case !on:
			f.stopStream()
		}
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range len(b) / 2 {
		a := address + uint16(i)
		if _, ok := f.registers[a]; !ok || a < regScanRate || a >= regProduct && a/2 != regFlashPointer/2 {
			return badAddress
		}
	}
	if f.cancel != nil && address < regEnable {
		return failed
	}
	for i := range len(b) / 2 {
		f.registers[address+uint16(i)] = binary.BigEndian.Uint16(b[2*i:])
	}
	return 0
}

// model holds the differences between the devices.
type model struct {
	name      string
	inputs    int
	each, all float64 // conversions a second, of one input and of all
	ranges    []float64
	spans     []float64 // the volts that 32768 codes stand for, by range
	center    float64
	flash     uint32 // where the constants of input 0, range 0 lie
	perInput  bool
	scale     float64 // of the constants: a T8 keeps those of its 24-bit codes
}

// models by the number in register 60000.
var models = map[float32]*model{
	7: {
		name: "T7", inputs: 14, each: 100e3, all: 100e3, ranges: []float64{10, 1, 0.1, 0.01},
		spans: []float64{10.3483244, 1.03483244, 0.103483244, 0.0103483244}, center: 33523, flash: 0x3C4000, scale: 1,
	},
	8: {
		name: "T8", inputs: 8, each: 40e3, all: 320e3,
		ranges: []float64{11, 9.6, 4.8, 2.4, 1.2, 0.6, 0.3, 0.15, 0.075, 0.036, 0.018},
		spans:  []float64{11, 9.768, 4.884, 2.442, 1.221, 0.611, 0.305, 0.153, 0.076, 0.038, 0.019}, center: 32768,
		flash: 0x687040, perInput: true, scale: 256,
	},
}

// Calibration is the contents of a device's flash.
type Calibration uint8

// The states of a flash.
const (
	Factory Calibration = iota // the constants of the device, as well as it was calibrated
	Erased                     // all ones
	Foreign                    // those of another device, a third too large
)

// converter is the true scale of one input on one range: code = Center + V/slope.
type converter struct{ slope, center float64 }

// manufacture draws the converters and writes the constants that calibrating them gives into the flash.
func (f *Face) manufacture(rng *rand.Rand) {
	m := f.model
	normal := meter.Drawing(rng, f.cfg.Draw)
	f.flash = map[uint32]uint32{}
	f.converters = make([][]converter, m.inputs)
	for ain := range f.converters {
		f.converters[ain] = make([]converter, len(m.ranges))
		for r := range m.ranges {
			c := converter{m.spans[r] / 32768 * (1 + normal(0.003)), m.center * (1 + normal(0.001))}
			if ain > 0 && !m.perInput {
				c = f.converters[0][r] // one converter, one set of constants
			}
			f.converters[ain][r] = c
			if ain > 0 && !m.perInput || f.cfg.Calibration == Erased {
				continue
			}
			slope, center := c.slope/m.scale, c.center*m.scale
			if f.cfg.Calibration == Foreign {
				slope *= 1.33
			}
			at := m.flash + 16*uint32(r+ain*len(m.ranges))
			for i, v := range []float64{slope, -slope, center, -slope * center} {
				f.flash[at+4*uint32(i)] = math.Float32bits(float32(v))
			}
		}
	}
}

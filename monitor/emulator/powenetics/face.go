// Package powenetics is a Powenetics v2 in software: its start command and its frames of 69
// bytes at 1 kHz, fed by the emulated board.
//
// It greets with a line of text, starts with CA AC BD 90, and cannot be stopped but by its
// power. Frames are numbered from the start; those that a driver did not read are missing in
// the numbers. CA AC BD 00, which erases a real device's calibration, is counted: no driver
// may send it.
package powenetics

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/internal/line"
	"github.com/wattmark/wattmark/monitor/emulator/internal/wiring"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// The device's numbers.
const (
	Connectors = 13
	FrameBytes = 4 + 5*Connectors
	greeting   = "PMD is ready!\r\n"
	maxFrames  = 64 // of one write
)

// Config describes the device.
type Config struct {
	Seed uint64
	// Rate of the frames a second by the device's own clock; default 1000.
	Rate measure.Hertz
	// First is the number of the first frame after the start; the device's is 1.
	First uint16
	// Numbered makes the current of the first connector (ATX 3.3 V) carry the count
	// of the frame modulo 2^24, so that a test knows each one.
	Numbered bool
	// NoiseV and NoiseI are the noise of a reading; defaults 1 mV and 3 mA, negative for none.
	NoiseV measure.Volt
	NoiseI measure.Ampere
	// Draw draws the errors of a device without a calibration: 1 % and 0.5 % in gain
	// of current and voltage, 20 mA and 10 mV in zero, 100 ppm. Without it the device is true.
	Draw bool
}

// Face is one device. Run serves one line at a time. As the real one, it cannot
// be stopped: once started it sends until it loses its power.
type Face struct {
	line.Frames // those not read are missing in their numbers
	cfg         Config
	connectors  []wiring.Pair
	rng         *rand.Rand

	begun   uint64 // count of the frame at the start
	last    [4]byte
	cleared atomic.Uint64
}

// New makes a device that reads a board.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	if cfg.Rate = cmp.Or(cfg.Rate, 1000); !(cfg.Rate > 0) {
		return nil, fmt.Errorf("emulated Powenetics: rate %v: must be positive", cfg.Rate)
	}
	meter.Default(&cfg.NoiseV, 0.001)
	meter.Default(&cfg.NoiseI, 0.003)
	cfg.First = cmp.Or(cfg.First, 1)
	spread := meter.Spread{UGainI: 0.01, UGainV: 0.005, UOffsetI: 0.02, UOffsetV: 0.01, UClock: 1e-4}
	f := &Face{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365))}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x706f77656e))
	f.connectors = wiring.Pairs(b.Rails(), rails[:], rest[:], spread, cfg.Draw, rng)
	clock := meter.Drawing(rng, cfg.Draw)(spread.UClock)
	f.Init(b, line.Beat{Pace: p, Step: 1e9 / float64(cfg.Rate) / (1 + clock)}, maxFrames, f.append)
	f.Command = f.command
	f.Start = func() error {
		f.Streaming, f.last = false, [4]byte{}
		return f.Line.Write([]byte(greeting))
	}
	return f, nil
}

// Cleared is how often a driver has erased the device's calibration.
func (f *Face) Cleared() uint64 { return f.cleared.Load() }

// command looks for a command at the end of the bytes that came.
func (f *Face) command(b byte) error {
	copy(f.last[:], f.last[1:])
	f.last[3] = b
	switch f.last {
	case [4]byte{0xCA, 0xAC, 0xBD, 0x90}:
		if !f.Streaming {
			f.Beat.CatchUp()
			f.Streaming, f.begun = true, f.Beat.Next
		}
	case [4]byte{0xCA, 0xAC, 0xBD, 0x00}:
		f.cleared.Add(1)
	}
	return nil
}

// rails are the board's rails by connector; the rest of the PC is steady.
var rails = [Connectors]string{8: "aux_12v_3", 9: "aux_12v_2", 10: "pcie_3v3", 11: "pcie_12v", 12: "aux_12v_1"}

// rest are the steady readings of the connectors that see no rail of the card.
var rest = [Connectors]board.Reading{
	0: {V: 3.31, I: 0.9}, 1: {V: 5.04, I: 0.2}, 2: {V: 12.08, I: 1.4}, 3: {V: 5.02, I: 1.1}, 4: {V: 12.10, I: 3.2},
}

// append adds one frame to dst; p is the board's power at its time.
func (f *Face) append(dst []byte, p measure.Watt) []byte {
	dst = append(dst, 0xCA, 0xAC)
	dst = binary.BigEndian.AppendUint16(dst, uint16(f.Beat.Next-f.begun)+f.cfg.First)
	for c := range f.connectors {
		v, i := f.connectors[c].Read(f.Board, p, f.cfg.NoiseV, f.cfg.NoiseI, f.rng)
		mV, mA := clip(v*1e3, 1<<16-1), clip(math.Round(i*200)*5, 1<<24-1) // in steps of 5 mA
		if f.cfg.Numbered && c == 0 {
			mA = uint32(f.Beat.Next & (1<<24 - 1))
		}
		dst = binary.BigEndian.AppendUint16(dst, uint16(mV))
		dst = append(dst, byte(mA>>16), byte(mA>>8), byte(mA))
	}
	return dst
}

// clip rounds to a count; the device knows no negative ones.
func clip(x, most float64) uint32 { return uint32(min(max(math.Round(x), 0), most)) }

// Package pmd is an ElmorLabs PMD-USB in software: its commands of one byte and its continuous
// mode at the rate and with the jitter seen in public captures, fed by the emulated board or by
// recorded serial bytes.
//
//	00 welcome, 01 vendor and product, 02, 03, 06 single readings, 04, 05 stored configuration,
//	07 continuous mode: stamp's width and channels, 08 the line's speed, F0 reset, F1 boot loader
//
// Steps of the stamp are drawn from the captures' distribution. Command 08 matters to
// Config.LimitToBaud alone: a pseudo-terminal has no speed.
package pmd

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/internal/line"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// The device's numbers.
const (
	Channels   = 8
	VoltCount  = 0.007568 // volts a count
	AmpCount   = 0.0488   // amperes a count
	TickHz     = 2.9345e6 // of the time stamps in the public captures (nominal 3 MHz)
	ConfigSize = 26
	firmware   = 6
	pairs      = 4
)

// Config describes the device.
type Config struct {
	Seed uint64
	// Rails on PCIE1, PCIE2, EPS1 and EPS2 by name, empty for none. All empty:
	// the slot's 12 V on EPS1 as in the public captures, the board's other 12 V
	// rails in order on PCIE1, PCIE2, EPS2.
	Rails [4]string
	// TickHz of the time stamps (default that of the public captures).
	TickHz measure.Hertz
	// NoiseV and NoiseI are the noise of a reading in counts; default 1.1 and 1
	// as in the captures, negative for none.
	NoiseV, NoiseI float64
	// Offsets are added by the host to the counts (command 04 reports them).
	Offsets [Channels]int8
	// Spread and Draw: see meter.Spread. Without Draw the nominal scale is true. A
	// zero Spread stands for a device without a calibration: 1 % and 0.5 % in gain
	// of current and voltage, a count in zero, 100 ppm.
	Spread meter.Spread
	Draw   bool
	// LimitToBaud slows the samples down to the capacity of the baud rate set by command 08 (115200 at power-on).
	LimitToBaud bool
	// Start is the board's time when the device's counter stood at zero.
	Start time.Duration
	// Play opens a recording of continuous mode, 2-byte time stamps and eight
	// channels, that takes the place of the board. It is opened anew whenever
	// continuous mode is switched on.
	Play func() (io.ReadCloser, error)
}

// Face is one device. Run serves one line at a time.
type Face struct {
	line.Device
	board  *board.Board
	pace   pace.Pace
	cfg    Config
	inputs [pairs]input
	rng    *rand.Rand
	clock  float64
	tickNs float64 // true nanoseconds a tick

	config [ConfigSize]byte
	mode   mode
	baud   uint32
	tick   uint64 // device time of the next sample
	out    []byte
	play   *player

	samples atomic.Uint64
	began   atomic.Uint64 // tick of the newest stream's first sample
	played  chan struct{}
}

// mode holds the settings of command 07.
type mode struct {
	on    bool
	stamp int // bytes of the time stamp: 0, 1, 2 or 4
	mask  byte
}

// size is the bytes of a sample.
func (m mode) size() int {
	n := m.stamp
	for c := range Channels {
		n += 2 * int(m.mask>>c&1)
	}
	return n
}

// New makes a device that reads a board; b may be nil where a recording plays.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	if b == nil && cfg.Play == nil {
		return nil, fmt.Errorf("emulated PMD-USB: neither a board nor a recording")
	}
	meter.Default(&cfg.NoiseV, 1.1)
	meter.Default(&cfg.NoiseI, 1)
	meter.Default(&cfg.TickHz, TickHz)
	if cfg.Draw && cfg.Spread == (meter.Spread{}) {
		cfg.Spread = meter.Spread{UGainI: 0.01, UGainV: 0.005, UOffsetI: AmpCount, UOffsetV: VoltCount, UClock: 1e-4}
	}
	f := &Face{
		board: b, pace: p, cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365)), played: make(chan struct{}, 1),
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x706d64))
	f.clock = meter.Drawing(rng, cfg.Draw)(cfg.Spread.UClock)
	f.tickNs = 1e9 / float64(cfg.TickHz) / (1 + f.clock)
	f.config[0] = 4 // the stored configuration of a new device: version 4 and the offsets, with their CRC
	for i, o := range cfg.Offsets {
		f.config[configOffsets+i] = byte(o)
	}
	binary.LittleEndian.PutUint16(f.config[2:], line.CRC16(f.config[configOffsets:]))
	if b == nil {
		return f, nil
	}
	return f, f.connect(rng)
}

// StreamStart is the board's time at the first sample of the newest stream: the
// driver's device time zero. Valid once a sample came.
func (f *Face) StreamStart() time.Duration { return f.boardTime(f.began.Load()) }

// Played delivers once each time that a recording has been sent to its end. The
// last bytes may still lie in the line (pty.Port.Unread).
func (f *Face) Played() <-chan struct{} { return f.played }

// Run serves a driver on a line until ctx ends, the line is closed, or writing
// fails. It returns nil for the first two and closes the line.
func (f *Face) Run(ctx context.Context, rw io.ReadWriteCloser) error {
	defer f.stopPlayer()
	f.Device = line.Device{
		Pace:    f.pace,
		Start:   func() error { f.reset(); return nil },
		Command: f.command, // one whose rest does not come is ignored
		Next: func() (time.Duration, bool) {
			if f.play != nil { // a recording plays in its own time
				return f.play.begun + f.play.done, true
			}
			return f.now(), f.mode.on && f.cfg.Play == nil
		},
		Batch: f.batch,
	}
	return f.Device.Run(ctx, rw)
}

// reset puts the device into its state at power-on.
func (f *Face) reset() {
	f.mode, f.baud = mode{}, 115200
	f.stopPlayer()
}

// now is the board's time of the next sample.
func (f *Face) now() time.Duration { return f.boardTime(f.tick) }

// boardTime is the board's time of a tick of the device's counter.
func (f *Face) boardTime(tick uint64) time.Duration {
	return f.cfg.Start + time.Duration(math.Round(float64(tick)*f.tickNs))
}

// catchUp moves the tick counter to the clock.
func (f *Face) catchUp() {
	if ahead := float64(f.pace.Now(f.now())-f.now()) / f.tickNs; ahead > 0 {
		f.tick += uint64(ahead)
	}
}

// batch sends the samples that are due.
func (f *Face) batch(until time.Duration) error {
	if f.play != nil {
		return f.playBatch(until - f.play.begun)
	}
	if until-f.now() > f.pace.MaxBacklog() {
		f.catchUp()
	}
	f.out = f.out[:0]
	n := uint64(0)
	for ; f.now() <= until && n < maxSamples; n++ {
		var rec [recordSize]byte
		for c, n := range f.read() {
			binary.LittleEndian.PutUint16(rec[2+2*c:], uint16(n)<<4)
		}
		f.out = f.mode.transcode(f.out, rec, f.tick)
		f.tick += f.nextStep()
	}
	f.samples.Add(n)
	return f.Line.Write(f.out)
}

// maxSamples bounds the samples of one write.
const maxSamples = 256

// hostTimeout is how long the device waits for the rest of a command.
const hostTimeout = time.Second

// command carries out one command. Unknown ones are ignored.
func (f *Face) command(b byte) error {
	switch b {
	case 0x00:
		return f.Line.Write([]byte("ElmorLabs PMD-USB"))
	case 0x01:
		return f.Line.Write([]byte{0xEE, 0x0A, firmware})
	case 0x02, 0x03, 0x06:
		return f.Line.Write(f.single(b))
	case 0x04:
		return f.Line.Write(f.config[:])
	case 0x05: // takes a configuration whose CRC is right and drops any other
		var p [ConfigSize]byte
		err := f.Line.Recv(p[:], hostTimeout)
		if err == nil && line.CRC16(p[configOffsets:]) == binary.LittleEndian.Uint16(p[2:]) {
			f.config = p
		}
		return err
	case 0x07:
		return f.continuous()
	case 0x08: // baud, parity, data bits, stop bits, each u32; a pty has no baud
		var p [16]byte
		err := f.Line.Recv(p[:], hostTimeout)
		switch baud := binary.LittleEndian.Uint32(p[:]); baud {
		case 115200, 230400, 460800, 921600, 1500000, 2000000:
			if err == nil {
				f.baud = baud
			}
		}
		return err
	case 0xF0:
		f.reset()
	case 0xF1:
		f.Line.Detach() // the boot loader is another device: this line is gone
	}
	return nil
}

// single is the reply to 02 (name, V/100, A/10 and W of each pair), 03 (without name and W) or 06
// (all counts). Where no stream moves the clock on, it does.
func (f *Face) single(command byte) (out []byte) {
	if !f.mode.on {
		f.catchUp()
	}
	counts := f.read()
	if command == 0x06 {
		for _, n := range counts {
			out = binary.LittleEndian.AppendUint16(out, uint16(n)<<4)
		}
		return out
	}
	for p, name := range PairNames {
		// The device's own reading of a pair's counts.
		off := f.config[configOffsets+2*p:]
		v := (float64(counts[2*p]) + float64(int8(off[0]))) * VoltCount
		a := (float64(counts[2*p+1]) + float64(int8(off[1]))) * AmpCount
		shown := []float64{v * 100, a * 10}
		if command == 0x02 {
			var b [6]byte
			copy(b[:], name)
			out, shown = append(out, b[:]...), append(shown, v*a)
		}
		for _, x := range shown {
			out = binary.LittleEndian.AppendUint16(out, uint16(int16(math.Round(x))))
		}
	}
	return out
}

// continuous is 07: enable, bytes of the time stamp, channel mask.
func (f *Face) continuous() error {
	var p [3]byte
	if err := f.Line.Recv(p[:], hostTimeout); err != nil {
		return err
	}
	was := f.mode.on
	f.mode = mode{on: p[0] != 0, stamp: int(p[1]), mask: p[2]}
	if !slices.Contains([]int{1, 2, 4}, f.mode.stamp) {
		f.mode.stamp = 0
	}
	f.mode.on = f.mode.on && f.mode.size() > 0
	if f.cfg.Play != nil { // it starts from its begin, or stops
		f.stopPlayer()
		if !f.mode.on {
			return nil
		}
		src, err := f.cfg.Play()
		if err != nil {
			return fmt.Errorf("emulated PMD-USB: open the recording: %w", err)
		}
		f.play = &player{src: src, r: bufio.NewReaderSize(src, 1<<16), begun: f.pace.Now(0), fresh: true}
		return nil
	}
	if f.mode.on && !was {
		f.catchUp()
		f.began.Store(f.tick)
	}
	return nil
}

// configOffsets is where the eight offsets lie in the stored configuration:
// version u8, padding, CRC u16, offsets 8 × i8, and the display's settings.
const configOffsets = 4

// Package ps3face is a PowerSensor3 (firmware 1.6) in software: its commands
// and its frames of 18 bytes at 20 kHz, fed by the emulated board.
package ps3face

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/internal/wire"
	"wattmark/monitor/emulator/meter"
	"wattmark/monitor/emulator/pace"
)

// Config describes the device.
type Config struct {
	Seed uint64
	// Rails on pairs 0 to 3 by name; nil for the board's first four.
	Rails []string
	// MaxPower of the board, by which the sensors are chosen; default 1.1 × the
	// level of the full load.
	MaxPower measure.Watt
	// Version that V answers, default F411-1.6.1.
	Version string
	// NoiseI and NoiseV are the noise of one conversion in levels; six make a
	// frame. Defaults 3 and 1.2, negative for none.
	NoiseI, NoiseV float64
	// Spread and Draw: see meter.Spread. Without Draw the stored configuration is
	// true. A zero Spread stands for what a module without a calibration may be
	// off by: 1 % and 0.5 % in gain of current and voltage, 100 ppm, and ZeroLevels.
	Spread meter.Spread
	Draw   bool
	// ZeroLevels is the standard deviation of every sensor's zero in levels, drawn
	// besides Spread's offsets; 2 where Spread is zero.
	ZeroLevels float64
	// Start is the board's time when the device's counter stood at zero.
	Start time.Duration
}

// Face is one device. Its stored configuration outlives the driver's visits;
// Run serves one line at a time.
type Face struct {
	board  *board.Board
	pace   pace.Pace
	cfg    Config
	hw     [Sensors]analog
	memory sync.Mutex // around changes of stored, and looks at it from outside
	stored [Sensors]Sensor
	noise  *rand.Rand
	clock  float64 // the device's clock runs fast by this much
	step   float64 // true nanoseconds a frame

	frame     uint64 // number of the next frame since Start
	origin    uint64 // number of the frame at the last S
	streaming bool
	markers   int
	w         *wire.Wire
	power     []measure.Watt
	out       []byte

	saturated atomic.Bool
	skipped   atomic.Uint64
	began     atomic.Uint64 // origin, for others
}

// New makes a device that reads a board.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	def := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
		*v = max(0, *v)
	}
	def(&cfg.NoiseI, 3)
	def(&cfg.NoiseV, 1.2)
	def((*float64)(&cfg.MaxPower), 1.1*float64(b.Config().Levels.Full))
	if cfg.Draw && cfg.Spread == (meter.Spread{}) {
		cfg.Spread = meter.Spread{UGainI: 0.01, UGainV: 0.005, UClock: 1e-4}
		def(&cfg.ZeroLevels, 2)
	}
	if cfg.Version == "" {
		cfg.Version = "F411-1.6.1"
	}
	f := &Face{board: b, pace: p, cfg: cfg, noise: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365))}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x70733366))
	var err error
	if f.stored, f.hw, err = connect(b, cfg, rng); err != nil {
		return nil, err
	}
	if cfg.Draw {
		f.clock = rng.NormFloat64() * cfg.Spread.UClock
	}
	f.step = FrameMicros * 1e3 / (1 + f.clock)
	return f, nil
}

// Stored returns the stored configuration. It is safe while Run runs.
func (f *Face) Stored() [Sensors]Sensor {
	f.memory.Lock()
	defer f.memory.Unlock()
	return f.stored
}

// ClockError is how fast the device's clock runs, relative.
func (f *Face) ClockError() float64 { return f.clock }

// SaturateSensor7 drives sensor 7 to full scale: its packet is then FF 3F, the
// same bytes as the mark that ends a stream.
func (f *Face) SaturateSensor7(on bool) { f.saturated.Store(on) }

// Skipped is the number of frames lost because the driver did not read.
func (f *Face) Skipped() uint64 { return f.skipped.Load() }

// BoardTime is the board's time at the centre of a frame's conversions. Frame 0
// is the one at the device's time zero.
func (f *Face) BoardTime(frame uint64) time.Duration {
	return f.cfg.Start + time.Duration(math.Round((float64(frame)-0.5)*f.step))
}

// StreamStart is the board's time at the centre of the first frame of the
// newest stream: the driver's device time zero. Valid once a frame came.
func (f *Face) StreamStart() time.Duration { return f.BoardTime(f.began.Load()) }

// Run serves a driver on a line until ctx ends, the line is closed, or writing
// fails. It returns nil for the first two and closes the line.
func (f *Face) Run(ctx context.Context, rw io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.w = wire.Attach(ctx, rw)
	f.reset()
	err := f.loop(ctx)
	result := f.w.Result(err)
	cancel()
	f.w.Detach()
	return result
}

// reset is what the device does at power-on: nothing streams.
func (f *Face) reset() { f.streaming, f.markers = false, 0 }

func (f *Face) loop(ctx context.Context) error {
	timer := f.pace.NewTimer()
	defer timer.Stop()
	for {
		var tick <-chan time.Time
		if f.streaming {
			tick = timer.C(f.now())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b, ok := <-f.w.In():
			if !ok {
				return f.w.Ended()
			}
			if err := f.command(b); err != nil {
				if !errors.Is(err, wire.ErrTimeout) {
					return err
				}
				f.reset() // the firmware resets when the host owes it bytes for 2 s
			}
		case <-tick:
			if err := f.batch(f.pace.Due(f.now())); err != nil {
				return err
			}
		}
	}
}

// now is the board's time of the next frame.
func (f *Face) now() time.Duration { return f.BoardTime(f.frame) }

// catchUp moves the frame counter to the clock: the device converts all the
// time, also while nothing is sent.
func (f *Face) catchUp() {
	if n := f.due(f.pace.Now(f.now() - 1)); n > 0 {
		f.frame += uint64(n)
	}
}

// due is the number of whole frames up to a board instant.
func (f *Face) due(t time.Duration) int64 {
	return int64(math.Floor(float64(t-f.now())/f.step)) + 1
}

// batch sends the frames up to a board instant.
func (f *Face) batch(until time.Duration) error {
	if behind := until - f.now(); behind > f.pace.MaxBacklog() {
		lost := f.due(until - f.pace.Step())
		f.frame += uint64(lost)
		f.skipped.Add(uint64(lost))
	}
	for n := f.due(until); n > 0; {
		k := min(n, maxFrames)
		if err := f.send(int(k)); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// maxFrames bounds the frames of one write.
const maxFrames = 200

// send reads and writes n frames.
func (f *Face) send(n int) error {
	if cap(f.power) < n {
		f.power = make([]measure.Watt, maxFrames)
		f.out = make([]byte, maxFrames*FrameBytes)
	}
	power, out := f.power[:n], f.out[:n*FrameBytes]
	f.board.Trace(power, f.now(), f.step)
	saturated := f.saturated.Load()
	var levels [Sensors]uint16
	for i, p := range power {
		for s := range f.hw {
			levels[s] = 0
			if a := &f.hw[s]; a.rail >= 0 {
				levels[s] = a.level(f.board.Rail(a.rail, p), f.noise)
			}
		}
		if saturated {
			levels[7] = maxLevel
		}
		putFrame(out[i*FrameBytes:], uint16(f.frame*FrameMicros&1023), &levels, f.markers > 0)
		f.markers = max(0, f.markers-1)
		f.frame++
	}
	return f.w.Write(out)
}

// counter is what Q answers: conversions since the stream began, one for each
// sensor of each frame.
func (f *Face) counter() []byte {
	return binary.LittleEndian.AppendUint32(nil, uint32((f.frame-f.origin)*Sensors))
}

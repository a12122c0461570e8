// Package powersensor3 is a PowerSensor3 (firmware 1.6) in software: its commands of one byte
// and its frames of 18 bytes at 20 kHz, fed by the emulated board.
//
//	S, T, X   start; stop; stop with the mark FF 3F FF 3F
//	R, W      the stored configuration of the eight sensors, 41 bytes each, with handshakes
//	V, Q, I   version; number of conversions; one frame
//	M         marks the next frame
//	Z, Y      reset; restart as another USB device, which ends the line
//
// The stored configuration outlives a driver's visit. It changes the answers to R, never the
// hardware behind it: six conversions a frame, whose integer mean loses 5/12 of a level.
package powersensor3

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/internal/line"
	"github.com/wattmark/wattmark/monitor/emulator/internal/wiring"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// Config describes the device.
type Config struct {
	Seed uint64
	// Rails on pairs 0 to 3 by name; nil for the board's first four.
	Rails []string
	// Version that V answers, default F411-1.6.1.
	Version string
	// Spread and Draw: see meter.Spread. Without Draw the stored configuration is
	// true. A zero Spread stands for the error of a module without a calibration:
	// 1 % and 0.5 % in gain of current and voltage, 100 ppm, and two levels in zero.
	Spread meter.Spread
	Draw   bool
}

// Face is one device. Its stored configuration outlives the driver's visits; Run serves one line at a time.
type Face struct {
	line.Frames // their times are those of the conversions' centres, half a frame before the stamp
	cfg         Config
	hw          [Sensors]analog
	memory      sync.Mutex // around changes of stored, and looks at it from outside
	stored      [Sensors]Sensor
	noise       *rand.Rand
	clock       float64 // the device's clock runs fast by this much

	markers   int
	saturated atomic.Bool
	began     atomic.Uint64 // number of the frame at the last S
}

// New makes a device that reads a board.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	zeroLevels := 0.0 // standard deviation of every sensor's zero, besides Spread's offsets
	if cfg.Draw && cfg.Spread == (meter.Spread{}) {
		cfg.Spread, zeroLevels = meter.Spread{UGainI: 0.01, UGainV: 0.005, UClock: 1e-4}, 2
	}
	cfg.Version = cmp.Or(cfg.Version, "F411-1.6.1")
	f := &Face{cfg: cfg, noise: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365))}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x70733366))
	if err := f.connect(b, zeroLevels, rng); err != nil {
		return nil, err
	}
	f.clock = meter.Drawing(rng, cfg.Draw)(cfg.Spread.UClock)
	step := FrameMicros * 1e3 / (1 + f.clock)
	f.Init(b, line.Beat{Pace: p, Start: -time.Duration(math.Round(step / 2)), Step: step}, maxFrames, f.frame)
	f.Start = func() error { f.reset(); return nil }
	f.Command = f.command
	f.Overdue = f.reset // the firmware resets where the host owes it bytes for 2 s
	return f, nil
}

// Stored returns the stored configuration. It is safe while Run runs.
func (f *Face) Stored() [Sensors]Sensor {
	f.memory.Lock()
	defer f.memory.Unlock()
	return f.stored
}

// SaturateSensor7 drives sensor 7 to full scale: its packet is then FF 3F, the
// same bytes as the mark that ends a stream.
func (f *Face) SaturateSensor7(on bool) { f.saturated.Store(on) }

// StreamStart is the board's time at the centre of the first frame of the
// newest stream: the driver's device time zero. Valid once a frame came.
func (f *Face) StreamStart() time.Duration { return f.BoardTime(f.began.Load()) }

// reset puts the device into its state at power-on: nothing streams.
func (f *Face) reset() { f.Streaming, f.markers = false, 0 }

// maxFrames bounds the frames of one write.
const maxFrames = 200

// frame adds one frame to dst: a time stamp packet, then the sensors in order.
func (f *Face) frame(dst []byte, p measure.Watt) []byte {
	micros := uint16(f.Beat.Next * FrameMicros & 1023)
	dst = append(dst, 0xF0|byte(micros>>6&0xF), 0x40|byte(micros&0x3F))
	for s := range f.hw {
		level, mark := uint16(0), byte(0)
		if a := &f.hw[s]; a.rail >= 0 {
			level = a.level(f.Board.Rail(a.rail, p), f.noise)
		}
		if s == 7 && f.saturated.Load() {
			level = maxLevel
		}
		if s == 0 && f.markers > 0 {
			mark = 0x40
			f.markers--
		}
		dst = append(dst, 0x80|byte(s)<<4|byte(level>>6&0xF), mark|byte(level&0x3F))
	}
	return dst
}

const (
	hostTimeout = 2 * time.Second        // the host owes bytes; then the firmware resets
	stopDelay   = 100 * time.Millisecond // before the stop mark
)

// command carries out one command of the driver. Bytes that are no command are ignored, as the firmware does.
func (f *Face) command(b byte) error {
	switch b {
	case 'R':
		return f.readConfig()
	case 'W':
		return f.writeConfig()
	case 'S':
		f.Beat.CatchUp()
		f.Streaming = true
		f.began.Store(f.Beat.Next)
	case 'I':
		if f.Streaming {
			return nil
		}
		f.Beat.CatchUp()
		return f.Send(1)
	case 'M':
		if f.Streaming { // the frame that is converted now is marked, not one that waits to be sent
			for now := f.Beat.Pace.Now(f.Beat.Now() - 1); f.Beat.Due(now) > 0; {
				if err := f.Beat.Send(now, maxFrames, nil, f.Send); err != nil {
					return err
				}
			}
		}
		f.markers++
	case 'T':
		return f.stop()
	case 'X':
		if err := f.stop(); err != nil {
			return err
		}
		if !f.Beat.Pace.Free() {
			if err := f.Line.Sleep(stopDelay); err != nil {
				return err
			}
		}
		return f.Line.Write([]byte{0xFF, 0x3F, 0xFF, 0x3F})
	case 'Q':
		if !f.Streaming { // the counter runs on between streams, too
			f.Beat.CatchUp()
		}
		// Conversions since the stream began, one for each sensor of each frame.
		n := uint32((f.Beat.Next - f.began.Load()) * Sensors)
		return f.Line.Write(binary.LittleEndian.AppendUint32(nil, n))
	case 'V':
		return f.Line.Write([]byte(f.cfg.Version + "\r\n"))
	case 'Z':
		f.reset()
	case 'Y':
		f.Line.Detach() // it comes back as another USB device: this line is gone
	}
	return nil
}

// stop ends the stream once every pending marker is sent, as the firmware does.
func (f *Face) stop() error {
	if !f.Streaming {
		return nil
	}
	for f.markers > 0 {
		if err := f.Send(min(f.markers, maxFrames)); err != nil {
			return err
		}
	}
	f.Streaming = false
	return nil
}

// readConfig sends the stored configuration, a sensor at a time; any byte of the driver asks for the next.
func (f *Face) readConfig() error {
	var ack [1]byte
	for _, s := range f.stored {
		b := s.Marshal()
		if err := f.Line.Write(b[:]); err != nil {
			return err
		}
		if err := f.Line.Recv(ack[:], hostTimeout); err != nil {
			return err
		}
	}
	return f.Line.Write([]byte{'D'})
}

// writeConfig takes a configuration. It changes the answer to R, never the hardware behind it.
func (f *Face) writeConfig() error {
	for i := range f.stored {
		var b [SensorBytes]byte
		if err := f.Line.Recv(b[:], hostTimeout); err != nil {
			return err
		}
		f.memory.Lock()
		f.stored[i].Unmarshal(b)
		f.memory.Unlock()
		if err := f.Line.Write([]byte{'S'}); err != nil {
			return err
		}
	}
	return f.Line.Write([]byte{'D'})
}

// The device's numbers (firmware 1.6).
const (
	Sensors     = 8
	Pairs       = 4
	SensorBytes = 41             // of the configuration, a sensor
	FrameBytes  = 2 + 2*Sensors  // a time stamp and every sensor
	FrameMicros = 50             // 20 kHz
	maxLevel    = 1023           // 10 bits
	lsb         = 3.3 / maxLevel // volts a level
	averaged    = 6              // conversions a frame
	truncation  = 5.0 / 12       // levels that the integer mean of six loses on average
	noiseI      = 3.0            // of one conversion of current, in levels
	noiseV      = 1.2            // and of voltage
)

// Sensor is one sensor's stored configuration, as command R reads it.
type Sensor struct {
	Type, Pair string
	// Vref in volts; Sensitivity in volts an ampere (even sensors) or volts a volt (odd ones).
	Vref, Sensitivity float32
	InUse             bool
}

// Marshal returns the 41 bytes of the stored form.
func (s Sensor) Marshal() [SensorBytes]byte {
	var b [SensorBytes]byte
	copy(b[0:15], s.Type) // the 16th byte stays NUL
	copy(b[16:31], s.Pair)
	binary.LittleEndian.PutUint32(b[32:], math.Float32bits(s.Vref))
	binary.LittleEndian.PutUint32(b[36:], math.Float32bits(s.Sensitivity))
	if s.InUse {
		b[40] = 1
	}
	return b
}

// Unmarshal reads the stored form.
func (s *Sensor) Unmarshal(b [SensorBytes]byte) {
	text := func(b []byte) string { b, _, _ = bytes.Cut(b, []byte{0}); return string(b) }
	s.Type, s.Pair = text(b[0:16]), text(b[16:32])
	s.Vref = math.Float32frombits(binary.LittleEndian.Uint32(b[32:]))
	s.Sensitivity = math.Float32frombits(binary.LittleEndian.Uint32(b[36:]))
	s.InUse = b[40] != 0
}

// analog is the true hardware behind a sensor, which no configuration can change.
type analog struct {
	rail       int // −1 where nothing is connected
	vref, gain float64
	noise      float64 // of one conversion, in levels
	current    bool
}

// hallSensors are the current sensors of the device's makers: rated ampere and volts an ampere.
var hallSensors = []struct {
	name        string
	rated, gain float64
}{{"MLX10", 10, 0.120}, {"MLX20", 20, 0.0625}, {"MLX50", 50, 0.025}, {"MLX75", 75, 0.01667}}

// dividers are the voltage dividers that a pair may carry.
var dividers = []float64{0.8, 0.2, 0.0877}

// connect puts the board's rails on the pairs: the smallest current sensor and
// the largest divider that bear the rail at its highest load.
func (f *Face) connect(b *board.Board, zeroLevels float64, rng *rand.Rand) error {
	for i := range f.hw {
		f.hw[i], f.stored[i] = analog{rail: -1}, Sensor{Type: "NA", Pair: "NA"}
	}
	rails, names := b.Rails(), f.cfg.Rails
	if names == nil {
		names = lists.Map(rails[:min(len(rails), Pairs)], func(r board.RailConfig) string { return r.Name })
	}
	on, err := wiring.Rails(b, names, Pairs)
	if err != nil {
		return fmt.Errorf("emulated PowerSensor3: %w", err)
	}
	for pair, i := range on {
		most := b.Rail(i, 1.1*b.Config().Levels.Full)
		h, d := 0, 0
		for h < len(hallSensors)-1 && hallSensors[h].rated < float64(most.I) {
			h++
		}
		for d < len(dividers)-1 && dividers[d]*float64(rails[i].Open) >= 3.1 {
			d++
		}
		hall, div := hallSensors[h], dividers[d]
		// A Hall sensor rests at half of its supply of 3.3 V, a divider at 0 V.
		f.connectOne(2*pair, rng, zeroLevels, Sensor{Type: hall.name, Pair: names[pair]}, i, 1.65, hall.gain)
		f.connectOne(2*pair+1, rng, zeroLevels, Sensor{Type: "voltage", Pair: names[pair]}, i, 0, div)
	}
	return nil
}

// connectOne draws one sensor's true values around its stored ones; those of current have even numbers. The stored
// reference is calibrated at zero input, as the device's manual asks: it includes
// the part that the integer mean cuts off.
func (f *Face) connectOne(n int, rng *rand.Rand, zeroLevels float64, s Sensor, rail int, vref, gain float64) {
	sp, current := f.cfg.Spread, n%2 == 0
	u, offset, noise := sp.UGainV, float64(sp.UOffsetV), noiseV
	if current {
		u, offset, noise = sp.UGainI, float64(sp.UOffsetI), noiseI
	}
	draw := meter.Drawing(rng, f.cfg.Draw)
	ge, oe := draw(u), draw(math.Hypot(offset, zeroLevels*lsb/gain))
	s.Vref, s.Sensitivity, s.InUse = float32(vref-truncation*lsb), float32(gain), true
	f.stored[n] = s
	f.hw[n] = analog{rail: rail, vref: vref + oe*gain, gain: gain * (1 + ge), noise: noise, current: current}
}

// level converts one sensor for one frame: six conversions, their integer mean.
func (a *analog) level(r board.Reading, rng *rand.Rand) uint16 {
	x := float64(r.V)
	if a.current {
		x = float64(r.I)
	}
	at := (a.vref + a.gain*x) / lsb
	sum := 0
	for range averaged {
		sum += int(min(max(math.Round(at+a.noise*rng.NormFloat64()), 0), maxLevel))
	}
	return uint16(sum / averaged)
}

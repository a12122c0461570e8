package ps3face

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"wattmark/monitor/emulator/board"
)

// The device's numbers (firmware 1.6).
const (
	Sensors     = 8
	Pairs       = 4
	SensorBytes = 41                // of the configuration, a sensor
	FrameBytes  = 2 + 2*Sensors     // a time stamp and every sensor
	FrameMicros = 50                // 20 kHz
	maxLevel    = 1023              // 10 bits
	lsb         = 3.3 / maxLevel    // volts a level
	averaged    = 6                 // conversions a frame
	truncation  = 5.0 / 12          // levels that the integer mean of six loses on average
	halfFrame   = FrameMicros / 2.0 // the values' centre lies this far before the stamp
)

// Sensor is one sensor's stored configuration, as command R reads it.
type Sensor struct {
	Type, Pair string
	// Vref in volts; Sensitivity in volts an ampere (even sensors) or volts a
	// volt (odd ones).
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
	s.Type, s.Pair = text(b[0:16]), text(b[16:32])
	s.Vref = math.Float32frombits(binary.LittleEndian.Uint32(b[32:]))
	s.Sensitivity = math.Float32frombits(binary.LittleEndian.Uint32(b[36:]))
	s.InUse = b[40] != 0
}

func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// analog is the true hardware behind a sensor: what no configuration can change.
type analog struct {
	rail       int // −1 where nothing is connected
	vref, gain float64
	noise      float64 // of one conversion, in levels
	current    bool
}

// hallSensors are the current sensors of the device's makers: rated ampere and
// volts an ampere.
var hallSensors = []struct {
	name        string
	rated, gain float64
}{{"MLX10", 10, 0.120}, {"MLX20", 20, 0.0625}, {"MLX50", 50, 0.025}, {"MLX75", 75, 0.01667}}

// dividers are the voltage dividers that a pair may carry.
var dividers = []float64{0.8, 0.2, 0.0877}

// connect puts the board's rails on the pairs: the smallest current sensor and
// the largest divider that bear the rail at its highest load.
func connect(b *board.Board, cfg Config, rng *rand.Rand) (stored [Sensors]Sensor, hw [Sensors]analog, err error) {
	for i := range hw {
		hw[i], stored[i] = analog{rail: -1}, Sensor{Type: "NA", Pair: "NA"}
	}
	rails := b.Rails()
	names := cfg.Rails
	if names == nil {
		for _, r := range rails[:min(len(rails), Pairs)] {
			names = append(names, r.Name)
		}
	}
	if len(names) > Pairs {
		return stored, hw, fmt.Errorf("emulated PowerSensor3: %d rails: it has %d pairs", len(names), Pairs)
	}
	for pair, name := range names {
		i := railIndex(rails, name)
		if i < 0 {
			return stored, hw, fmt.Errorf("emulated PowerSensor3: the board has no rail %q", name)
		}
		most := b.Rail(i, cfg.MaxPower)
		hall := hallSensors[len(hallSensors)-1]
		for _, h := range hallSensors {
			if h.rated >= float64(most.I) {
				hall = h
				break
			}
		}
		div := dividers[len(dividers)-1]
		for _, d := range dividers {
			if d*float64(rails[i].Open) < 3.1 {
				div = d
				break
			}
		}
		stored[2*pair], hw[2*pair] = sensor(rng, cfg, hall.name, name, i, true, 1.65, hall.gain)
		stored[2*pair+1], hw[2*pair+1] = sensor(rng, cfg, "voltage", name, i, false, 0, div)
	}
	return stored, hw, nil
}

func railIndex(rails []board.RailConfig, name string) int {
	for i, r := range rails {
		if r.Name == name {
			return i
		}
	}
	return -1
}

// sensor draws one sensor's true values around its stored ones. The stored
// reference is calibrated at zero input, as the device's manual asks: it takes
// in what the integer mean cuts off.
func sensor(rng *rand.Rand, cfg Config, kind, pair string, rail int, current bool, vref, gain float64) (Sensor, analog) {
	u, offset, noise := cfg.Spread.UGainV, float64(cfg.Spread.UOffsetV), cfg.NoiseV
	if current {
		u, offset, noise = cfg.Spread.UGainI, float64(cfg.Spread.UOffsetI), cfg.NoiseI
	}
	offset = math.Hypot(offset, cfg.ZeroLevels*lsb/gain)
	ge, oe := rng.NormFloat64()*u, rng.NormFloat64()*offset
	if !cfg.Draw {
		ge, oe = 0, 0
	}
	s := Sensor{Type: kind, Pair: pair, Vref: float32(vref - truncation*lsb), Sensitivity: float32(gain), InUse: true}
	return s, analog{rail: rail, vref: vref + oe*gain, gain: gain * (1 + ge), noise: noise, current: current}
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

// putFrame encodes a frame: a time stamp packet, then the sensors in order.
func putFrame(dst []byte, micros uint16, levels *[Sensors]uint16, marker bool) {
	dst[0] = 0xF0 | byte(micros>>6&0xF)
	dst[1] = 0x40 | byte(micros&0x3F)
	for i, l := range levels {
		dst[2+2*i] = 0x80 | byte(i)<<4 | byte(l>>6&0xF)
		dst[3+2*i] = byte(l & 0x3F)
	}
	if marker {
		dst[3] |= 0x40
	}
}

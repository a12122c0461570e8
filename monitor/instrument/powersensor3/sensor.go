package powersensor3

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"wattmark/measure"
)

// SensorBytes is the size of a stored sensor: type[16], pair name[16], vref f32,
// sensitivity f32, in use u8, packed, little-endian.
const SensorBytes = 41

// Sensor is the stored configuration of one input.
type Sensor struct {
	Type string // "MLX10", "VOLTAGE" …; at most 15 bytes
	Pair string // name of the pair; at most 15 bytes
	// Vref is the voltage at the converter for zero: value = (V − Vref)/Sensitivity.
	Vref float32
	// Sensitivity is volts a unit: V/A on a current sensor, V/V on a voltage sensor.
	Sensitivity float32
	InUse       bool
}

// Unmarshal reads the stored form.
func (s *Sensor) Unmarshal(b [SensorBytes]byte) {
	text := func(b []byte) string {
		b, _, _ = bytes.Cut(b, []byte{0})
		return strings.ToValidUTF8(string(b), "?")
	}
	f32 := func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
	*s = Sensor{Type: text(b[:16]), Pair: text(b[16:32]), Vref: f32(b[32:36]), Sensitivity: f32(b[36:40]), InUse: b[40] != 0}
}

// Marshal writes the stored form; texts are cut to 15 bytes.
func (s Sensor) Marshal() (b [SensorBytes]byte) {
	copy(b[:15], s.Type)
	copy(b[16:31], s.Pair)
	binary.LittleEndian.PutUint32(b[32:], math.Float32bits(s.Vref))
	binary.LittleEndian.PutUint32(b[36:], math.Float32bits(s.Sensitivity))
	if s.InUse {
		b[40] = 1
	}
	return b
}

// The converter: 10 bits over 3.3 V.
const voltsPerLevel = 3.3 / MaxLevel

// The uncertainties of a sensor as the maker's sheet leaves it, with nothing
// calibrated. No public statement gives them for a whole module, so they are
// set wide on purpose: 1 % covers a Hall sensor's sensitivity and the converter's
// reference, two levels its zero. A bench file that holds a calibration replaces them.
const (
	uGainCurrent   = 0.01
	uGainVoltage   = 0.005
	uZeroLevels    = 2
	noiseLevelsI   = 2
	noiseLevelsV   = 1
	clockTolerance = 1e-4 // of the crystal, relative
)

// channel makes a channel of a stored sensor:
// value = (3.3·level/1023 − vref)/sensitivity.
func (s Sensor) channel(id int, name string) (measure.Channel, error) {
	sens, vref := float64(s.Sensitivity), float64(s.Vref)
	if sens == 0 || math.IsNaN(sens) || math.IsInf(sens, 0) || math.IsNaN(vref) || math.IsInf(vref, 0) {
		return measure.Channel{}, fmt.Errorf("sensor %d (%s): stored vref %v V, sensitivity %v: write a valid configuration to the device", id, s.Type, s.Vref, s.Sensitivity)
	}
	gain := voltsPerLevel / sens
	c := measure.Channel{
		Name: name + ".current", Unit: measure.UnitAmpere, Gain: gain, Offset: -vref / sens,
		UGain: uGainCurrent, UOffset: math.Abs(gain) * uZeroLevels, Noise: math.Abs(gain) * noiseLevelsI,
		MinCount: 0, MaxCount: MaxLevel,
	}
	if id%2 == 1 {
		c.Name, c.Unit, c.UGain, c.Noise = name+".voltage", measure.UnitVolt, uGainVoltage, math.Abs(gain)*noiseLevelsV
	}
	return c, nil
}

// pairNames names the four pairs: as the device stores them where these names
// can serve, else pair0 to pair3.
func pairNames(s [Sensors]Sensor) (names [Sensors / 2]string) {
	taken := map[string]bool{}
	for p := range names {
		name := ""
		for _, x := range s[2*p : 2*p+2] {
			if x.InUse && name == "" {
				name = plainName(x.Pair)
			}
		}
		if name == "" || taken[name] {
			name = fmt.Sprintf("pair%d", p)
		}
		taken[name] = true
		names[p] = name
	}
	return names
}

// plainName makes a rail's name of a text: lower case letters, digits and _.
func plainName(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	return strings.TrimSuffix(b.String(), "_")
}

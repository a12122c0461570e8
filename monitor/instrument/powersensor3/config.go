package powersensor3

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/transport"
)

// hostOwes is how long a device waits for the rest of a configuration before it
// resets. What is sent meanwhile it takes for configuration.
const hostOwes = 2500 * time.Millisecond

// Set changes one stored setting. The key is pairN.name, sensorN.type,
// sensorN.vref (V), sensorN.sensitivity (V/A or V/V) or sensorN.in_use; pairs are
// 0 to 3, sensors 0 to 7.
func Set(sensors *[Sensors]Sensor, key, value string) error {
	place, field, _ := strings.Cut(key, ".")
	bad := fmt.Errorf("%q: want pair0.name to pair3.name, or sensor0 to sensor7 with .type, .vref, .sensitivity or "+
		".in_use", key)
	if p, ok := index(place, "pair", Sensors/2); ok && field == "name" {
		if err := checkText(value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		sensors[2*p].Pair, sensors[2*p+1].Pair = value, value
		return nil
	}
	i, ok := index(place, "sensor", Sensors)
	if !ok {
		return bad
	}
	s := &sensors[i]
	var err error
	switch field {
	case "type":
		if err = checkText(value); err == nil {
			s.Type = value
		}
	case "vref", "sensitivity":
		v, nan := strconv.ParseFloat(value, 32)
		if nan != nil || !measure.Known(v) {
			err = fmt.Errorf("%q: want a finite number", value)
		} else if field == "vref" {
			s.Vref = float32(v)
		} else {
			s.Sensitivity = float32(v)
		}
	case "in_use":
		var on bool
		if on, err = strconv.ParseBool(value); err == nil {
			s.InUse = on
		} else {
			err = fmt.Errorf("%q: want true or false", value)
		}
	default:
		return bad
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// index reads the number behind a word.
func index(s, word string, n int) (int, bool) {
	digits, ok := strings.CutPrefix(s, word)
	if !ok || len(digits) != 1 {
		return 0, false
	}
	i := int(digits[0] - '0')
	return i, i >= 0 && i < n
}

// checkText refuses a text of more than 15 bytes, or of other characters than printable ASCII.
func checkText(s string) error {
	if len(s) > 15 {
		return fmt.Errorf("%q: the device keeps 15 bytes at most", s)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("%q: want plain ASCII", s)
	}
	return nil
}

// OpenToConfigure opens a device whose configuration may be unfit to measure
// with, to read and write it. Close ends it as Open's.
func (d *Device) OpenToConfigure(ctx context.Context) error {
	return d.Connect(ctx, d.connect)
}

// WriteConfig stores a configuration in the device, reads it back and compares.
// The device must be open and not streaming. A configuration that cannot be
// measured with is refused before anything is sent. After a failure that wraps
// ErrPartial Sensors is the device's configuration; after others that is unknown.
func (d *Device) WriteConfig(ctx context.Context, sensors [Sensors]Sensor) error {
	if d.Conn == nil {
		return fmt.Errorf("%s: write the configuration: not open", Kind)
	}
	ids, inputs, err := d.describe(sensors)
	if err != nil {
		return fmt.Errorf("%s: nothing was written: %w", Kind, err)
	}
	failure := d.write(ctx, sensors)
	if failure == nil {
		d.ids, d.In = ids, inputs
		return nil
	}
	failure = fmt.Errorf("%s: %w", Kind, failure)
	// The configuration is read again once the device has given up to wait for more, since it would
	// take a command for configuration.
	if backoff.Sleep(ctx, hostOwes) != nil {
		return fmt.Errorf("%w; what the device holds now is not known", failure)
	}
	if err = d.silence(ctx); err == nil {
		var held [Sensors]Sensor
		if held, err = d.readConfig(ctx); err == nil {
			d.sensors = held
			return fmt.Errorf("%w: %w", ErrPartial, failure)
		}
	}
	return fmt.Errorf("%w; what the device holds now is not known: %w", failure, err)
}

// ErrPartial: a configuration was not stored as it was sent; the device was read
// again, and its contents are known.
var ErrPartial = errors.New("the configuration is not the one that was to be written")

// write sends a configuration and reads it back.
func (d *Device) write(ctx context.Context, sensors [Sensors]Sensor) error {
	if _, err := d.Conn.Write(ctx, []byte{'W'}); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	for i, s := range sensors {
		b, ack := s.Marshal(), [2]byte{}
		reply := ack[:1]
		if i == Sensors-1 {
			reply = ack[:2] // the D follows at once
		}
		if err := transport.Ask(ctx, d.Conn, b[:], reply, answerTime); err != nil {
			return fmt.Errorf("write sensor %d: %w", i, err)
		}
		if ack[0] != 'S' || (i == Sensors-1 && ack[1] != 'D') {
			return fmt.Errorf("write sensor %d: %w: answered %q", i, instrument.ErrIdentity, reply)
		}
	}
	back, err := d.readConfig(ctx)
	if err != nil {
		return fmt.Errorf("read the configuration back: %w", err)
	}
	d.sensors = back
	for i := range back {
		if back[i].Marshal() != sensors[i].Marshal() {
			return fmt.Errorf("sensor %d reads back as %+v", i, back[i])
		}
	}
	return nil
}

// SensorBytes is the size of a stored sensor: type[16], pair name[16], vref f32,
// sensitivity f32, in use u8, packed, little-endian.
const SensorBytes = 41

// Sensor is the stored configuration of one input.
type Sensor struct {
	Pair string `json:"pair"` // name of the pair; at most 15 bytes
	Type string `json:"type"` // "MLX10", "VOLTAGE" …; at most 15 bytes
	// Vref is the voltage at the converter for zero: value = (V − Vref)/Sensitivity.
	Vref float32 `json:"vref_v"`
	// Sensitivity is volts a unit: V/A on a current sensor, V/V on a voltage sensor.
	Sensitivity float32 `json:"sensitivity"`
	InUse       bool    `json:"in_use"`
}

// Unmarshal reads the stored form.
func (s *Sensor) Unmarshal(b [SensorBytes]byte) {
	text := func(b []byte) string {
		b, _, _ = bytes.Cut(b, []byte{0})
		return strings.ToValidUTF8(string(b), "?")
	}
	f32 := func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
	*s = Sensor{
		Type: text(b[:16]), Pair: text(b[16:32]), Vref: f32(b[32:36]), Sensitivity: f32(b[36:40]), InUse: b[40] != 0,
	}
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
	if sens == 0 || !measure.Known(sens) || !measure.Known(vref) {
		return measure.Channel{}, fmt.Errorf("sensor %d (%s): stored vref %v V, sensitivity %v: write a valid "+
			"configuration to the device", id, s.Type, s.Vref, s.Sensitivity)
	}
	gain := voltsPerLevel / sens
	c := measure.Channel{
		Name: name + ".current", Unit: measure.UnitAmpere, Gain: gain, Offset: -vref / sens, UGain: uGainCurrent,
		UOffset: math.Abs(gain) * uZeroLevels, Noise: math.Abs(gain) * noiseLevelsI, MinCount: 0, MaxCount: MaxLevel,
	}
	if id%2 == 1 {
		c.Name, c.Unit, c.UGain, c.Noise = name+".voltage", measure.UnitVolt, uGainVoltage, math.Abs(gain)*noiseLevelsV
	}
	return c, nil
}

// odd are the characters that a rail's name has not.
var odd = lazy.Regexp(`[^a-z0-9]+`)

// pairNames names the four pairs: as the device stores them where these names
// can serve, else pair0 to pair3.
func pairNames(s [Sensors]Sensor) (names [Sensors / 2]string) {
	taken := map[string]bool{}
	for p := range names {
		name := ""
		for _, x := range s[2*p : 2*p+2] {
			if x.InUse && name == "" {
				name = strings.Trim(odd().ReplaceAllString(strings.ToLower(x.Pair), "_"), "_")
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

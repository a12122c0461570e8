package powersensor3

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
)

// hostOwes is how long a device waits for the rest of a configuration before it
// resets. What is sent meanwhile it takes for configuration.
const hostOwes = 2500 * time.Millisecond

// Set changes one stored setting. The key is pairN.name, sensorN.type,
// sensorN.vref (V), sensorN.sensitivity (V/A or V/V) or sensorN.in_use; pairs are
// 0 to 3, sensors 0 to 7.
func Set(sensors *[Sensors]Sensor, key, value string) error {
	place, field, _ := strings.Cut(key, ".")
	bad := fmt.Errorf("%q: want pair0.name to pair3.name, or sensor0 to sensor7 with .type, .vref, .sensitivity or .in_use", key)
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
	case "vref":
		err = setNumber(&s.Vref, value)
	case "sensitivity":
		err = setNumber(&s.Sensitivity, value)
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

func checkText(s string) error {
	if len(s) > 15 {
		return fmt.Errorf("%q: the device keeps 15 bytes at most", s)
	}
	for _, r := range s {
		if r < ' ' || r > '~' {
			return fmt.Errorf("%q: want plain ASCII", s)
		}
	}
	return nil
}

func setNumber(to *float32, value string) error {
	v, err := strconv.ParseFloat(value, 32)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("%q: want a finite number", value)
	}
	*to = float32(v)
	return nil
}

// OpenToConfigure opens a device whose configuration may be unfit to measure
// with, to read and write it. Close ends it as Open's.
func (d *Device) OpenToConfigure(ctx context.Context) error {
	return d.open(ctx, d.connect)
}

// WriteConfig stores a configuration in the device, reads it back and compares.
// The device must be open and not streaming. A configuration that cannot be
// measured with is refused before anything is sent. After a failure Sensors is
// what the device holds, where the error wraps ErrPartial; else it is not known.
func (d *Device) WriteConfig(ctx context.Context, sensors [Sensors]Sensor) error {
	if d.conn == nil {
		return fmt.Errorf("%s: write the configuration: not open", Kind)
	}
	ids, inputs, err := d.describe(sensors)
	if err != nil {
		return fmt.Errorf("%s: nothing was written: %w", Kind, err)
	}
	if err := d.write(ctx, sensors); err != nil {
		return d.afterFailure(ctx, fmt.Errorf("%s: %w", Kind, err))
	}
	d.ids, d.inputs = ids, inputs
	return nil
}

// ErrPartial: a configuration was not stored as it was sent; the device was read
// again, and what it holds now is known.
var ErrPartial = errors.New("the configuration is not the one that was to be written")

// write sends a configuration and reads it back.
func (d *Device) write(ctx context.Context, sensors [Sensors]Sensor) error {
	if _, err := d.conn.Write(ctx, []byte{'W'}); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	for i, s := range sensors {
		b, ack := s.Marshal(), [2]byte{}
		reply := ack[:1]
		if i == Sensors-1 {
			reply = ack[:2] // the D follows at once
		}
		if err := transport.Ask(ctx, d.conn, b[:], reply, answerTime); err != nil {
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

// afterFailure reads what a device holds that a write has failed on. It waits
// until the device has given up to wait for more, since it would take a command
// for configuration.
func (d *Device) afterFailure(ctx context.Context, failure error) error {
	timer := time.NewTimer(hostOwes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("%w; what the device holds now is not known", failure)
	}
	err := d.silence(ctx)
	if err == nil {
		var held [Sensors]Sensor
		if held, err = d.readConfig(ctx); err == nil {
			d.sensors = held
			return fmt.Errorf("%w: %w", ErrPartial, failure)
		}
	}
	return fmt.Errorf("%w; what the device holds now is not known: %w", failure, err)
}

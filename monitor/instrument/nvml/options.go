package nvml

import (
	"fmt"
	"slices"
	"time"

	"wattmark/measure"
)

// Options are the settings of the driver in a bench file.
type Options struct {
	// Period is the distance of two polls; default 3ms. The sensor is far slower:
	// the polls only find the moment of a new value. A period that does not divide
	// the sensor's meets every phase of it.
	Period time.Duration `yaml:"period"`
	// Field is auto, instant, average or usage; default auto.
	Field Field `yaml:"field"`
}

// Defaults are the options of a GPU that is not described further.
func Defaults() Options { return Options{Period: 3 * time.Millisecond, Field: FieldAuto} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	if o.Period < 500*time.Microsecond || o.Period > time.Second {
		return fmt.Errorf("period %v: want 500us to 1s", o.Period)
	}
	if !slices.Contains([]Field{FieldAuto, FieldInstant, FieldAverage, FieldUsage}, o.Field) {
		return fmt.Errorf("field %q: want auto, instant, average or usage", o.Field)
	}
	return nil
}

// ResponseOf is what the public study (arXiv 2312.02741) found for an
// architecture and field: update period and averaging window. There are
// exceptions within an architecture: where it matters, measure, and put the
// result into the bench file. Usage is the average where the driver is newer
// than 530.
func ResponseOf(a Arch, f Field) measure.Response {
	const ms = measure.Seconds(1e-3)
	long := f != FieldInstant
	switch a {
	case Hopper:
		if long {
			return measure.Response{Update: 100 * ms, Window: 1000 * ms}
		}
		return measure.Response{Update: 100 * ms, Window: 25 * ms}
	case Ada, GA10x:
		if long {
			return measure.Response{Update: 100 * ms, Window: 1000 * ms}
		}
		return measure.Response{Update: 100 * ms, Window: 100 * ms}
	case GA100:
		return measure.Response{Update: 100 * ms, Window: 25 * ms}
	case Turing:
		return measure.Response{Update: 100 * ms, Window: 100 * ms}
	case Volta, Pascal:
		return measure.Response{Update: 20 * ms, Window: 10 * ms}
	case Kepler: // a first-order lag; 58 ms was fitted on a K40m's public trace
		return measure.Response{Update: 15 * ms, Tau: 58 * ms}
	}
	if long {
		return measure.Response{Update: 100 * ms, Window: 1000 * ms}
	}
	return measure.Response{Update: 100 * ms, Window: 25 * ms}
}

// lagOf is how long after the end of its averaging window a value appears, on
// average. On an H200 (driver 580) the lag grows by some 0.19 ms a second and
// falls back by 20 ms: a sawtooth, seen in 25 runs by markers whose time the
// GPU's own clock gave. Its middle is corrected. Nobody has published it for
// others: it is not corrected there.
func lagOf(a Arch, f Field) measure.Seconds {
	if a == Hopper && f == FieldInstant {
		return 10e-3
	}
	return 0
}

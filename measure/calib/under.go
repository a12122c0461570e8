package calib

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"wattmark/measure"
)

// ErrMismatch: a calibration is of other channels or rails.
var ErrMismatch = errors.New("the calibration does not fit the samples")

// Under returns the setup under which samples that were taken with was are seen
// with the calibration of now: its channels, rails and records, and the
// timebase, response and missing rails of was. Where the two are not of the same
// channels and rails it fails with an error that wraps ErrMismatch and tells all
// that differs.
func Under(was, now measure.Setup) (measure.Setup, error) {
	var differ []string
	add := func(format string, a ...any) { differ = append(differ, fmt.Sprintf(format, a...)) }
	if was.Timebase != now.Timebase {
		add("the timebase (%v at %g ticks a scan, now %v at %g)", was.Timebase.TickHz, was.Timebase.TicksPerScan, now.Timebase.TickHz, now.Timebase.TicksPerScan)
	}
	channels := func(s measure.Setup) (names []string) {
		for _, c := range s.Channels {
			names = append(names, c.Name)
		}
		return names
	}
	if a, b := channels(was), channels(now); !slices.Equal(a, b) {
		add("the channels (%s; now %s)", strings.Join(a, ", "), strings.Join(b, ", "))
	} else {
		for i, c := range was.Channels {
			d := now.Channels[i]
			if c.Unit != d.Unit || c.MinCount != d.MinCount || c.MaxCount != d.MaxCount || c.Skew != d.Skew {
				add("channel %s (%s, counts %d to %d, skew %v; now %s, %d to %d, %v)", c.Name, c.Unit, c.MinCount, c.MaxCount, c.Skew, d.Unit, d.MinCount, d.MaxCount, d.Skew)
			}
		}
	}
	rails := func(s measure.Setup) (out []string) {
		for _, r := range s.Rails {
			out = append(out, fmt.Sprintf("%s %v %v %d %d", r.Name, r.Role, r.Wiring, r.X, r.Y))
		}
		return out
	}
	if a, b := rails(was), rails(now); !slices.Equal(a, b) {
		add("the rails (name, role, wiring, channels: %s; now %s)", strings.Join(a, ", "), strings.Join(b, ", "))
	}
	if len(differ) > 0 {
		return measure.Setup{}, fmt.Errorf("%w: what differs: %s", ErrMismatch, strings.Join(differ, "; "))
	}
	now.Response, now.Missing = was.Response, was.Missing
	return now, nil
}

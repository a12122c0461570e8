package capture

import (
	"fmt"

	"wattmark/measure"
	"wattmark/measure/marker"
)

// choice is which of the markers found bound the task.
type choice struct {
	start, stop *marker.Found
}

// choose picks the first start marker and the last stop marker after it that
// carry the task's tag. Where the code was not found, the plain up-down
// fallback is taken, but only once the capture has ended: until then the code
// may still come.
func choose(spec marker.Spec, found []marker.Found, ended bool) choice {
	mine := func(f *marker.Found) bool { return own(spec, f) }
	plain := func(f *marker.Found) bool { return f.Fallback }
	c := choice{start: firstStart(found, mine)}
	if c.start == nil && ended {
		c.start = firstStart(found, plain)
	}
	if c.start == nil {
		return choice{}
	}
	c.stop = lastStop(found, c.start.End, mine)
	if c.stop == nil && ended {
		c.stop = lastStop(found, c.start.End, plain)
	}
	return c
}

func firstStart(found []marker.Found, want func(*marker.Found) bool) *marker.Found {
	for i := range found {
		if f := &found[i]; f.Kind == marker.Start && want(f) {
			return f
		}
	}
	return nil
}

func lastStop(found []marker.Found, from measure.Seconds, want func(*marker.Found) bool) *marker.Found {
	for i := len(found) - 1; i >= 0; i-- {
		if f := &found[i]; f.Kind == marker.Stop && f.Begin >= from && want(f) {
			return f
		}
	}
	return nil
}

// own tells whether a marker is the task's own, found by its code.
func own(spec marker.Spec, f *marker.Found) bool {
	if f.Fallback && spec.Code != marker.UpDown {
		return false
	}
	return spec.TagBits == 0 || f.TagOK
}

// window is the span between the markers.
func (c choice) window() *Window {
	if c.start == nil || c.stop == nil {
		return nil
	}
	return &Window{From: c.start.End, To: c.stop.Begin}
}

// noWindow says why there is no window, for the operator.
func noWindow(spec marker.Spec, c choice, found []marker.Found) string {
	foreign := 0
	for i := range found {
		if !own(spec, &found[i]) && !found[i].Fallback {
			foreign++
		}
	}
	also := ""
	if foreign > 0 {
		also = fmt.Sprintf(" (%d markers with another task's tag were seen)", foreign)
	}
	switch {
	case c.window() != nil:
		return ""
	case spec.Code == marker.None:
		return "no marker was asked for"
	case c.start == nil:
		return "no start marker was found" + also + ": all samples are kept; trim by hand"
	default:
		return "no stop marker was found" + also + ": all samples from the start marker on are kept; trim by hand"
	}
}

package capture

import (
	"fmt"

	"wattmark/measure/marker"
)

// choice is which of the markers found bound the task.
type choice struct {
	start, stop *marker.Found
}

// choose picks the markers that bound the task as marker.Pair does. Nothing is
// trimmed without a start; and the plain up-down pattern counts only once the
// capture has ended: until then the code may still come.
func choose(found []marker.Found, ended bool) choice {
	var c choice
	c.start, c.stop = marker.Pair(found)
	if c.start == nil || c.start.Plain() && !ended {
		return choice{}
	}
	if c.stop != nil && c.stop.Plain() && !ended {
		c.stop = nil
	}
	return c
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
		if f := &found[i]; !f.TagOK && !f.Fallback {
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

package measure

import (
	"strings"
	"time"
)

// HardwareMark is a scan that the meter marked when the monitor asked for it: a witness of time beside the marker
// kernels. It comes no sooner than it was asked for.
type HardwareMark struct {
	Asked   time.Time // by the machine's clock
	Machine string    // machineid.Boot of the monitor's
}

const hardwareMark = "hardware mark, asked for by machine "

// Event is the note of a mark at a scan.
func (m HardwareMark) Event(scan uint64) Event {
	return Event{
		Kind: EventNote, FirstScan: scan, Scans: 1, Channel: -1,
		Detail: hardwareMark + m.Machine + " at " + m.Asked.UTC().Format(time.RFC3339Nano),
	}
}

// HardwareMark reads the mark of an event; ok is false for any other.
func (e *Event) HardwareMark() (m HardwareMark, ok bool) {
	rest, marked := strings.CutPrefix(e.Detail, hardwareMark)
	machine, at, timed := strings.Cut(rest, " at ")
	asked, err := time.Parse(time.RFC3339Nano, at)
	return HardwareMark{asked, machine}, e.Kind == EventNote && marked && timed && err == nil
}

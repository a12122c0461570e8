package quality

import (
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
)

// marker judges one of the markers that bound the task; f is nil where it was not found.
func (v *Verdict) marker(name string, kind marker.Kind, f *marker.Found, spec marker.Spec, found []marker.Found) {
	another := slices.ContainsFunc(found, func(f marker.Found) bool { return f.Kind == kind && !f.TagOK && !spec.FoundAmid(&f) })
	switch {
	case f == nil && another:
		v.add(Reason{Cause: WrongTag, Level: Doubtful, Subject: name, Text: fmt.Sprintf(
			"a %s marker was found, but not with this task's tag: it may be another task's; measure again, alone on the card", name)})
	case f == nil:
		v.add(Reason{Cause: NoMarker, Level: Doubtful, Subject: name, Text: fmt.Sprintf(
			"no %s marker was found: nothing in the trace confirms the window on that side; is the meter on this card, and "+
				"fast enough for its markers?", name)})
	case f.Fallback && spec.Code != marker.UpDown:
		v.add(Reason{Cause: Fallback, Level: Doubtful, Subject: name, Text: fmt.Sprintf(
			"the %s marker was found by its plain up-down pattern only: it may be another's, and its time is "+
				"rough; sample faster, or keep other work off the card", name)})
	}
}

// clock judges how host and meter are related.
func (v *Verdict) clock(in *Input) {
	for _, e := range in.Events {
		if e.Kind == measure.EventClock && in.Result != nil {
			v.add(Reason{Cause: ClockSet, Level: Doubtful, Text: measure.Printable(e.Detail)})
			break
		}
	}
	f := in.Clock
	switch {
	case in.Marker.Code == marker.None || in.Result == nil:
		return
	case f == nil:
		v.add(Reason{
			Cause: NoClock, Level: Doubtful,
			Text: "the meter's clock could not be related to the host's: the window is what lies between the " +
				"markers, guards included",
		})
		return
	case f.Used < fewObservations:
		v.add(Reason{Cause: LooseClock, Level: Usable, Count: uint64(max(f.Used, 0)), Text: fmt.Sprintf(
			"the clocks were related by %d edges only: sample faster, to see more of the markers", f.Used)})
	case f.Rejected > f.Used:
		v.add(Reason{Cause: LooseClock, Level: Doubtful, Count: uint64(f.Rejected), Text: fmt.Sprintf(
			"%d of %d marker edges did not fit the clocks' line", f.Rejected, f.Rejected+f.Used)})
	}
	if slices.ContainsFunc(in.Events, func(e measure.Event) bool { return e.Kind == measure.EventGap && !e.Exact }) {
		return // the line runs over a jump of the device's time; the budget holds its effect
	}
	if off, beyond := f.OffRate(in.Setup.Timebase.UTickHz); beyond {
		off = math.Abs(off)
		v.add(Reason{Cause: WrongRate, Level: Doubtful, Share: off, Text: fmt.Sprintf(
			"the meter's clock runs %.3g %% off the host's, more than stated: every joule is off by as much", 100*off)})
	}
}

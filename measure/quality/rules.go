package quality

import (
	"fmt"
	"math"
	"slices"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/clock"
	"wattmark/measure/marker"
)

// The bounds of the rules. What lies below is worth knowing, no more.
const (
	fewSamples = 10
	// A clipped reading hides an unknown part of itself. One in ten thousand would
	// have to hide a hundred times what it shows to matter at 1 %.
	clippedDoubtful, clippedVoid = 1e-4, 0.05
	// Lost scans are bridged, and the budget has a line for that.
	lostDoubtful, lostVoid = 0.01, 0.2
	// U as a share of the energy.
	uDoubtful, uVoid = 0.25, 1
	// The ends' expanded uncertainty as a share of the energy.
	edgesUsable, edgesDoubtful = 0.02, 0.1
	fewObservations            = 8
)

// result judges the figures themselves.
func (v *Verdict) result(s *measure.Setup, r *measure.Result) {
	if r.Samples < fewSamples {
		v.add(Reason{Cause: FewSamples, Level: Doubtful, Count: r.Samples, Text: fmt.Sprintf(
			"only %d readings lie in the window: repeat the work for longer, or sample faster", r.Samples)})
	}
	energy := math.Abs(float64(r.Total.Energy))
	if share := float64(r.Total.U) / energy; share > uDoubtful || math.IsNaN(share) {
		v.add(Reason{Cause: TooUncertain, Level: by(share, uDoubtful, uVoid), Share: share, Text: fmt.Sprintf(
			"the uncertainty is %.0f %% of the energy: the budget says what it owes most to", 100*share)})
	}
	if r.Lost > 0 || r.Gaps > 0 {
		share := float64(r.Lost) / math.Max(float64(r.Lost+r.Samples), 1)
		v.add(Reason{Cause: LostScans, Level: by(share, lostDoubtful, lostVoid), Count: r.Lost, Share: share, Text: fmt.Sprintf(
			"%s lost in %s, %.2g %% of the window: the power is bridged there", many(r.Lost, "scan"), many(r.Gaps, "gap"), 100*share)})
	}
	for _, c := range r.Budget {
		if share := 2 * float64(c.U) / energy; c.Source == "window edges" && share > edgesUsable {
			level := Usable
			if share > edgesDoubtful {
				level = Doubtful
			}
			v.add(Reason{Cause: LooseEdges, Level: level, Share: share, Text: fmt.Sprintf(
				"where the window begins and ends is known to %.2g %% of the energy: repeat the work for longer", 100*share)})
		}
	}
	if m := s.Response; m.Update > m.Window && m.Update > 0 {
		v.add(Reason{Cause: LooksAway, Level: Doubtful, Share: 1 - float64(m.Window/m.Update), Text: fmt.Sprintf(
			"the meter sees %v of every %v: work that changes faster is misread by any amount", m.Window, m.Update)})
	}
}

// events judges what happened to the stretch of the window, and around it.
func (v *Verdict) events(r *measure.Result, events []measure.Event) {
	begin, end := r.FirstScan, r.FirstScan+r.Samples+r.Lost
	var overflows, resyncs, reopens, far uint64
	for _, e := range events {
		inside := e.FirstScan < end && e.FirstScan+max(e.Scans, 1) > begin
		switch {
		case e.Kind == measure.EventReopen && !inside:
			far++
		case !inside:
		case e.Kind == measure.EventOverflow:
			overflows++
		case e.Kind == measure.EventResync:
			resyncs++
		case e.Kind == measure.EventReopen:
			reopens++
		}
	}
	if overflows > 0 {
		level := Usable
		if r.Lost == 0 { // the device lost something that nobody could count
			level = Doubtful
		}
		v.add(Reason{Cause: Overflow, Level: level, Count: overflows, Text: fmt.Sprintf(
			"the meter's own buffer overflowed %s: lower its rate or relieve its link", times(overflows))})
	}
	if resyncs > 0 {
		v.add(Reason{Cause: Resynced, Level: Usable, Count: resyncs, Text: fmt.Sprintf(
			"bytes were skipped %s to find the next frame: look at the cable", times(resyncs))})
	}
	if reopens > 0 {
		v.add(Reason{Cause: Reopened, Level: Doubtful, Count: reopens, Text: fmt.Sprintf(
			"the link to the meter was lost %s within the window: what the card drew meanwhile is bridged", times(reopens))})
	}
	if far > 0 {
		v.add(Reason{Cause: Reopened, Level: Usable, Count: far, Text: fmt.Sprintf(
			"the link to the meter was lost %s outside of the window", times(far))})
	}
}

// clippings judges the readings at the ends of their channels' ranges.
func (v *Verdict) clippings(in *Input) {
	list := in.Clipped
	if list == nil {
		list = unplaced(in)
	}
	for _, n := range list {
		if n.Channel >= 0 && n.Channel < len(in.Setup.Channels) {
			v.clipped(in, in.Setup.Channels[n.Channel], n)
		}
	}
}

// unplaced takes over-range events alone: each counts the clipped readings of one chunk
// from the first on, which may lie anywhere up to the chunk's end.
func unplaced(in *Input) []Clipping {
	out := make([]Clipping, len(in.Setup.Channels))
	begin, end := in.Result.FirstScan, in.Result.FirstScan+in.Result.Samples+in.Result.Lost
	for _, e := range in.Events {
		if e.Kind != measure.EventOverRange || e.Channel < 0 || e.Channel >= len(out) {
			continue
		}
		n := &out[e.Channel]
		n.Channel = e.Channel
		if e.FirstScan >= end || e.FirstScan+chunk.MaxScans <= begin {
			n.Outside += e.Scans
			continue
		}
		most := min(e.Scans, end-max(e.FirstScan, begin))
		n.Unplaced, n.Outside = n.Unplaced+most, n.Outside+e.Scans-most
	}
	return out
}

// clipped judges the clipped readings of one channel.
func (v *Verdict) clipped(in *Input, ch measure.Channel, c Clipping) {
	reason := func(level Level, n uint64, share float64, where string) {
		v.add(Reason{Cause: Clipped, Level: level, Subject: ch.Name, Count: n, Share: share, Text: fmt.Sprintf(
			"channel %s clipped %s at %s%s: choose a larger range", ch.Name, times(n), rangeEnd(ch), where)})
	}
	if n := c.Inside + c.Unplaced; n > 0 {
		share, where := float64(n)/math.Max(float64(in.Result.Samples), 1), ""
		if c.Unplaced > 0 {
			where = " (where in the recording is not known: it counts as within the window)"
		}
		reason(by(share, clippedDoubtful, clippedVoid), n, share, where)
	}
	if c.Markers > 0 {
		var length measure.Seconds
		start, stop := marker.Pair(in.Markers)
		for _, m := range []*marker.Found{start, stop} {
			if m != nil {
				length += m.End - m.Begin
			}
		}
		share := float64(c.Markers) / math.Max(float64(length)*float64(in.Setup.Timebase.SampleRate()), 1)
		reason(min(by(share, clippedDoubtful, clippedVoid), Doubtful), c.Markers, share, " in the markers, whose times are less certain for it")
	}
	if c.Outside > 0 {
		reason(Usable, c.Outside, 0, " outside of the window")
	}
}

// rangeEnd names the end of a channel's range that it can have clipped at: both
// where it reads either sign, for an event does not say which.
func rangeEnd(ch measure.Channel) string {
	lo, hi := ch.Value(ch.MinCount), ch.Value(ch.MaxCount)
	if lo > hi {
		lo, hi = hi, lo
	}
	text := func(v float64) string {
		switch ch.Unit {
		case measure.UnitAmpere:
			return measure.Ampere(v).String()
		case measure.UnitWatt:
			return measure.Watt(v).String()
		}
		return measure.Volt(v).String()
	}
	const little = 0.05 // of the other end: a range that begins about zero
	switch {
	case -lo < little*hi:
		return "+" + text(hi)
	case hi < -little*lo:
		return text(lo)
	case math.Abs(lo+hi) < 1e-3*hi:
		return "±" + text(hi)
	}
	return text(lo) + " or +" + text(hi)
}

// rails judges what the bench can know.
func (v *Verdict) rails(s *measure.Setup) {
	for _, m := range s.Missing {
		v.add(Reason{Cause: MissingRail, Level: Usable, Subject: m, Text: fmt.Sprintf(
			"rail %s is not measured: the card draws more than the total by what it takes there", m)})
	}
	for _, r := range s.Rails {
		for _, c := range []int{r.X, r.Y} {
			if c < 0 || s.Channels[c].UGain > 0 || s.Channels[c].UOffset > 0 {
				continue
			}
			v.add(Reason{Cause: Uncalibrated, Level: Doubtful, Subject: s.Channels[c].Name, Text: fmt.Sprintf(
				"channel %s has no stated uncertainty: ± U takes it as exact; state u_gain and u_offset", s.Channels[c].Name)})
		}
	}
}

// markers judges what bounds the task.
func (v *Verdict) markers(spec marker.Spec, found []marker.Found) {
	if spec.Code == marker.None {
		return
	}
	start, stop := marker.Pair(found)
	v.marker("start", marker.Start, start, spec, found)
	v.marker("stop", marker.Stop, stop, spec, found)
}

func (v *Verdict) marker(name string, kind marker.Kind, f *marker.Found, spec marker.Spec, found []marker.Found) {
	another := slices.ContainsFunc(found, func(f marker.Found) bool { return f.Kind == kind && !f.TagOK })
	switch {
	case f == nil && another:
		v.add(Reason{Cause: WrongTag, Level: Doubtful, Subject: name, Text: fmt.Sprintf(
			"a %s marker was found, but not with this task's tag: it may be another task's", name)})
	case f == nil:
		v.add(Reason{Cause: NoMarker, Level: Doubtful, Subject: name, Text: fmt.Sprintf(
			"no %s marker was found: nothing in the trace confirms the window on that side", name)})
	case f.Fallback && spec.Code != marker.UpDown:
		v.add(Reason{Cause: Fallback, Level: Doubtful, Subject: name, Text: fmt.Sprintf(
			"the %s marker was found by its plain up-down pattern only: it may be another's, and its time is rough", name)})
	}
}

// others judges what other processes did on the GPU.
func (v *Verdict) others(in *Input) {
	for _, e := range in.Events {
		if e.Kind == measure.EventOthers && in.Result != nil {
			v.add(Reason{Cause: OthersOnGPU, Level: Doubtful, Text: measure.Printable(e.Detail)})
		}
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
		v.add(Reason{Cause: NoClock, Level: Doubtful, Text: "the meter's clock could not be related to the host's: the window is what lies between the markers, guards included"})
		return
	case f.Used < fewObservations:
		v.add(Reason{Cause: LooseClock, Level: Usable, Count: uint64(max(f.Used, 0)), Text: fmt.Sprintf(
			"the clocks were related by %d edges only: use a longer marker code", f.Used)})
	case f.Rejected > f.Used:
		v.add(Reason{Cause: LooseClock, Level: Doubtful, Count: uint64(f.Rejected), Text: fmt.Sprintf(
			"%d of %d marker edges did not fit the clocks' line", f.Rejected, f.Rejected+f.Used)})
	}
	if slices.ContainsFunc(in.Events, func(e measure.Event) bool { return e.Kind == measure.EventGap && !e.Exact }) {
		return // the line runs over a jump of the device's time; the budget has what it means
	}
	off := math.Abs(f.B - 1)
	limit := 3 * math.Sqrt(clock.DefaultURate*clock.DefaultURate+in.Setup.Timebase.UTickHz*in.Setup.Timebase.UTickHz+f.VarB)
	if off > limit {
		v.add(Reason{Cause: WrongRate, Level: Doubtful, Share: off, Text: fmt.Sprintf(
			"the meter's clock runs %.3g %% off the host's, more than stated: every joule is off by as much", 100*off)})
	}
}

// many counts things.
func many(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

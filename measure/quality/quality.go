// Package quality judges a measurement: whether its energy may be used as it
// stands, and if not, why, and the remedy.
//
// The expanded uncertainty covers the sources that the budget lists. This verdict is about
// the rest: a clipped reading hides how much was cut off, a rail that is not
// measured is not in the total.
package quality

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
)

// Level is how far a result may be trusted; the worst reason decides.
type Level uint8

// The levels, from best to worst.
const (
	// Good: nothing was noticed that E ± U does not hold.
	Good Level = iota
	// Usable: something is worth knowing; E ± U is likely to hold all the same.
	Usable
	// Doubtful: E may be off by more than U; look before you rely on it.
	Doubtful
	// Void: E is meaningless; measure again.
	Void
)

var levelNames = map[Level]string{Good: "good", Usable: "usable", Doubtful: "doubtful", Void: "void"}

func (l Level) String() string { return measure.NameOf(levelNames, l, "level") }

// MarshalText returns the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads a level's name.
func (l *Level) UnmarshalText(text []byte) error {
	for level, name := range levelNames {
		if name == string(text) {
			*l = level
			return nil
		}
	}
	return fmt.Errorf("quality: no level %q", text)
}

// Cause names a rule.
type Cause string

// The causes. Programs may compare them; they are not renamed.
const (
	NoResult     Cause = "no result"
	WorkFailed   Cause = "work failed"
	FewSamples   Cause = "few samples"
	Clipped      Cause = "clipped"
	LostScans    Cause = "lost scans"
	Overflow     Cause = "overflow"
	Resynced     Cause = "resynchronised"
	Reopened     Cause = "reopened"
	MissingRail  Cause = "missing rail"
	NoMarker     Cause = "no marker"
	Fallback     Cause = "fallback marker"
	WrongTag     Cause = "tag not read"
	NoClock      Cause = "no clock fit"
	LooseClock   Cause = "uncertain clock"
	WrongRate    Cause = "clock rate"
	ClockSet     Cause = "clock set"
	OthersOnGPU  Cause = "other processes"
	WrongSupply  Cause = "supply voltage"
	LooseEdges   Cause = "uncertain window"
	Uncalibrated Cause = "uncalibrated channel"
	TooUncertain Cause = "large uncertainty"
	LooksAway    Cause = "meter looks away"
	LoneReadings Cause = "lone readings"
	Expired      Cause = "calibration expired"
	Aliased      Cause = "aliasing"
	OwnSensor    Cause = "own sensor"
	BelowSensor  Cause = "below the GPU's sensor"
)

// causes are those of events whose text is the whole reason.
var causes = map[measure.EventKind]Cause{measure.EventOthers: OthersOnGPU, measure.EventSupply: WrongSupply}

// Reason is one thing that was noticed.
type Reason struct {
	Cause Cause `json:"cause"`
	Level Level `json:"level"` // at best, given this reason
	// Subject is the channel, rail or marker concerned; empty for the whole.
	Subject string `json:"subject,omitempty"`
	// Count is how many readings, scans or events; zero where that means nothing.
	Count uint64 `json:"count,omitempty"`
	// Share is the rule's figure as a fraction, zero where it has none: of the window's readings, or of E; of U for lone
	// readings, of the time for a meter that looks away; of a clock's rate, what it is off.
	Share float64 `json:"share,omitempty"`
	// Text is one sentence for the operator, with the remedy.
	Text string `json:"text"`
}

// Verdict is a level with its reasons, the gravest first.
type Verdict struct {
	Level   Level    `json:"level"`
	Reasons []Reason `json:"reasons,omitempty"`
}

// Input is the knowledge of a measurement. The zero value of a field that is
// not known is taken as such: no events, no clock fit.
type Input struct {
	Setup  *measure.Setup
	Result *measure.Result // nil without a window
	Events []measure.Event
	// Clipped are the clipped readings as they were counted; nil where they were not:
	// then those of over-range events may all lie in the window.
	Clipped []Clipping
	Marker  marker.Spec // the markers played; Code None for none
	Markers []marker.Found
	Clock   *clock.Fit
	Failure string // how the work failed; empty where it did not
	// OwnSensor: the meter is the GPU's own sensor.
	OwnSensor bool
	Sensor    measure.Joule // by the GPU's own sensor over the window; 0 for not known
	At        time.Time     // of the measurement; zero for not known
}

// Clipping is how many readings of a channel stood at an end of its range.
type Clipping struct {
	Channel int
	Inside  uint64 // of the window
	Markers uint64 // in the markers
	Outside uint64 // elsewhere
	// Unplaced lie at unknown places, and are taken to lie inside.
	Unplaced uint64
}

// Judge applies every rule. It is a pure function of its input.
func Judge(in Input) Verdict {
	var v Verdict
	if in.Failure != "" {
		v.add(Reason{Cause: WorkFailed, Level: Doubtful, Text: fmt.Sprintf(
			"the work failed (%s): the energy is what was drawn until then, not that of the "+
				"work", measure.Printable(in.Failure))})
	}
	if in.Result == nil {
		v.add(Reason{
			Cause: NoResult, Level: Void,
			Text: "there is no window, so no energy: set one with wattmark trim, or measure again",
		})
	} else {
		v.result(in.Setup, in.Result)
		v.lone(in.Result)
		v.events(in.Result, in.Events)
		if in.Clipped == nil {
			in.Clipped = unplaced(&in)
		}
		for _, n := range in.Clipped {
			if serves(in.Setup.Rails, n.Channel) && n.Channel < len(in.Setup.Channels) {
				v.clipped(&in, in.Setup.Channels[n.Channel], n)
			}
		}
	}
	v.rails(in.Setup)
	if in.OwnSensor {
		v.add(Reason{Cause: OwnSensor, Level: Usable, Text: "the meter is the GPU's own sensor, whose errors were not " +
			"measured: use a meter at the card's supply (wattmark run --instrument, or --monitor)"})
	}
	if r := in.Result; r != nil && !in.OwnSensor && r.To-r.From >= sensorWindow {
		v.sensor(float64(in.Sensor / (r.Total.Energy + r.Total.U)))
	}
	v.expired(&in)
	if in.Marker.Code != marker.None {
		start, stop := marker.Pair(in.Markers)
		v.marker("start", marker.Start, start, in.Marker, in.Markers)
		v.marker("stop", marker.Stop, stop, in.Marker, in.Markers)
	}
	for _, e := range in.Events {
		if cause := causes[e.Kind]; cause != "" && in.Result != nil {
			v.add(Reason{Cause: cause, Level: Doubtful, Text: measure.Printable(e.Detail)})
		}
	}
	v.clock(&in)
	slices.SortStableFunc(v.Reasons, func(a, b Reason) int { return int(b.Level) - int(a.Level) })
	return v
}

func (v *Verdict) add(r Reason) {
	v.Reasons = append(v.Reasons, r)
	v.Level = max(v.Level, r.Level)
}

// by returns the level of a share: Usable from the first, Doubtful above the
// second bound, Void above the third.
func by(share, doubtful, void float64) Level {
	switch {
	case share > void:
		return Void
	case share > doubtful:
		return Doubtful
	}
	return Usable
}

// The bounds of the rules. What lies below is worth knowing, no more.
const (
	fewSamples = 10
	// A clipped reading hides an unknown part of itself. One in ten thousand would
	// have to hide a hundred times its readings to matter at 1 %.
	clippedDoubtful, clippedVoid = 1e-4, 0.05
	// Lost scans are bridged, and the budget has a line for that.
	lostDoubtful, lostVoid = 0.01, 0.2
	// U as a share of the energy.
	uDoubtful, uVoid = 0.25, 1
	// The ends' expanded uncertainty as a share of the energy.
	edgesUsable, edgesDoubtful = 0.02, 0.1
	// The energy of lone readings as a share of U. A bias of a quarter of U, half a standard
	// uncertainty, lowers the coverage from 95.4 to 92.7 %; one of a fortieth by 0.03 %, which
	// is not worth a word.
	loneUsable      = 0.025
	loneDoubtful    = 0.25
	fewObservations = 8
	// Twice the line of aliasing as a share of U.
	aliasingUsable = 0.5
	// The GPU's own sensor as a multiple of E + U, over a window of so many seconds at least: readings lag. Work of a
	// second by the host's clock is shorter by the meter's.
	sensorWindow, sensorUsable = 0.9, 1.5
)

// inStep are the texts about a load that keeps step with the scans, by the line of the budget.
var inStep = map[string]string{
	measure.Aliasing: "the meter's readings fall into the pauses between launches more or less often than the time does: " +
		"the energy may be off by %.2g %% (k = 2); sample at another rate, or faster",
	measure.Beats: "the power ripples slowly and smoothly, or from reading to reading, as a fast load does that keeps " +
		"step with the scans: if it is one, the energy may be off by %.2g %% (k = 2); use run --auto, or sample at another rate",
}

// sensor judges how many times E + U the GPU's own sensor has. It is a caution only: of a load of 50 ms on, 50 ms off
// an H200's sensor, which looks for 25 of 100 ms, has had 1.6 times the energy.
func (v *Verdict) sensor(times float64) {
	if times > sensorUsable {
		v.add(Reason{Cause: BelowSensor, Level: Usable, Text: fmt.Sprintf(
			"the GPU's own sensor has %.2g times the energy: is the meter on this card, and does it measure all rails (a "+
				"bench file names others under missing)? Or does the load repeat as often as the sensor looks "+
				"(wattmark validate)?", times)})
	}
}

// result judges the figures themselves.
func (v *Verdict) result(s *measure.Setup, r *measure.Result) {
	if r.Samples < fewSamples {
		v.add(Reason{Cause: FewSamples, Level: Doubtful, Count: r.Samples, Text: fmt.Sprintf(
			"only %s lie in the window: repeat the work for longer, or sample faster", measure.Plural(r.Samples, "reading"))})
	}
	energy := math.Abs(float64(r.Total.Energy))
	switch share := float64(r.Total.U) / energy; {
	case math.IsNaN(share): // the energy, its uncertainty, or the quotient of two zeros
		v.add(Reason{Cause: TooUncertain, Level: Void, Text: "the energy or its uncertainty is not a number"})
	case energy == 0: // of which no U is a share
		v.add(Reason{Cause: TooUncertain, Level: Void, Text: "the energy is zero: the meter saw no power"})
	case share > uDoubtful:
		v.add(Reason{Cause: TooUncertain, Level: by(share, uDoubtful, uVoid), Share: share, Text: fmt.Sprintf(
			"the uncertainty is %.0f %% of the energy: wattmark show --budget lists its largest contributions", 100*share)})
	}
	if r.Lost > 0 || r.Gaps > 0 {
		share := float64(r.Lost) / math.Max(float64(r.Lost+r.Samples), 1)
		v.add(Reason{
			Cause: LostScans, Level: by(share, lostDoubtful, lostVoid), Count: r.Lost, Share: share,
			Text: fmt.Sprintf("%s lost in %s, %.2g %% of the window: the power is bridged there; look at cable, hub and load of the "+
				"monitor (wattmark instruments check)",
				measure.Plural(r.Lost, "scan"), measure.Plural(r.Gaps, "gap"), 100*share),
		})
	}
	for _, c := range r.Budget {
		if share := 2 * float64(c.U) / energy; energy > 0 && inStep[c.Source] != "" && 2*c.U > aliasingUsable*r.Total.U {
			v.add(Reason{
				Cause: Aliased, Level: by(share, edgesDoubtful, math.Inf(1)), Share: share,
				Text: fmt.Sprintf(inStep[c.Source], 100*share),
			})
		}
		if share := 2 * float64(c.U) / energy; energy > 0 && c.Source == "window edges" && share > edgesUsable {
			v.add(Reason{
				Cause: LooseEdges, Level: by(share, edgesDoubtful, math.Inf(1)), Share: share, Text: fmt.Sprintf(
					"where the window begins and ends is known to %.2g %% of the energy: repeat the work for longer", 100*share),
			})
		}
	}
	if m := s.Response; m.LooksAway() {
		v.add(Reason{Cause: LooksAway, Level: Doubtful, Share: 1 - float64(m.Seen()/m.Update), Text: fmt.Sprintf(
			"the meter %s: work that changes faster is misread by any amount", m.Sees())})
	}
}

// lone judges the readings that stand alone, from the budget's lines of them.
func (v *Verdict) lone(r *measure.Result) {
	for _, c := range r.Budget {
		if channel, is := strings.CutPrefix(c.Source, measure.LoneReadings); is {
			energy := math.Sqrt(3) * float64(c.U)
			share := energy / float64(r.Total.U)
			if share < loneUsable {
				continue
			}
			v.add(Reason{
				Cause: LoneReadings, Level: by(share, loneDoubtful, math.Inf(1)), Subject: channel, Share: share,
				Text: fmt.Sprintf("single readings of channel %s stand far out, with %.2g J in all, %.3g %% of U: either the meter is "+
					"disturbed, so look at its cables and supply, or the work has pulses shorter than a scan, so sample "+
					"faster", channel, energy, 100*share),
			})
		}
	}
}

// events judges the incidents within the window, and around it.
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
	overflow := Usable
	if r.Lost == 0 { // the device lost scans of unknown number
		overflow = Doubtful
	}
	for _, x := range []struct {
		n     uint64
		cause Cause
		level Level
		text  string // of how often
	}{
		{overflows, Overflow, overflow, "the meter's own buffer overflowed %s: lower its rate or relieve its link"},
		{resyncs, Resynced, Usable, "bytes were skipped, or lines could not be read, %s: look at the cable"},
		{
			reopens, Reopened, Doubtful,
			"the link to the meter was lost %s within the window: what the card drew meanwhile is bridged",
		},
		{far, Reopened, Usable, "the link to the meter was lost %s outside of the window"},
	} {
		if x.n > 0 {
			v.add(Reason{Cause: x.cause, Level: x.level, Count: x.n, Text: fmt.Sprintf(x.text, times(x.n))})
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
		often := times(n)
		if share > 0 {
			often += fmt.Sprintf(" (%.3g %% of readings)", 100*min(share, 1))
		}
		v.add(Reason{Cause: Clipped, Level: level, Subject: ch.Name, Count: n, Share: share, Text: fmt.Sprintf(
			"channel %s clipped %s at %s%s: choose a larger range", ch.Name, often, rangeEnd(ch), where)})
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
		reason(min(by(share, clippedDoubtful, clippedVoid), Doubtful), c.Markers, share,
			" in the markers, whose times are less certain for it")
	}
	if c.Outside > 0 {
		reason(Usable, c.Outside, 0, " outside of the window")
	}
}

// serves reports whether a channel is of a rail; one of the machine beside the card is not.
func serves(rails []measure.Rail, channel int) bool {
	return slices.ContainsFunc(rails, func(r measure.Rail) bool { return channel >= 0 && (r.X == channel || r.Y == channel) })
}

// rangeEnd names the end of a channel's range that it can have clipped at: both
// where it reads either sign, for an event does not name the end.
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

// rails judges the setup: missing and uncalibrated rails.
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
				"channel %s has no stated uncertainty: ± U takes it as exact; state u_gain and "+
					"u_offset", s.Channels[c].Name)})
		}
	}
}

// expired judges the calibration records: past its date a record has the nominal uncertainty again.
func (v *Verdict) expired(in *Input) {
	for _, x := range calib.StaleAt(in.Setup, in.At) {
		level, u := Usable, "± U takes the nominal uncertainty of its channels"
		if x.Unbounded {
			level, u = Doubtful, "its channels have no nominal uncertainty, so that ± U is too small"
		}
		v.add(Reason{Cause: Expired, Level: level, Subject: x.ID, Text: fmt.Sprintf(
			"calibration record %s (%s of %s) expired on %s: %s; calibrate again with wattmark calibrate %s", x.ID, x.Done,
			x.Record.At.UTC().Format(time.DateOnly), x.ValidUntil.UTC().Format(time.DateOnly), u, x.Done)})
	}
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

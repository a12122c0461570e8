// Package quality judges a measurement by what is known of it: whether its
// energy may be used as it stands, and if not, why and what to do.
//
// The expanded uncertainty holds what the budget lists. This verdict is about
// the rest: a clipped reading hides how much was cut off, a rail that nobody
// measured is not in the total.
package quality

import (
	"fmt"
	"slices"
	"strings"

	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/measure/marker"
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
	// Void: E says nothing; measure again.
	Void
)

var levelNames = [...]string{"good", "usable", "doubtful", "void"}

func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
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
	LooseEdges   Cause = "uncertain window"
	Uncalibrated Cause = "uncalibrated channel"
	TooUncertain Cause = "large uncertainty"
	LooksAway    Cause = "meter looks away"
)

// Reason is one thing that was noticed.
type Reason struct {
	Cause Cause
	Level Level
	// Subject is the channel, rail or marker concerned; empty for the whole.
	Subject string
	// Count is how many readings, scans or events; zero where that means nothing.
	Count uint64
	// Share is what part of the window or of the energy, where that means something.
	Share float64
	// Text is one sentence for the operator, with what to do.
	Text string
}

func (r Reason) String() string { return r.Text }

// Verdict is a level with its reasons, the gravest first.
type Verdict struct {
	Level   Level
	Reasons []Reason
}

// String is the verdict on one line.
func (v Verdict) String() string {
	if len(v.Reasons) == 0 {
		return v.Level.String()
	}
	texts := make([]string, len(v.Reasons))
	for i, r := range v.Reasons {
		texts[i] = r.Text
	}
	return v.Level.String() + ": " + strings.Join(texts, "; ")
}

// Has reports whether a cause is among the reasons.
func (v Verdict) Has(c Cause) bool {
	return slices.ContainsFunc(v.Reasons, func(r Reason) bool { return r.Cause == c })
}

// Input is what is known of a measurement. The zero value of a field that is
// not known is taken as such: no events, no clock fit.
type Input struct {
	Setup  *measure.Setup
	Result *measure.Result // nil without a window
	Events []measure.Event
	// Clipped are the clipped readings as they were counted; nil where they were not:
	// then those that over-range events tell of may all lie in the window.
	Clipped []Clipping
	Marker  marker.Spec // what was played; Code None for none
	Markers []marker.Found
	Clock   *clock.Fit
	Failure string // how the work failed; empty where it did not
}

// Clipping is how many readings of a channel stood at an end of its range.
type Clipping struct {
	Channel int
	Inside  uint64 // of the window
	Markers uint64 // in the markers
	Outside uint64 // elsewhere
	// Unplaced lie nobody knows where, and are taken to lie inside.
	Unplaced uint64
}

// Judge applies every rule. It is a pure function of its input.
func Judge(in Input) Verdict {
	var v Verdict
	if in.Failure != "" {
		v.add(Reason{Cause: WorkFailed, Level: Doubtful, Text: fmt.Sprintf(
			"the work failed (%s): the energy is what was drawn until then, not that of the work", measure.Printable(in.Failure))})
	}
	if in.Result == nil {
		v.add(Reason{Cause: NoResult, Level: Void, Text: "there is no window, so no energy: set one with wattmark trim, or measure again"})
	} else {
		v.result(in.Setup, in.Result)
		v.events(in.Result, in.Events)
		v.clippings(&in)
	}
	v.rails(in.Setup)
	v.markers(in.Marker, in.Markers)
	v.others(&in)
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

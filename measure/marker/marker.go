// Package marker holds the codes that the host plays on the GPU and the
// detector that finds them in a power trace.
//
// A marker is [guard low chips][code][tag, Manchester][guard low chips]. The
// start marker plays the code, the stop marker its inverse. The time of a
// marker is the begin of the first chip of its code.
//
//	Block ──decimator (exact sums of counts)──▶ points, watts
//	                                              │
//	        ┌──────────────┬──────────────────────┘
//	   instrument      slow sensor
//	        │              │
//	   correlator       updates (values that changed)
//	        └───▶ lags ◀───┘   threshold, local maximum, sidelobes
//	               │
//	        ┌──────┴───────┐
//	   fit, quality     posterior over begin, window and lag
//	   single edges        │
//	        └──▶ Found ◀───┘
//
// Where no coded marker was found by the end of the stream, the papers' plain
// up-down pattern stands for it (Finish); Pair picks the two that bound a task.
//
// Both ends fit t0 by least squares and state its standard uncertainty; what
// the trace leaves open (time constants, windows, a sensor's clock) is averaged
// over, not assumed.
package marker

import (
	"errors"
	"fmt"
	"math"

	"github.com/wattmark/wattmark/measure"
)

// Code names a chip sequence. The numbers travel and are stored.
type Code uint8

// The codes.
const (
	None     Code = 0
	Barker13 Code = 1
	M15      Code = 2
	M31      Code = 3
	UpDown   Code = 4 // the papers' plain pattern: four times up and down
)

// Kind is start or stop. The numbers travel and are stored.
type Kind uint8

// The kinds.
const (
	Start Kind = 1
	Stop  Kind = 2
	Mark  Kind = 3 // amid long work, as it was played: it is found as a Start with the tag of Spec.Amid
)

// Spec is the marker that a host plays and a monitor looks for.
type Spec struct {
	Code    Code
	Chip    measure.Seconds
	Guard   int // low chips before and after
	TagBits int
	Tag     uint32
}

// Edge is one chip boundary as the detector placed it: an observation for the
// clock fit.
type Edge struct {
	Chip int // the chip that begins here, from the first chip of the code
	T, U measure.Seconds
}

// Found is a marker found in a trace. Times are device time; U is a standard
// uncertainty (k = 1). The spool keeps it as JSON under these names.
type Found struct {
	Kind        Kind
	T, U        measure.Seconds
	Begin, End  measure.Seconds // of the leading and trailing guard
	Correlation float64
	PSLR        measure.Decibel
	Step        measure.Watt
	Tau         measure.Seconds
	Tag         uint32
	TagOK       bool
	Fallback    bool // the plain up-down pattern
	Edges       []Edge
}

// SharedU returns the standard uncertainty that all edges of the marker have in common: the part of U that
// their own uncertainties do not explain. Where the response of the card begins is seen in all of them
// together.
func (f *Found) SharedU() measure.Seconds {
	var weight float64
	for _, e := range f.Edges {
		weight += 1 / float64(e.U*e.U)
	}
	if weight == 0 {
		return 0
	}
	return measure.Seconds(math.Sqrt(max(0, float64(f.U*f.U)-1/weight)))
}

// ErrSpec is wrapped by errors about a marker that cannot be played or found.
var ErrSpec = errors.New("unusable marker")

// The bounds of a Spec, and the shapes of the two profiles.
const (
	maxGuard   = 1024
	maxTagBits = 32

	fastGuard   = 4
	fastTagBits = 8
	fastSamples = 20 // samples a chip that the fast profile aims at
	minSamples  = 8  // and never goes below
	fineSamples = 64 // from here on the phase of single samples does not matter

	sensorGuard   = 4
	sensorTagBits = 4
	// offGrid keeps the chip away from every small multiple of the instrument's
	// period: each chip then falls on another phase of its clock, and the edges
	// are seen between two readings.
	offGrid = 0.31
)

// codeNames are the names in configuration files and tables.
var codeNames = map[Code]string{None: "none", Barker13: "barker13", M15: "m15", M31: "m31", UpDown: "updown"}

var kindNames = map[Kind]string{Start: "start", Stop: "stop", Mark: "mark"}

func (c Code) String() string { return measure.NameOf(codeNames, c, "code") }

func (k Kind) String() string { return measure.NameOf(kindNames, k, "kind") }

// Chips returns the code's chips, true for high, as the start marker plays
// them; nil for None and for unknown codes. The m-sequences come from the
// primitive polynomials x⁴+x+1 and x⁵+x²+1 (Golomb, Shift Register Sequences);
// their seeds are those with the lowest aperiodic sidelobes among those that
// begin high: 3 of 15 and 4 of 31.
func (c Code) Chips() []bool {
	switch c {
	case Barker13:
		return []bool{true, true, true, true, true, false, false, true, true, false, true, false, true}
	case M15:
		return mSequence(4, 1, 9)
	case M31:
		return mSequence(5, 2, 19)
	case UpDown:
		return []bool{true, false, true, false, true, false, true, false}
	}
	return nil
}

// mSequence runs the recurrence a(n+order) = a(n) ⊕ a(n+tap) from seed, whose
// lowest bit is a(0), and returns one period.
func mSequence(order, tap, seed uint) []bool {
	n := 1<<order - 1
	out := make([]bool, n)
	state := seed
	for i := range out {
		out[i] = state&1 == 1
		bit := (state ^ state>>tap) & 1
		state = state>>1 | bit<<(order-1)
	}
	return out
}

// Chips returns the whole marker, true for high: guard, code (inverted for
// Stop), tag, guard. A tag bit takes two chips, high-low for 1 and low-high
// for 0, the most significant bit first, so that a tag has no level of its own.
func (s Spec) Chips(kind Kind) []bool {
	code := s.Code.Chips()
	out := make([]bool, s.Guard, 2*s.Guard+len(code)+2*s.TagBits)
	for _, c := range code {
		out = append(out, c != (kind == Stop))
	}
	for b := s.TagBits - 1; b >= 0; b-- {
		one := s.Tag>>uint(b)&1 == 1
		out = append(out, one, !one)
	}
	return append(out, make([]bool, s.Guard)...)
}

// Amid returns the marker that is played amid long work: its tag is the task's, inverted, so that it bounds nothing. It
// needs a tag.
func (s Spec) Amid() Spec {
	s.Tag ^= uint32(1<<s.TagBits - 1)
	return s
}

// FoundAmid reports whether a marker is that of Amid.
func (s Spec) FoundAmid(f *Found) bool {
	return s.TagBits > 0 && f.Kind == Start && !f.Fallback && f.Tag == s.Amid().Tag
}

// CodeStart returns the index in Chips of the first chip of the code, whose
// begin is the time of the marker.
func (s Spec) CodeStart() int { return s.Guard }

// CodeLen returns the number of chips of the code.
func (s Spec) CodeLen() int { return len(s.Code.Chips()) }

// Len returns the number of chips of the whole marker.
func (s Spec) Len() int { return 2*s.Guard + s.CodeLen() + 2*s.TagBits }

// Duration returns how long the whole marker lasts, guards included.
func (s Spec) Duration() measure.Seconds { return measure.Seconds(s.Len()) * s.Chip }

// ambiguous reports that start and stop look alike but for one chip of time: the
// inverse of up-down without a tag is up-down again.
func (s Spec) ambiguous() bool { return s.Code == UpDown && s.TagBits == 0 }

// Validate reports a marker that cannot be played or found, naming the field.
// Its errors wrap ErrSpec.
func (s Spec) Validate() error {
	chip := float64(s.Chip)
	switch {
	case s.Code == None || s.Code.Chips() == nil:
		return fmt.Errorf("%w: code %v: choose barker13, m15, m31 or updown", ErrSpec, s.Code)
	case !(chip > 0) || math.IsInf(chip, 0):
		return fmt.Errorf("%w: a chip of %v s: must be positive and finite", ErrSpec, chip)
	case s.Guard < 1 || s.Guard > maxGuard:
		return fmt.Errorf("%w: a guard of %d chips: want 1 to %d", ErrSpec, s.Guard, maxGuard)
	case s.TagBits < 0 || s.TagBits > maxTagBits:
		return fmt.Errorf("%w: a tag of %d bits: want 0 to %d", ErrSpec, s.TagBits, maxTagBits)
	case s.TagBits < maxTagBits && s.Tag>>uint(s.TagBits) != 0:
		return fmt.Errorf("%w: tag %d does not fit into %d bits", ErrSpec, s.Tag, s.TagBits)
	}
	return nil
}

// FastProfile is the marker for an instrument that samples at rate (scans a
// second) what is there: m-sequence 31, chips of 2 to 5 ms, longer only where
// eight samples a chip need it, and the low eight bits of the tag. Chips of few
// samples are no whole number of them.
func FastProfile(rate measure.Hertz, tag uint32) Spec {
	chip := min(max(fastSamples/float64(rate), 2e-3), 5e-3)
	n := max(chip*float64(rate), minSamples)
	if n < fineSamples {
		n = math.Floor(n+1e-9) + offGrid
	}
	chip = n / float64(rate)
	return Spec{
		Code: M31, Chip: roundChip(chip), Guard: fastGuard, TagBits: fastTagBits, Tag: tag & (1<<fastTagBits - 1),
	}
}

// SensorProfile is the marker for a sensor that shows a new value every update:
// m-sequence 31, chips of 1.31 update periods, and the low four bits of the tag.
func SensorProfile(update measure.Seconds, tag uint32) Spec {
	return Spec{
		Code: M31, Chip: roundChip((1 + offGrid) * float64(update)),
		Guard: sensorGuard, TagBits: sensorTagBits, Tag: tag & (1<<sensorTagBits - 1),
	}
}

// ProfileFor chooses the marker that an instrument can see: the fast profile
// where it delivers enough new values a second, else the sensor profile. Guards
// grow until the instrument has settled within them. Only the low bits of the
// tag are carried, 8 by the fast and 4 by the sensor profile.
func ProfileFor(setup measure.Setup, tag uint32) Spec {
	const slowest = 200.0 // new values a second below which the sensor profile is shorter
	r := setup.Response
	period := max(1/float64(setup.Timebase.SampleRate()), float64(r.Update))
	memory := float64(r.Window) + 5*float64(r.Tau)
	if 1/period >= slowest {
		s := FastProfile(measure.Hertz(1/period), tag)
		s.Chip = max(s.Chip, roundChip(5*float64(r.Tau)))
		s.Guard = max(s.Guard, int(math.Ceil(2*memory/float64(s.Chip))))
		return s
	}
	s := SensorProfile(measure.Seconds(period), tag)
	if n := math.Ceil(float64(r.Tau) / period); n > 1 {
		s.Chip = roundChip((n + offGrid) * period)
	}
	s.Guard = max(s.Guard, 2+int(math.Ceil(memory/float64(s.Chip))))
	return s
}

// roundChip rounds a chip up to whole microseconds, which every timer can play.
func roundChip(s float64) measure.Seconds {
	return measure.Seconds(math.Ceil(s*1e6-1e-6) / 1e6)
}

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
	"wattmark/measure"
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

// Kind tells start from stop. The numbers travel and are stored.
type Kind uint8

// The kinds.
const (
	Start Kind = 1
	Stop  Kind = 2
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
// uncertainty (k = 1).
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

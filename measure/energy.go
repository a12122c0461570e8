package measure

import "math"

// Estimate is an energy with its expanded uncertainty (GUM, 6.2): k = 2, or more
// where the noise was seen in few readings (CoverageFactor).
type Estimate struct {
	Energy Joule
	U      Joule
}

// Agreement says whether two energies of the same window agree within what is stated
// of them. It is what *within* and *outside* mean wherever a software method, or
// another reading of the same work, is held against the meter.
type Agreement string

// The agreements.
const (
	Agrees  Agreement = "agrees"  // within
	Differs Agreement = "differs" // outside
	Unknown Agreement = "unknown" // an energy is missing, or the meter cannot judge
)

// Word is what tables say of it: within, outside, or nothing.
func (a Agreement) Word() string {
	switch a {
	case Agrees:
		return "within"
	case Differs:
		return "outside"
	}
	return ""
}

// Against holds an energy against the meter's over the same window: it agrees where
// they differ by no more than the root of the squares of both expanded uncertainties.
// A U of zero, or NaN, of e states none; of the meter NaN means that it cannot judge.
// unseen is what the meter may have missed at most, +Inf or NaN for any amount: the
// answer is Unknown where it depends on how much that was.
func (e Estimate) Against(meter Estimate, unseen Joule) Agreement {
	own := float64(e.U)
	if math.IsNaN(own) {
		own = 0
	}
	d, u := float64(e.Energy-meter.Energy), math.Hypot(own, float64(meter.U))
	if math.IsNaN(d) || math.IsInf(d, 0) || math.IsNaN(u) {
		return Unknown
	}
	most, least := d, d-float64(unseen) // the meter may have missed all or nothing of it
	if math.IsNaN(least) {
		least = math.Inf(-1)
	}
	switch {
	case most <= u && least >= -u:
		return Agrees
	case most < -u || least > u:
		return Differs
	}
	return Unknown
}

// Contribution is one line of an uncertainty budget (GUM, 8.1): a source, its
// standard uncertainty in joules of the result, and whether it is correlated
// between samples (systematic) or averages out.
type Contribution struct {
	Source     string // "gain aux_12v_1.current", "quantisation", "window edges" …
	U          Joule  // standard uncertainty (k = 1)
	Systematic bool
}

// RailResult is one rail over a window.
type RailResult struct {
	Name       string
	Role       Role
	Energy     Estimate
	Mean, Peak Watt
	Budget     []Contribution
}

// Result is all rails over a window of device time.
type Result struct {
	From, To   Seconds
	Samples    uint64 // scans within the window
	FirstScan  uint64 // first scan within the window
	Gaps       uint64 // gaps within the window
	Lost       uint64 // scans lost in them
	Rails      []RailResult
	Total      Estimate
	Mean, Peak Watt
	Budget     []Contribution // of the total
}

// Edges is the standard uncertainty (k = 1) of a window's ends, with their
// correlation coefficient: an offset of the clock moves both ends alike.
type Edges struct {
	UFrom, UTo  Seconds
	Correlation float64
	// Gaps is that of the length of all gaps within the window together, where it
	// was estimated.
	Gaps Seconds
}

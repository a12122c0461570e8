package measure

// Estimate is an energy with its expanded uncertainty (GUM, 6.2): k = 2, or more
// where the noise was seen in few readings (CoverageFactor).
type Estimate struct {
	Energy Joule
	U      Joule
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

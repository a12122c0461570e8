package measure

// CalibrationRecord is one dated act of calibration as it travels and is stored
// beside the numbers that follow from it: who made them, when, against what.
// Package measure/calib reads it.
type CalibrationRecord struct {
	// ID names the record by its content: 12 hex digits.
	ID string `json:"id"`
	// Text is the whole record as JSON (docs/calibration.md).
	Text string `json:"text"`
}

// Quantisation splits the standard uncertainty of rounding to whole counts, in
// counts, for readings that scatter by sigma counts: the part that is the same
// for all readings of a resting signal, and the part that is new with each.
func Quantisation(sigma float64) (fixed, dithered float64) { return quantisation(sigma) }

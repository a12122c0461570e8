// Package bench reads the file that says what is measured and how: the
// instrument, the calibration of its channels, and the rails that they make
// (docs/bench-file.md).
//
//	Load / Parse / Default ─▶ Bench ─▶ NewInstrument
//	                            └────▶ Setup(inputs) ─▶ measure.Setup
//
// The file is strict: an unknown key is an error, and every error says where and
// what to do.
package bench

// Package calibration keeps a bench's calibration records: a folder of dated
// YAML files beside the bench file, one act a file, to which files are only
// added. measure/calib says what a record means; docs/calibration.md shows one.
package calibration

// Package calib is calibration as laboratories do it: what was read at zero and
// at known values (Meter), the straight line through them with its uncertainty
// (Fit, after the GUM), the dated record that is made of it (Record), and the
// records that are in force on a bench (History.Apply). It does no I/O.
package calib

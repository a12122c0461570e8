// Package nvml makes a meter of the GPU's own power sensor, so that a
// measurement can be made where no external meter is connected.
//
// It measures what the sensor shows, not what the card draws: a new value every
// 100 ms or so, of a window that may be a quarter of that. The Response of its
// inputs says so, and everything downstream (marker profile, uncertainty) takes
// it from there.
package nvml

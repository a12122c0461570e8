//go:build !linux

package perf

import "os"

// forget does nothing: this system cannot be asked to drop the pages of a file, so reads
// labelled cold come from memory.
func forget(string) error { return nil }

// peakBytes returns 0: the unit of this system's figure is not known.
func peakBytes(*os.ProcessState) int64 { return 0 }

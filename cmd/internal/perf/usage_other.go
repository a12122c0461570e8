//go:build !unix

package perf

import "os"

// cpuSeconds, residentBytes and peakBytes return 0: this system has no known source.
func cpuSeconds() (user, system float64) { return 0, 0 }

func residentBytes() int64 { return 0 }

func peakBytes(*os.ProcessState) int64 { return 0 }

//go:build !unix

package main

import "os"

// cpuSeconds and residentBytes are not known on this system.
func cpuSeconds() (user, system float64) { return 0, 0 }

func residentBytes() int64 { return 0 }

func peakBytes(*os.ProcessState) int64 { return 0 }

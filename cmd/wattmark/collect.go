package main

import (
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// serviceGC is GOGC of what serves, and of the benchmarks of it. Their heaps are some
// tens of megabytes, and a collection at each doubling would come with every
// eightieth page of a list: the slowest page of a hundred took 1.2 ms with it and
// takes 0.7 ms without, and samples come in faster. Not so the monitor, which may run
// on a small machine, and whose memory is to stay what it is.
const serviceGC = 400

// collectRarely spaces the garbage collections of services; GOGC has the last word.
func collectRarely(c *cobra.Command) {
	top := c
	for top.HasParent() && top.Parent().HasParent() {
		top = top.Parent()
	}
	switch top.Name() {
	case "host", "store", "bench":
		if c.Name() != "monitor" && os.Getenv("GOGC") == "" {
			debug.SetGCPercent(serviceGC)
		}
	}
}

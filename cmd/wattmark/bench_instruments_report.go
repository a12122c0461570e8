package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Goals of the instruments' benchmark.
const (
	goalRawScansPerS = 10e6 // of six channels
	goalDriverCores  = 0.1
)

// rawScans is the decoder that must take so many scans of six channels.
const rawScans = "nidaqmx"

// judge holds the results against the goals.
func (r *instrumentsReport) judge() {
	if len(r.Decoders) > 0 {
		worst := slices.MaxFunc(r.Decoders, func(a, b decodeReport) int {
			if a.AllocsPerSample < b.AllocsPerSample {
				return -1
			}
			return 1
		})
		n := worst.AllocsPerSample
		r.Goals = append(r.Goals, goal{"decoders, allocations a sample, most", "0", n, n == 0, fmt.Sprintf("%.3g", n)})
	}
	for _, d := range r.Decoders {
		if d.Driver == rawScans {
			r.Goals = append(r.Goals, atLeast("raw counts of six channels, decode alone", d.SamplesPerS/6, goalRawScansPerS, "million scans/s", 1e6))
		}
		if d.MeterPerS > 0 && d.SamplesPerS < d.MeterPerS {
			r.Goals = append(r.Goals, atLeast(d.Emulated+", its meter's own rate", d.SamplesPerS, d.MeterPerS, "samples/s", 1))
		}
	}
	for _, d := range r.Drivers {
		r.Goals = append(r.Goals,
			atMost(d.Name+", driver", d.Cores, goalDriverCores, "% of a core", 0.01),
			goal{d.Name + ", scans lost", "0", float64(d.Lost), d.Lost == 0, fmt.Sprint(d.Lost)})
	}
}

func (r *instrumentsReport) render(w io.Writer) {
	m := r.Machine
	fmt.Fprintf(w, "  machine  %s, %d cores, %s/%s, %s, load %.2f before\n\n", m.CPU, m.Cores, m.OS, m.Arch, m.Go, m.Load1)
	t := newTable(w)
	t.AppendHeader(table.Row{"driver", "bytes of", "channels", "samples/s of one core", "allocations a sample", "the meter's samples/s", "of a core"})
	for _, d := range r.Decoders {
		rate, share := "", ""
		if d.MeterPerS > 0 {
			rate, share = fmt.Sprintf("%.4g", d.MeterPerS), fmt.Sprintf("%.2g %%", 100*d.MeterPerS/d.SamplesPerS)
		}
		t.AppendRow(table.Row{d.Driver, d.Emulated, d.Channels, fmt.Sprintf("%.3g M", d.SamplesPerS/1e6), fmt.Sprintf("%.3g", d.AllocsPerSample), rate, share})
	}
	t.Render()
	if len(r.Drivers) > 0 {
		fmt.Fprintln(w)
		t = newTable(w)
		t.AppendHeader(table.Row{"whole driver", "inputs", "wanted", "samples/s", "scans lost", "driver"})
		for _, d := range r.Drivers {
			t.AppendRow(table.Row{d.Name, d.Inputs, fmt.Sprintf("%.4g", d.Wanted), fmt.Sprintf("%.4g", d.Rate), d.Lost, fmt.Sprintf("%.1f %% of a core", 100*d.Cores)})
		}
		t.Render()
	}
	fmt.Fprintln(w)
	renderGoals(w, r.Goals)
}

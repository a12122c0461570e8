package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"wattmark/measure"
)

// Goals of the ingest benchmark, on two cores.
const (
	goalScansPerS    = 30e6
	leastScansPerS   = 15e6
	goalBytesPerScan = 4.5
	goalPyramidBytes = 0.08 * 12 // of the raw counts of a scan
	goalPyramidRatio = 0.85
	goalLatencyP99S  = 0.1
	goalHostCores    = 0.5
)

func atLeast(name string, result, want float64, unit string, scale float64) goal {
	return goal{name, fmt.Sprintf("at least %g %s", want/scale, unit), result, result >= want, fmt.Sprintf("%.3g %s", result/scale, unit)}
}

func atMost(name string, result, want float64, unit string, scale float64) goal {
	return goal{name, fmt.Sprintf("at most %g %s", want/scale, unit), result, result <= want, fmt.Sprintf("%.3g %s", result/scale, unit)}
}

// judge holds the results against the goals.
func (r *ingestReport) judge() {
	if f := r.Fast; f != nil {
		r.Goals = append(r.Goals,
			atLeast("full speed", f.ScansPerS, goalScansPerS, "million scans/s", 1e6),
			atLeast("full speed, least", f.ScansPerS, leastScansPerS, "million scans/s", 1e6),
			atMost("full speed, stored", f.BytesPerScan, goalBytesPerScan, "bytes a scan", 1),
			atMost("full speed, pyramid", f.PyramidBytes, goalPyramidBytes, "bytes a scan", 1))
		r.Goals = append(r.Goals, f.complete("full speed"))
	}
	if len(r.Pairs) > 0 {
		r.Goals = append(r.Goals, atLeast("ingest with the pyramid, of that without, median", r.ratio(), goalPyramidRatio, "%", 0.01))
	}
	if p := r.Paced; p != nil {
		r.Goals = append(r.Goals,
			atMost("paced, sample to durable p99", p.LatencyP99S, goalLatencyP99S, "ms", 1e-3),
			atMost("paced, host", p.HostCores, goalHostCores, "cores", 1),
			atMost("paced, stored", p.BytesPerScan, goalBytesPerScan, "bytes a scan", 1),
			p.complete("paced"))
	}
}

// ratio is the median of the pairs'.
func (r *ingestReport) ratio() float64 {
	var of []float64
	for _, p := range r.Pairs {
		of = append(of, p.With/p.Without)
	}
	slices.Sort(of)
	return quantile(of, 0.5)
}

// complete is the goal that no sample is missing.
func (r *streamReport) complete(name string) goal {
	lost := float64(r.Missing) + float64(r.Gaps)
	return goal{name + ", samples missing or gaps", "0", lost, lost == 0, fmt.Sprint(lost)}
}

func (r *ingestReport) render(w io.Writer) {
	r.Machine.render(w)
	fmt.Fprintf(w, "  limits   memcpy %s/s, write and sync %s/s, sync of 4 KiB p50 %v, p99 %v\n\n",
		sizeText(r.Limits.MemcpyBytesPerS), sizeText(r.Limits.WriteBytesPerS),
		measure.Seconds(r.Limits.SyncP50S), measure.Seconds(r.Limits.SyncP99S))
	t := newTable(w)
	t.AppendHeader(table.Row{"", "scans/s", "as int16", "bytes a scan", "monitor", "host", "sample to durable p50, p99"})
	for _, s := range []struct {
		name string
		r    *streamReport
	}{{"full speed", r.Fast}, {"paced", r.Paced}} {
		if s.r == nil {
			continue
		}
		latency := ""
		if s.r.Paced {
			latency = fmt.Sprintf("%.1f ms, %.1f ms", 1e3*s.r.LatencyP50S, 1e3*s.r.LatencyP99S)
		}
		t.AppendRow(table.Row{
			s.name, fmt.Sprintf("%.2f M", s.r.ScansPerS/1e6), sizeText(s.r.RawBytesPerS) + "/s", fmt.Sprintf("%.3f", s.r.BytesPerScan),
			fmt.Sprintf("%.2f cores", s.r.MonitorCores), fmt.Sprintf("%.2f cores", s.r.HostCores), latency,
		})
	}
	t.AppendRow(table.Row{
		"row a sample", fmt.Sprintf("%.2f M", r.Rows.RowsPerS/1e6), sizeText(12*r.Rows.RowsPerS) + "/s",
		fmt.Sprintf("%.3f", r.Rows.BytesPerRow), "", "", "",
	})
	t.Render()
	for _, p := range r.Pairs {
		fmt.Fprintf(w, "  with the pyramid %.1f M scans/s, without %.1f: %.0f %%; processor %.1f and %.1f ns a scan\n",
			p.With/1e6, p.Without/1e6, 100*p.With/p.Without, 1e9*p.WithCPU, 1e9*p.WithoutCPU)
	}
	fmt.Fprintln(w)
	renderGoals(w, r.Goals)
}

func (m machineReport) render(w io.Writer) {
	fmt.Fprintf(w, "  machine  %s, %d cores, %s/%s, %s, %s, load %.2f before\n", m.CPU, m.Cores, m.OS, m.Arch, m.Go, m.FileSystem, m.Load1)
	if m.FileSystem == "tmpfs" || m.FileSystem == "ramfs" {
		fmt.Fprintln(w, "           the scratch directory is in memory: nothing below was durable; name a disk with --dir")
	}
}

func renderGoals(w io.Writer, goals []goal) {
	t := newTable(w)
	t.AppendHeader(table.Row{"", "goal", "result", ""})
	for _, g := range goals {
		verdict := "met"
		if !g.Met {
			verdict = "MISSED"
		}
		t.AppendRow(table.Row{g.Name, g.Want, g.shown, verdict})
	}
	t.Render()
}

// benchBar shows how far a run is on one line of a terminal; a file gets none.
type benchBar struct {
	w      io.Writer
	name   string
	length time.Duration
}

func newBenchBar(w io.Writer, name string, length time.Duration) *benchBar {
	b := &benchBar{w, name, length}
	b.update(0)
	return b
}

func (b *benchBar) update(at time.Duration) {
	if !isTerminal(b.w) {
		return
	}
	const width = 30
	n := min(width, int(width*at/max(b.length, 1)))
	fmt.Fprintf(b.w, "\r\x1b[K%-14s %s%s %.0f of %.0f s", b.name, strings.Repeat("█", n), strings.Repeat("░", width-n), at.Seconds(), b.length.Seconds())
}

func (b *benchBar) clear() {
	if isTerminal(b.w) {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"wattmark/measure"
)

// Goals of the store's benchmark.
const (
	goalPageP50S   = 0.3e-3 // in this process, of a file
	goalPageP99S   = 1e-3
	goalRemoteP50S = 1e-3

	goalVirtualS = 0.2 // for a million samples
	goalStockS   = 8

	goalWarmS        = 5e-3
	goalColdS        = 20e-3
	goalPyramidShare = 0.08
	goalExportPerS   = 100e6 // of raw counts, per core
)

// judge holds the results against the goals.
func (r *storeReport) judge() {
	for _, p := range r.Peers {
		million := p.ReadS * 1e6 / float64(p.Samples)
		switch {
		case strings.Contains(p.Name, "virtual table"):
			r.Goals = append(r.Goals, atMost("a million samples, virtual table", million, goalVirtualS, "s", 1))
		case strings.Contains(p.Name, "stock sqlite3"):
			r.Goals = append(r.Goals, atMost("a million samples, view in stock sqlite3", million, goalStockS, "s", 1))
		}
	}
	if l := r.Lists; l != nil {
		p50 := func(p pageReport) float64 { return p.P50S }
		p99 := func(p pageReport) float64 { return p.P99S }
		r.Goals = append(r.Goals,
			atMost("pages by user and by name's beginning, the slowest p50", float64(l.slowest("file", "process", p50)), goalPageP50S, "ms", 1e-3),
			atMost("the slowest p99", float64(l.slowest("file", "process", p99)), goalPageP99S, "ms", 1e-3),
			atMost("over gRPC, the slowest p50", float64(l.slowest("file", "gRPC", p50)), goalRemoteP50S, "ms", 1e-3))
	}
	if l := r.Long; l != nil {
		warm, cold := 0.0, 0.0
		for _, d := range l.Draws {
			warm, cold = max(warm, d.WarmP50S), max(cold, d.ColdS)
		}
		r.Goals = append(r.Goals,
			atMost("drawn in 2000 columns, warm, the slowest zoom's p50", warm, goalWarmS, "ms", 1e-3),
			atMost("the same, cold", cold, goalColdS, "ms", 1e-3),
			atMost("pyramid", l.PyramidShare, goalPyramidShare, "% of the raw counts", 0.01),
			atLeast("export to Parquet, raw counts per core", l.Export.RawPerCPUS, goalExportPerS, "MB/s", 1e6))
	}
}

func (r *storeReport) render(w io.Writer) {
	r.Machine.render(w)
	fmt.Fprintf(w, "  limits   memcpy %s/s, write and sync %s/s, sync of 4 KiB p50 %v, p99 %v\n\n",
		sizeText(r.Limits.MemcpyBytesPerS), sizeText(r.Limits.WriteBytesPerS),
		measure.Seconds(r.Limits.SyncP50S), measure.Seconds(r.Limits.SyncP99S))
	if len(r.Peers) > 0 {
		renderPeers(w, r.Peers)
	}
	if r.Lists != nil {
		r.Lists.render(w)
	}
	if r.Long != nil {
		r.Long.render(w)
	}
	renderGoals(w, r.Goals)
}

func (l *listsReport) render(w io.Writer) {
	fmt.Fprintf(w, "  %d tasks of %d users, %s, made in %.0f s; pages of %d\n\n", l.Tasks, madeUsers, sizeText(l.Bytes), l.MadeS, pageSize)
	t := newTable(w)
	t.AppendHeader(table.Row{"tasks", "page", "database", "asked", "on it", "least", "p50", "p99", "quiet", "their p50", "p99"})
	for _, p := range l.Pages {
		over := map[string]string{"process": "in the process", "gRPC": "over gRPC"}[p.Over]
		ms := func(s float64) string { return fmt.Sprintf("%.3f ms", 1e3*s) }
		row := table.Row{p.Question, p.Page, p.Database, over, p.Tasks, ms(p.LeastS), ms(p.P50S), ms(p.P99S), fmt.Sprintf("%.0f %%", 100*float64(p.QuietCalls)/float64(p.Calls)), "", ""}
		if p.QuietP50S > 0 {
			row[9], row[10] = ms(p.QuietP50S), ms(p.QuietP99S)
		}
		t.AppendRow(row)
	}
	t.Render()
	fmt.Fprintf(w, "  quiet: the calls just before and after which a fixed sort took at most %g of its least, so that nothing else had a share of the processor\n\n", quietRatio)
}

func (l *longReport) render(w io.Writer) {
	fmt.Fprintf(w, "  %v at %g kS/s, six channels, %s of raw counts: coded and stored in %.1f s (%.3g M scans/s), %.3g bytes a scan, pyramid %.2g %% of the raw counts\n",
		measure.Seconds(l.LengthS), l.RateHz/1e3, sizeText(l.RawBytes), l.StoredS, float64(l.Scans)/l.StoredS/1e6, l.BytesPerScan, 100*l.PyramidShare)
	x := l.Export
	fmt.Fprintf(w, "  exported to Parquet, %s, in %.1f s: %s of raw counts per second of processor, at most %s in memory\n\n",
		sizeText(x.Bytes), x.WallS, sizeText(x.RawPerCPUS), sizeText(x.PeakBytes))
	t := newTable(w)
	t.AppendHeader(table.Row{"drawn", "bins of", "cold", "warm p50", "warm p99"})
	for _, d := range l.Draws {
		ms := func(s float64) string { return fmt.Sprintf("%.2f ms", 1e3*s) }
		t.AppendRow(table.Row{measure.Seconds(d.SpanS), fmt.Sprintf("%d scans", d.BinScans), ms(d.ColdS), ms(d.WarmP50S), ms(d.WarmP99S)})
	}
	t.Render()
	fmt.Fprintln(w)
}

// renderPeers shows each way with its ratio to the first, which is ours.
func renderPeers(w io.Writer, peers []peerReport) {
	ours := peers[0]
	t := newTable(w)
	t.AppendHeader(table.Row{fmt.Sprintf("%d samples", ours.Samples), "stored, samples/s", "of ours", "bytes a sample", "of ours", "read", "of ours"})
	for _, p := range peers {
		row := table.Row{p.Name, "", "", "", "", fmt.Sprintf("%.3g s", p.ReadS), fmt.Sprintf("%.3g", p.ReadS/ours.ReadS)}
		if p.SamplesPerS > 0 {
			row[1], row[2] = fmt.Sprintf("%.3g M", p.SamplesPerS/1e6), fmt.Sprintf("1/%.3g", ours.SamplesPerS/p.SamplesPerS)
			row[3], row[4] = fmt.Sprintf("%.4g", p.BytesPerSample), fmt.Sprintf("%.3g", p.BytesPerSample/ours.BytesPerSample)
		}
		t.AppendRow(row)
	}
	t.Render()
	fmt.Fprintln(w)
}

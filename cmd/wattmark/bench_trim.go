package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/measure/marker"
)

// goalTrimS is the longest that StopCapture should take to its answer.
const goalTrimS = 1e-3

// trimRate is a meter of 50 kS/s, at which the two markers and the smallest of
// the paper's captures are about as long as a real short task.
const trimRate = 50e3

// paperSizes are the paper's captures: coded bytes, and the time it needed to
// process them after the stop request.
var paperSizes = []struct {
	bytes  int
	paperS float64
}{{93000, 83e-3}, {142000, 115e-3}, {213000, 172e-3}}

// trimReport is what bench trim prints.
type trimReport struct {
	Machine           machineReport `json:"machine"`
	DetectorScansPerS float64       `json:"detector_scans_per_s"` // one core
	// CallP50S is a call that does nothing (ListCaptures), for scale.
	CallP50S float64    `json:"empty_call_p50_s"`
	Sizes    []trimSize `json:"sizes"`
	Goals    []goal     `json:"goals"`
}

// trimSize is one of the paper's sizes.
type trimSize struct {
	PaperBytes int     `json:"paper_bytes"`
	PaperS     float64 `json:"paper_s"`
	Captures   int     `json:"captures"`
	Bytes      float64 `json:"bytes"` // coded, mean
	Scans      float64 `json:"scans"` // mean
	// From the arrival of StopCapture in the monitor to its answer there: the
	// paper's processing time.
	MonitorP50S float64 `json:"stop_in_monitor_p50_s"`
	MonitorP99S float64 `json:"stop_in_monitor_p99_s"`
	// From the call of StopCapture over gRPC to its answer: everything durable,
	// both markers found, the window known.
	StopP50S float64 `json:"stop_to_summary_p50_s"`
	StopP99S float64 `json:"stop_to_summary_p99_s"`
	StopMaxS float64 `json:"stop_to_summary_max_s"`
	// From the same call to the header of the trimmed stream, asked for then.
	HeaderP50S float64 `json:"stop_to_header_p50_s"`
	HeaderP99S float64 `json:"stop_to_header_p99_s"`
}

type trimFlags struct {
	benchFlagsShared
	captures int
	seconds  float64
}

func (a *app) benchTrimCmd() *cobra.Command {
	var f trimFlags
	c := &cobra.Command{
		Use: "trim", Short: "The marker detector's speed, and the time from stop to trimmed", Args: cobra.NoArgs,
		Long: `Measure the marker detector alone, and the time from StopCapture to the summary
and to the header of the trimmed stream, over gRPC, for captures of the paper's
sizes. Like a host, the benchmark asks for the stop 50 ms after its stop marker.
The answer comes when all is durable, so a sync of the disk is in it.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.benchTrim(cmd.Context(), f) },
	}
	c.Flags().IntVar(&f.captures, "captures", 50, "captures of each size")
	c.Flags().Float64Var(&f.seconds, "seconds", 2, "length of the detector's run")
	return a.benchFlags(c, &f.benchFlagsShared)
}

func (a *app) benchTrim(ctx context.Context, f trimFlags) error {
	if f.captures < 1 {
		return withCode(exitUsage, fmt.Errorf("--captures %d: want at least 1", f.captures))
	}
	dir, remove, err := f.scratch()
	if err != nil {
		return err
	}
	defer remove()
	r := &trimReport{Machine: describeMachine(dir)}
	if r.DetectorScansPerS, err = detectorRate(ctx, ofSeconds(f.seconds)); err != nil {
		return err
	}
	p, err := startBenchMonitor(ctx, dir, monitorOptions{transport: f.transport, rate: trimRate, paced: true, tag: 0x5a, profile: f.profile}, a.err)
	if err != nil {
		return err
	}
	bar := newBenchBar(a.err, "captures", 0)
	err = r.measure(ctx, p, f.captures, bar)
	bar.clear()
	if err = errors.Join(err, p.stop()); err != nil {
		return err
	}
	for _, s := range r.Sizes {
		r.Goals = append(r.Goals,
			atMost(fmt.Sprintf("%d kB, in the monitor, p50", s.PaperBytes/1000), s.MonitorP50S, goalTrimS, "ms", 1e-3),
			atMost(fmt.Sprintf("%d kB, in the monitor, p99", s.PaperBytes/1000), s.MonitorP99S, goalTrimS, "ms", 1e-3),
			atMost(fmt.Sprintf("%d kB, over gRPC, p50", s.PaperBytes/1000), s.StopP50S, goalTrimS, "ms", 1e-3))
	}
	if a.json {
		return a.printJSON(r)
	}
	r.render(a.out)
	return nil
}

// detectorRate pushes the generator's busy stream through a detector.
func detectorRate(ctx context.Context, length time.Duration) (float64, error) {
	g := newGenerator(10e6, false)
	setup, err := g.setup(g.Inputs())
	if err != nil {
		return 0, err
	}
	det, err := marker.NewDetector(marker.ProfileFor(setup, 0x5a), &setup)
	if err != nil {
		return 0, err
	}
	s, err := g.newScore()
	if err != nil {
		return 0, err
	}
	begin, scan := time.Now(), uint64(0)
	for time.Since(begin) < length {
		for range 64 {
			if err := det.Push(s.block(scan, generatorBlock)); err != nil {
				return 0, err
			}
			scan += generatorBlock
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	return float64(scan) / time.Since(begin).Seconds(), nil
}

func (r *trimReport) measure(ctx context.Context, p *monitorProcess, captures int, bar *benchBar) error {
	bench, err := p.client.GetBench(ctx)
	if err != nil {
		return err
	}
	if r.CallP50S, err = callTime(ctx, p); err != nil {
		return err
	}
	t := trimming{p: p, spec: marker.ProfileFor(bench.Setup, 0x5a)}
	t.perScan = 4.45 // bytes, until the first capture tells
	begin := time.Now()
	for _, size := range paperSizes {
		s := trimSize{PaperBytes: size.bytes, PaperS: size.paperS, Captures: captures}
		var inside, stops, headers []float64
		for i := range captures {
			scans := float64(size.bytes) / t.perScan
			if i == 0 && len(r.Sizes) == 0 {
				bar.length = ofSeconds(float64(captures) * (93 + 142 + 213) * 1e3 / t.perScan / trimRate)
			}
			if err := t.one(ctx, ofSeconds(scans/trimRate)); err != nil {
				return fmt.Errorf("capture %d of %d bytes: %w", i, size.bytes, err)
			}
			inside = append(inside, t.inside)
			stops, headers = append(stops, t.stop.Seconds()), append(headers, t.header.Seconds())
			s.Bytes += float64(t.bytes) / float64(captures)
			s.Scans += float64(t.scans) / float64(captures)
			bar.update(time.Since(begin))
		}
		slices.Sort(inside)
		slices.Sort(stops)
		slices.Sort(headers)
		s.StopP50S, s.StopP99S, s.StopMaxS = quantile(stops, 0.5), quantile(stops, 0.99), quantile(stops, 1)
		s.MonitorP50S, s.MonitorP99S = quantile(inside, 0.5), quantile(inside, 0.99)
		s.HeaderP50S, s.HeaderP99S = quantile(headers, 0.5), quantile(headers, 0.99)
		r.Sizes = append(r.Sizes, s)
	}
	return nil
}

// callTime is the median of calls that come as far apart as stops do.
func callTime(ctx context.Context, p *monitorProcess) (float64, error) {
	var took []float64
	for range 15 {
		if !sleepUntil(ctx, time.Now().Add(20*time.Millisecond)) {
			return 0, ctx.Err()
		}
		begin := time.Now()
		if _, err := p.client.Captures(ctx); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begin).Seconds())
	}
	slices.Sort(took)
	return quantile(took, 0.5), nil
}

func (r *trimReport) render(w io.Writer) {
	r.Machine.render(w)
	fmt.Fprintf(w, "  detector %.1f million scans/s of six channels on one core\n", r.DetectorScansPerS/1e6)
	fmt.Fprintf(w, "  gRPC     a call that does nothing takes %v\n\n", measure.Seconds(r.CallP50S))
	t := newTable(w)
	t.AppendHeader(table.Row{"capture", "captures", "in the monitor p50, p99", "stop to summary p50, p99, max", "stop to trimmed header p50, p99", "the paper"})
	for _, s := range r.Sizes {
		t.AppendRow(table.Row{
			sizeText(s.Bytes), s.Captures, fmt.Sprintf("%.2f ms, %.2f ms", 1e3*s.MonitorP50S, 1e3*s.MonitorP99S),
			fmt.Sprintf("%.2f ms, %.2f ms, %.2f ms", 1e3*s.StopP50S, 1e3*s.StopP99S, 1e3*s.StopMaxS),
			fmt.Sprintf("%.2f ms, %.2f ms", 1e3*s.HeaderP50S, 1e3*s.HeaderP99S), fmt.Sprintf("%.0f ms", 1e3*s.PaperS),
		})
	}
	t.Render()
	fmt.Fprintln(w)
	renderGoals(w, r.Goals)
}

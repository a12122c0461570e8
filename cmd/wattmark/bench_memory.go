package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// goalFlat is how far the monitor's memory may move from its median.
const goalFlat = 0.05

// memoryReport is what bench memory prints.
type memoryReport struct {
	Machine  machineReport `json:"machine"`
	Stream   *streamReport `json:"stream"`
	WarmUpS  float64       `json:"warm_up_s"`
	Readings int           `json:"readings"` // after the warm-up, one a second
	// Resident memory of the monitor process after the warm-up.
	RSSMedianBytes  float64 `json:"rss_median_bytes"`
	RSSMinBytes     float64 `json:"rss_min_bytes"`
	RSSMaxBytes     float64 `json:"rss_max_bytes"`
	RSSFirstBytes   float64 `json:"rss_first_tenth_bytes"` // mean of the first tenth after the warm-up
	RSSLastBytes    float64 `json:"rss_last_tenth_bytes"`
	Deviation       float64 `json:"rss_largest_deviation_rel"` // from the median
	HeapMedianBytes float64 `json:"heap_median_bytes"`
	HostRSSMax      float64 `json:"host_rss_max_bytes"`
	SeriesBytes     []int64 `json:"rss_bytes"` // every second, warm-up included
	Goals           []goal  `json:"goals"`
}

type memoryFlags struct {
	benchFlagsShared
	minutes, rate, warmUp float64
}

func (a *app) benchMemoryCmd() *cobra.Command {
	var f memoryFlags
	c := &cobra.Command{
		Use: "memory", Short: "The monitor's memory over a long capture", Args: cobra.NoArgs,
		Long: `Stream a paced capture to a database as bench ingest does, and read the monitor
process's resident memory every second. It should not grow with the capture.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.benchMemory(cmd.Context(), f) },
	}
	c.Flags().Float64Var(&f.minutes, "minutes", 10, "length of the capture")
	c.Flags().Float64Var(&f.rate, "rate", 1e6, "scans a second")
	c.Flags().Float64Var(&f.warmUp, "warm-up", 60, "seconds that are not judged, a tenth of the capture at most")
	return a.benchFlags(c, &f.benchFlagsShared)
}

func (a *app) benchMemory(ctx context.Context, f memoryFlags) error {
	length := ofSeconds(60 * f.minutes)
	if length < time.Second || f.rate <= 0 {
		return withCode(exitUsage, fmt.Errorf("--minutes %g --rate %g: want a second at least, and a positive rate", f.minutes, f.rate))
	}
	dir, remove, err := f.scratch()
	if err != nil {
		return err
	}
	defer remove()
	r := &memoryReport{Machine: describeMachine(dir), WarmUpS: min(f.warmUp, length.Seconds()/10)}
	run := streamRun{dir: dir, db: dir + "/power.db", length: length}
	run.monitor = monitorOptions{transport: f.transport, rate: f.rate, paced: true, tag: 0x5a, profile: f.profile}
	bar := newBenchBar(a.err, "memory", length)
	var heap []float64
	run.each = func(at time.Duration, host, mon monitorNote) {
		bar.update(at)
		r.SeriesBytes = append(r.SeriesBytes, mon.RSSBytes)
		heap = append(heap, float64(mon.HeapBytes))
		r.HostRSSMax = max(r.HostRSSMax, float64(host.RSSBytes))
	}
	r.Stream, err = run.run(ctx, a.streams)
	bar.clear()
	if err != nil {
		return err
	}
	r.judge(heap)
	if a.json {
		return a.printJSON(r)
	}
	r.render(a.out)
	return nil
}

// judge looks at what came after the warm-up.
func (r *memoryReport) judge(heap []float64) {
	skip := min(len(r.SeriesBytes)-1, int(math.Ceil(r.WarmUpS)))
	var rss []float64
	for _, b := range r.SeriesBytes[skip:] {
		rss = append(rss, float64(b))
	}
	tenth := max(1, len(rss)/10)
	r.Readings, r.RSSFirstBytes, r.RSSLastBytes = len(rss), mean(rss[:tenth]), mean(rss[len(rss)-tenth:])
	slices.Sort(rss)
	slices.Sort(heap)
	r.RSSMinBytes, r.RSSMaxBytes, r.RSSMedianBytes = rss[0], rss[len(rss)-1], quantile(rss, 0.5)
	r.HeapMedianBytes = quantile(heap, 0.5)
	if r.RSSMedianBytes > 0 {
		r.Deviation = max(r.RSSMaxBytes-r.RSSMedianBytes, r.RSSMedianBytes-r.RSSMinBytes) / r.RSSMedianBytes
	}
	r.Goals = append(r.Goals, atMost("monitor's memory, largest deviation", r.Deviation, goalFlat, "%", 0.01), r.Stream.complete("stream"))
}

func mean(v []float64) float64 {
	s := 0.0
	for _, x := range v {
		s += x
	}
	return s / float64(len(v))
}

func (r *memoryReport) render(w io.Writer) {
	r.Machine.render(w)
	fmt.Fprintf(w, "  stream   %.2f million scans/s for %.0f s, monitor %.2f cores, host %.2f cores\n",
		r.Stream.ScansPerS/1e6, r.Stream.DurationS, r.Stream.MonitorCores, r.Stream.HostCores)
	fmt.Fprintf(w, "  monitor  median %s, %s to %s, first tenth %s, last tenth %s, after %.0f s of warm-up\n",
		sizeText(r.RSSMedianBytes), sizeText(r.RSSMinBytes), sizeText(r.RSSMaxBytes), sizeText(r.RSSFirstBytes), sizeText(r.RSSLastBytes), r.WarmUpS)
	fmt.Fprintf(w, "  host     at most %s\n\n", sizeText(r.HostRSSMax))
	renderGoals(w, r.Goals)
}

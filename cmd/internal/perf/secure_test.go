package perf

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
)

// secureReport is the result of the TLS benchmark.
type secureReport struct {
	Machine machineReport   `json:"machine"`
	Plain   []*streamReport `json:"plain"`
	Secure  []*streamReport `json:"secure"`
	// Ratio is that of the scans a second with TLS to those without, of each pair of runs
	// that followed each other; Median is theirs.
	Ratio  []float64 `json:"ratio"`
	Median float64   `json:"median"`
	// CPU is the median of the same of processor time a scan, of both processes.
	CPU   float64 `json:"cpu_ratio"`
	Goals []goal  `json:"goals"`
}

// leastRatio is the share of the rate that TLS and tokens must leave.
const leastRatio = 0.85

func benchSecure(ctx context.Context, log io.Writer, f ingestFlags, rounds int) (*secureReport, error) {
	dir, remove, err := f.scratch()
	if err != nil {
		return nil, err
	}
	defer remove()
	r := &secureReport{Machine: describeMachine(dir)}
	var cpu []float64
	for i := range rounds {
		pair, err := streamPair(ctx, log, f, dir, i, func(run *ingestFlags, _ *streamRun, second bool) {
			run.transport = map[bool]string{false: "tcp", true: overTLS}[second]
		})
		if err != nil {
			return nil, err
		}
		r.Plain, r.Secure = append(r.Plain, pair[0]), append(r.Secure, pair[1])
		r.Ratio = append(r.Ratio, pair[1].ScansPerS/pair[0].ScansPerS)
		cpu = append(cpu, pair[1].cpuPerScan()/pair[0].cpuPerScan())
	}
	r.Median, r.CPU = quantile(slices.Sorted(slices.Values(r.Ratio)), 0.5),
		quantile(slices.Sorted(slices.Values(cpu)), 0.5)
	r.Goals = []goal{{Name: "rate with TLS and a token, to that without", Want: fmt.Sprintf("at least %.2f",
		leastRatio), Result: r.Median, Met: r.Median >= leastRatio, shown: fmt.Sprintf("%.3f", r.Median)}}
	for i, ratio := range r.Ratio {
		p, s := r.Plain[i], r.Secure[i]
		fmt.Fprintf(log,
			"plain %5.1f, TLS %5.1f million scans/s: %.3f   host %.2f and %.2f, monitor %.2f and %.2f cores\n",
			p.ScansPerS/1e6, s.ScansPerS/1e6, ratio, p.HostCores, s.HostCores, p.MonitorCores, s.MonitorCores)
	}
	g := r.Goals[0]
	fmt.Fprintf(log, "median ratio %s (goal: %s); processor time a scan %.3f\n", g.shown, g.Want, r.CPU)
	return r, nil
}

// streamPair makes two runs at full speed, numbered i, which vary sets apart. The order alternates with i.
func streamPair(ctx context.Context, log io.Writer, f ingestFlags, dir string, i int,
	vary func(f *ingestFlags, run *streamRun, second bool),
) (pair [2]*streamReport, err error) {
	for j := range pair {
		which := (i + j) % 2
		run := &streamRun{name: fmt.Sprintf("pair %d.%d", i+1, which+1), length: ofSeconds(f.seconds)}
		vary(&f, run, which == 1)
		pair[which], err = ingestOnce(ctx, &cli.App{Streams: cli.Streams{Out: log, Err: log}}, f, dir, run)
		if err != nil {
			return pair, err
		}
	}
	return pair, nil
}

// goalPyramidRatio is the share of the rate without pyramids that ingest with them must reach.
const goalPyramidRatio = 0.85

// benchPyramid compares ingest with and without the pyramid.
func benchPyramid(ctx context.Context, log io.Writer, f ingestFlags, rounds int) ([]goal, error) {
	dir, remove, err := f.scratch()
	if err != nil {
		return nil, err
	}
	defer remove()
	var ratio []float64
	for i := range rounds {
		pair, err := streamPair(ctx, log, f, dir, i, func(_ *ingestFlags, run *streamRun, second bool) {
			run.flat = second
		})
		if err != nil {
			return nil, err
		}
		with, flat := pair[0], pair[1]
		ratio = append(ratio, with.ScansPerS/flat.ScansPerS)
		fmt.Fprintf(log, "with the pyramid %.1f M scans/s, without %.1f: %.0f %%; processor %.1f and %.1f ns a scan\n",
			with.ScansPerS/1e6, flat.ScansPerS/1e6, 100*ratio[i], 1e9*with.cpuPerScan(), 1e9*flat.cpuPerScan())
	}
	slices.Sort(ratio)
	goals := []goal{atLeast("ingest with the pyramid, of that without, median", quantile(ratio, 0.5), goalPyramidRatio,
		"%", 0.01)}
	renderGoals(log, goals)
	return goals, nil
}

// cpuPerScan is in seconds.
func (r *streamReport) cpuPerScan() float64 {
	return (r.HostCPUS + r.MonitorCPUS) / float64(r.Scans)
}

// goalFlat is how far the monitor's memory may move from its median.
const goalFlat = 0.05

// memoryReport is the result of the memory benchmark.
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

func benchMemory(ctx context.Context, log io.Writer, f memoryFlags) (*memoryReport, error) {
	length := ofSeconds(60 * f.minutes)
	dir, remove, err := f.scratch()
	if err != nil {
		return nil, err
	}
	defer remove()
	r := &memoryReport{Machine: describeMachine(dir), WarmUpS: min(f.warmUp, length.Seconds()/10)}
	f.dir = dir
	run := streamRun{
		monitorOptions: monitorOptions{f.benchFlagsShared, f.rate, true}, db: dir + "/power.db", length: length,
	}
	var heap []float64
	run.each = func(_ time.Duration, host, mon monitorNote) {
		r.SeriesBytes = append(r.SeriesBytes, mon.RSSBytes)
		heap = append(heap, float64(mon.HeapBytes))
		r.HostRSSMax = max(r.HostRSSMax, float64(host.RSSBytes))
	}
	r.Stream, err = run.run(ctx, log)
	if err != nil {
		return nil, err
	}
	r.judge(heap)
	r.render(log)
	return r, nil
}

// judge compares the figures after the warm-up.
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
	r.Goals = append(r.Goals, atMost("monitor's memory, largest deviation", r.Deviation, goalFlat, "%", 0.01),
		r.Stream.complete("stream"))
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
		cli.SizeText(r.RSSMedianBytes), cli.SizeText(r.RSSMinBytes), cli.SizeText(r.RSSMaxBytes),
		cli.SizeText(r.RSSFirstBytes), cli.SizeText(r.RSSLastBytes), r.WarmUpS)
	fmt.Fprintf(w, "  host     at most %s\n\n", cli.SizeText(r.HostRSSMax))
	renderGoals(w, r.Goals)
}

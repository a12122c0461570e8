package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

const (
	// goalTrimS is the goal in s for the time from StopCapture to its answer.
	goalTrimS = 1e-3
	// trimRate is 50 kS/s: at this rate the smallest of the paper's captures, with its two
	// markers, is about as long as a short task.
	trimRate = 50e3
)

// paperSizes are the paper's captures: encoded bytes, and the time that its implementation
// needed to process them after the stop request.
var paperSizes = []struct {
	bytes  int
	paperS float64
}{{93000, 83e-3}, {142000, 115e-3}, {213000, 172e-3}}

// trimReport is the JSON of bench trim.
type trimReport struct {
	Machine           machineReport `json:"machine"`
	DetectorScansPerS float64       `json:"detector_scans_per_s"` // one core
	// CallP50S is the time of a call without work (ListCaptures), for scale.
	CallP50S float64    `json:"empty_call_p50_s"`
	Sizes    []trimSize `json:"sizes"`
	Goals    []goal     `json:"goals"`
}

// trimSize is the result for one of the paper's sizes; times in s.
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

// trimFlags are the flags of bench trim.
type trimFlags struct {
	benchFlagsShared
	captures int
	seconds  float64
}

// benchTrimCmd returns bench trim, whose captures have the sizes of the paper's.
func benchTrimCmd(a *cli.App) *cobra.Command {
	var f trimFlags
	c := cli.Command("trim", "The marker detector's speed, and the time from stop to trimmed", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return benchTrim(ctx, a, f) })
	c.Flags().IntVar(&f.captures, "captures", 50, "captures of each size")
	c.Flags().Float64Var(&f.seconds, "seconds", 2, "length of the detector's run")
	return benchFlags(a, c, &f.benchFlagsShared)
}

func benchTrim(ctx context.Context, a *cli.App, f trimFlags) error {
	if f.captures < 1 {
		return cli.Usagef("--captures %d: want at least 1", f.captures)
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
	f.dir = dir
	p, err := startBenchMonitor(ctx, monitorOptions{f.benchFlagsShared, trimRate, true}, cli.Raw(a.Err))
	if err != nil {
		return err
	}
	bar := a.Progress("captures")
	err = r.measure(ctx, p, f.captures, bar)
	bar.End()
	if err = errors.Join(err, p.stop()); err != nil {
		return err
	}
	for _, s := range r.Sizes {
		size := fmt.Sprintf("%d kB, ", s.PaperBytes/1000)
		r.Goals = append(r.Goals, atMost(size+"in the monitor, p50", s.MonitorP50S, goalTrimS, "ms", 1e-3),
			atMost(size+"in the monitor, p99", s.MonitorP99S, goalTrimS, "ms", 1e-3),
			atMost(size+"over gRPC, p50", s.StopP50S, goalTrimS, "ms", 1e-3))
	}
	return a.Print(r, r.render)
}

// detectorRate returns the scans/s of a detector on one core, fed with the busy stream.
func detectorRate(ctx context.Context, length time.Duration) (float64, error) {
	g := NewGenerator(10e6, false)
	setup, err := g.Setup(g.Inputs())
	if err != nil {
		return 0, err
	}
	det, err := marker.NewDetector(marker.ProfileFor(setup, markerTag), &setup)
	if err != nil {
		return 0, err
	}
	s, begin, scan := g.newScore(), time.Now(), uint64(0)
	for time.Since(begin) < length {
		// Read the clock once in 64 blocks only.
		for range 64 {
			if err := cmp.Or(det.Push(s.block(scan, generatorBlock)), ctx.Err()); err != nil {
				return 0, err
			}
			scan += generatorBlock
		}
	}
	return float64(scan) / time.Since(begin).Seconds(), nil
}

// measure makes the captures of each size. A capture's length follows from the bytes per
// scan of the capture before.
func (r *trimReport) measure(ctx context.Context, p *monitorProcess, captures int, bar *cli.Progress) (err error) {
	if r.CallP50S, err = callTime(ctx, p); err != nil {
		return err
	}
	perScan := 4.45 // bytes; the first capture replaces this estimate
	length := ofSeconds(float64(captures) * (93 + 142 + 213) * 1e3 / perScan / trimRate)
	begin := time.Now()
	for _, size := range paperSizes {
		s := trimSize{PaperBytes: size.bytes, PaperS: size.paperS, Captures: captures}
		var inside, stops, headers []float64
		for i := range captures {
			c, err := trimOnce(ctx, p, ofSeconds(float64(size.bytes)/perScan/trimRate))
			if err != nil {
				return fmt.Errorf("capture %d of %d bytes: %w", i, size.bytes, err)
			}
			inside, stops, headers = append(inside, c.inside), append(stops, c.stop), append(headers, c.header)
			s.Bytes += c.bytes / float64(captures)
			s.Scans += c.scans / float64(captures)
			perScan = c.bytes / c.scans
			bar.Set(int(time.Since(begin)), int(length))
		}
		s.StopP50S, s.StopP99S, s.StopMaxS = quantile(stops, 0.5), quantile(stops, 0.99), quantile(stops, 1)
		s.MonitorP50S, s.MonitorP99S = quantile(inside, 0.5), quantile(inside, 0.99)
		s.HeaderP50S, s.HeaderP99S = quantile(headers, 0.5), quantile(headers, 0.99)
		r.Sizes = append(r.Sizes, s)
	}
	return nil
}

// callTime returns the median time in s of ListCaptures, called 20 ms apart as stops are.
func callTime(ctx context.Context, p *monitorProcess) (float64, error) {
	var took []float64
	for range 15 {
		if !cli.SleepUntil(ctx, time.Now().Add(20*time.Millisecond)) {
			return 0, ctx.Err()
		}
		begin := time.Now()
		if _, err := p.client.Captures(ctx); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begin).Seconds())
	}
	return quantile(took, 0.5), nil
}

func (r *trimReport) render(w io.Writer) {
	r.Machine.render(w)
	fmt.Fprintf(w, "  detector %.1f million scans/s of six channels on one core\n", r.DetectorScansPerS/1e6)
	fmt.Fprintf(w, "  gRPC     a call that does nothing takes %v\n\n", measure.Seconds(r.CallP50S))
	out.Table(w, out.Row{
		"capture", "captures", "in the monitor p50, p99", "stop to summary p50, p99, max",
		"stop to trimmed header p50, p99", "the paper",
	}, r.Sizes, func(s trimSize) out.Row {
		return out.Row{
			cli.SizeText(s.Bytes), s.Captures, fmt.Sprintf("%.2f ms, %.2f ms", 1e3*s.MonitorP50S, 1e3*s.MonitorP99S),
			fmt.Sprintf("%.2f ms, %.2f ms, %.2f ms", 1e3*s.StopP50S, 1e3*s.StopP99S, 1e3*s.StopMaxS),
			fmt.Sprintf("%.2f ms, %.2f ms", 1e3*s.HeaderP50S, 1e3*s.HeaderP99S), fmt.Sprintf("%.0f ms", 1e3*s.PaperS),
		}
	})
	fmt.Fprintln(w)
	renderGoals(w, r.Goals)
}

// trimOnce makes a capture of about the given length, markers and leads included, and releases it. Times are in s,
// bytes in the spool.
func trimOnce(ctx context.Context, p *monitorProcess, length time.Duration,
) (c struct{ inside, stop, header, bytes, scans float64 }, err error) {
	id, spec, err := p.begin(ctx)
	if err != nil {
		return c, err
	}
	note, err := p.ask("usage")
	if err != nil {
		return c, err
	}
	work := length - spec.Duration().Duration() - generatorLead
	if !cli.SleepUntil(ctx, time.Unix(0, note.BegunNS).Add(work)) {
		return c, ctx.Err()
	}
	if _, err := p.ask("stop"); err != nil {
		return c, err
	}
	if !cli.SleepUntil(ctx, time.Now().Add(generatorLead)) {
		return c, ctx.Err()
	}
	// The clock starts with the stop request, 50 ms after the marker, as on a host.
	header := headerClock{begin: time.Now()}
	sum, err := p.client.Stop(ctx, id)
	c.stop, c.scans = time.Since(header.begin).Seconds(), float64(sum.Scans)
	if err != nil {
		return c, err
	}
	if sum.State != session.Complete || sum.Window == nil {
		return c, fmt.Errorf("ended in state %d without a window: %s%s", sum.State, sum.Reason, sum.NoWindowReason)
	}
	if _, err := p.client.Read(ctx, monitorclient.ReadOptions{CaptureID: id}, &header); err != nil {
		return c, err
	}
	note, err = p.ask("usage")
	c.header, c.inside = header.took.Seconds(), note.StopS
	if err != nil {
		return c, err
	}
	held, err := p.client.Captures(ctx)
	if i := slices.IndexFunc(held, func(h session.Capture) bool { return h.ID == id }); i >= 0 {
		c.bytes = float64(held[i].SpoolBytes)
	}
	return c, errors.Join(err, p.client.Release(ctx, id))
}

// headerClock records when the header of a stream arrived.
type headerClock struct {
	begin time.Time
	took  time.Duration
}

func (h *headerClock) Header(store.Header, uint64) error {
	h.took = time.Since(h.begin)
	return nil
}

func (h *headerClock) Chunk(*chunk.Chunk) error { return nil }

func (h *headerClock) Event(measure.Event) error { return nil }

package capture

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
)

// generator delivers ready-made blocks of six 16-bit channels as fast as they
// are taken: noise of 4 counts, steps and a ripple.
type generator struct {
	block  measure.Block
	rate   float64
	blocks chan int // how many blocks to deliver now
	done   chan error
	mark   func(b *measure.Block)
}

func newGenerator(scans int, rate float64) *generator {
	rng := rand.New(rand.NewPCG(9, 9))
	g := &generator{rate: rate, blocks: make(chan int), done: make(chan error, 1)}
	g.block.Counts = make([][]measure.Count, 6)
	for c := range g.block.Counts {
		col, level := make([]measure.Count, scans), 8000.0
		for i := range col {
			if i%20000 == 0 {
				level = 2000 + 20000*rng.Float64()
			}
			col[i] = measure.Count(level + 30*math.Sin(float64(i)/4000) + 4*rng.NormFloat64())
		}
		g.block.Counts[c] = col
	}
	return g
}

func (g *generator) Open(context.Context) error    { return nil }
func (g *generator) Close() error                  { return nil }
func (g *generator) Identity() instrument.Identity { return instrument.Identity{Kind: "generator"} }

func (g *generator) Inputs() instrument.Inputs {
	in := instrument.Inputs{Timebase: measure.Timebase{TickHz: 1e9, TicksPerScan: 1e9 / g.rate}}
	for c := range 6 {
		ch := measure.Channel{Name: fmt.Sprintf("c%d", c), Unit: measure.UnitAmpere, Gain: 1e-3, MinCount: -32768, MaxCount: 32767}
		if c%2 == 1 {
			ch.Unit, ch.Gain = measure.UnitVolt, 5e-4
		}
		in.Channels = append(in.Channels, ch)
	}
	return in
}

func (g *generator) Stream(ctx context.Context, s instrument.Sink) error {
	scans := g.block.Scans()
	var next uint64
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-g.blocks:
			for range n {
				g.block.FirstScan, g.block.FirstTick = next, int64(float64(next)*1e9/g.rate)
				next += uint64(scans)
				if g.mark != nil {
					g.mark(&g.block)
				}
				if err := s.Block(&g.block); err != nil {
					g.done <- err
					return err
				}
			}
			g.done <- nil
		}
	}
}

func threeRails(in instrument.Inputs) (measure.Setup, error) {
	s := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
	for i, r := range []measure.Role{measure.RolePSU, measure.RolePCIe3V3, measure.RolePCIe12V} {
		s.Rails = append(s.Rails, measure.Rail{Name: r.String(), Role: r, Wiring: measure.WiringClamp, X: 2 * i, Y: 2*i + 1})
	}
	return s, nil
}

func benchOwner(b *testing.B, g *generator, cfg Config, opt spool.Options) *Owner {
	b.Helper()
	store, err := spool.Open(b.TempDir(), opt)
	if err != nil {
		b.Fatal(err)
	}
	cfg.Instrument, cfg.Setup, cfg.Store = g, threeRails, store
	o, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = o.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done; store.Close() })
	return o
}

// BenchmarkPipeline is the way of the samples from the instrument to the disk.
func BenchmarkPipeline(b *testing.B) {
	for _, spec := range []marker.Spec{{}, marker.FastProfile(10e6, 1)} {
		for _, scans := range []int{1000, 65536} {
			b.Run(fmt.Sprintf("code=%v/block=%d", spec.Code, scans), func(b *testing.B) {
				g := newGenerator(scans, 10e6)
				o := benchOwner(b, g, Config{}, spool.Options{})
				c := benchStart(b, o, g, spec)
				b.ReportAllocs()
				b.ResetTimer()
				g.blocks <- b.N
				if err := <-g.done; err != nil {
					b.Fatal(err)
				}
				if err := c.log.Sync(); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				b.ReportMetric(float64(b.N)*float64(scans)/b.Elapsed().Seconds()/1e6, "Mscans/s")
				sum, err := c.Stop(b.Context())
				if err != nil || sum.Lost != 0 || sum.Scans != uint64(b.N+1)*uint64(scans) {
					b.Fatalf("%+v, %v", sum, err)
				}
				b.ReportMetric(float64(c.log.Size())/float64(sum.Scans), "B/scan")
			})
		}
	}
}

func benchStart(b *testing.B, o *Owner, g *generator, spec marker.Spec) *Capture {
	b.Helper()
	go func() { g.blocks <- 1 }()
	c, err := o.Start(b.Context(), session.Request{Holder: "bench", Marker: spec, Lease: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	<-g.done
	return c
}

// BenchmarkStop is the time from StopCapture to the trimmed summary of a task of
// the paper's size (93 to 213 KB of twelve-byte scans; the paper: 83 to 172 ms),
// its markers included. seen: the stop marker was recognised before the stop was
// asked for, as with a host that waits out its guard; unseen: it is still to be
// found in the samples at hand. durable: with the disk's sync, as the monitor
// does it; without, to see what the disk costs.
func BenchmarkStop(b *testing.B) {
	for _, kb := range []int{93, 213} {
		for _, seen := range []bool{true, false} {
			for _, durable := range []bool{true, false} {
				b.Run(fmt.Sprintf("KB=%d/seen=%v/durable=%v", kb, seen, durable), func(b *testing.B) {
					benchStop(b, kb<<10/12, seen, durable)
				})
			}
		}
	}
}

// volatile is a file that is never synced.
type volatile struct{ *os.File }

func (volatile) Datasync() error { return nil }

func benchStop(b *testing.B, work int, seen, durable bool) {
	const rate = 10e3
	spec := marker.FastProfile(rate, 1)
	d := float64(spec.Duration())
	stopAt := 0.2 + d + float64(work)/rate
	behind := 3 * float64(spec.Chip)
	if seen {
		behind = 60 * float64(spec.Chip)
	}
	blocks := int((stopAt+d+behind)*rate)/100 + 1
	opt := spool.Options{}
	if !durable {
		opt.OpenFile = func(name string) (spool.File, error) {
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
			return volatile{f}, err
		}
	}
	g := newGenerator(100, rate)
	g.mark = func(blk *measure.Block) { twoMarkers(blk, spec, rate, 0.2, stopAt) }
	o := benchOwner(b, g, Config{StopTail: -time.Hour}, opt) // nothing is on its way
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		c := benchStart(b, o, g, spec)
		g.blocks <- blocks - 1
		if err := <-g.done; err != nil {
			b.Fatal(err)
		}
		if err := c.log.Sync(); err != nil { // as the syncer does while a task runs
			b.Fatal(err)
		}
		b.StartTimer()
		at := time.Now()
		sum, err := c.Stop(b.Context())
		took = append(took, time.Since(at))
		if err != nil || sum.Window == nil {
			b.Fatalf("%+v, %v", sum, err)
		}
	}
	slices.Sort(took)
	for name, q := range map[string]int{"p50": 50, "p90": 90, "p99": 99} {
		b.ReportMetric(float64(took[len(took)*q/100].Microseconds())/1e3, name+"-ms")
	}
}

// twoMarkers makes a block of a task's trace: 60 W with chips of 100 W more.
func twoMarkers(blk *measure.Block, spec marker.Spec, rate, startAt, stopAt float64) {
	for i := range blk.Counts[0] {
		t := (float64(blk.FirstScan) + float64(i)) / rate
		amps := measure.Count(5000)
		for kind, at := range map[marker.Kind]float64{marker.Start: startAt, marker.Stop: stopAt} {
			if k := int((t - at) / float64(spec.Chip)); t >= at && k < spec.Len() && spec.Chips(kind)[k] {
				amps = 13333
			}
		}
		for c := range blk.Counts {
			blk.Counts[c][i] = measure.Count(i*7%5) + 24000
			if c == 0 {
				blk.Counts[c][i] = amps + measure.Count(i*13%9)
			}
		}
	}
}

package composite

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// fake is an instrument whose first channel reads the true time in microseconds,
// and whose second reads the amperes of a load that plays markers. Its clock may
// be off, it may begin late, and its line may be slow.
type fake struct {
	name   string
	rate   float64 // nominal, scans a second
	ppm    float64 // by how much its clock is fast
	late   time.Duration
	delay  float64 // seconds by which its readings lag behind
	jitter time.Duration
	batch  int
	epoch  time.Time
	load   func(t float64) float64

	wall     bool // its second channel is the machine's supply
	stamped  bool
	deferred bool
	trigger  bool // waits for fired
	fired    chan struct{}
	loses    map[int]int   // scans lost before a scan of the device
	gone     float64       // the link is lost after so many seconds
	silent   float64       // nothing comes any more after so many
	ends     float64       // a recording ends
	deaf     time.Duration // by how much it goes on when it is asked to stop
	opens    int
}

func (f *fake) timebase() measure.Timebase {
	return measure.Timebase{TickHz: 1e9, UTickHz: 50e-6, TicksPerScan: 1e9 / f.rate, Stamped: f.stamped}
}

func (f *fake) Open(context.Context) error { f.opens++; return nil }
func (f *fake) Close() error               { return nil }
func (f *fake) Identity() instrument.Identity {
	return instrument.Identity{Kind: "fake", Model: f.name, Serial: "1", Firmware: "2", Address: "nowhere"}
}

func (f *fake) Inputs() instrument.Inputs {
	return instrument.Inputs{Timebase: f.timebase(), Channels: []measure.Channel{
		{Name: "time", Unit: measure.UnitVolt, Gain: 1e-6},
		{Name: "load.current", Unit: measure.UnitAmpere, Gain: 1e-3, UGain: 0.01},
	}}
}

// Stream takes scans as true time goes on.
func (f *fake) Stream(ctx context.Context, sink instrument.Sink) error {
	if f.deaf > 0 {
		on, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		defer context.AfterFunc(ctx, func() { wait(on, f.deaf); end() })()
		ctx = on
	}
	rng := rand.New(rand.NewPCG(1, uint64(f.rate)))
	if f.trigger {
		if err := sink.Waiting(); err != nil {
			return err
		}
		select {
		case <-f.fired:
		case <-ctx.Done():
			return nil
		}
	} else {
		wait(ctx, f.late)
		if f.fired != nil {
			close(f.fired)
		}
	}
	begin := time.Since(f.epoch).Seconds()
	step := 1 / (f.rate * (1 + f.ppm*1e-6))
	b := &measure.Block{Counts: make([][]measure.Count, 2)}
	scan, index := 0, uint64(0) // of the device; of what is told
	if f.deferred {
		if err := sink.Armed(time.Now()); err != nil {
			return err
		}
		<-ctx.Done()
		for end := int((time.Since(f.epoch).Seconds() - begin) / step); scan < end; {
			if err := f.deliver(b, &scan, &index, min(f.batch, end-scan), begin, step, sink); err != nil {
				return err
			}
			sink.Progress(uint64(scan), uint64(end))
		}
		return nil
	}
	for ctx.Err() == nil {
		due := begin + float64(scan+f.batch-1)*step
		late := time.Duration(math.Abs(rng.NormFloat64()) * float64(f.jitter))
		if !wait(ctx, time.Duration((due-time.Since(f.epoch).Seconds())*1e9)+late) {
			return nil
		}
		switch {
		case f.gone > 0 && due > f.gone:
			f.gone = 0
			return fmt.Errorf("fake: %w", instrument.ErrDisconnected)
		case f.ends > 0 && due > f.ends:
			return nil
		case f.silent > 0 && due > f.silent:
			<-ctx.Done()
			return nil
		}
		if err := f.deliver(b, &scan, &index, f.batch, begin, step, sink); err != nil {
			return err
		}
	}
	return nil
}

// deliver gives n scans, fewer where some are lost among them.
func (f *fake) deliver(b *measure.Block, scan *int, index *uint64, n int, begin, step float64,
	sink instrument.Sink,
) error {
	end := *scan + n
	for *scan < end {
		if lost := f.loses[*scan]; lost > 0 {
			if err := sink.Event(measure.Event{
				Kind: measure.EventGap, FirstScan: *index, Scans: uint64(lost),
				Exact: true, Channel: -1, Detail: "lost on purpose",
			}); err != nil {
				return err
			}
			delete(f.loses, *scan)
			*scan, *index = *scan+lost, *index+uint64(lost)
			end = max(end, *scan+1)
		}
		b.FirstScan, b.FirstTick = *index, int64(float64(*index)*f.timebase().TicksPerScan)
		for c := range b.Counts {
			b.Counts[c] = b.Counts[c][:0]
		}
		b.Ticks = b.Ticks[:0]
		for *scan < end && (f.loses[*scan] == 0 || len(b.Counts[0]) == 0) {
			t := begin + float64(*scan)*step - f.delay
			amps := 0.0
			if f.load != nil {
				amps = f.load(t)
			}
			b.Counts[0] = append(b.Counts[0], measure.Count(math.Round(t*1e6)))
			b.Counts[1] = append(b.Counts[1], measure.Count(math.Round(amps*1e3)))
			b.Ticks = append(b.Ticks, int64(float64(*index)*f.timebase().TicksPerScan))
			*scan, *index = *scan+1, *index+1
		}
		if !f.stamped {
			b.Ticks = nil
		}
		if err := sink.Block(b); err != nil {
			return err
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// whole collects what comes out, and knows the marker.
type whole struct {
	*montest.Collector
	spec    marker.Spec
	armedAt time.Time
	done    uint64
}

func (w *whole) sink() instrument.Sink {
	return instrument.Sink{
		Block: w.Block, Event: w.Event,
		Marker:   func() marker.Spec { return w.spec },
		Armed:    func(at time.Time) error { w.armedAt = at; return nil },
		Progress: func(done, _ uint64) { w.done = done },
	}
}

func collect(c *Composite) *montest.Collector {
	in := c.Inputs()
	return &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
}

// markers is a load that plays a start and a stop marker at true times.
func markers(spec marker.Spec, start, stop float64) func(float64) float64 {
	chips := map[marker.Kind][]bool{marker.Start: spec.Chips(marker.Start), marker.Stop: spec.Chips(marker.Stop)}
	return func(t float64) float64 {
		amps := 5 + 0.002*math.Sin(1e5*t)
		for kind, begin := range map[marker.Kind]float64{marker.Start: start, marker.Stop: stop} {
			if i := int(math.Floor((t - begin) / float64(spec.Chip))); i >= 0 && i < len(chips[kind]) &&
				chips[kind][i] {
				amps += 15
			}
		}
		return amps
	}
}

// power is the fake by itself: the machine's supply, or nothing that it knows of.
func (f *fake) power(in instrument.Inputs) ([]measure.Channel, []measure.Rail) {
	channels := slices.Clone(in.Channels)
	if f.wall {
		channels[1].Unit = measure.UnitWall
	}
	return channels, nil
}

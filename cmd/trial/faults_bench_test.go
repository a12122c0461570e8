package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/clocktest"
	"github.com/wattmark/wattmark/monitor/instrument"
)

const (
	rate    = 100e3 // scans a second
	restW   = 60.0
	busyW   = 160.0
	gainW   = 0.01
	nominal = 0.9     // of it, before calibration
	counter = 1 << 24 // the second channel counts scans, and begins anew here
	workFor = 5 * time.Millisecond
)

// card is a GPU in a riser card: what it draws at each scan of its life is known,
// whoever looks on. Scans count from when it was made. Its time goes by in ticks
// and never makes up for those that a busy machine leaves out: time that is lost
// makes no more samples to take.
type card struct {
	scan atomic.Uint64

	mu      sync.Mutex
	busy    []span // in scans, in order
	seen    uint64 // scans that were delivered; what comes later may still be laid down
	clock   hostClock
	offsets []time.Duration // of the clock, at each time given to the host
}

type span struct{ from, to uint64 }

// hostClock is the host's clock as a function of true time: a monotonic reading, and the
// wall's time, which may have been set. What skews one skews the other, as adjtime does.
type hostClock struct {
	base  time.Time
	since float64 // true seconds at base
	rate  float64
	step  time.Duration
}

func (h hostClock) at(t float64) time.Time { return clocktest.Stepped(h.unset(t), h.step) }

// unset is the time without the steps.
func (h hostClock) unset(t float64) time.Time {
	return h.base.Add(time.Duration((t - h.since) * h.rate * 1e9))
}

func newCard() *card {
	return &card{clock: hostClock{base: time.Now(), rate: 1}}
}

// tick is how often the card's time goes on.
const tick = 2 * time.Millisecond

// run lets the card's time go by until ctx ends.
func (c *card) run(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.scan.Add(uint64(tick.Seconds() * rate))
		case <-ctx.Done():
			return
		}
	}
}

// now is the host's time.Now.
func (c *card) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.at(seconds(c.scanNow()))
}

// torn reports whether the host got times from a clock that was set in between.
func (c *card) torn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.offsets) > 0 && slices.Max(c.offsets)-slices.Min(c.offsets) > leastStep
}

// leastStep is the smallest step of a clock that must be reported.
const leastStep = 10 * time.Microsecond

func (c *card) scanNow() uint64   { return c.scan.Load() }
func seconds(scan uint64) float64 { return float64(scan) / rate }

// disturb steps the host's clock by some seconds, and lets it run faster by a part.
func (c *card) disturb(step, skew float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := seconds(c.scanNow())
	c.clock = hostClock{
		base: c.clock.unset(t), since: t, rate: c.clock.rate * (1 + skew), step: c.clock.step + time.Duration(step*1e9),
	}
}

// countOf returns the meter's reading at a scan. mu is held.
func (c *card) countOf(scan uint64) measure.Count {
	w := restW
	for i := len(c.busy) - 1; i >= 0; i-- {
		if s := c.busy[i]; scan >= s.from && scan < s.to {
			w = busyW
			break
		}
	}
	return measure.Count(w/gainW) + noise(scan)
}

// noise is of half a watt, the same for a scan whenever it is asked for.
func noise(scan uint64) (n measure.Count) {
	x := scan * 0x9e3779b97f4a7c15
	for range 4 { // a sum of four is close to normal
		x ^= x >> 30
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 27
		n += measure.Count(x>>40%87) - 43
	}
	return n
}

// lay puts loads of given lengths down, high and low by turns of the caller's
// choice, and returns the scan at which each begins, and the end.
func (c *card) lay(high []bool, scans float64) []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := max(c.scanNow(), c.seen) + 50
	edges := make([]uint64, 0, len(high)+1)
	for i, h := range high {
		from, to := at+uint64(float64(i)*scans+0.5), at+uint64(float64(i+1)*scans+0.5)
		edges = append(edges, from)
		if h {
			c.busy = append(c.busy, span{from, to})
		}
	}
	return append(edges, at+uint64(float64(len(high))*scans+0.5))
}

// await returns when a scan has passed.
func (c *card) await(ctx context.Context, scan uint64) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	for c.scanNow() < scan {
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// hostGPU is the card as the host sees it.
type hostGPU struct {
	*card
	w *world
}

func (g hostGPU) Info() gpu.Info {
	return gpu.Info{Name: "campaign's GPU", UUID: "GPU-00000000-0000-0000-0000-000000000001", Driver: "0", Simulated: true}
}
func (g hostGPU) Close() error                                { return nil }
func (g hostGPU) WarmUp(context.Context, time.Duration) error { return errors.ErrUnsupported }
func (g hostGPU) RunBenchmark(context.Context, gpu.Benchmark, time.Duration) ([]gpu.Kernel, error) {
	return nil, errors.ErrUnsupported
}

// times are the host's times of scans. Of a card that another program drives they come
// without a monotonic reading.
func (g hostGPU) times(scans []uint64) []time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.offsets = append(g.offsets, g.clock.step)
	out := make([]time.Time, len(scans))
	for i, s := range scans {
		if out[i] = g.clock.at(seconds(s)); g.w.apart {
			out[i] = out[i].Round(0)
		}
	}
	return out
}

func (g hostGPU) PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (gpu.Played, error) {
	step := StepStartMarker
	if kind == marker.Stop {
		step = StepStopMarker
	}
	if err := g.w.hostAt(step); err != nil {
		return gpu.Played{}, err
	}
	edges := g.lay(spec.Chips(kind), float64(spec.Chip)*rate)
	if err := g.await(ctx, edges[len(edges)-1]); err != nil {
		return gpu.Played{}, fmt.Errorf("play: %w", err)
	}
	at := g.times(edges)
	p := gpu.Played{Kind: kind, Span: gpu.Span{Start: at[0], End: at[len(at)-1]}}
	for i, t := range at {
		p.Edges = append(p.Edges, gpu.PlayedEdge{Chip: i - spec.CodeStart(), At: t})
	}
	return p, nil
}

// work loads the card.
func (g hostGPU) work(ctx context.Context) ([]gpu.Kernel, error) {
	edges := g.lay([]bool{true}, workFor.Seconds()*rate)
	g.w.worked.Store(&span{edges[0], edges[1]})
	if err := g.w.hostAt(StepWork); err != nil {
		return nil, err
	}
	if err := g.await(ctx, edges[1]); err != nil {
		return nil, err
	}
	at := g.times(edges)
	return []gpu.Kernel{{Name: "work", Span: gpu.Span{Start: at[0], End: at[1]}}}, nil
}

// meter reads the card's power. Its second channel is the scan's number in the
// card's life, so that each sample says which one it is.
type meter struct {
	*card
	w *world
}

func (m meter) Identity() instrument.Identity {
	return instrument.Identity{Kind: "campaign", Model: "M1", Serial: m.w.cable.serial()}
}

func (m meter) Open(ctx context.Context) error {
	if m.w.cable.isOut() {
		return fmt.Errorf("campaign's meter: %w", instrument.ErrDisconnected)
	}
	return ctx.Err()
}
func (m meter) Close() error { return nil }

func (m meter) Inputs() instrument.Inputs {
	return instrument.Inputs{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 1e6 / rate, UTickHz: 20e-6},
		Channels: []measure.Channel{
			{Name: "p", Unit: measure.UnitWatt, Gain: gainW * nominal, UGain: 0.001, MinCount: -1 << 20, MaxCount: 1 << 20},
			{Name: "scan", Unit: measure.UnitWatt, Gain: 1e-6, MinCount: -1, MaxCount: counter},
		},
	}
}

func rails(in instrument.Inputs) (measure.Setup, error) {
	return measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Rails: []measure.Rail{
		{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1},
	}}, nil
}

func (m meter) Stream(ctx context.Context, s instrument.Sink) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	base := m.scanNow()
	next := base
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		m.w.at(StepBlock)
		m.w.monitorGate.wait(ctx)
		if m.w.cable.isOut() {
			return fmt.Errorf("campaign's meter: %w", instrument.ErrDisconnected)
		}
		b := m.block(base, next)
		if b == nil {
			continue
		}
		if err := s.Block(b); err != nil {
			return err
		}
		next += uint64(b.Scans())
	}
}

// block reads what has passed since the scan that is next.
func (m meter) block(base, next uint64) *measure.Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.scanNow()
	if now <= next {
		return nil
	}
	n := min(now-next, 4096)
	b := &measure.Block{
		FirstScan: next - base, FirstTick: int64(next-base) * 10,
		Counts: [][]measure.Count{make([]measure.Count, n), make([]measure.Count, n)},
	}
	for i := range n {
		b.Counts[0][i] = m.countOf(next + i)
		b.Counts[1][i] = measure.Count((next + i) % counter)
	}
	m.seen = max(m.seen, next+n)
	return b
}

// cable joins meter and monitor.
type cable struct {
	mu    sync.Mutex
	out   bool
	other bool
}

func (c *cable) isOut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out
}

func (c *cable) serial() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.other {
		return "another"
	}
	return "1"
}

func (c *cable) set(out, other bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out, c.other = out, other
}

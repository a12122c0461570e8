package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/spool"
)

// Viewers are the live viewers of a bench. They cost nothing while there are none, and
// never hold up a capture: a slow viewer loses moments, which are counted. The methods
// are safe for concurrent use; Block and Event are for the goroutine that samples.
type Viewers struct {
	count   atomic.Int32
	changed chan struct{} // buffered by one: the number of idle viewers changed

	mu     sync.Mutex
	all    map[*viewer]struct{}
	idle   int // viewers that want a free bench sampled
	id     string
	setup  *measure.Setup
	power  *measure.PowerMeter
	cols   measure.Columns
	totals []measure.Watt // of a block's scans
	losses Losses         // since Begin
}

// maxWave is the most values of a viewer's wave in WatchOptions.Every.
const maxWave = 256

// viewer is one viewer with an average of its own.
type viewer struct {
	session.WatchOptions
	out     chan session.Moment // buffered by one: the newest moment
	dropped uint64

	until                   float64 // tick at which the average ends
	scans                   int     // in the sums
	power, voltage, current []float64
	min, max                measure.Watt
	wave                    []measure.Watt
	bin                     measure.Watt // sum of binned scans, of which per are one value of the wave
	binned, per             int
}

// NewViewers returns a set without viewers.
func NewViewers() *Viewers {
	return &Viewers{changed: make(chan struct{}, 1), all: map[*viewer]struct{}{}}
}

// Begin sets the capture that is sampled from now on; an empty id for a free bench.
func (w *Viewers) Begin(id string, setup *measure.Setup) error {
	m, err := measure.NewPowerMeter(setup)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.id, w.setup, w.power, w.losses = id, setup, m, Losses{}
	for v := range w.all {
		v.reset(setup)
	}
	return nil
}

// Wanted reports whether a viewer wants a free bench sampled.
func (w *Viewers) Wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle > 0
}

// Changed receives when Wanted may have changed.
func (w *Viewers) Changed() <-chan struct{} { return w.changed }

// Watch sends live averages of the rails to send, one per o.Every of device time, until
// ctx ends or send fails, whose error it returns, or stop is closed (nil). Moments that
// send is too slow for are dropped and counted.
func (w *Viewers) Watch(
	ctx context.Context, o session.WatchOptions, stop <-chan struct{}, send func(session.Moment) error,
) error {
	v := &viewer{WatchOptions: o, out: make(chan session.Moment, 1)}
	w.enter(v, 1)
	defer w.enter(v, -1)
	for {
		select {
		case m := <-v.out:
			if err := send(m); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-stop:
			return nil
		}
	}
}

// enter adds a viewer (n = 1) or removes it (n = −1).
func (w *Viewers) enter(v *viewer, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n < 0 {
		delete(w.all, v)
	} else {
		w.all[v] = struct{}{}
		if w.setup != nil {
			v.reset(w.setup)
		}
	}
	w.count.Add(int32(n))
	if !v.Idle {
		return
	}
	w.idle += n
	backoff.Nudge(w.changed)
}

// Event counts lost scans and clipped readings.
func (w *Viewers) Event(e measure.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losses.add(e)
}

// Block adds a block to the averages.
func (w *Viewers) Block(b *measure.Block) {
	if w.count.Load() == 0 || b.Scans() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	end := b.TickAt(w.setup.Timebase, b.Scans()-1)
	w.totals = append(w.totals[:0], make([]measure.Watt, b.Scans())...)
	for r := range w.setup.Rails {
		w.power.Rail(r, b, &w.cols)
		for i, p := range w.cols.P {
			w.totals[i] += p
		}
		p, u, i := sum(w.cols.P), sum(w.cols.V), sum(w.cols.I)
		for v := range w.all {
			v.power[r] += p
			v.voltage[r] += u
			v.current[r] += i
		}
	}
	least, greatest := slices.Min(w.totals), slices.Max(w.totals)
	next := b.FirstScan + uint64(b.Scans())
	for v := range w.all {
		if v.scans == 0 {
			v.min, v.max = least, greatest
		}
		v.min, v.max = min(v.min, least), max(v.max, greatest)
		v.scans += b.Scans()
		if v.Wave {
			v.see(w.totals)
		}
		if v.until == 0 {
			v.until = end
		}
		if end >= v.until {
			w.average(v, end, next)
		}
	}
}

func sum[T ~float64](s []T) (t float64) {
	for _, v := range s {
		t += float64(v)
	}
	return t
}

func (v *viewer) reset(setup *measure.Setup) {
	rails := len(setup.Rails)
	v.scans, v.until, v.wave, v.bin, v.binned = 0, 0, nil, 0, 0
	scans := float64(setup.Timebase.SampleRate()) * v.Every.Seconds()
	v.per = max(1, int(math.Ceil(scans/maxWave)))
	v.power, v.voltage, v.current = make([]float64, rails), make([]float64, rails), make([]float64, rails)
}

// see adds a block's totals to the wave.
func (v *viewer) see(totals []measure.Watt) {
	for _, p := range totals {
		v.bin += p
		if v.binned++; v.binned == v.per {
			if len(v.wave) < 4*maxWave { // a block may be longer than what was asked for
				v.wave = append(v.wave, v.bin/measure.Watt(v.per))
			}
			v.bin, v.binned = 0, 0
		}
	}
}

// average ends a viewer's average at a tick, before scan next. mu is held.
func (w *Viewers) average(v *viewer, end float64, next uint64) {
	tb := w.setup.Timebase
	m := session.Moment{
		CaptureID: w.id, T: tb.Seconds(end), Rails: make([]session.RailValue, len(v.power)), Rate: tb.SampleRate(),
		Min: v.min, Max: v.max, Wave: v.wave, Step: tb.Seconds(float64(v.per) * tb.TicksPerScan),
		Scans: next - min(next, w.losses.Lost), Lost: w.losses.Lost, Gaps: w.losses.Gaps, OverRange: w.losses.Over,
	}
	n := float64(v.scans)
	for r := range m.Rails {
		m.Rails[r] = session.RailValue{
			Rail: w.setup.Rails[r].Name, Power: measure.Watt(v.power[r] / n),
			Voltage: measure.Volt(v.voltage[r] / n), Current: measure.Ampere(v.current[r] / n),
		}
		m.Total += m.Rails[r].Power
	}
	v.scans, v.wave = 0, nil
	clear(v.power)
	clear(v.voltage)
	clear(v.current)
	v.until = end + tb.Ticks(measure.SecondsOf(v.Every))
	if w.id != "" || v.Idle {
		v.send(m)
	}
}

// send replaces the moment that the viewer has not taken yet, which counts as dropped.
func (v *viewer) send(m session.Moment) {
	select {
	case <-v.out:
		v.dropped++
	default:
	}
	m.Dropped = v.dropped
	v.out <- m
}

// Trouble sends the reason why a free bench cannot be sampled to the viewers that want
// that.
func (w *Viewers) Trouble(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for v := range w.all {
		if v.Idle {
			v.send(session.Moment{Trouble: why})
		}
	}
}

// Losses counts the scans that are missing or clipped.
type Losses struct {
	Lost uint64 // scans in gaps
	Gaps uint64
	Over uint64 // readings at an end of a converter's range
}

// add counts an event.
func (l *Losses) add(e measure.Event) {
	switch e.Kind {
	case measure.EventGap:
		l.Gaps++
		l.Lost += e.Scans
	case measure.EventOverRange:
		l.Over += e.Scans
	}
}

// Totals counts the records of a log. It is kept up while they are appended, and built
// again from a log that outlived its monitor.
type Totals struct {
	Losses
	Scans, Chunks uint64

	Next    uint64  // one past the last scan
	EndTick float64 // device time at the end of the last scan, in ticks
	// Markers is replaced, never changed in place: summaries share it.
	Markers []marker.Found
	State   session.State
	Reason  string
	Started time.Time // wall clock at device time zero
}

func (t *Totals) addChunk(c *chunk.Chunk, tb measure.Timebase) {
	t.Chunks = c.No + 1
	t.Scans += uint64(c.Scans)
	t.Next = c.FirstScan + uint64(c.Scans)
	t.EndTick = float64(c.FirstTick) + float64(c.Scans)*tb.TicksPerScan
}

// AddMarker counts a marker.
func (t *Totals) AddMarker(f marker.Found) { t.Markers = append(slices.Clip(t.Markers), f) }

// Recount builds the totals of a log from its records. It reads the frames of all
// chunks, without their payloads.
func Recount(log *spool.Log) (t Totals, err error) {
	r, err := log.NewReader()
	if err != nil {
		return t, err
	}
	defer r.Close()
	tb := log.Header().Setup.Timebase
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err == nil {
			err = t.Add(r, rec, tb)
		}
		if err != nil {
			return t, err
		}
	}
}

// Add counts a record of a log, read with r.
func (t *Totals) Add(r *spool.Reader, rec spool.Record, tb measure.Timebase) error {
	switch rec.Type {
	case spool.RecordChunk:
		t.addChunk(&rec.Chunk, tb)
	case spool.RecordEvent:
		e, err := r.Event(rec)
		t.add(e)
		return err
	case spool.RecordMarker:
		f, err := r.Marker(rec)
		if err == nil {
			t.AddMarker(f)
		}
		return err
	case spool.RecordState:
		s, err := r.State(rec)
		if err != nil {
			return err
		}
		t.State, t.Reason = s.State, s.Reason
		if !s.Started.IsZero() {
			t.Started = s.Started
		}
	}
	return nil
}

// EndsAt adds the place at which the samples end to a reason.
func (t *Totals) EndsAt(reason string, tb measure.Timebase) string {
	if t.Scans == 0 {
		return reason + "; no samples"
	}
	last := float64(tb.Seconds(t.EndTick - tb.TicksPerScan))
	return fmt.Sprintf("%s; no samples after scan %d (t = %.6f s)", reason, t.Next-1, last)
}

// Summarize returns the result of a capture with these totals and this trim.
func Summarize(h *session.Header, t *Totals, tr Trim, s session.State, reason string) session.Summary {
	sum := session.Summary{
		State: s, Reason: reason, Scans: t.Scans, Lost: t.Lost, Gaps: t.Gaps, OverRange: t.Over,
		Chunks: t.Chunks, FirstChunk: tr.First, EndChunk: tr.End, Markers: t.Markers,
		Window: tr.Window(), End: h.Setup.Timebase.Seconds(t.EndTick),
	}
	if tr.Stop == nil {
		sum.EndChunk = t.Chunks
	}
	if s.Ended() {
		sum.NoWindowReason = tr.noWindow(h.Marker, t.Markers)
	}
	return sum
}

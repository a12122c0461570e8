package measurement

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/store"
)

// Rolling deletes samples while their capture runs. Their sums stay (store.DB.Thin), and with them the task's energy.
// The energies of windows are computed before, from mark to mark: samples of windows that no mark has followed stay.
type Rolling struct {
	// Keep: samples younger than that stay, and windows may be as long. Zero keeps all.
	Keep time.Duration
	// Folder is where the measured programs write their windows; empty for none.
	Folder string
}

// LeastKeep is the shortest Rolling.Keep.
const LeastKeep = time.Minute

// around and aroundScans are the margin of samples kept on either side of a window's end: U is estimated from them.
const (
	around      = time.Second
	aroundScans = 256
)

// roll is the Rolling of one attempt. It belongs to rollOn's goroutine, but for why once that has ended.
type roll struct {
	next uint64           // chunk that Thin goes on with
	keep []measure.Window // of device time, that stay
	why  string           // why samples are not deleted any more; empty while they are

	detector *marker.Detector
	seen     uint64          // chunk that the detector takes next
	newest   measure.Seconds // device time up to which it has samples

	read    map[string]int64 // bytes of each file of windows
	version int              // of the windows stored with the task
	ended   []endedWindow    // those without energy yet, and those that were open beside them
	gone    int64            // when the last window ended that is not among ended any more
	last    measure.Seconds  // device time of the end of the last window with energy; zero before
}

// endedWindow is a window whose begin is known in device time, late by no more than samples take to arrive.
type endedWindow struct {
	serving.Window
	from measure.Seconds
}

// rollOn deletes samples beside the work, which began at a time, until stop is called.
func (s *attempt) rollOn(ctx context.Context, begin time.Time) (stop func()) {
	keep := s.cfg.Rolling.Keep
	if keep <= 0 {
		return func() {}
	}
	s.rolled.read = map[string]int64{}
	end := beside(ctx, func(ctx context.Context) error {
		for sensor.Pause(ctx, min(keep/4, time.Minute)) == nil {
			if err := s.rollOnce(ctx, begin); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	return func() {
		r, err, waiting := &s.rolled, end(), 0
		for _, w := range r.ended {
			if !w.Settled && s.line.now().Sub(time.Unix(0, w.End)) > 3*keep {
				waiting++
			}
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.why = fmt.Sprintf("samples were kept from then on: %v", err)
		case waiting > 0:
			r.why = fmt.Sprintf("the samples of %s were kept, as no mark was found behind them (--mark-every)",
				measure.Plural(waiting, "window"))
		}
	}
}

// rollOnce computes the energies of windows, and deletes what is older than is to be kept.
func (s *attempt) rollOnce(ctx context.Context, begin time.Time) error {
	r := &s.rolled
	t, err := s.cfg.DB.Task(ctx, s.id)
	if err == nil && t.Chunks > 0 {
		err = s.look(ctx, &t)
	}
	if err != nil || t.Chunks == 0 {
		return err
	}
	now := s.line.now()
	if err := s.windowsEnded(ctx, now); err != nil {
		return err
	}
	played, err := s.cfg.DB.Played(ctx, s.id)
	if err != nil {
		return err
	}
	t.Markers = r.detector.Found()
	fit, err := relate(&t.Setup, played, bound(t.Markers).timed(t.Marker, t.Markers))
	if err != nil {
		return nil // the start marker is not found yet
	}
	t.Clock = fit
	if len(r.keep) == 0 {
		at, _ := fit.Meter(HostSeconds(*fit, begin))
		r.keep = []measure.Window{{To: at + r.beside(&t)}}
	}
	if err := s.settle(ctx, &t, played, begin, now); err != nil {
		return err
	}
	before, waiting := r.newest-measure.SecondsOf(s.cfg.Rolling.Keep), false
	for i := range r.ended {
		if !r.ended[i].Settled {
			before, waiting = min(before, r.ended[i].from-r.beside(&t)), true
		}
	}
	if !waiting && r.last > 0 { // the end of all that was served, until more is
		r.stay(r.last-r.beside(&t), r.last+r.beside(&t))
	}
	next, err := s.cfg.DB.Thin(ctx, s.id, r.next, before, r.keep)
	// The samples that stay are in the database: the monitor needs none of them, unless it keeps them for others. One
	// that does not answer is asked again with the next.
	if m, ok := s.cfg.Monitor.(interface {
		Forget(ctx context.Context, captureID string, before uint64) error
	}); ok && err == nil && next > r.next {
		_ = m.Forget(ctx, s.capture, next)
	}
	r.next = next
	return err
}

// beside returns the margin kept on either side of a window's end.
func (r *roll) beside(t *store.Task) measure.Seconds {
	tb := t.Setup.Timebase
	return measure.SecondsOf(around) + tb.Seconds(aroundScans*tb.TicksPerScan)
}

// look pushes the samples that have come into the detector.
func (s *attempt) look(ctx context.Context, t *store.Task) (err error) {
	r := &s.rolled
	if r.detector == nil {
		if r.detector, err = marker.NewDetector(t.Marker, &t.Setup); err != nil {
			return err
		}
	}
	tb := t.Setup.Timebase
	var b measure.Block
	for c, err := range s.cfg.DB.Chunks(ctx, s.id, r.seen) {
		if err == nil {
			err = chunk.Decode(c, tb, len(t.Setup.Channels), &b)
		}
		if err == nil {
			r.seen, r.newest = c.No+1, tb.Seconds(b.TickAt(tb, b.Scans()-1))
			err = r.detector.Push(&b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle stores the energies of the windows that ended Rolling.Keep ago, as far as marks relate the clocks. Those that
// ended since share the power with them.
func (s *attempt) settle(ctx context.Context, t *store.Task, played []store.Played, begin, now time.Time) error {
	r := &s.rolled
	m := bend(t, played, true)
	if len(m.fit.Knots) == 0 {
		return nil
	}
	last := HostTime(m.fit, m.fit.Knots[len(m.fit.Knots)-1].Host)
	until := lists.Earliest(now.Add(-s.cfg.Rolling.Keep), last)
	due := func(w *endedWindow) bool { return !w.Settled && w.End <= until.UnixNano() }
	if !slices.ContainsFunc(r.ended, func(w endedWindow) bool { return due(&w) }) {
		return nil
	}
	if err := s.interim(ctx, t, &m, played, begin, last); err != nil {
		return err
	}
	slices.SortStableFunc(r.ended, func(a, b endedWindow) int { return cmp.Compare(a.Begin, b.Begin) })
	var w, done ServedWindows
	w.Windows = lists.Map(r.ended, func(e endedWindow) serving.Window { return e.Window })
	if err := w.share(ctx, s.cfg.DB, t, &m); err != nil {
		return err
	}
	for i := range r.ended {
		e := &r.ended[i]
		if !due(e) {
			continue
		}
		// One that was open beside forgotten windows waits for the end, where all are known.
		if e.Settled = true; e.Begin >= r.gone {
			w.Windows[i].Settled = true
			done.Windows = append(done.Windows, w.Windows[i])
		}
	}
	if all := serving.Serve(done.Windows); all != nil {
		w, _ := Carry(&m.fit, gpu.Span{Start: time.Unix(0, all.Begin), End: time.Unix(0, all.End)})
		if r.last == 0 {
			r.stay(w.From-r.beside(t), w.From+r.beside(t))
		}
		r.last = max(r.last, w.To)
	}
	r.forget(until)
	if len(done.Windows) == 0 {
		return nil
	}
	return AddWindows(ctx, s.cfg.DB, s.id, done)
}

// interim sets a running task's clock and its result up to the last mark.
func (s *attempt) interim(
	ctx context.Context, t *store.Task, m *marking, played []store.Played, begin, last time.Time,
) (err error) {
	line, ends := t.Clock, bound(t.Markers)
	t.Clock = &m.fit
	w, edges := Carry(&m.fit, gpu.Span{Start: begin, End: last})
	edges.Rate = rateU(t.Setup.Timebase.UTickHz, line, played, ends.timed(t.Marker, t.Markers))
	edges.Beats = true
	t.Result, err = Integrate(ctx, s.cfg.DB, t, w, edges)
	return err
}

// stay adds a span of device time that stays, behind those before.
func (r *roll) stay(from, to measure.Seconds) {
	if last := &r.keep[len(r.keep)-1]; from <= last.To {
		last.To = max(last.To, to)
		return
	}
	r.keep = append(r.keep, measure.Window{From: from, To: to})
}

// forget drops the settled windows that ended before a time, and before all others began.
func (r *roll) forget(until time.Time) {
	limit := until.UnixNano()
	for i := range r.ended {
		if w := &r.ended[i]; !w.Settled {
			limit = min(limit, w.Begin)
		}
	}
	r.ended = slices.DeleteFunc(r.ended, func(w endedWindow) bool {
		drop := w.Settled && w.End <= limit
		if drop {
			r.gone = max(r.gone, w.End)
		}
		return drop
	})
}

// windowsEnded takes the windows that ended since the last call: those that programs wrote, and those that a host
// stored with the task.
func (s *attempt) windowsEnded(ctx context.Context, now time.Time) error {
	r := &s.rolled
	take := func(w []serving.Window) {
		for _, w := range w {
			if !w.Settled {
				r.ended = append(r.ended, endedWindow{w, r.newest - measure.SecondsOf(now.Sub(time.Unix(0, w.Begin)))})
			}
		}
	}
	var files []string
	if dir := s.cfg.Rolling.Folder; dir != "" {
		files, _ = filepath.Glob(filepath.Join(dir, "*.jsonl"))
	}
	for _, path := range files {
		w, n, err := windowsFrom(path, r.read[path])
		if err != nil {
			return err
		}
		r.read[path] += n
		take(w)
	}
	for {
		part, err := windowsAt(ctx, s.cfg.DB, s.id, r.version+1)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		} else if err != nil {
			return err
		}
		r.version++
		take(part.Windows)
	}
}

// windowsFrom reads the whole lines of a file from a byte on, and returns how many bytes they are.
func windowsFrom(path string, from int64) (w []serving.Window, n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, from, math.MaxInt64))
	if err != nil {
		return nil, 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	w, _, err = serving.Read(bytes.NewReader(text)) // lines that are no windows are noted when they are stored
	return w, int64(len(text)), err
}

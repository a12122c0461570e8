package measurement

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/store"
)

// Rolling deletes samples while their capture runs (store.DB.Thin): the sums stay, and the samples that windows need.
type Rolling struct {
	// Keep: samples younger than that stay. Zero keeps all.
	Keep time.Duration
	// Named returns the spans of windows that were named since the last call; nil for none.
	Named func(ctx context.Context, id store.TaskID) ([]gpu.Span, error)
}

// LeastKeep is the shortest Rolling.Keep.
const LeastKeep = time.Minute

const (
	// around is what stays on either side of a window, with aroundScans: the samples take part of it to arrive, and
	// the rest is the neighbourhood that U looks at.
	around      = 10 * time.Second
	aroundScans = 256
	// slew bounds how fast the meter's clock is taken to drift off the host's.
	slew = 2e-4
)

// hearing relates the meter's clock to the host's by when samples arrive, while no second marker does: each is older than its
// arrival, so that the host's time of device time zero is the least that any sample shows, drifting by slew.
type hearing struct {
	mu     sync.Mutex
	zero   time.Time
	at     time.Time // of the last arrival
	newest measure.Seconds
}

// hear takes the arrival of samples up to a device time.
func (h *hearing) hear(now time.Time, newest measure.Seconds) {
	h.mu.Lock()
	defer h.mu.Unlock()
	zero := now.Add(-time.Duration(float64(newest) * 1e9))
	if !h.at.IsZero() {
		if most := h.zero.Add(time.Duration(slew * float64(now.Sub(h.at)))); zero.After(most) {
			zero = most
		}
	}
	h.zero, h.at, h.newest = zero, now, newest
}

// roll is the Rolling of one attempt.
type roll struct {
	hearing
	spans []gpu.Span // to be kept, not yet placed; guarded by mu
	keep  []measure.Window
	next  uint64
	why   string // why samples are not deleted any more; empty while they are
}

// wants notes a span of the host's time whose samples stay.
func (r *roll) wants(spans ...gpu.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, spans...)
}

// place moves the noted spans to device time, into keep, in order and apart. It returns the newest sample's time.
func (r *roll) place(tb measure.Timebase) (newest measure.Seconds) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() {
		return 0
	}
	beside := measure.SecondsOf(around) + tb.Seconds(aroundScans*tb.TicksPerScan)
	for _, s := range r.spans {
		from, to := measure.SecondsOf(s.Start.Sub(r.zero)), measure.SecondsOf(s.End.Sub(r.zero))
		r.keep = append(r.keep, measure.Window{From: from - beside, To: to + beside})
	}
	r.spans = r.spans[:0]
	slices.SortFunc(r.keep, func(a, b measure.Window) int { return cmp.Compare(a.From, b.From) })
	apart := r.keep[:0]
	for _, w := range r.keep {
		if n := len(apart); n > 0 && w.From <= apart[n-1].To {
			apart[n-1].To = max(apart[n-1].To, w.To)
		} else {
			apart = append(apart, w)
		}
	}
	r.keep = apart
	return r.newest
}

// rollOn deletes samples beside the work, which began at a time, until stop is called.
func (s *attempt) rollOn(ctx context.Context, begin time.Time) (stop func()) {
	keep := s.cfg.Rolling.Keep
	if keep <= 0 {
		return func() {}
	}
	r := &s.rolled
	r.wants(gpu.Span{Start: begin.Add(-10 * keep), End: begin}) // what the window's begin and the rest need
	end := beside(ctx, func(ctx context.Context) error {
		for sensor.Pause(ctx, min(keep/4, time.Minute)) == nil {
			if err := s.rollOnce(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	return func() {
		if err := end(); err != nil {
			r.why = fmt.Sprintf("samples were kept from then on: %v", err)
		}
	}
}

// rollOnce deletes what is older than is to be kept.
func (s *attempt) rollOnce(ctx context.Context) error {
	r := &s.rolled
	if named := s.cfg.Rolling.Named; named != nil {
		spans, err := named(ctx, s.id)
		if err != nil {
			return err
		}
		r.wants(spans...)
	}
	t, err := s.cfg.DB.Task(ctx, s.id)
	if err != nil {
		return err
	}
	if t.Chunks == 0 {
		return nil
	}
	before := r.place(t.Setup.Timebase) - measure.SecondsOf(s.cfg.Rolling.Keep)
	r.next, err = s.cfg.DB.Thin(ctx, s.id, r.next, before, r.keep)
	return err
}

// NamedWindows returns Rolling.Named for the windows that programs write into a folder, and those that a host stored with
// the task.
func NamedWindows(db *store.DB, dir string) func(context.Context, store.TaskID) ([]gpu.Span, error) {
	read := map[string]int64{} // bytes of each file
	version := 0
	return func(ctx context.Context, id store.TaskID) (out []gpu.Span, err error) {
		files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		var all []serving.Window
		for _, path := range files {
			w, n, err := windowsFrom(path, read[path])
			if err != nil {
				return nil, err
			}
			read[path] += n
			all = append(all, w...)
		}
		for {
			a, err := db.Analysis(ctx, serving.Kind, fmt.Sprint(id), version+1)
			if errors.Is(err, store.ErrNotFound) {
				break
			}
			var part ServedWindows
			if err == nil {
				err = json.Unmarshal(a.Content, &part)
			}
			if err != nil {
				return nil, err
			}
			version++
			all = append(all, part.Windows...)
		}
		for _, w := range all {
			out = append(out, gpu.Span{Start: time.Unix(0, w.Begin), End: time.Unix(0, w.End)})
		}
		return out, nil
	}
}

// windowsFrom reads the whole lines of a file from a byte on, and returns how many bytes they are.
func windowsFrom(path string, from int64) (w []serving.Window, n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, from, 1<<40))
	if err != nil {
		return nil, 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	w, _, err = serving.Read(bytes.NewReader(text)) // lines that are no windows are noted when they are stored
	return w, int64(len(text)), err
}

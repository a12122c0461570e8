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
	// Folder is where the measured programs write their windows; empty for none.
	Folder string
}

// LeastKeep is the shortest Rolling.Keep.
const LeastKeep = time.Minute

const (
	// around is what stays on either side of a window's end, with aroundScans: samples take up to 1 s to arrive, and
	// the rest is the neighbourhood that U looks at.
	around      = 3 * time.Second
	aroundScans = 256
	// slew bounds how fast the meter's clock is taken to drift off the host's.
	slew = 2e-4
)

// hearing relates the meter's clock to the host's by when samples arrive, while no second marker does: each is older than
// its arrival, so that the host's time of device time zero is the least that any sample shows, drifting by slew.
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

	read    map[string]int64 // bytes of each file of windows
	version int              // of the windows stored with the task
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
	r.wants(gpu.Span{Start: begin.Add(-24 * time.Hour), End: begin}) // the marker, and what the window's begin needs
	end := beside(ctx, func(ctx context.Context) error {
		for sensor.Pause(ctx, min(keep/4, time.Minute)) == nil {
			if err := s.rollOnce(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	return func() {
		if err := end(); err != nil && ctx.Err() == nil {
			r.why = fmt.Sprintf("samples were kept from then on: %v", err)
		}
	}
}

// rollOnce deletes what is older than is to be kept.
func (s *attempt) rollOnce(ctx context.Context) error {
	r := &s.rolled
	ended, err := s.ended(ctx)
	if err != nil {
		return err
	}
	for _, w := range ended {
		// Between its ends the sums are enough.
		begin, end := time.Unix(0, w.Begin), time.Unix(0, w.End)
		r.wants(gpu.Span{Start: begin, End: begin}, gpu.Span{Start: end, End: end})
	}
	t, err := s.cfg.DB.Task(ctx, s.id)
	if err != nil || t.Chunks == 0 {
		return err
	}
	before := r.place(t.Setup.Timebase) - measure.SecondsOf(s.cfg.Rolling.Keep)
	r.next, err = s.cfg.DB.Thin(ctx, s.id, r.next, before, r.keep)
	return err
}

// ended returns the windows that ended since the last call: those that programs wrote, and those that a host stored with
// the task.
func (s *attempt) ended(ctx context.Context) (all []serving.Window, err error) {
	r := &s.rolled
	var files []string
	if dir := s.cfg.Rolling.Folder; dir != "" {
		files, _ = filepath.Glob(filepath.Join(dir, "*.jsonl"))
	}
	for _, path := range files {
		w, n, err := windowsFrom(path, r.read[path])
		if err != nil {
			return nil, err
		}
		if r.read == nil {
			r.read = map[string]int64{}
		}
		r.read[path] += n
		all = append(all, w...)
	}
	db, ok := s.cfg.DB.(interface {
		Analysis(ctx context.Context, kind, name string, version int) (*store.Analysis, error)
	})
	for ok {
		a, err := db.Analysis(ctx, serving.Kind, fmt.Sprint(s.id), r.version+1)
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
		r.version++
		all = append(all, part.Windows...)
	}
	return all, nil
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

package measurement

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// Marks are markers that are played amid long work. They relate the clocks there, and bound nothing.
type Marks struct {
	// Every is the time from one to the next, within a tenth, or more until the GPU is idle; zero for none.
	Every time.Duration
	// Busy plays them whether the GPU is idle or not.
	Busy bool
}

const (
	// idleFor is for how long no process has used a GPU that counts as idle: NVML has samples of a second.
	idleFor = 2500 * time.Millisecond
	// lookIdle is how often an idle GPU is waited for.
	lookIdle = 250 * time.Millisecond
)

var errBlind = errors.New("nothing shows here when the GPU is idle (--mark-busy plays them at any time)")

// amid plays marks beside the work until stop is called, which waits for the one that is playing. Why marks are missing
// is noted in s.unmarked.
func (s *attempt) amid(ctx context.Context) (stop func()) {
	m := s.cfg.Marks
	if m.Every <= 0 {
		return func() {}
	}
	played := 0
	end := beside(ctx, func(until context.Context) error {
		if s.spec.TagBits == 0 {
			return errors.New("the marker has no tag that would tell them from the task's own")
		}
		for {
			// At equal distances one mark looks like the next.
			if sensor.Pause(until, time.Duration(float64(m.Every)*(0.9+0.2*rand.Float64()))) != nil {
				return nil
			}
			if err := s.awaitIdle(until); err != nil || until.Err() != nil {
				return err
			}
			p, err := s.cfg.Device.PlayMarker(ctx, s.spec.Amid(), marker.Start)
			if err != nil {
				return err
			}
			p.Kind, played = marker.Mark, played+1
			if err := s.putPlayed(ctx, played, p); err != nil {
				return err
			}
		}
	})
	return func() {
		switch err := end(); {
		case ctx.Err() != nil:
		case err != nil:
			s.unmarked = fmt.Sprintf("marks amid the work ended after %d: %v", played, err)
		case played == 0:
			s.unmarked = "no marks were played amid the work: it was too short, or the GPU never idle for 2.5 s"
		}
	}
}

// awaitIdle waits until no process has used the GPU for idleFor, or ctx ends, which is no error.
func (s *attempt) awaitIdle(ctx context.Context) error {
	if s.cfg.Marks.Busy {
		return nil
	}
	reader, ok := s.cfg.Sensor.(gpu.ProcessReader)
	if !ok {
		return errBlind
	}
	for {
		now := time.Now()
		list, err := reader.Processes(gpu.Span{Start: now.Add(-idleFor), End: now})
		busy := slices.ContainsFunc(list, func(p gpu.ProcessUse) bool { return p.Busy > 0 })
		switch {
		case err != nil:
			return err
		// This process has a context on the GPU: an empty list is not all.
		case len(list) == 0 || slices.ContainsFunc(list, func(p gpu.ProcessUse) bool { return math.IsNaN(p.Busy) }):
			return errBlind
		case !busy:
			return nil
		}
		if sensor.Pause(ctx, lookIdle) != nil {
			return nil
		}
	}
}

// marking is how the marks amid a task's work relate the clocks.
type marking struct {
	fit    clock.Fit
	spans  []gpu.Span // of the marks, as they were played
	paired int        // of them that were found
	left   int        // out: far off their neighbours
	why    error      // why fit is still the line; nil where marks bend it, and without marks
}

// bend bends a task's line through the marks that were played amid its work, the markers that bound it, and those around
// single kernels.
func bend(t *store.Task, played []store.Played) (m marking) {
	m.fit = *t.Clock
	var marks []playedMarker
	others := slices.DeleteFunc(slices.Clone(played), func(p store.Played) bool { return p.Kind == marker.Mark })
	if len(others) == len(played) {
		return m
	}
	for _, p := range markersOf(played) {
		if p.kind == marker.Mark {
			marks = append(marks, p)
			m.spans = append(m.spans, p.span())
		}
	}
	ends := bound(t.Markers)
	if ends.start == nil || ends.stop == nil || ends.start.Fallback || ends.stop.Fallback {
		m.why = errors.New("the marker at one end of the work was not found")
		return m
	}
	both := pairs(markersOf(others), ends.timed(t.Marker, t.Markers))
	amid := m.pairs(t, marks)
	m.paired = len(amid)
	var obs []clock.Obs
	var shared float64
	for _, p := range append(both, amid...) {
		o, err := m.mean(p)
		if err != nil {
			m.why = err
			return m
		}
		obs, shared = append(obs, o), shared+float64(o.Shared*o.Shared)
	}
	m.fit, m.left, m.why = m.fit.Bend(obs, delayU(&t.Setup, shared/float64(len(obs))), clockWander)
	return m
}

// pairs matches marks with those that were found, by the line: each lies where the one before it puts it.
func (m *marking) pairs(t *store.Task, marks []playedMarker) (out []pair) {
	var found []*marker.Found
	for i := range t.Markers {
		if f := &t.Markers[i]; t.Marker.FoundAmid(f) {
			found = append(found, f)
		}
	}
	var off measure.Seconds
	for i := range marks {
		at, _ := m.fit.Meter(HostSeconds(m.fit, marks[i].first))
		apart := func(f *marker.Found) measure.Seconds { return max(f.T-at-off, at+off-f.T) }
		for len(found) > 1 && apart(found[1]) <= apart(found[0]) {
			found = found[1:]
		}
		if len(found) > 0 && apart(found[0]) < t.Marker.Duration()/4 {
			off = found[0].T - at
			out, found = append(out, pair{&marks[i], found[0]}), found[1:]
		}
	}
	return out
}

// mean is the mean of a marker's edges, as one observation. Half of the variance that they share is that of all markers.
func (m *marking) mean(p pair) (clock.Obs, error) {
	var edges []clock.Obs
	from := HostSeconds(m.fit, p.played.first)
	at, _ := m.fit.Meter(from)
	for _, e := range p.edges(time.Unix(int64(m.fit.Origin), 0)) {
		line, _ := m.fit.Meter(e.Host)
		e.Host -= from
		edges = append(edges, clock.Obs{Host: e.Host, Meter: at + e.Meter - line + e.Host, U: e.U})
	}
	const same = 1e-9 // within a marker the rate is the line's
	f, err := clock.FitClock(edges, clock.Prior{URate: same})
	shared := p.found.SharedU()
	u := math.Sqrt(f.VarA + float64(shared*shared)/2)
	return clock.Obs{Host: from, Meter: f.A, U: measure.Seconds(u), Shared: shared}, err
}

// note words the marks for a task's reason; empty without marks.
func (m *marking) note() string {
	n := len(m.spans)
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %s amid the work were found", m.paired, measure.Plural(n, "mark"))
	if m.left > 0 {
		text += fmt.Sprintf(", %d left out, as far off the others", m.left)
	}
	if m.why != nil {
		return text + fmt.Sprintf(", the clocks are a line from end to end: %v", m.why)
	}
	var most measure.Seconds
	for i, k := range m.fit.Knots[1:] {
		most = max(most, k.Host-m.fit.Knots[i].Host)
	}
	return text + fmt.Sprintf(", the clocks go from mark to mark, %.3g s at most", float64(most))
}

// bent relates a task's clock by the marks amid its work. t.Clock is replaced, not changed.
func bent(ctx context.Context, db Store, t *store.Task) (marking, error) {
	played, err := db.Played(ctx, t.ID)
	if err != nil {
		return marking{}, err
	}
	m := bend(t, played)
	t.Clock = &m.fit
	return m, nil
}

package measurement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// Marks are markers that are played amid long work. They relate the clocks there, and bound nothing.
type Marks struct {
	Every time.Duration // from one to the next, within a tenth, or more until the GPU is idle; zero for none
	Busy  bool          // plays them whether the GPU is idle or not
}

// idleFor is for how long no process has used a GPU that counts as idle. The drivers of H100 and H200 have one sample a
// process, of the last second (sampled), anew each 200 ms. It is looked at each lookIdle.
const idleFor, sampled, lookIdle = 2500 * time.Millisecond, time.Second, 250 * time.Millisecond

// amid plays marks beside the work until stop is called, which waits for the one that is playing, and sets s.unmarked.
func (s *attempt) amid(ctx context.Context) (stop func()) {
	every, played := s.cfg.Marks.Every, 0
	if every <= 0 {
		return func() {}
	}
	end := beside(ctx, func(until context.Context) error {
		if s.spec.TagBits == 0 {
			return errors.New("the marker has no tag that would tell them from the task's own")
		}
		for {
			// At equal distances one mark looks like the next.
			if sensor.Pause(until, time.Duration(float64(every)*(0.9+0.2*rand.Float64()))) != nil {
				return nil
			}
			err := s.awaitIdle(until)
			if err != nil || until.Err() != nil {
				return err
			}
			p, err := s.cfg.Device.PlayMarker(ctx, s.spec.Amid(), marker.Start)
			if err == nil {
				p.Kind, played = marker.Mark, played+1
				err = s.putPlayed(ctx, played, p)
			}
			if err != nil {
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
	for quiet := (time.Time{}); ok; { // the first of the looks that saw no use
		now := time.Now()
		// The driver may take a sample during the call: that counts too.
		list, err := reader.Processes(gpu.Span{Start: now.Add(-idleFor), End: now.Add(idleFor)})
		if err != nil {
			return err
		}
		used := 0.0
		for _, p := range list {
			used += p.Busy
		}
		switch {
		case used > 0:
			quiet = time.Time{}
		case quiet.IsZero():
			quiet = now
		}
		// This process has a context on the GPU: an empty list is not all.
		if ok = len(list) > 0 && !math.IsNaN(used); ok && used == 0 && now.Sub(quiet) >= idleFor-sampled ||
			sensor.Pause(ctx, lookIdle) != nil {
			return nil
		}
	}
	return errors.New("nothing shows here when the GPU is idle (--mark-busy plays them at any time)")
}

// marking is how the marks amid a task's work relate the clocks.
type marking struct {
	fit          clock.Fit
	spans        []gpu.Span // of the marks, as they were played
	paired, left int        // of them: those found, and those far off their neighbours
	why          error      // why fit is still the line, though marks were played
}

// bend bends a task's line through the marks that were played amid its work, the markers that bound it, and those
// around single kernels. While the work runs there is no marker at its end.
func bend(t *store.Task, played []store.Played, runs bool) (m marking) {
	m.fit = *t.Clock
	amid := markersOf(lists.Filter(played, func(p *store.Played) bool { return p.Kind == marker.Mark }))
	if len(amid) == 0 {
		return m
	}
	for i := range amid {
		at := slices.SortedFunc(maps.Values(amid[i].at), time.Time.Compare)
		m.spans = append(m.spans, gpu.Span{Start: at[0], End: at[len(at)-1]})
		amid[i].kind = marker.Start // as it is found
	}
	ends := bound(t.Markers)
	if ends.start == nil || ends.start.Fallback || !runs && (ends.stop == nil || ends.stop.Fallback) {
		m.why = errors.New("the marker at one end of the work was not found")
		return m
	}
	found := lists.Filter(t.Markers, t.Marker.FoundAmid)
	both, _ := meet(amid, found, HostTime(m.fit, 0), m.fit.A, m.fit.B)
	m.paired = len(both)
	var obs []clock.Obs
	var shared float64
	for _, p := range append(both, pairs(markersOf(notAmid(played)), ends.timed(t.Marker, t.Markers))...) {
		if o, err := m.mean(p); err == nil {
			obs, shared = append(obs, o), shared+float64(o.Shared*o.Shared)
		}
	}
	m.fit, m.left, m.why = m.fit.Bend(obs, delayU(&t.Setup, shared/float64(len(obs))), clockWander)
	return m
}

func notAmid(played []store.Played) []store.Played {
	return lists.Filter(played, func(p *store.Played) bool { return p.Kind != marker.Mark })
}

// mean is the mean of a marker's edges, as one observation. Half of the variance that they share is that of all
// markers.
func (m *marking) mean(p pair) (clock.Obs, error) {
	edges := p.edges(p.played.first)
	for i := range edges { // at the line's rate
		edges[i].Host, edges[i].Shared = edges[i].Host*measure.Seconds(m.fit.B), 0
	}
	f, err := clock.FitClock(edges, clock.Prior{URate: 1e-9})
	from := HostSeconds(m.fit, p.played.first)
	shared := p.found.SharedU()
	u := math.Sqrt(f.VarA + float64(shared*shared)/2)
	return clock.Obs{Host: from, Meter: f.A, U: measure.Seconds(u), Shared: shared}, err
}

// note words the marks for a task's reason; empty without marks.
func (m *marking) note() string {
	if len(m.spans) == 0 {
		return ""
	}
	text := fmt.Sprintf("found %d of %s amid the work", m.paired, measure.Plural(len(m.spans), "mark"))
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

// Bend relates a task's clock by the marks amid its work; a clock without marks, and none, stay.
func Bend(ctx context.Context, db Store, t *store.Task) error {
	if t.Clock == nil {
		return nil
	}
	_, err := bent(ctx, db, t)
	return err
}

// bent relates a task's clock by the marks amid its work. t.Clock is replaced, not changed.
func bent(ctx context.Context, db Store, t *store.Task) (marking, error) {
	played, err := db.Played(ctx, t.ID)
	if err != nil {
		return marking{}, err
	}
	m := bend(t, played, false)
	t.Clock = &m.fit
	return m, nil
}

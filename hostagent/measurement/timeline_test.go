package measurement

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/clocktest"
	"github.com/wattmark/wattmark/store"
)

// A wall clock that is set moves nothing on the line of a measurement, and is not told
// where nobody took times by it.
func TestTimelineDoesNotStep(t *testing.T) {
	clock := clocktest.New()
	l := newTimeline(clock.Now)
	first := clock.Now()
	for _, by := range []time.Duration{time.Hour, -3 * time.Hour, 4 * time.Millisecond} {
		before := clock.Now()
		clock.Step(by)
		after := clock.Now()
		if got, want := l.at(after).Sub(l.at(before)), after.Sub(before); got != want {
			t.Errorf("set by %v: %v passed on the line, %v on the monotonic clock", by, got, want)
		}
		if s, tell := l.look(); tell {
			t.Errorf("a step by %v was told, though nobody took times by it", s)
		}
	}
	on := gpu.Span{Start: l.at(first), End: l.at(first.Add(time.Second))}
	if d := on.Start.Sub(l.base.Round(0)); d < 0 || d > time.Minute || on.End.Sub(on.Start) != time.Second {
		t.Errorf("%v", on)
	}
	if r := l.readings([]store.Reading{{At: first}}); !r[0].At.Equal(on.Start) {
		t.Errorf("a reading lies at %v, want %v", r[0].At, on.Start)
	}
	if !l.at(time.Time{}).IsZero() || l.foreign {
		t.Error("no time was taken for a time")
	}
}

// Where another program took times, each step is told once, and so is a clock that
// went there and back between two looks that saw it.
func TestTimelineTells(t *testing.T) {
	clock := clocktest.New()
	l := newTimeline(clock.Now)
	wall := clock.Now().Round(0)
	if !l.at(wall).Equal(wall) {
		t.Error("a time of another program was moved")
	}
	if s, tell := l.look(); tell {
		t.Errorf("told %v without a step", s)
	}
	clock.Step(-2 * time.Millisecond)
	if s, tell := l.look(); !tell || (s+2*time.Millisecond).Abs() > leastStep {
		t.Errorf("told %v, %v", s, tell)
	}
	if s, tell := l.look(); tell {
		t.Errorf("told again: %v", s)
	}
	clock.Step(2 * time.Millisecond)
	if s, tell := l.look(); tell {
		t.Errorf("the way back was told: %v", s)
	}
	if n := l.clockNote(); !strings.Contains(n, "set by -0.002") || !strings.Contains(n, "measure again") {
		t.Errorf("note %q", n)
	}
	// What was seen before a program took times counts, too.
	late := newTimeline(clock.Now)
	clock.Step(time.Second)
	if _, tell := late.look(); tell {
		t.Error("told without times of another program")
	}
	late.at(wall)
	if _, tell := late.look(); !tell {
		t.Error("not told")
	}
}

// events takes events alone.
type events struct {
	Store
	got []measure.Event
}

func (e *events) PutEvents(_ context.Context, _ store.TaskID, all []measure.Event) error {
	e.got = append(e.got, all...)
	return nil
}

func TestStepIsAnEventOfTheTask(t *testing.T) {
	clock, db := clocktest.New(), &events{}
	s := &attempt{cfg: Config{DB: db}, line: newTimeline(clock.Now)}
	s.line.at(clock.Now().Round(0))
	for range 3 {
		if err := s.watchClock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(db.got) != 0 {
		t.Errorf("events without a step: %v", db.got)
	}
	clock.Step(time.Minute)
	for range 3 {
		if err := s.watchClock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(db.got) != 1 || db.got[0].Kind != measure.EventClock || !strings.Contains(db.got[0].Detail, "+60.0000") {
		t.Errorf("events %v", db.got)
	}
}

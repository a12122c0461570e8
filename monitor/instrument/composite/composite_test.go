package composite

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// run opens a composite and streams for so long in virtual time.
func run(t *testing.T, a Align, d time.Duration, spec marker.Spec, delays map[string]measure.Seconds,
	fakes ...*fake,
) (*whole, *Composite, error) {
	t.Helper()
	epoch := time.Now()
	var members []Member
	fired := make(chan struct{})
	for i, f := range fakes {
		f.epoch = epoch
		if a.By == Trigger {
			f.fired, f.trigger = fired, f.name != a.Master && (a.Master != "" || i > 0)
		}
		if f.batch == 0 {
			f.batch = max(1, int(f.rate/100))
		}
		members = append(members, Member{Name: f.name, Instrument: f, Delay: delays[f.name], Power: f.power})
	}
	c, err := New(members, a)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &whole{Collector: collect(c), spec: spec}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	err = c.Stream(ctx, w.sink())
	if cerr := c.Close(); cerr != nil {
		t.Error(cerr)
	}
	return w, c, err
}

// apart returns the mean and the greatest distance in true time, in seconds, of
// what members a and b show in one scan, from scan `from` on.
func apart(w *whole, a, b, from int) (mean, most float64) {
	x, y := w.Counts(2*a), w.Counts(2*b)
	for i := from; i < len(x); i++ {
		d := float64(y[i]-x[i]) * 1e-6
		mean += d / float64(len(x)-from)
		most = max(most, math.Abs(d))
	}
	return mean, most
}

func notes(w *whole) string {
	var s strings.Builder
	for _, e := range w.Events(measure.EventNote) {
		fmt.Fprintf(&s, "%d: %s\n", e.FirstScan, e.Detail)
	}
	return s.String()
}

// Members of one rate on one trigger and one clock are merged scan by scan.
func TestSharedTriggerScanByScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", rate: 10e3, late: 300 * time.Millisecond, jitter: time.Millisecond}
		b := &fake{name: "b", rate: 10e3, jitter: time.Millisecond}
		w, _, err := run(t, Align{By: Trigger, SharedClock: true, Master: "a"}, 3*time.Second, marker.Spec{}, nil, b, a)
		if err != nil {
			t.Fatal(err)
		}
		n := len(w.Scans())
		if _, most := apart(w, 0, 1, 0); most > 2e-6 || n < 25_000 || w.Lost() != 0 {
			t.Errorf("%d scans, %v s apart, %d lost\n%s", n, most, w.Lost(), notes(w))
		}
	})
}

// A slower member is held, around each reading, and each of its counts appears.
func TestHeldReadings(t *testing.T) {
	for _, stamped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			base := &fake{name: "fast", rate: 20e3, stamped: stamped}
			slow := &fake{name: "slow", rate: 4800, stamped: !stamped}
			w, c, err := run(t, Align{By: Trigger, SharedClock: true}, 4*time.Second, marker.Spec{}, nil, slow, base)
			if err != nil {
				t.Fatal(err)
			}
			mean, most := apart(w, 1, 0, 0)
			if math.Abs(mean) > 2e-6 || most > 0.5/4800+2e-6 {
				t.Errorf("%v s apart on average, %v at most", mean, most)
			}
			counts := w.Counts(0)
			for i := 1; i < len(counts); i++ {
				if d := counts[i] - counts[i-1]; d < 0 || d > 210 {
					t.Fatalf("scan %d: a reading is missing: %d µs from the one before", i, d)
				}
			}
			in := c.Inputs()
			if u := float64(in.Response.Update) * 4800; math.Abs(u-1) > 1e-9 || in.Channels[0].Name != "slow/time" ||
				in.Timebase.Stamped != stamped {
				t.Errorf("%+v", in)
			}
		})
	}
}

// Two clocks 80 ppm apart stay together for a minute: by the host's clock alone,
// behind a trigger, and with lines that hold blocks back by milliseconds.
func TestDriftIsFollowed(t *testing.T) {
	for _, by := range []By{Trigger, Clock} {
		for _, rate := range []float64{1000, 20e3} {
			synctest.Test(t, func(t *testing.T) {
				a := &fake{name: "a", rate: 20e3, ppm: -30, jitter: 2 * time.Millisecond}
				b := &fake{name: "b", rate: rate, ppm: 50, jitter: 2 * time.Millisecond, late: 100 * time.Millisecond}
				if by == Trigger {
					b.late = 0
				}
				w, _, err := run(t, Align{By: by}, time.Minute, marker.Spec{}, nil, a, b)
				if err != nil {
					t.Fatal(err)
				}
				half := 0.5 / rate
				_, most := apart(w, 0, 1, 0)
				late, lateMost := apart(w, 0, 1, len(w.Scans())-20_000)
				t.Logf("by %s, %v S/s: at most %.3g ms apart, in the last second %.3g ms (mean %.3g)\n%s", by, rate,
					1e3*most, 1e3*lateMost, 1e3*late, notes(w))
				if most > half+1.5e-3 || math.Abs(late) > 0.3e-3 {
					t.Errorf("by %s: %v s apart, %v at the end: untracked it would be 4.8 ms", by, most, late)
				}
				if w.Lost() != 0 {
					t.Errorf("lost %d: %+v", w.Lost(), w.Events(measure.EventGap))
				}
			})
		}
	}
}

// A member whose readings lie 3 ms late, which no clock can tell, is put right by
// the markers, from the start marker on.
func TestMarkersFindAHiddenDelay(t *testing.T) {
	for _, delay := range []float64{3e-3, -3e-3} {
		synctest.Test(t, func(t *testing.T) {
			spec := marker.FastProfile(4800, 99)
			load := markers(spec, 1, 8)
			a := &fake{name: "a", rate: 20e3, ppm: 20, load: load, jitter: 500 * time.Microsecond}
			b := &fake{
				name: "b", rate: 4800, ppm: -30, load: load, delay: delay, late: 70 * time.Millisecond,
				jitter: 500 * time.Microsecond,
			}
			w, _, err := run(t, Align{}, 10*time.Second, spec, nil, a, b)
			if err != nil {
				t.Fatal(err)
			}
			x := w.Counts(0)
			from := 0
			for x[from] < 1_000_000 {
				from++
			}
			before, _ := apart(w, 0, 1, 0)
			mean, most := apart(w, 0, 1, from)
			t.Logf("%.1f µs apart on average from the marker on, %.1f µs at most (%.1f over all)\n%s", 1e6*mean,
				1e6*most, 1e6*before, notes(w))
			// One scan of the base, and 20 µs for the markers' own uncertainty.
			if math.Abs(mean) > 50e-6+20e-6 || most > 0.5/4800+50e-6+250e-6 {
				t.Errorf("%v s apart on average, %v at most", mean, most)
			}
			if strings.Count(notes(w), " 0 of its readings were shown by no scan") != 2 {
				t.Error("readings of the slower member are missing")
			}
			if w.Lost() != 0 || !strings.Contains(notes(w), "by the start marker") ||
				!strings.Contains(notes(w), "at the stop marker") {
				t.Errorf("lost %d\n%s", w.Lost(), notes(w))
			}
		})
	}
}

// Where a member shows no marker the clock has to do, and a note says so.
func TestNoMarkerInOneMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := marker.FastProfile(4800, 99)
		a := &fake{name: "a", rate: 20e3, load: markers(spec, 1, 4)}
		b := &fake{name: "b", rate: 4800}
		w, _, err := run(t, Align{}, 6*time.Second, spec, nil, a, b)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(notes(w), "no start marker was seen in the power of b: b is aligned with a by the "+
			"host's clock, within 10") {
			t.Error(notes(w))
		}
		if n := len(w.Scans()); n < 110_000 {
			t.Errorf("%d scans", n)
		}
	})
}

// What any member loses, the whole loses: so many scans of the base, exactly.
func TestGapsAreExact(t *testing.T) {
	for name, c := range map[string]struct {
		fast, slow map[int]int
		want       uint64
	}{
		"base": {fast: map[int]int{5000: 7}, want: 7},
		// each stands for four
		"slow": {slow: map[int]int{1000: 5}, want: 20},
		// b's readings begin half a period before themselves
		"both at once":         {fast: map[int]int{8000: 40}, slow: map[int]int{2000: 10}, want: 42},
		"one after the other":  {fast: map[int]int{8000: 1}, slow: map[int]int{500: 1, 1500: 2}, want: 13},
		"nothing":              {},
		"in one block":         {slow: map[int]int{501: 1, 503: 1}, want: 8},
		"of the very first":    {slow: map[int]int{1: 3}, want: 12},
		"longer than a second": {slow: map[int]int{1000: 1500}, want: 6000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Phases a quarter of a scan apart, so that no reading lies on an edge.
				a := &fake{name: "a", rate: 4000, loses: c.fast}
				b := &fake{name: "b", rate: 1000, loses: c.slow, delay: 60e-6}
				w, _, err := run(t, Align{By: Trigger, SharedClock: true}, 5*time.Second, marker.Spec{}, nil, a, b)
				if err != nil {
					t.Fatal(err)
				}
				if w.Lost() != c.want {
					t.Errorf("%d lost, want %d: %+v", w.Lost(), c.want, w.Events(measure.EventGap))
				}
				for _, e := range w.Events(measure.EventGap) {
					if !e.Exact || !strings.Contains(e.Detail, "lost on purpose") {
						t.Errorf("%+v", e)
					}
				}
				if _, most := apart(w, 0, 1, 0); most > 0.6e-3 {
					t.Errorf("readings %v s apart: a scan shows what was not there", most)
				}
			})
		})
	}
}

// The middle of what each member's reading averages over is its own, whatever its neighbours average over.
func TestMeansOfUnlikeLengths(t *testing.T) {
	var members []Member
	var in []instrument.Inputs
	windows := []measure.Seconds{0, 4e-3, 1e-3}
	for i, w := range windows {
		members = append(members, Member{Name: fmt.Sprint("m", i)})
		in = append(in, instrument.Inputs{
			Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 100}, Response: measure.Response{Window: w},
			Channels: []measure.Channel{{Name: "p", Unit: measure.UnitWatt, Gain: 1, Skew: 1e-5}},
		})
	}
	out, _ := Join(members, in, Align{By: Markers})
	s := measure.Setup{Timebase: out.Timebase, Response: out.Response, Channels: out.Channels}
	for i, w := range windows {
		if got, want := s.Instant(i), 1e-5-w/2; math.Abs(float64(got-want)) > 1e-12 {
			t.Errorf("a mean over %v is of %v from its tick, want %v", w, got, want)
		}
	}
}

// A known delay moves readings by whole scans; what is left goes with the channels.
func TestKnownDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", rate: 10e3}
		b := &fake{name: "b", rate: 10e3, delay: -3.03e-3} // read later than it says
		w, c, err := run(t, Align{By: Trigger, SharedClock: true}, 2*time.Second, marker.Spec{},
			map[string]measure.Seconds{"b": 3.03e-3}, a, b)
		if err != nil {
			t.Fatal(err)
		}
		mean, most := apart(w, 0, 1, 0)
		skew := float64(c.Inputs().Channels[2].Skew)
		if math.Abs(mean-30e-6) > 2e-6 || most > 32e-6 || math.Abs(skew-30e-6) > 1e-9 {
			t.Errorf("%v s apart, at most %v; skew %v", mean, most, skew)
		}
	})
}

func TestFaultsOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", rate: 4000}
		b := &fake{name: "b", rate: 1000, gone: 2}
		w, c, err := run(t, Align{By: Clock}, 20*time.Second, marker.Spec{}, nil, a, b)
		if !errors.Is(err, instrument.ErrDisconnected) || !strings.Contains(err.Error(), "b: ") {
			t.Errorf("%v", err)
		}
		before := len(w.Scans())
		// Opened again, it goes on as one.
		if err := c.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := &whole{Collector: collect(c)}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := c.Stream(ctx, again.sink()); err != nil || len(again.Scans()) < 5000 || before < 5000 {
			t.Errorf("%v; %d scans, then %d", err, before, len(again.Scans()))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		_, _, err := run(t, Align{By: Clock}, 20*time.Second, marker.Spec{}, nil, &fake{name: "a", rate: 4000},
			&fake{name: "b", rate: 1000, silent: 2})
		if !errors.Is(err, instrument.ErrDisconnected) || !strings.Contains(err.Error(), "b: ") {
			t.Errorf("a silent member: %v", err)
		}
		_, _, err = run(t, Align{By: Clock}, 20*time.Second, marker.Spec{}, nil,
			&fake{name: "a", rate: 4000, silent: 2}, &fake{name: "b", rate: 1000})
		if !errors.Is(err, instrument.ErrDisconnected) || !strings.Contains(err.Error(), "a: ") {
			t.Errorf("a silent base: %v", err)
		}
		_, _, err = run(t, Align{By: Clock}, 20*time.Second, marker.Spec{}, nil, &fake{name: "a", rate: 4000},
			&fake{name: "b", rate: 1000, late: time.Minute})
		if !errors.Is(err, instrument.ErrSilent) || !strings.Contains(err.Error(), "no scan of b within") {
			t.Errorf("a member that never begins: %v", err)
		}
		w, _, err := run(t, Align{By: Clock}, 20*time.Second, marker.Spec{}, nil, &fake{name: "a", rate: 4000},
			&fake{name: "b", rate: 1000, ends: 3})
		if n := len(w.Scans()); err != nil || n < 10_000 || n > 12_100 {
			t.Errorf("a recording that ends: %v, %d scans", err, n)
		}
	})
}

// An error of the sink ends all members.
func TestSinkErrorEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fake{name: "a", rate: 4000, epoch: time.Now(), batch: 40},
			&fake{name: "b", rate: 1000, epoch: time.Now(), batch: 10, deferred: false}
		c, err := New([]Member{{Name: "a", Instrument: a}, {Name: "b", Instrument: b}}, Align{By: Clock})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Stream(t.Context(), instrument.SinkOf(&montest.Collector{
			Timebase: c.Inputs().Timebase,
			Channels: 1,
		})); !errors.Is(err, measure.ErrShape) {
			t.Errorf("%v", err)
		}
	})
}

// Deferred members, and a streaming one beside them: all is merged at the end.
func TestDeferred(t *testing.T) {
	spec := marker.FastProfile(4000, 5)
	for name, c := range map[string]struct {
		a, b fake
		by   By
		most float64
		note string
	}{
		"two on a trigger": {
			a: fake{rate: 20e3}, b: fake{rate: 20e3}, by: Trigger, most: 2e-6,
			note: "common trigger",
		},
		"two by markers": {
			a: fake{rate: 20e3, ppm: 20},
			b: fake{
				rate: 20e3, ppm: -30, late: 77 * time.Millisecond,
				delay: 3e-3,
			}, by: Markers, most: 60e-6, note: "by both markers",
		},
		"two by markers, faster": {
			a: fake{rate: 20e3, ppm: -30}, b: fake{rate: 20e3, ppm: 30}, by: Markers,
			most: 60e-6, note: "readings of b were shown by no scan",
		},
		"by the clock": {
			a: fake{rate: 20e3}, b: fake{rate: 20e3, late: 77 * time.Millisecond}, by: Clock,
			most: 100e-6, note: "by the host's clock",
		},
	} {
		for _, streaming := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %v", name, streaming), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, b := c.a, c.b
					a.name, b.name = "a", "b"
					a.load, b.load = markers(spec, 1, 8), markers(spec, 1, 8)
					a.deferred, b.deferred = !streaming, true
					w, _, err := run(t, Align{By: c.by}, 10*time.Second, spec, nil, &a, &b)
					if err != nil {
						t.Fatal(err)
					}
					mean, most := apart(w, 0, 1, 0)
					t.Logf("%d scans, %.2f µs apart, %.2f at most\n%s", len(w.Scans()), 1e6*mean, 1e6*most, notes(w))
					limit := c.most
					if streaming && c.by == Clock {
						limit = 5e-3
					}
					if most > limit || len(w.Scans()) < 190_000 || w.Lost() != 0 {
						t.Errorf("%d scans, %v s apart, %d lost", len(w.Scans()), most, w.Lost())
					}
					if !strings.Contains(notes(w), c.note) {
						t.Error(notes(w))
					}
					if w.armedAt.IsZero() || w.done == 0 {
						t.Error("it was not told that the whole samples, or how far the delivery is")
					}
				})
			})
		}
	}
}

// Members do not stop at one instant: what the base sampled after the stop was asked for is not
// lost, what another member missed before it is.
func TestWhatFollowsTheStopIsNotLost(t *testing.T) {
	for _, deferred := range []bool{false, true} {
		for name, c := range map[string]struct {
			a, b        fake
			least, most uint64
		}{
			"a base that stops late":       {a: fake{deaf: 400 * time.Millisecond}},
			"a member that stops late":     {b: fake{deaf: 400 * time.Millisecond}},
			"a member that fell silent":    {b: fake{silent: 4.6}, least: 1500, most: 1700},
			"one silent, the other late":   {a: fake{deaf: time.Second}, b: fake{silent: 4.6}, least: 1500, most: 1700},
			"a recording that ended early": {a: fake{deaf: time.Second}, b: fake{ends: 4.6}, least: 1500, most: 1700},
		} {
			if deferred && (c.b.silent > 0 || c.b.ends > 0) {
				continue // a scope has all of its samples or none
			}
			t.Run(fmt.Sprintf("%s, %v", name, deferred), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, b := c.a, c.b
					a.name, a.rate, b.name, b.rate, b.deferred = "a", 4000, "b", 1000, deferred
					w, _, err := run(t, Align{By: Clock}, 5*time.Second, marker.Spec{}, nil, &a, &b)
					if err != nil || w.Lost() < c.least || w.Lost() > c.most || len(w.Scans()) < 18_000 {
						t.Errorf("%d scans, %d lost, %v\n%s", len(w.Scans()), w.Lost(), err, notes(w))
					}
				})
			})
		}
	}
}

func TestIdentityAndNames(t *testing.T) {
	a, b := &fake{name: "a", rate: 10}, &fake{name: "b", rate: 100}
	c, err := New([]Member{{Name: "x", Instrument: a}, {Name: "y", Instrument: b}}, Align{})
	if err != nil {
		t.Fatal(err)
	}
	if id := c.Identity(); id.Kind != "fake + fake" || id.Model != "a + b" || id.Serial != "1 + 1" {
		t.Errorf("%+v", id)
	}
	in := c.Inputs()
	if in.Timebase != b.timebase() || len(in.Channels) != 4 || in.Channels[1].Name != "x/load.current" ||
		in.Channels[2].Name != "y/time" {
		t.Errorf("%+v", in)
	}
	if _, err := New([]Member{{Name: "x", Instrument: a}}, Align{}); err == nil {
		t.Error("a composite of one")
	}
	if err := c.Stream(t.Context(), instrument.SinkOf(collect(c))); err == nil {
		t.Error("it streams though it is not open")
	}
}

func TestSpoolKeepsWhatItGot(t *testing.T) {
	s, err := newSpool(2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	want := []packet{
		{
			block: measure.Block{FirstTick: 0, Counts: [][]measure.Count{{1, -2, 3}, {4, 5, -2147483648}}},
			at:    time.Unix(5, 7),
		},
		{event: &measure.Event{
			Kind: measure.EventGap, FirstScan: 3, Scans: 4, Exact: true, Channel: -1,
			Detail: "lost",
		}},
		{block: measure.Block{
			FirstScan: 7, FirstTick: 1 << 40, Ticks: []int64{1 << 40, 1<<40 + 9},
			Counts: [][]measure.Count{{1, 2}, {3, 4}},
		}, at: time.Unix(6, 0)},
	}
	for i := range want {
		if err := s.out.Encode(&record{want[i].block, want[i].at.UnixNano(), want[i].event}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // it can be read again
		if err := s.rewind(); err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			var got packet
			if err := s.next(&got); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(w.block, got.block, cmpopts.IgnoreUnexported(measure.Block{})); (w.event == nil && d != "") || !cmp.Equal(w.event, got.event) ||
				(w.event == nil && !got.at.Equal(w.at)) {
				t.Errorf("record %d: %+v\n%s", i, got.event, d)
			}
		}
		if err := s.next(&packet{}); !errors.Is(err, io.EOF) {
			t.Errorf("behind the last: %v", err)
		}
	}
}

// A file that something else wrote into is told of, and makes nobody panic.
func FuzzSpool(f *testing.F) {
	var b bytes.Buffer
	_ = gob.NewEncoder(&b).Encode(&record{Block: measure.Block{Counts: [][]measure.Count{{1, 2}, {3}}}, Event: nil})
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()-3])
	f.Add(make([]byte, 60))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := newSpool(2)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		if _, err := s.file.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := s.rewind(); err != nil {
			t.Fatal(err)
		}
		for {
			var p packet
			err := s.next(&p)
			if errors.Is(err, io.EOF) && !errors.Is(err, errRecord) {
				return
			}
			if err != nil {
				if !errors.Is(err, errRecord) {
					t.Errorf("%v", err)
				}
				return
			}
			if p.event == nil && (p.block.Scans() == 0 || p.block.Scans() > len(data)) {
				t.Errorf("%d scans of %d bytes", p.block.Scans(), len(data))
			}
		}
	})
}

// steady is an instrument of so many channels; only its inputs are used.
type steady struct {
	fake
	channels int
}

func (s *steady) Inputs() instrument.Inputs {
	in := instrument.Inputs{Timebase: s.timebase()}
	for c := range s.channels {
		in.Channels = append(in.Channels, measure.Channel{Name: string(rune('a' + c)), Unit: measure.UnitVolt, Gain: 1})
	}
	return in
}

// nowhere takes blocks and forgets them.
type nowhere struct{ scans int }

func (n *nowhere) Block(b *measure.Block) error { n.scans += b.Scans(); return nil }
func (n *nowhere) Event(measure.Event) error    { return nil }

// BenchmarkMerge merges eight channels of 20 kS/s with eight of 4.8 kS/s, from
// the members' blocks of 10 ms on, with their clocks followed.
func BenchmarkMerge(b *testing.B) {
	fast, slow := &steady{fake{name: "fast", rate: 20e3, stamped: true}, 8},
		&steady{fake{name: "slow", rate: 4800, stamped: true}, 8}
	c, err := New([]Member{{Name: "slow", Instrument: slow}, {Name: "fast", Instrument: fast}}, Align{By: Clock})
	if err != nil {
		b.Fatal(err)
	}
	out := &nowhere{}
	s := &session{c: c, sink: instrument.SinkOf(out), members: make([]member, 2), epoch: time.Unix(0, 0)}
	for range 2 {
		s.spare = append(s.spare, make(chan *packet, 256))
	}
	s.merger = newMerger(c, instrument.SinkOf(out))
	if s.live, err = newLive(s); err != nil {
		b.Fatal(err)
	}
	blocks := [2]measure.Block{}
	for i, n := range []int{48, 200} {
		blocks[i].Counts, blocks[i].Ticks = make([][]measure.Count, 8), make([]int64, n)
		for ch := range blocks[i].Counts {
			blocks[i].Counts[ch] = make([]measure.Count, n)
		}
	}
	round := 0
	step := func() {
		at := s.epoch.Add(time.Duration(round+1) * 10 * time.Millisecond)
		for i := range blocks {
			blk := &blocks[i]
			n := blk.Scans()
			blk.FirstScan = uint64(round * n)
			for k := range blk.Ticks {
				blk.Ticks[k] = int64(round)*10_000_000 + int64(k)*10_000_000/int64(n)
			}
			blk.FirstTick = blk.Ticks[0]
			p := s.packet(i)
			p.fill(blk, at)
			if err := s.live.take(i, p); err != nil {
				b.Fatal(err)
			}
		}
		round++
	}
	for range 1000 {
		step()
	}
	out.scans = 0
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		step()
	}
	b.ReportMetric(float64(out.scans)/b.Elapsed().Seconds(), "scans/s")
	if out.scans < 195*b.N {
		b.Fatalf("%d scans of %d blocks of 200", out.scans, b.N)
	}
}

// A meter at the wall is slow, and the whole is not: neither its response nor its lost readings are the
// card's. It is aligned by the clock, whatever the others are by.
func TestAMeterAtTheWall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, err := run(t, Align{}, 10*time.Second, marker.FastProfile(4000, 7), nil, &fake{name: "wall", rate: 10, wall: true, batch: 1, loses: map[int]int{40: 3}},
			&fake{name: "card", rate: 4000})
		if err != nil {
			t.Fatal(err)
		}
		in := c.Inputs()
		if in.Response != (measure.Response{}) || in.Timebase.SampleRate() != 4000 || in.Channels[1].Skew != -0.05 || in.Channels[3].Skew != 0 {
			t.Errorf("the whole has %+v", in)
		}
		if w.Lost() != 0 || len(w.Scans()) < 36000 {
			t.Errorf("%d scans of the card, %d lost", len(w.Scans()), w.Lost())
		}
		none, notes := 0, ""
		for i, n := range w.Counts(1) {
			if n == measure.NoReading && i > 4000 {
				none++
			}
		}
		for _, e := range w.Events(measure.EventNote) {
			notes += e.Detail + "\n"
		}
		if none < 1100 || none > 1300 { // three readings of 400 scans
			t.Errorf("%d scans without a reading", none)
		}
		for _, want := range []string{"wall is aligned with card by the host's clock", "the card's scans go on"} {
			if !strings.Contains(notes, want) {
				t.Errorf("no %q in the notes:\n%s", want, notes)
			}
		}
	})
	// Known delays move its readings against the card's, and leave what its channel says of an update's length.
	apart := map[measure.Seconds]float64{}
	for _, delay := range []measure.Seconds{0, 0.03} {
		synctest.Test(t, func(t *testing.T) {
			w, c, err := run(t, Align{}, 10*time.Second, marker.FastProfile(4000, 7), map[string]measure.Seconds{"wall": delay, "card": delay / 6},
				&fake{name: "wall", rate: 10, wall: true, batch: 1, delay: -float64(delay)}, &fake{name: "card", rate: 4000, delay: -float64(delay / 6)})
			if err != nil {
				t.Fatal(err)
			}
			if skew := c.Inputs().Channels[1].Skew; math.Abs(float64(skew)+0.05) > 1e-9 {
				t.Errorf("delay %v: skew %v", delay, skew)
			}
			n, wall, card := 0.0, w.Counts(0), w.Counts(2)
			for i := 20_001; i < len(wall); i++ {
				if wall[i] != wall[i-1] {
					apart[delay] += (float64(card[i]-wall[i])/1e6 - apart[delay]) / (n + 1)
					n++
				}
			}
		})
	}
	if off := apart[0.03] - apart[0]; math.Abs(off) > 1e-3 {
		t.Errorf("with delays its readings are %v s off", off)
	}
	synctest.Test(t, func(t *testing.T) {
		_, _, err := run(t, Align{}, 20*time.Second, marker.Spec{}, nil, &fake{name: "card", rate: 4000}, &fake{name: "wall", rate: 10, wall: true, batch: 1, silent: 2})
		if !errors.Is(err, instrument.ErrDisconnected) || !strings.Contains(err.Error(), "wall: ") || !strings.Contains(err.Error(), "nothing came for 5 s while card went on") {
			t.Errorf("a silent meter at the wall: %v", err)
		}
	})
}

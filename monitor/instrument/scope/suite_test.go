package scope_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	scopeface "github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// Suite is a family with its face.
type Suite struct {
	Family *scope.Family
	New    func(*board.Board, scopeface.Config) (Face, error)
	// Shallow and Deep are depths of one channel that can be set when all are in
	// use, some thousands and some hundred thousands; 0 where the scope chooses.
	Shallow, Deep int
	// Data and State are parts of the messages that ask for points and for the
	// trigger's state.
	Data, State string
	// Stop is a message of another client that stops the scope; empty where the
	// family cannot deliver its memory then.
	Stop string
	// Another is the *IDN? of another scope of the family.
	Another string
	// Wrong are *IDN?s of other families, with the kind that the error has to name.
	Wrong map[string]string
}

// Run checks everything over a real TCP connection: the energy of a known load, the account of
// losses, every fault of the line, identity, and leaks. Checks that count goroutines, or compute
// much, run before the others, which run beside each other.
func (s *Suite) Run(t *testing.T) {
	t.Run("nothing leaks", s.leaks)
	t.Run("energy", s.energy)
	t.Parallel()
	if s.Stop != "" {
		t.Run("stopped at its front panel", beside(s.stopped))
	}
	t.Run("silent, and unwanted", beside(s.unwanted))
	t.Run("stated uncertainty", beside(s.uncertainty))
	t.Run("longer than memory", beside(s.full))
	t.Run("shorter than memory", beside(s.short))
	t.Run("another scope's trigger", beside(s.triggered))
	t.Run("no trigger", beside(s.untriggered))
	t.Run("trigger options", beside(s.triggerOptions))
	t.Run("faults", beside(s.faults))
	t.Run("what cannot be mended", beside(s.fatal))
	t.Run("wrong identity", beside(s.identity))
	t.Run("over range", beside(s.overRange))
}

// beside makes a test one that runs beside others.
func beside(f func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		f(t)
	}
}

// options are clamps of 10 mV/A and probes on the family's usual channels.
func (s *Suite) options(window time.Duration, depth int) scope.Options {
	o := s.Family.Defaults()
	o.Window, o.Depth, o.Timeout = window, depth, 2*time.Second
	return o
}

// window is the time that a full memory spans.
func window(in instrument.Inputs, points int) measure.Seconds {
	return measure.Seconds(float64(points) * in.Timebase.TicksPerScan / float64(in.Timebase.TickHz))
}

// energy records the board's loads and compares the integral with the truth.
func (s *Suite) energy(t *testing.T) {
	b := s.bench(t, scopeface.Config{Seed: 1}, 0)
	k, dev, err := s.take(t, b, s.options(1500*time.Millisecond, s.Deep), 500*time.Millisecond, nil)
	most := min(time.Since(k.at).Seconds()+0.01, 1.2)
	if err != nil {
		t.Fatal(err)
	}
	in, n := dev.Inputs(), len(k.Scans())
	if took := window(in, n); took < 0.49 || float64(took) > most || k.progress != uint64(n) || k.armed != 1 || k.Lost() != 0 {
		t.Errorf("%d scans, %v of 0.5 s, which the stop cut out of 1.5 s, progress %d, armed %d, lost %d", n, took,
			k.progress, k.armed, k.Lost())
	}
	from, to := measure.Seconds(0.01), measure.Seconds(0.45)
	r, want := energy(t, k, in, from, to), b.truth(t, len(in.Channels), from, to)
	rel := float64(r.Total.Energy/want) - 1
	t.Logf("%+.3f %% of %v, stated ± %v (k = 2); %d scans at %.4g S/s; %+v", 100*rel, want, r.Total.U, n,
		float64(in.Timebase.SampleRate()), dev.Stats())
	if math.Abs(rel) > 3e-3 {
		t.Errorf("%v measured, %v drawn: %+.3f %%", r.Total.Energy, want, 100*rel)
	}
}

// uncertainty takes scopes whose errors lie within their maker's limits: the
// energy lies within the stated uncertainty.
func (s *Suite) uncertainty(t *testing.T) {
	const scopes = 16
	var outside atomic.Int32
	t.Cleanup(func() {
		// At 95 %, more than three of sixteen outside happens once in a thousand times.
		if n := outside.Load(); n > 3 {
			t.Errorf("%d of %d outside of the stated uncertainty", n, scopes)
		}
	})
	for seed := range uint64(scopes) {
		t.Run(fmt.Sprint(seed), beside(func(t *testing.T) {
			b := s.bench(t, scopeface.Config{Seed: seed, Draw: true}, 0)
			k, dev, err := s.take(t, b, s.options(60*time.Millisecond, s.Shallow), 70*time.Millisecond, nil)
			if err != nil {
				t.Fatal(err)
			}
			in := dev.Inputs()
			from, to := measure.Seconds(0.002), measure.Seconds(0.058)
			r, want := energy(t, k, in, from, to), b.truth(t, len(in.Channels), from, to)
			if math.Abs(float64(r.Total.Energy-want)) > float64(r.Total.U) {
				outside.Add(1)
				t.Logf("%v ± %v, drawn %v", r.Total.Energy, r.Total.U, want)
			}
		}))
	}
}

// full: a capture longer than memory holds its first points and reports exactly
// the missing ones.
func (s *Suite) full(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	k, dev, err := s.take(t, b, s.options(60*time.Millisecond, s.Shallow), 400*time.Millisecond, nil)
	returned := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	held, rate := len(k.Scans()), float64(dev.Inputs().Timebase.SampleRate())
	if s.Shallow != 0 && held != s.Shallow {
		t.Errorf("%d scans, memory has %d", held, s.Shallow)
	}
	if took := window(dev.Inputs(), held); took < 0.06 || took > 0.121 {
		t.Errorf("memory spans %v, wanted 60 ms", took)
	}
	gaps := k.Events(measure.EventGap)
	if len(gaps) != 1 || gaps[0].FirstScan != uint64(held) || !strings.Contains(gaps[0].Detail, "longer window") {
		t.Fatalf("%+v", gaps)
	}
	// All that was due from the trigger to the stop, which lies between the order
	// and the end of the reading.
	least, most := k.stopped.Sub(k.at).Seconds()*rate, (returned.Sub(k.at).Seconds()+0.01)*rate
	if due := float64(held) + float64(k.Lost()); due < least-1 || due > most {
		t.Errorf("%v scans held and lost, %.0f to %.0f were due", due, least, most)
	}
}

// short: a capture shorter than memory has the points of its time, no others.
func (s *Suite) short(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	k, dev, err := s.take(t, b, s.options(600*time.Millisecond, s.Shallow), 150*time.Millisecond, nil)
	returned := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	in := dev.Inputs()
	n := len(k.Scans())
	if took := window(in, n); took < 0.1 || float64(took) > returned.Sub(k.at).Seconds()+0.01 || k.Lost() != 0 {
		t.Errorf("%d scans, %v; lost %d", n, took, k.Lost())
	}
	// What was never taken would show as a rail without power.
	from, to := measure.Seconds(0.002), window(in, n)-0.001
	r, want := energy(t, k, in, from, to), b.truth(t, len(in.Channels), from, to)
	if rel := float64(r.Total.Energy/want) - 1; math.Abs(rel) > 0.02 {
		t.Errorf("%+.2f %%", 100*rel)
	}
}

// identity checks that scopes of other makers are refused.
func (s *Suite) identity(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	d := s.device(t, b.Address, s.options(60*time.Millisecond, s.Shallow))
	for idn, kind := range s.Wrong {
		b.SetIdentity(idn)
		err := d.Open(t.Context())
		if !errors.Is(err, instrument.ErrIdentity) || !strings.Contains(fmt.Sprint(err), kind) {
			t.Errorf("%s: %v, want the kind %s named", idn, err, kind)
		}
	}
	b.SetIdentity(s.Another)
	if err := d.Open(t.Context()); err != nil {
		t.Errorf("%s: %v", s.Another, err)
	}
}

// overRange checks that clipped samples stand at the ends of the range.
func (s *Suite) overRange(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	o := s.options(60*time.Millisecond, s.Shallow)
	o.Inputs["ch2"] = scope.Input{Scale: 0.5} // 12 V lie far above 2 V
	k, dev, err := s.take(t, b, o, 100*time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := dev.Inputs()
	for _, n := range k.Counts(1) {
		if !in.Channels[1].OverRange(n) {
			t.Fatalf("count %d", n)
		}
	}
	for _, n := range k.Counts(0) {
		if in.Channels[0].OverRange(n) {
			t.Fatalf("count %d of a channel within its range", n)
		}
	}
}

// leaks opens and closes a scope many times.
func (s *Suite) leaks(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	d, err := scope.New(scope.Config{
		Family: s.Family, Address: b.Address, Options: s.options(60*time.Millisecond, s.Shallow),
		Quiet: time.Millisecond, Stale: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	montest.Cycles(t, d, 1000)
}

// waiter is a sink that wants to know when a scope waits for its trigger.
type waiter struct {
	*montest.Collector
	waiting func()
	armed   chan time.Time
}

// Waiting lets the test give its trigger.
func (w *waiter) Waiting() error { w.waiting(); return nil }

// Armed passes the time of the trigger on.
func (w *waiter) Armed(at time.Time) error { w.armed <- at; return nil }

// sink is the waiter as the scope sees it.
func (w *waiter) sink() instrument.Sink {
	return instrument.Sink{Block: w.Block, Event: w.Event, Armed: w.Armed, Waiting: w.Waiting}
}

// newWaiter takes a device's samples.
func newWaiter(dev *scope.Device, waiting func()) *waiter {
	in := dev.Inputs()
	return &waiter{
		Collector: &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}, waiting: waiting,
		armed: make(chan time.Time, 1),
	}
}

// edge are options with a clamp, and a logic signal on the last of the usual
// channels.
func (s *Suite) edge() (o scope.Options, channel int) {
	o = s.options(600*time.Millisecond, s.Shallow)
	o.Inputs = map[string]scope.Input{
		"ch1": o.Inputs["ch1"], "ch2": o.Inputs["ch2"],
		scope.ChannelName(s.Family.Usual): {Scale: 1, Offset: -2},
	}
	return o, s.Family.Usual
}

// slave is an open scope that waits for a trigger line.
func (s *Suite) slave(t *testing.T, line *scopeface.TriggerLine, now func() time.Duration) (*Bench, *scope.Device) {
	t.Helper()
	o, channel := s.edge()
	o.Trigger = scope.Trigger{Channel: scope.ChannelName(channel), Level: 1.5}
	cfg := scopeface.Config{Now: now}
	cfg.Probes[0] = scopeface.Probe{Quantity: scopeface.Clamp, Rail: "aux_12v_1", VoltPerAmpere: 0.01}
	cfg.Probes[channel-1] = scopeface.Probe{Quantity: scopeface.TriggerIn, Line: line}
	b := s.bench(t, cfg, 0)
	dev := s.device(t, b.Address, o)
	if err := dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b, dev
}

// triggered: one scope's forced trigger starts another's memory at the same instant.
func (s *Suite) triggered(t *testing.T) {
	line := &scopeface.TriggerLine{}
	epoch := time.Now()
	now := func() time.Duration { return time.Since(epoch) }
	slave, dev := s.slave(t, line, now)
	master := s.bench(t, scopeface.Config{Now: now, TriggerOut: line}, 0)
	o, _ := s.edge()
	first := s.device(t, master.Address, o)
	if err := first.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	own := newWaiter(first, func() { t.Error("a scope that forces its trigger waits for one") })
	var before time.Time
	w := newWaiter(dev, func() {
		before = time.Now()
		go func() { ended <- first.Stream(ctx, own.sink()) }()
	})
	go func() { ended <- dev.Stream(ctx, w.sink()) }()
	for range 2 {
		select {
		case at := <-w.armed:
			if at.Before(before) || at.After(time.Now()) {
				t.Errorf("it says that it was triggered at %v, not after %v", at, before)
			}
		case <-own.armed:
		case err := <-ended:
			t.Fatalf("ended before it armed: %v", err)
		}
	}
	<-time.After(50 * time.Millisecond) // of recording
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if m, s := master.Begin(), slave.Begin(); m != s {
		t.Errorf("the master began at %v, the other at %v", m, s)
	}
	if len(w.Scans()) == 0 || len(own.Scans()) == 0 {
		t.Errorf("%d and %d scans were recorded", len(w.Scans()), len(own.Scans()))
	}
}

// untriggered: without a trigger it waits until its end, and has recorded nothing; a scope
// that is stopped meanwhile invents nothing.
func (s *Suite) untriggered(t *testing.T) {
	b, dev := s.slave(t, &scopeface.TriggerLine{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	w := newWaiter(dev, cancel)
	if err := dev.Stream(ctx, w.sink()); err != nil {
		t.Error(err)
	}
	if len(w.armed) != 0 || len(w.Scans()) != 0 {
		t.Errorf("armed %d times, %d scans", len(w.armed), len(w.Scans()))
	}
	if s.Stop == "" {
		return
	}
	w = newWaiter(dev, func() { b.other(s.Stop) })
	if err := dev.Stream(t.Context(), w.sink()); !errors.Is(err, scpi.ErrInstrument) ||
		!strings.Contains(err.Error(), "without a trigger") || len(w.Scans()) != 0 {
		t.Errorf("stopped while it waits: %d scans, %v", len(w.Scans()), err)
	}
}

// triggerOptions are those of a scope that waits for an edge on its last channel.
func (s *Suite) triggerOptions(t *testing.T) {
	for want, tr := range map[string]scope.Trigger{
		"none of the inputs":      {Channel: "ch9"},
		"off the screen of ch1":   {Channel: "ch1", Level: 3},
		"a level without a chann": {Level: 1},
	} {
		o, _ := s.edge()
		o.Trigger = tr
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", tr, err, want)
		}
	}
	o, channel := s.edge()
	o.Trigger = scope.Trigger{Channel: scope.ChannelName(channel)} // at its default level
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}

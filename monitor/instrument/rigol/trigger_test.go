//go:build linux

package rigol

import (
	"context"
	"strings"
	"testing"
	"time"

	"wattmark/monitor/emulator/rigolface"
	"wattmark/monitor/instrument/insttest"
)

// waiter is a sink that wants to know when a scope waits for its trigger.
type waiter struct {
	*insttest.Collector
	waiting func()
	armed   chan time.Time
}

func (w *waiter) Waiting() error              { w.waiting(); return nil }
func (w *waiter) Armed(at time.Time) error    { w.armed <- at; return nil }
func (w *waiter) Progress(done, total uint64) {}

// slaved is a scope that waits on channel 4 for what line brings.
func slaved(t *testing.T, line *rigolface.TriggerLine, now func() time.Duration) (*scope, *Device) {
	t.Helper()
	s := newScope(t, rigolface.Config{Now: now, Probes: [4]rigolface.Probe{
		{Quantity: rigolface.Clamp, Rail: "aux_12v_1", VoltPerAmpere: 0.01},
		{Quantity: rigolface.Load, Rail: "aux_12v_1"},
		{},
		{Quantity: rigolface.TriggerIn, Line: line},
	}}, 0)
	o := options(600*time.Millisecond, 30000)
	delete(o.Inputs, "ch3")
	o.Inputs["ch4"] = Input{Scale: 1, Offset: -2}
	o.Trigger = Trigger{Channel: "ch4", Level: 1.5}
	dev, err := New(s.address, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	return s, dev
}

// One scope's forced trigger starts the other's memory at the same instant.
func TestATriggerFromAnotherScope(t *testing.T) {
	line := &rigolface.TriggerLine{}
	epoch := time.Now()
	now := func() time.Duration { return time.Since(epoch) }
	slave, dev := slaved(t, line, now)
	master := newScope(t, rigolface.Config{Now: now, TriggerOut: line}, 0)
	first, err := New(master.address, options(600*time.Millisecond, 30000))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	in := first.Inputs()
	own := &waiter{Collector: &insttest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}, armed: make(chan time.Time, 1)}
	in = dev.Inputs()
	w := &waiter{Collector: &insttest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}, armed: make(chan time.Time, 1)}
	var before time.Time
	w.waiting = func() {
		before = time.Now()
		go func() { ended <- first.Stream(ctx, own) }()
	}
	go func() { ended <- dev.Stream(ctx, w) }()
	if at := <-w.armed; at.Before(before) || at.After(time.Now()) {
		t.Errorf("it says that it was triggered at %v, not after %v", at, before)
	}
	<-own.armed
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
	if len(w.Scans()) == 0 {
		t.Error("nothing was recorded")
	}
}

// Without a trigger it waits until it is told to end, and has recorded nothing.
func TestNoTriggerCame(t *testing.T) {
	_, dev := slaved(t, &rigolface.TriggerLine{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	in := dev.Inputs()
	w := &waiter{Collector: &insttest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}, waiting: cancel, armed: make(chan time.Time, 1)}
	if err := dev.Stream(ctx, w); err != nil {
		t.Error(err)
	}
	if len(w.armed) != 0 || len(w.Scans()) != 0 {
		t.Errorf("armed %d times, %d scans", len(w.armed), len(w.Scans()))
	}
}

func TestTriggerOptions(t *testing.T) {
	for want, tr := range map[string]Trigger{
		"none of the inputs":      {Channel: "ch9"},
		"off the screen of ch1":   {Channel: "ch1", Level: 3},
		"a level without a chann": {Level: 1},
	} {
		o := options(time.Second, 0)
		o.Trigger = tr
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", tr, err, want)
		}
	}
	o := options(time.Second, 0)
	o.Inputs["ch4"] = Input{Scale: 1, Offset: -2}
	o.Trigger = Trigger{Channel: "ch4"}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}

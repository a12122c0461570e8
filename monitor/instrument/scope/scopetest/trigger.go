package scopetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/instrument/insttest"
	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/scpi"
)

// waiter is a sink that wants to know when a scope waits for its trigger.
type waiter struct {
	*insttest.Collector
	waiting func()
	armed   chan time.Time
}

func (w *waiter) Waiting() error            { w.waiting(); return nil }
func (w *waiter) Armed(at time.Time) error  { w.armed <- at; return nil }
func (w *waiter) Progress(_, _ uint64)      {}
func (w *waiter) Unwanted() <-chan struct{} { return nil }

// newWaiter takes what a device delivers.
func newWaiter(dev *scope.Device, waiting func()) *waiter {
	in := dev.Inputs()
	return &waiter{
		Collector: &insttest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}, waiting: waiting, armed: make(chan time.Time, 1),
	}
}

// edge are options with a clamp, and a logic signal on the last of the usual
// channels.
func (s *Suite) edge() (o scope.Options, channel int) {
	o = s.options(600*time.Millisecond, s.Shallow)
	o.Inputs = map[string]scope.Input{"ch1": o.Inputs["ch1"], "ch2": o.Inputs["ch2"], scope.ChannelName(s.Family.Usual): {Scale: 1, Offset: -2}}
	return o, s.Family.Usual
}

// slave is an open scope that waits for what a line brings.
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
		go func() { ended <- first.Stream(ctx, own) }()
	})
	go func() { ended <- dev.Stream(ctx, w) }()
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

// untriggered: without a trigger it waits until it is told to end, and has recorded
// nothing; a scope that somebody stops meanwhile invents nothing.
func (s *Suite) untriggered(t *testing.T) {
	b, dev := s.slave(t, &scopeface.TriggerLine{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	w := newWaiter(dev, cancel)
	if err := dev.Stream(ctx, w); err != nil {
		t.Error(err)
	}
	if len(w.armed) != 0 || len(w.Scans()) != 0 {
		t.Errorf("armed %d times, %d scans", len(w.armed), len(w.Scans()))
	}
	if s.Stop == "" {
		return
	}
	w = newWaiter(dev, func() { b.other(s.Stop) })
	if err := dev.Stream(t.Context(), w); !errors.Is(err, scpi.ErrInstrument) || !strings.Contains(err.Error(), "without a trigger") || len(w.Scans()) != 0 {
		t.Errorf("stopped while it waits: %d scans, %v", len(w.Scans()), err)
	}
}

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

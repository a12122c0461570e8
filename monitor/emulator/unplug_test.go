//go:build linux

package emulator_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"wattmark/monitor/bench"
	benches "wattmark/monitor/capture"
	"wattmark/monitor/emulator/fault"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/emulator/ps3face"
	"wattmark/monitor/instrument/insttest"
	"wattmark/monitor/instrument/registry"
	"wattmark/monitor/spool"
)

// socket is where a meter is plugged in, as udev names it.
type socket struct {
	t    *testing.T
	link string
	plug *insttest.Plug
}

func (s *socket) in() {
	s.t.Helper()
	face, err := ps3face.New(insttest.Workload(s.t, 5*time.Second), pace.Pace{Epoch: time.Now()}, ps3face.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.plug = insttest.PlugIn(s.t, face, fault.Faults{})
	if err := os.Symlink(s.plug.Path, s.link); err != nil {
		s.t.Fatal(err)
	}
}

func (s *socket) out() {
	s.t.Helper()
	if err := os.Remove(s.link); err != nil {
		s.t.Fatal(err)
	}
	s.plug.Pull()
}

// A bench tells that its meter was unplugged, idle or in a capture, and that it was
// plugged in again, without a restart.
func TestBenchTellsOfAnUnpluggedMeter(t *testing.T) {
	s := &socket{t: t, link: filepath.Join(t.TempDir(), "meter")}
	s.in()
	b, err := bench.Default("powersensor3", s.link)
	if err != nil {
		t.Fatal(err)
	}
	ins, err := b.NewInstrument(registry.Env{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := spool.Open(t.TempDir(), spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o, err := benches.New(benches.Config{Bench: b.Name, Instrument: ins, Setup: b.Setup, Store: store, Reopen: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	gone := func(b benches.Bench) bool { return b.Err != nil && strings.Contains(b.Err.Error(), "disconnected") }
	if b := o.Ask(ctx); b.Err != nil || b.Setup == nil {
		t.Fatalf("plugged in: %+v", b)
	}
	s.out() // idle, and never sampled
	if b := o.Ask(ctx); !gone(b) || !gone(o.Bench(ctx)) {
		t.Errorf("unplugged: %v", b.Err)
	}
	s.in()
	if b := o.Ask(ctx); b.Err != nil || o.Bench(ctx).Err != nil {
		t.Errorf("plugged in again: %v", b.Err)
	}
	c, err := o.Start(ctx, benches.Request{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	s.out()
	await(t, "the capture's meter is lost", func() bool { return gone(o.Ask(ctx)) })
	s.in()
	await(t, "the capture has its meter again", func() bool { return o.Ask(ctx).Err == nil })
	if sum, err := c.Stop(ctx); err != nil || sum.State != benches.Complete || sum.Gaps == 0 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// await asks until it is so, or the test's time is over.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("not within a minute: ", what)
		}
	}
}

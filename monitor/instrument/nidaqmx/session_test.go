package nidaqmx

import (
	"errors"
	"strings"
	"testing"
	"time"

	"wattmark/monitor/emulator/niface"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/insttest"
)

func TestUnplugAndReplug(t *testing.T) {
	for name, pull := range map[string]struct{ off, on func(*testing.T, *rig) }{
		"the server ends and comes back": {
			func(_ *testing.T, r *rig) { r.unplug() },
			func(t *testing.T, r *rig) { r.plug(t, r.at) },
		},
		"the connection breaks": {
			func(_ *testing.T, r *rig) { r.face.Drop() }, nil,
		},
		"the device is pulled": {
			func(_ *testing.T, r *rig) { r.face.Unplug(true) },
			func(_ *testing.T, r *rig) { r.face.Unplug(false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := emulate(t, niface.Config{Codes: numbered}, pace.Real(time.Now()))
			for range 3 {
				r.open(t)
				off := make(chan struct{})
				_, err := r.stream(t, 2000, func() { go func() { defer close(off); pull.off(t, r) }() })
				if err != nil && !errors.Is(err, instrument.ErrDisconnected) {
					t.Fatalf("%v, want ErrDisconnected", err)
				}
				<-off
				if err := r.dev.Close(); err != nil {
					t.Fatal(err)
				}
				if pull.on == nil {
					continue
				}
				if err := r.dev.Open(t.Context()); !errors.Is(err, instrument.ErrDisconnected) {
					t.Fatalf("Open of what is gone: %v", err)
				}
				pull.on(t, r)
			}
			// It goes on.
			r.open(t)
			out, err := r.stream(t, 2000, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.counted(t, out)
		})
	}
}

// A session that is there is somebody's: it is taken over only where told to.
func TestSessionsOfOthers(t *testing.T) {
	r := emulate(t, niface.Config{Codes: numbered})
	r.open(t) // the program that crashed: it never closes
	r.make(t)
	err := r.dev.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), `session "wattmark" exists`) || !strings.Contains(err.Error(), "take_over: true") {
		t.Fatalf("%v", err)
	}
	if errors.Is(err, instrument.ErrIdentity) {
		t.Error("waiting for the other to end is worth it")
	}
	r.opts.TakeOver = true
	r.make(t)
	r.open(t)
	if out, err := r.stream(t, 1000, nil); err != nil || len(out.Scans()) < 1000 {
		t.Errorf("%d scans, %v", len(out.Scans()), err)
	}
	if n := r.face.Sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if err := r.dev.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.face.Sessions(); n != 0 {
		t.Errorf("%d sessions after Close", n)
	}
}

// A session that could not be cleared when it was closed is ours: it is cleared
// when the device is opened again, without being told to.
func TestOwnSessionIsCleared(t *testing.T) {
	r := emulate(t, niface.Config{Codes: numbered})
	r.open(t)
	r.face.Fail("ClearTask", invalidValue)
	if err := r.dev.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.face.Sessions(); n != 1 {
		t.Fatalf("%d sessions: one was to be left", n)
	}
	r.open(t)
	if out, err := r.stream(t, 1000, nil); err != nil || len(out.Scans()) < 1000 {
		t.Errorf("%d scans, %v", len(out.Scans()), err)
	}
}

// A program that was taken over learns it at once: its samples would be another
// task's. It leaves the other alone.
func TestTakenOver(t *testing.T) {
	r := emulate(t, niface.Config{Codes: numbered}, pace.Real(time.Now()))
	r.open(t)
	first := r.dev
	r.opts.TakeOver = true
	other, err := New("tcp:"+r.at, r.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	_, err = r.stream(t, 1<<20, func() {
		if err := other.Open(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, instrument.ErrDisconnected) || !strings.Contains(err.Error(), "another program") {
		t.Fatalf("%v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.face.Sessions(); n != 1 {
		t.Errorf("%d sessions: the other's was to stay", n)
	}
	if err := first.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "take_over") {
		t.Errorf("%v", err)
	}
}

func TestCycles(t *testing.T) {
	r := emulate(t, niface.Config{})
	insttest.Cycles(t, r.dev, 1000)
}

package measurement_test

import (
	"context"
	"errors"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/measurement"

	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/store"
)

// timed is a simulated GPU that tells when its work is done, by the host's clock.
type timed struct {
	*sim.Device
	marks []time.Time
	fail  error
}

func (d *timed) Mark(stream uintptr) (int, error) {
	if stream == 99 {
		return 0, errors.New("no such stream")
	}
	d.marks = append(d.marks, time.Now())
	return len(d.marks) - 1, nil
}
func (d *timed) Settle() (time.Time, error)  { return time.Now(), d.fail }
func (d *timed) Times() ([]time.Time, error) { return d.marks, nil }

type rig struct {
	live   *board.Live
	device *timed
	client *monitorclient.Client
	db     *store.DB
}

func newRig(t *testing.T) *rig {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	model, err := board.New(board.Config{Seed: 9})
	must(err)
	epoch := time.Now()
	r := &rig{live: board.NewLive(model, epoch)}
	source, err := meter.NewSampler(model, meter.Config{Seed: 9, Rate: 20e3})
	must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	setup := func(instrument.Inputs) (measure.Setup, error) { return source.Setup(), nil }
	m, err := monitor.New(monitor.Config{
		Bench: monitor.Bench{
			Name: "soft", Instrument: meter.NewInstrument("emulated", source, pace.Real(epoch)),
			Setup: setup,
		},
		Dir: t.TempDir(), Listeners: []net.Listener{l}, Version: "test",
	})
	must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	dev, err := sim.Open(sim.Config{Plant: r.live})
	must(err)
	r.device = &timed{Device: dev}
	r.client, err = monitorclient.Dial(l.Addr().String(), monitorclient.Options{})
	must(err)
	r.db, err = store.Open(t.Context(), filepath.Join(t.TempDir(), "power.db"))
	must(err)
	t.Cleanup(func() {
		err := errors.Join(r.client.Close(), r.db.Close())
		cancel()
		if err = errors.Join(err, <-done); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) config() measurement.Config {
	return measurement.Config{
		DB: r.db, Monitor: r.client, Device: r.device, Name: "first", User: "lab",
		Marker: &marker.Spec{Code: marker.M31, Chip: 1e-3, Guard: 6, TagBits: 4, Tag: 3}, Lead: 20 * time.Millisecond,
	}
}

func (r *rig) start(t *testing.T) *measurement.Bracket {
	t.Helper()
	m, err := measurement.StartBracket(t.Context(), r.config(), measurement.Measure)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// One rig for all: under the race detector it takes seconds to make.
func TestMeasurement(t *testing.T) {
	r := newRig(t)
	t.Run("step by step", func(t *testing.T) { stepByStep(t, r) })
	t.Run("given up", func(t *testing.T) { givenUp(t, r) })
	t.Run("a start that fails", func(t *testing.T) { startThatFails(t, r) })
}

func stepByStep(t *testing.T, r *rig) {
	m := r.start(t)
	out := func(err error) {
		t.Helper()
		if !errors.Is(err, measurement.ErrOrder) {
			t.Errorf("out of order: got %v", err)
		}
	}
	out(m.End())
	out(m.Mark("x", 0))
	out(m.Stopped())
	if err := m.Begin(); err != nil {
		t.Fatal(err)
	}
	out(m.Begin())
	if _, err := r.device.RunBenchmark(t.Context(), "memory", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := m.Mark("second", 0); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []error{m.Mark("", 0), m.Mark("a\x1b", 0), m.Mark("x", 99)} {
		if wrong == nil {
			t.Error("a wrong mark was taken")
		}
	}
	if _, err := r.device.RunBenchmark(t.Context(), "compute", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := m.End(); err != nil {
		t.Fatal(err)
	}
	out(m.End())
	if err := m.Stopped(); err != nil {
		t.Fatal(err)
	}
	id, err := m.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := m.Cancel(); again != id || err != nil {
		t.Errorf("cancelled after its end: %d, %v", again, err)
	}
	x, err := r.db.Task(t.Context(), id)
	if err != nil || x.State != store.Complete {
		t.Fatalf("%v: %s, %v", x.State, x.Reason, err)
	}
	k, err := r.db.Kernels(t.Context(), id)
	if err != nil || len(k) != 2 || k[0].Name != "first" || k[1].Name != "second" || !k[0].End.Equal(k[1].Start) {
		t.Fatalf("%+v, %v", k, err)
	}
	e, err := r.live.Energy(k[0].Start, k[1].End)
	if err != nil {
		t.Fatal(err)
	}
	if off := float64(x.Result.Total.Energy - e.Total); math.Abs(off) > 0.005*float64(e.Total) {
		t.Errorf("%v, truth %v", x.Result.Total.Energy, e.Total)
	}
}

// Whatever ends it, the bench is free and the task says why.
func givenUp(t *testing.T, r *rig) {
	for name, c := range map[string]struct {
		do     func(*measurement.Bracket) error
		reason string
	}{
		"before the marker": {
			func(m *measurement.Bracket) error { _, err := m.Cancel(); return err },
			"cancelled during marker",
		},
		"in the work": {func(m *measurement.Bracket) error {
			if err := m.Begin(); err != nil {
				return err
			}
			_, err := m.Cancel()
			return err
		}, "cancelled during work"},
		"by the GPU": {func(m *measurement.Bracket) error {
			r.device.fail = errors.New("an illegal address")
			defer func() { r.device.fail = nil }()
			if err := m.Begin(); err != nil {
				return err
			}
			if err := m.End(); err == nil || !strings.Contains(err.Error(), "an illegal address") {
				return errors.Join(errors.New("the GPU's error is missing"), err)
			}
			return nil
		}, "cancelled during work"},
	} {
		t.Run(name, func(t *testing.T) {
			m := r.start(t)
			if err := c.do(m); err != nil {
				t.Fatal(err)
			}
			id, _ := m.Wait()
			x, err := r.db.Task(t.Context(), id)
			if err != nil || x.State != store.Incomplete || !strings.Contains(x.Reason, c.reason) {
				t.Errorf("%v: %s, %v", x.State, x.Reason, err)
			}
			b, err := r.client.GetBench(t.Context())
			if err != nil || b.Holder != "" {
				t.Errorf("held by %q, %v", b.Holder, err)
			}
			if err := m.Begin(); err == nil {
				t.Error("begun after its end")
			}
		})
	}
}

func startThatFails(t *testing.T, r *rig) {
	c := r.config()
	c.Name = ""
	if _, err := measurement.StartBracket(t.Context(), c, measurement.Measure); err == nil {
		t.Error("started without a name")
	}
	m := r.start(t)
	if _, err := measurement.StartBracket(t.Context(), r.config(), measurement.Measure); !errors.Is(err, monitorclient.ErrBusy) {
		t.Errorf("a second one: %v", err)
	}
	if _, err := m.Cancel(); err != nil {
		t.Error(err)
	}
}

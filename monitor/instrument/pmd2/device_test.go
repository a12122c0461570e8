//go:build linux

package pmd2

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	pmd2face "github.com/wattmark/wattmark/monitor/emulator/pmd2"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/transport"
)

type rig struct {
	board *board.Board
	face  *pmd2face.Face
	model *Model
	epoch time.Time
	plug  *montest.Plug
	dev   *Device
}

func build(t *testing.T, cfg pmd2face.Config) *rig {
	t.Helper()
	return buildOn(t, montest.Workload(t, 30*time.Second), cfg)
}

func buildOn(t *testing.T, b *board.Board, cfg pmd2face.Config) *rig {
	t.Helper()
	r := &rig{board: b, model: PMD2, epoch: time.Now()}
	if cfg.WireView {
		r.model = WireView
	}
	var err error
	if r.face, err = pmd2face.New(r.board, pace.Real(r.epoch), cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// emulate plugs an emulated device into a pty.
func emulate(t *testing.T, cfg pmd2face.Config) *rig {
	t.Helper()
	r := build(t, cfg)
	r.plugIn(t)
	return r
}

func (r *rig) plugIn(t *testing.T) {
	t.Helper()
	r.plug = montest.PlugIn(t, r.face, fault.Faults{Fragment: 100})
	var err error
	if r.dev, err = r.model.New(r.plug.Path, Defaults()); err != nil {
		t.Fatal(err)
	}
	dev := r.dev
	t.Cleanup(func() { _ = dev.Close() })
}

// pipe puts the driver and the device on a net.Pipe, for virtual time; end ends
// the device.
func (r *rig) pipe(t *testing.T, f fault.Faults, slow ...bool) (end func()) {
	t.Helper()
	var wraps []func(io.ReadWriteCloser) io.ReadWriteCloser
	if len(slow) > 0 && slow[0] {
		wraps = append(wraps, func(rw io.ReadWriteCloser) io.ReadWriteCloser { return slowLine{rw} })
	}
	mine, unplug := montest.OnPipe(t, r.face, f, wraps...)
	r.dev = onLine(t, r.model, mine)
	return func() { _ = r.dev.Close(); unplug() }
}

// onLine is a driver on a line that is there already; it asks every millisecond.
func onLine(t *testing.T, m *Model, line net.Conn) *Device {
	t.Helper()
	o := Defaults()
	o.Period = time.Millisecond
	d, err := m.New("tcp:host:1", o)
	if err != nil {
		t.Fatal(err)
	}
	d.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(line), nil }
	return d
}

func TestOpenReadsTheDevice(t *testing.T) {
	r := emulate(t, pmd2face.Config{Seed: 7})
	if err := r.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id := r.dev.Identity(); id.Model != "ElmorLabs PMD2" || id.Serial != "070042003351313200000000" ||
		id.Firmware != "0" {
		t.Errorf("%+v", id)
	}
	if err := r.dev.Open(t.Context()); err == nil {
		t.Error("a second Open was accepted")
	}
}

// Each reading is what the board had at the time that it is given.
func TestMeasuresTheBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { measures(t, pmd2face.Config{NoiseV: -1, NoiseI: -1}, 9, 1) }) // hpwr.current
	synctest.Test(t, func(t *testing.T) { measures(t, pmd2face.Config{NoiseV: -1, NoiseI: -1, WireView: true}, 3, 0.18) })
}

// measures compares a channel with its share of the plug's current.
func measures(t *testing.T, cfg pmd2face.Config, channel int, share float64) {
	t.Helper()
	r := build(t, cfg)
	defer r.pipe(t, fault.Faults{})()
	if err := r.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	begin := time.Since(r.epoch)
	out := montest.For(r.dev.Inputs())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := r.dev.Stream(ctx, instrument.SinkOf(out)); err != nil {
		t.Fatal(err)
	}
	in := r.dev.Inputs()
	ticks, counts := out.Ticks(), out.Counts(channel)
	if len(ticks) < 2990 || out.Lost() != 0 {
		t.Fatalf("%d readings, %d lost", len(ticks), out.Lost())
	}
	// The driver first takes a millisecond or two to see that the line is clean.
	for shift := time.Duration(0); shift < 4*time.Millisecond; shift += time.Millisecond {
		fits := 0
		for i := range ticks {
			at := (begin + shift + time.Duration(ticks[i])).Truncate(time.Millisecond) // of its last conversion
			want := float64(r.board.Rail(2, r.board.MeanPower(max(0, at-time.Millisecond), at)).I) * share
			if math.Abs(in.Channels[channel].Value(counts[i])-want) < 1e-3 {
				fits++
			}
		}
		if fits == len(ticks) {
			return
		}
		t.Logf("%v later: %d of %d readings fit the board", shift, fits, len(ticks))
	}
	t.Error("the readings are not the board's")
}

// A device of the other model is refused, with the answer of both.
func TestTheOtherModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, view := range []bool{false, true} {
			r := build(t, pmd2face.Config{WireView: view})
			r.model = map[bool]*Model{true: PMD2, false: WireView}[view]
			end := r.pipe(t, fault.Faults{})
			if err := r.dev.Open(t.Context()); !errors.Is(err, instrument.ErrIdentity) || !strings.Contains(err.Error(), r.model.Name) {
				t.Errorf("%s: %v", r.model.Name, err)
			}
			end()
		}
	})
}

// length is the device's time of the last reading.
func length(out *montest.Collector) measure.Seconds {
	ticks := out.Ticks()
	if len(ticks) == 0 {
		return 0
	}
	return out.Timebase.Seconds(float64(ticks[len(ticks)-1]))
}

// The energy lies within its uncertainty, with a device that is off by as much as
// the driver states, on a real pty. The load is steady: what a busy machine does to
// the times of a device that is asked is not the device's doing.
func TestEnergyWithinItsUncertainty(t *testing.T) {
	inside := 0
	const seeds = 4
	for seed := range uint64(seeds) {
		b, err := board.New(board.Config{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.SetLoad(0, load.Compute); err != nil {
			t.Fatal(err)
		}
		r := buildOn(t, b, pmd2face.Config{Seed: seed, Draw: true})
		r.plugIn(t)
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		in := r.dev.Inputs()
		var out *montest.Collector
		start := time.Duration(0)
		for attempt := 0; out == nil || attempt < 10 && (out.Lost() > 0 || length(out) < 0.7); attempt++ {
			start = time.Since(r.epoch)
			ctx, cancel := context.WithTimeout(t.Context(), 800*time.Millisecond)
			out = montest.For(in)
			err := r.dev.Stream(ctx, instrument.SinkOf(out))
			cancel()
			if err != nil {
				t.Fatal(err)
			}
		}
		setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
		setup.Rails, setup.Missing = r.model.NaturalRails(in)
		got := montest.Energy(t, &setup, out, 0.1, 0.7)
		truth, err := r.board.Energy(start+100*time.Millisecond, start+700*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		want := truth.Rails[2] + truth.Rails[3] // the card's plugs
		t.Logf("%v ± %v, injected %v, %d readings", got.Energy, got.U, want, len(out.Scans()))
		miss := math.Abs(float64(got.Energy - want))
		if miss <= float64(got.U) {
			inside++
		}
		if miss > 2*float64(got.U) || got.U > 0.05*got.Energy {
			t.Errorf("%v ± %v, injected %v", got.Energy, got.U, want)
		}
	}
	if inside < seeds-1 {
		t.Errorf("%d of %d lie within U", inside, seeds)
	}
}

// Every question without a good answer is counted, no other, and the next answer
// is read right.
func TestUnansweredQuestionsAreExact(t *testing.T) {
	for name, c := range map[string]struct {
		fault fault.Fault
		mute  int
		lost  uint64
	}{
		"nothing":            {fault.Fault{Kind: fault.Stall, For: time.Nanosecond}, 0, 0},
		"a byte lost":        {fault.Fault{Kind: fault.Drop, Bytes: 1}, 0, 1},
		"an answer lost":     {fault.Fault{Kind: fault.Drop, Bytes: PMD2.ReplyBytes}, 0, 1},
		"a byte doubled":     {fault.Fault{Kind: fault.Duplicate, Bytes: 1}, 0, 1},
		"an answer doubled":  {fault.Fault{Kind: fault.Duplicate, Bytes: PMD2.ReplyBytes}, 0, 1},
		"3 without answer":   {fault.Fault{Kind: fault.Stall, For: time.Nanosecond}, 3, 3},
		"a slow answer":      {fault.Fault{Kind: fault.Stall, For: 30 * time.Millisecond}, 0, 0},
		"an answer too late": {fault.Fault{Kind: fault.Stall, For: 130 * time.Millisecond}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := build(t, pmd2face.Config{})
				f := c.fault
				f.At = int64(len("ElmorLabs PMD2\x00") + 3 + 12 + 1000*PMD2.ReplyBytes) // between two answers
				defer r.pipe(t, fault.Faults{Script: []fault.Fault{f}})()
				if err := r.dev.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.face.Mute(0)
				out := montest.For(r.dev.Inputs())
				out.After, out.Enough = 500, func() { r.face.Mute(c.mute) }
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				if err := r.dev.Stream(ctx, instrument.SinkOf(out)); err != nil {
					t.Fatal(err)
				}
				if slow := len(out.Events(measure.EventNote)); (name == "a slow answer") != (slow == 1) {
					t.Errorf("%+v", out.Events(0))
				}
				if out.Lost() != c.lost || len(out.Scans()) < 2400 {
					t.Errorf("%d lost of %d, want %d: %+v", out.Lost(), len(out.Scans()), c.lost, out.Events(0))
				}
				for ch, low := range map[int]measure.Count{0: 12_000, 8: 11_900} {
					for i, v := range out.Counts(ch) {
						if v < low || v > low+400 {
							t.Fatalf("channel %d, reading %d: %d mV", ch, i, v)
						}
					}
				}
			})
		})
	}
}

// slowLine holds each write of the device back for a while.
type slowLine struct{ io.ReadWriteCloser }

func (s slowLine) Write(p []byte) (int, error) {
	time.Sleep(1200 * time.Microsecond) // in virtual time
	return s.ReadWriteCloser.Write(p)
}

// A link that is too slow for the period is told, once.
func TestSlowLinkIsTold(t *testing.T) {
	for slow, want := range map[bool]int{true: 1, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			r := build(t, pmd2face.Config{})
			defer r.pipe(t, fault.Faults{}, slow)()
			if err := r.dev.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			out := montest.For(r.dev.Inputs())
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := r.dev.Stream(ctx, instrument.SinkOf(out)); err != nil {
				t.Fatal(err)
			}
			if notes := out.Events(measure.EventNote); len(notes) != want || out.Lost() != 0 || want == 1 &&
				!strings.Contains(notes[0].Detail, "every 2ms, not every 1ms") {
				t.Errorf("slow: %v, %+v", slow, notes)
			}
		})
	}
}

// A device that says nothing more ends the stream after a while.
func TestSilenceEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, pmd2face.Config{})
		defer r.pipe(t, fault.Faults{})()
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := montest.For(r.dev.Inputs())
		out.After, out.Enough = 100, func() { r.face.Mute(1 << 30) }
		begin := time.Now()
		if err := r.dev.Stream(t.Context(), instrument.SinkOf(out)); !errors.Is(err, instrument.ErrSilent) ||
			time.Since(begin) > 7*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

func TestUnplugAndReplug(t *testing.T) {
	r := emulate(t, pmd2face.Config{})
	for range 3 {
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		line := r.plug.Line
		out, err := montest.Stream(t, r.dev, 200, func() { line.Trigger(fault.Fault{Kind: fault.Unplug}) })
		if !errors.Is(err, instrument.ErrDisconnected) || len(out.Scans()) < 100 {
			t.Fatalf("%d readings, %d lost, %v", len(out.Scans()), out.Lost(), err)
		}
		if err := r.dev.Close(); err != nil {
			t.Fatal(err)
		}
		if err := r.dev.Open(t.Context()); !errors.Is(err, instrument.ErrDisconnected) {
			t.Errorf("Open of a device that is gone: %v", err)
		}
		r.plug.Pull()
		r.plugIn(t)
	}
}

func TestCycles(t *testing.T) {
	montest.Cycles(t, emulate(t, pmd2face.Config{}).dev, 1000)
}

func TestWrongAndSilentDevices(t *testing.T) {
	for answer, want := range map[string]error{
		"": instrument.ErrSilent, "\xEE\x0A\x05": instrument.ErrIdentity,
		"who is there?\r\n": instrument.ErrIdentity,
	} {
		synctest.Test(t, func(t *testing.T) {
			line, end := montest.Answering(answer)
			defer end()
			d := onLine(t, PMD2, line)
			if err := d.Open(t.Context()); !errors.Is(err, want) {
				t.Errorf("to %q: %v, want %v", answer, err, want)
			}
		})
	}
	r := emulate(t, pmd2face.Config{Product: 0x10})
	if err := r.dev.Open(t.Context()); !errors.Is(err, instrument.ErrIdentity) ||
		!strings.Contains(err.Error(), "ee 10") {
		t.Errorf("another product: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"period": func(o *Options) { o.Period = 0 }, "silence": func(o *Options) { o.Silence = 0 },
	} {
		o := Defaults()
		change(&o)
		if _, err := PMD2.New("/dev/x", o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestOpenAfterOneThatWasBrokenOff(t *testing.T) {
	r := emulate(t, pmd2face.Config{})
	montest.Interrupted(t, r.plug, r.dev)
}

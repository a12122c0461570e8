//go:build linux

package dataq

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	dataqface "github.com/wattmark/wattmark/monitor/emulator/dataq"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/transport"
)

// card are the rails on the inputs of the emulated device, as many as fit.
var card = []string{"aux_12v_1", "pcie_12v", "pcie_3v3", "aux_12v_2"}

type rig struct {
	board *board.Board
	face  *dataqface.Face
	opts  Options
	plug  *montest.Plug
	dev   *Device
}

// build makes a device, and options for all that its inputs are wired to.
func build(t *testing.T, p pace.Pace, cfg dataqface.Config) *rig {
	t.Helper()
	r := &rig{board: montest.Workload(t, 40*time.Second), opts: Defaults()}
	if cfg.Model != "" {
		r.opts.Model = cfg.Model
	}
	cfg.Rails = card[:models[r.opts.Model].Inputs/2]
	var err error
	if r.face, err = dataqface.New(r.board, p, cfg); err != nil {
		t.Fatal(err)
	}
	r.opts.Inputs = nil
	for k, name := range cfg.Rails {
		r.opts.Inputs = append(r.opts.Inputs,
			analog.Input{AIN: 2 * k, Name: name + ".voltage", PerVolt: meter.Divider},
			analog.Input{AIN: 2*k + 1, Name: name + ".current", Unit: "A", PerVolt: meter.PerVolt})
	}
	return r
}

// plugIn gives the device a pty and power, and makes a driver.
func (r *rig) plugIn(t *testing.T) {
	t.Helper()
	r.plug = montest.PlugIn(t, r.face, fault.Faults{Fragment: 100})
	var err error
	if r.dev, err = New(r.plug.Path, r.opts); err != nil {
		t.Fatal(err)
	}
	dev := r.dev
	t.Cleanup(func() { _ = dev.Close() })
}

func emulate(t *testing.T, p pace.Pace, cfg dataqface.Config) *rig {
	t.Helper()
	r := build(t, p, cfg)
	r.plugIn(t)
	return r
}

// pipe puts the driver and the device on a net.Pipe, for virtual time; end ends
// the device.
func (r *rig) pipe(t *testing.T, f fault.Faults, holes ...hole) (end func()) {
	t.Helper()
	var wraps []func(io.ReadWriteCloser) io.ReadWriteCloser
	for _, h := range holes {
		wraps = append(wraps, func(rw io.ReadWriteCloser) io.ReadWriteCloser {
			h.ReadWriteCloser = rw
			return &h
		})
	}
	mine, unplug := montest.OnPipe(t, r.face, f, wraps...)
	r.dev = onLine(t, mine, r.opts)
	return func() { _ = r.dev.Close(); unplug() }
}

// onLine is a driver on a line that is there already.
func onLine(t *testing.T, line net.Conn, o Options) *Device {
	t.Helper()
	d, err := New("tcp:host:1", o)
	if err != nil {
		t.Fatal(err)
	}
	d.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(line), nil }
	return d
}

// hole is a line that swallows a stretch of what the device sends.
type hole struct {
	io.ReadWriteCloser
	at, bytes, sent int
}

func (h *hole) Write(p []byte) (int, error) {
	from := h.sent
	h.sent += len(p)
	cut := func(x int) int { return min(max(x-from, 0), len(p)) }
	_, err := h.ReadWriteCloser.Write(slices.Concat(p[:cut(h.at)], p[cut(h.at+h.bytes):]))
	return len(p), err
}

// off is how far each scan's place is from what the device put into it, and how
// many scans are missing in truth.
func (r *rig) off(out *montest.Collector) (worst, missing int) {
	bits := models[r.opts.Model].bits
	turn, shift := 1<<bits, 16-bits
	counts, scans := out.Counts(0), out.Scans()
	for i := range scans {
		number := int(uint16(counts[i])) >> shift
		d := (number - int(scans[i])) & (turn - 1)
		if d > turn/2 {
			d -= turn
		}
		if d > 0 {
			missing = d
		}
		worst = max(worst, max(d, -d))
	}
	return worst, missing
}

var names = []string{"DI-1100", "DI-2108", "DI-2108-P"}

func TestOpenReadsTheDevice(t *testing.T) {
	for _, name := range names {
		r := emulate(t, pace.Real(time.Now()), dataqface.Config{Model: name, Seed: 7})
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if id := r.dev.Identity(); id.Model != name || id.Serial != "59A00007" || id.Firmware != "101" {
			t.Errorf("%+v", id)
		}
		if err := r.dev.Open(t.Context()); err == nil {
			t.Error("a second Open was accepted")
		}
	}
}

// A good line loses nothing; every scan has the value that the board had.
func TestMeasuresTheBoard(t *testing.T) {
	for _, name := range names {
		r := emulate(t, pace.Pace{}, dataqface.Config{Model: name, Noise: -1})
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		in := r.dev.Inputs()
		for range 2 { // a second stream begins anew
			out := montest.Collect(t, r.dev, 4000, nil)
			if e := out.Events(0); len(e) != 0 {
				t.Fatalf("%s: events on a perfect line: %+v", name, e)
			}
			counts := out.Counts(1) // aux_12v_1's current
			for i := range 4000 {
				at := r.face.StreamStart() +
					time.Duration(math.Round((float64(i)/float64(in.Timebase.TickHz)+float64(in.Channels[1].Skew))*1e9))
				want := float64(r.board.At(at)[2].I)
				if got := in.Channels[1].Value(counts[i]); math.Abs(got-want) > 0.51*in.Channels[1].Noise+1e-3 {
					t.Fatalf("%s, scan %d: %v A, the board had %v A", name, i, got, want)
				}
			}
		}
	}
}

// The energy lies within its uncertainty, with a device that is off by as much as
// the driver states.
func TestEnergyWithinItsUncertainty(t *testing.T) {
	for _, name := range []string{"DI-1100", "DI-2108"} {
		inside := 0
		const seeds = 5
		for seed := range uint64(seeds) {
			r := emulate(t, pace.Pace{}, dataqface.Config{Model: name, Seed: seed, Draw: true})
			if err := r.dev.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			in := r.dev.Inputs()
			out := montest.Collect(t, r.dev, 10_000, nil)
			setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
			setup.Rails, setup.Missing = instrument.NaturalRails(in)
			got := montest.Energy(t, &setup, out, 0.1, 4.9)
			start := r.face.StreamStart()
			truth, err := r.board.Energy(start+100*time.Millisecond, start+4900*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			want := measure.Joule(0)
			for k, rail := range r.board.Rails() {
				for _, wired := range card[:len(setup.Rails)] {
					if rail.Name == wired {
						want += truth.Rails[k]
					}
				}
			}
			t.Logf("%s: %v ± %v, injected %v", name, got.Energy, got.U, want)
			miss := math.Abs(float64(got.Energy - want))
			if miss <= float64(got.U) {
				inside++
			}
			if miss > 2*float64(got.U) || got.U > 0.1*got.Energy {
				t.Errorf("%s: %v ± %v, injected %v", name, got.Energy, got.U, want)
			}
		}
		if inside < seeds-1 {
			t.Errorf("%s: %d of %d lie within U", name, inside, seeds)
		}
	}
}

// What bytes the line loses within a scan or two is seen at once; how many scans
// that were is an estimate, good to one.
func TestLostBytesAreSeen(t *testing.T) {
	for _, name := range []string{"DI-1100", "DI-2108"} {
		for what, c := range map[string]struct {
			fault fault.Fault
			seen  bool
		}{
			"nothing":          {fault.Fault{Kind: fault.Stall, For: time.Nanosecond}, false},
			"a byte lost":      {fault.Fault{Kind: fault.Drop, Bytes: 1}, true},
			"2 bytes lost":     {fault.Fault{Kind: fault.Drop, Bytes: 2}, true},
			"3 bytes lost":     {fault.Fault{Kind: fault.Drop, Bytes: 3}, true},
			"a byte doubled":   {fault.Fault{Kind: fault.Duplicate, Bytes: 1}, true},
			"11 bytes doubled": {fault.Fault{Kind: fault.Duplicate, Bytes: 11}, true},
			"a stall":          {fault.Fault{Kind: fault.Stall, For: 150 * time.Millisecond}, false},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				r := emulate(t, pace.Pace{}, dataqface.Config{Model: name, Numbered: true})
				if err := r.dev.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				out := montest.Collect(t, r.dev, 12_000, func() { r.plug.Line.Trigger(c.fault) })
				worst, _ := r.off(out)
				resyncs := len(out.Events(measure.EventResync))
				if worst > 1 || !c.seen && worst+int(out.Lost())+resyncs > 0 || c.seen &&
					(out.Lost() == 0 || resyncs == 0) {
					t.Errorf("scans are up to %d off their place; %+v", worst, out.Events(0))
				}
				for _, e := range out.Events(measure.EventGap) {
					if e.Exact {
						t.Errorf("%+v: nothing here can be exact", e)
					}
				}
			})
		}
	}
}

// Whole scans that go missing leave no trace in the bytes. The host's clock finds
// a loss of more than 50 ms, and nothing finds a shorter one: it stays unseen.
func TestLostScansAreFoundByTheClock(t *testing.T) {
	for lost, found := range map[int]bool{400: true, 2000: true, 10: false} {
		synctest.Test(t, func(t *testing.T) {
			r := build(t, pace.Real(time.Now()), dataqface.Config{Model: "DI-2108", Numbered: true})
			scan := 2 * (len(r.opts.Inputs) + 1)
			defer r.pipe(t, fault.Faults{}, hole{at: 12_000 * scan, bytes: lost * scan})()
			if err := r.dev.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			out := montest.For(r.dev.Inputs())
			ctx, cancel := context.WithTimeout(t.Context(), 14*time.Second)
			defer cancel()
			if err := r.dev.Stream(ctx, instrument.SinkOf(out)); err != nil {
				t.Fatal(err)
			}
			gaps := out.Events(measure.EventGap)
			off := math.Abs(float64(out.Lost()) - float64(lost))
			if found && (len(gaps) != 1 || gaps[0].Exact || off > 40) || !found && len(gaps) != 0 {
				t.Errorf("%d scans lost: %+v", lost, gaps)
			}
		})
	}
}

// A device that nobody reads stops and says so: the stream ends in a way that
// opening anew cures.
func TestOverflowEndsTheStream(t *testing.T) {
	for _, name := range []string{"DI-1100", "DI-2108"} {
		synctest.Test(t, func(t *testing.T) {
			r := build(t, pace.Pace{Epoch: time.Now(), Backlog: 100 * time.Millisecond},
				dataqface.Config{Model: name, Numbered: true})
			end := r.pipe(t, fault.Faults{Script: []fault.Fault{{Kind: fault.Stall, At: 40_000, For: time.Second}}})
			defer end()
			if err := r.dev.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			out := montest.For(r.dev.Inputs())
			err := r.dev.Stream(t.Context(), instrument.SinkOf(out))
			if !errors.Is(err, instrument.ErrDisconnected) || !strings.Contains(err.Error(), "buffer was full") {
				t.Fatalf("%s: %v", name, err)
			}
			sent, whole := int(r.face.Scans()), len(out.Scans())
			if worst, _ := r.off(out); worst != 0 || out.Lost() != 0 || len(out.Events(measure.EventOverflow)) != 1 ||
				sent-whole > 128 {
				t.Errorf("%s: %d of %d scans, %d lost, %+v", name, whole, sent, out.Lost(), out.Events(0))
			}
			// A new stream goes on.
			again := montest.For(r.dev.Inputs())
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := r.dev.Stream(ctx, instrument.SinkOf(again)); err != nil || len(again.Scans()) < 1800 {
				t.Errorf("%s: %d scans, %v", name, len(again.Scans()), err)
			}
		})
	}
}

// A rate that is not the one assumed ends the stream: time would be wrong.
func TestWrongRateIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, pace.Real(time.Now()), dataqface.Config{Model: "DI-2108"})
		r.opts.SrateCounts = "scans"
		defer r.pipe(t, fault.Faults{})()
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := r.dev.Stream(t.Context(), instrument.SinkOf(montest.For(r.dev.Inputs())))
		if err == nil || !strings.Contains(err.Error(), "srate_counts") {
			t.Error(err)
		}
	})
}

func TestDigitalInputs(t *testing.T) {
	for name, want := range map[string]string{"DI-1100": "leave one open", "DI-2108": ""} {
		r := emulate(t, pace.Pace{}, dataqface.Config{Model: name, Numbered: true})
		r.face.SetDigital(0)
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := montest.Collect(t, r.dev, 12_000, func() { r.face.SetDigital(1) })
		said := ""
		for _, e := range out.Events(0) {
			said += e.Detail + "; "
		}
		if worst, _ := r.off(out); worst != 0 || out.Lost() != 0 || !strings.Contains(said, want) ||
			!strings.Contains(said, "inputs changed") {
			t.Errorf("%s: %d off, %d lost, %q", name, worst, out.Lost(), said)
		}
	}
}

func TestUnplugAndReplug(t *testing.T) {
	r := emulate(t, pace.Pace{}, dataqface.Config{Numbered: true})
	for range 3 {
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		line := r.plug.Line
		out, err := montest.Stream(t, r.dev, 2000, func() { line.Trigger(fault.Fault{Kind: fault.Unplug}) })
		if !errors.Is(err, instrument.ErrDisconnected) {
			t.Fatalf("%v, want ErrDisconnected", err)
		}
		if worst, _ := r.off(out); worst != 0 || out.Lost() != 0 || len(out.Scans()) < 1000 {
			t.Errorf("%d scans, up to %d off, %d lost", len(out.Scans()), worst, out.Lost())
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
	montest.Cycles(t, emulate(t, pace.Real(time.Now()), dataqface.Config{}).dev, 1000)
}

func TestWrongAndSilentDevices(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		is     error
		want   string
	}{
		"silent":    {"", instrument.ErrSilent, "CDC mode"},
		"a printer": {"OK\r", instrument.ErrIdentity, "no echo"},
		"an echo":   {"stop\r", instrument.ErrIdentity, "info 0"},
	} {
		synctest.Test(t, func(t *testing.T) {
			line, end := montest.Answering(c.answer)
			defer end()
			d := onLine(t, line, Defaults())
			if err := d.Open(t.Context()); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	r := emulate(t, pace.Real(time.Now()), dataqface.Config{Model: "DI-2108"})
	o := Defaults()
	d, err := New(r.plug.Path, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Open(t.Context()); !errors.Is(err, instrument.ErrIdentity) ||
		!strings.Contains(err.Error(), "set model") {
		t.Errorf("another model: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"model": func(o *Options) { o.Model = "DI-155" }, "none": func(o *Options) { o.Inputs = nil },
		"rate": func(o *Options) { o.Rate = math.NaN() },
		"slow": func(o *Options) { o.Rate = 900 }, "fast": func(o *Options) { o.Rate = 31e3 },
		"range":  func(o *Options) { o.Inputs[0].Range = 5 },
		"counts": func(o *Options) { o.SrateCounts = "words" }, "skew": func(o *Options) { o.Skew = time.Millisecond },
		"u_gain": func(o *Options) { o.UGain = -1 }, "silence": func(o *Options) { o.Silence = 0 },
	} {
		o := Defaults()
		change(&o)
		if _, err := New("/dev/x", o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New("nowhere", Defaults()); !errors.Is(err, transport.ErrAddress) {
		t.Errorf("bad address: %v", err)
	}
}

func TestOpenAfterOneThatWasBrokenOff(t *testing.T) {
	r := emulate(t, pace.Pace{}, dataqface.Config{})
	montest.Interrupted(t, r.plug, r.dev)
}

//go:build linux

package powenetics

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	poweneticsface "github.com/wattmark/wattmark/monitor/emulator/powenetics"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/transport"
)

type rig struct {
	board   *board.Board
	face    *poweneticsface.Face
	plugged *montest.Plug
	dev     *Device
}

// emulate plugs an emulated device into a pty.
func emulate(t *testing.T, p pace.Pace, cfg poweneticsface.Config) *rig {
	t.Helper()
	r := &rig{}
	var err error
	r.board = montest.Workload(t, 41*time.Second)
	cfg.Numbered = true
	if r.face, err = poweneticsface.New(r.board, p, cfg); err != nil {
		t.Fatal(err)
	}
	r.plug(t)
	if r.dev, err = New(r.plugged.Path, Defaults()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.dev.Close() })
	return r
}

// plug gives the device a line and power.
func (r *rig) plug(t *testing.T) {
	t.Helper()
	if r.plugged != nil {
		r.plugged.Pull()
	}
	r.plugged = montest.PlugIn(t, r.face, fault.Faults{Fragment: 200})
}

func collector() *montest.Collector {
	return &montest.Collector{Timebase: Inputs(Defaults()).Timebase, Channels: 2 * Connectors}
}

// truth checks every scan's place against the number that the device put into
// it, and returns how many scans are missing.
func truth(t *testing.T, out *montest.Collector) (missing uint64) {
	t.Helper()
	counts, scans := out.Counts(1), out.Scans()
	for i := range scans {
		if got, want := uint64(counts[i]-counts[0]), scans[i]-scans[0]; got != want {
			t.Fatalf("scan %d is the device's frame %d", want, got)
		}
	}
	return scans[len(scans)-1] - scans[0] + 1 - uint64(len(scans))
}

func TestFaultsAreCountedExactly(t *testing.T) {
	for name, c := range map[string]struct {
		fault      fault.Fault
		least, max uint64
	}{
		"none":                  {fault.Fault{Kind: fault.Stall, For: time.Nanosecond}, 0, 0},
		"a byte dropped":        {fault.Fault{Kind: fault.Drop, Bytes: 1}, 1, 2},
		"100 bytes dropped":     {fault.Fault{Kind: fault.Drop, Bytes: 100}, 2, 3},
		"a byte doubled":        {fault.Fault{Kind: fault.Duplicate, Bytes: 1}, 0, 1},
		"2 frames doubled":      {fault.Fault{Kind: fault.Duplicate, Bytes: 2 * FrameBytes}, 0, 1},
		"a mark corrupted":      {fault.Fault{Kind: fault.Corrupt, Bytes: 1}, 1, 1},
		"a stall, nothing lost": {fault.Fault{Kind: fault.Stall, For: 300 * time.Millisecond}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := emulate(t, pace.Pace{}, poweneticsface.Config{})
			if err := r.dev.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			out := montest.Collect(t, r.dev, 3000, func() { r.plugged.Line.Trigger(c.fault) })
			missing := truth(t, out)
			if lost := out.Lost(); lost != missing || lost < c.least || lost > c.max {
				t.Errorf("%d scans reported lost, %d are missing, want %d to %d", lost, missing, c.least, c.max)
			}
			for _, e := range out.Events(measure.EventGap) {
				if !e.Exact {
					t.Errorf("%+v: not exact", e)
				}
			}
		})
	}
}

// A device that the driver does not read skips frames and says so in their
// numbers; a device that counts through whole turns as well.
func TestSkippedFramesAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := board.New(board.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, stall := range []time.Duration{3 * time.Second, 70 * time.Second, 200 * time.Second} {
			face, err := poweneticsface.New(b, pace.Pace{Epoch: time.Now(), Backlog: 100 * time.Millisecond},
				poweneticsface.Config{Numbered: true, First: 65000})
			if err != nil {
				t.Fatal(err)
			}
			o := Defaults()
			o.Silence = time.Hour
			d, theirs := pipe(t, o)
			ctx, cancel := context.WithCancel(t.Context())
			line := fault.New(theirs, fault.Faults{Script: []fault.Fault{{Kind: fault.Stall, At: 400_000, For: stall}}})
			ended := make(chan struct{})
			go func() { defer close(ended); _ = face.Run(ctx, line) }()
			if err := d.Open(ctx); err != nil {
				t.Fatal(err)
			}
			out := collector()
			within, stop := context.WithTimeout(ctx, stall+10*time.Second)
			if err := d.Stream(within, instrument.SinkOf(out)); err != nil {
				t.Error(err)
			}
			stop()
			if missing := truth(t, out); face.Skipped() == 0 || out.Lost() != face.Skipped() ||
				missing != face.Skipped() {
				t.Errorf("a stall of %v: %d lost reported, %d missing, the device skipped %d", stall, out.Lost(),
					missing, face.Skipped())
			}
			for _, e := range out.Events(measure.EventGap) {
				if !e.Exact {
					t.Errorf("a stall of %v: %+v", stall, e)
				}
			}
			if face.Cleared() != 0 {
				t.Error("the driver erased the device's calibration")
			}
			_ = d.Close()
			cancel()
			<-ended
		}
	})
}

// pipe is a driver on a net.Pipe, for virtual time.
func pipe(t *testing.T, o Options) (*Device, net.Conn) {
	t.Helper()
	mine, theirs := net.Pipe()
	d, err := New("tcp:host:1", o)
	if err != nil {
		t.Fatal(err)
	}
	d.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(mine), nil }
	return d, theirs
}

// The energy of 20 s of loads lies within the stated uncertainty, with a device
// that is off by what the driver states of it.
func TestEnergyWithinItsUncertainty(t *testing.T) {
	inside := 0
	const seeds = 6
	for seed := range uint64(seeds) {
		r := emulate(t, pace.Pace{}, poweneticsface.Config{Seed: seed, Draw: true})
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := montest.Collect(t, r.dev, 20_000, nil)
		in := r.dev.Inputs()
		setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
		setup.Rails, setup.Missing = NaturalRails(in)
		got := montest.Energy(t, &setup, out, 0.1, 19.9)
		first := uint64(out.Counts(1)[0])
		want, err := r.board.Energy(r.face.BoardTime(first+100), r.face.BoardTime(first+19_900))
		if err != nil {
			t.Fatal(err)
		}
		miss := math.Abs(float64(got.Energy - want.Total))
		t.Logf("%v ± %v, injected %v", got.Energy, got.U, want.Total)
		if miss <= float64(got.U) {
			inside++
		}
		if miss > 2*float64(got.U) || float64(got.U) > 0.02*float64(got.Energy) {
			t.Errorf("%v ± %v, injected %v", got.Energy, got.U, want.Total)
		}
	}
	if inside < seeds-1 {
		t.Errorf("%d of %d lie within U", inside, seeds)
	}
}

// More frames than the number can count pass without a gap.
func TestTheNumberWraps(t *testing.T) {
	r := emulate(t, pace.Pace{}, poweneticsface.Config{First: 65_000})
	if err := r.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := montest.Collect(t, r.dev, 5000, nil)
	if missing := truth(t, out); missing != 0 || len(out.Events(0)) != 0 {
		t.Errorf("%d missing, events %+v", missing, out.Events(0))
	}
}

func TestUnplugAndReplug(t *testing.T) {
	r := emulate(t, pace.Pace{}, poweneticsface.Config{})
	path := r.plugged.Path
	for range 3 {
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := collector()
		line := r.plugged.Line
		out.After, out.Enough = 500, func() { line.Trigger(fault.Fault{Kind: fault.Unplug}) }
		if err := r.dev.Stream(t.Context(), instrument.SinkOf(out)); !errors.Is(err, instrument.ErrDisconnected) {
			t.Fatalf("%v, want ErrDisconnected", err)
		}
		if missing := truth(t, out); missing != out.Lost() {
			t.Errorf("%d missing, %d reported", missing, out.Lost())
		}
		if err := r.dev.Close(); err != nil {
			t.Fatal(err)
		}
		r.plug(t)
		if p := r.plugged.Path; p != path { // as a device that comes back under another name
			t.Logf("it came back as %s", p)
			path = p
			d, err := New(p, Defaults())
			if err != nil {
				t.Fatal(err)
			}
			r.dev = d
		}
	}
}

func TestCycles(t *testing.T) {
	r := emulate(t, pace.Pace{}, poweneticsface.Config{})
	montest.Cycles(t, r.dev, 1000)
}

func TestWrongAndSilentDevices(t *testing.T) {
	for answer, want := range map[string]error{"": instrument.ErrSilent, "not a meter\r\n": instrument.ErrIdentity} {
		synctest.Test(t, func(t *testing.T) {
			d, theirs := pipe(t, Defaults())
			go func() {
				b := make([]byte, 64)
				for {
					if _, err := theirs.Read(b); err != nil {
						return
					}
					_, _ = theirs.Write([]byte(answer))
				}
			}()
			if err := d.Open(t.Context()); !errors.Is(err, want) {
				t.Errorf("to %q: %v, want %v", answer, err, want)
			}
			_ = theirs.Close()
		})
	}
}

// A rate that is not the one assumed is noticed by the host's clock.
func TestWrongRateIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := board.New(board.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for rate, told := range map[measure.Hertz]bool{1000: false, 950: true} {
			face, err := poweneticsface.New(b, pace.Real(time.Now()), poweneticsface.Config{Rate: rate, Numbered: true})
			if err != nil {
				t.Fatal(err)
			}
			d, theirs := pipe(t, Defaults())
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); _ = face.Run(ctx, theirs) }()
			if err := d.Open(ctx); err != nil {
				t.Fatal(err)
			}
			out := collector()
			within, stop := context.WithTimeout(ctx, 15*time.Second)
			if err := d.Stream(within, instrument.SinkOf(out)); err != nil {
				t.Error(err)
			}
			stop()
			notes := out.Events(measure.EventNote)
			if told != (len(notes) == 1) || told && !strings.Contains(notes[0].Detail, "950 scans a second") {
				t.Errorf("%v frames a second: %+v", rate, notes)
			}
			_ = d.Close()
			cancel()
			<-ended
		}
	})
}

func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"rate": func(o *Options) { o.Rate = math.NaN() }, "u_rate": func(o *Options) { o.URate = -1 },
		"silence": func(o *Options) { o.Silence = 0 },
	} {
		o := Defaults()
		change(&o)
		if _, err := New("/dev/x", o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestOpenAfterOneThatWasBrokenOff(t *testing.T) {
	r := emulate(t, pace.Real(time.Now()), poweneticsface.Config{})
	montest.Interrupted(t, r.plugged, r.dev)
}

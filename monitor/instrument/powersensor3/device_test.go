//go:build linux

package powersensor3

import (
	"context"
	"errors"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/internal/machineid"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	ps3face "github.com/wattmark/wattmark/monitor/emulator/powersensor3"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/transport"
)

// bench is an emulated device with a driver, not yet open.
type bench struct {
	board *board.Board
	face  *ps3face.Face
	plug  *montest.Plug
	line  *fault.Line
	dev   *Device
}

func emulate(t *testing.T, p pace.Pace) *bench {
	t.Helper()
	b := &bench{}
	var err error
	if b.board, err = board.New(board.Config{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.board.SetLoad(20*time.Millisecond, load.Compute); err != nil {
		t.Fatal(err)
	}
	if b.face, err = ps3face.New(b.board, p, ps3face.Config{Seed: 2}); err != nil {
		t.Fatal(err)
	}
	return b
}

// onPTY plugs the device into a pty.
func (b *bench) onPTY(t *testing.T, faults fault.Faults) *bench {
	t.Helper()
	b.plug = montest.PlugIn(t, b.face, faults)
	b.line = b.plug.Line
	var err error
	if b.dev, err = New(b.plug.Path, Defaults()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.dev.Close() })
	return b
}

func (b *bench) open(t *testing.T) *montest.Collector {
	t.Helper()
	if err := b.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := b.dev.Inputs()
	return &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
}

// collect streams until n scans have come.
func (b *bench) collect(t *testing.T, out *montest.Collector, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out.After, out.Enough = n, cancel
	if err := b.dev.Stream(ctx, instrument.SinkOf(out)); err != nil {
		t.Fatal(err)
	}
	if len(out.Scans()) < n {
		t.Fatalf("only %d scans in 20 s", len(out.Scans()))
	}
}

func TestOpenReadsTheDevice(t *testing.T) {
	b := emulate(t, pace.Real(time.Now())).onPTY(t, fault.Faults{Fragment: 3})
	b.open(t)
	id := b.dev.Identity()
	if id.Kind != Kind || id.Firmware != "1.6.1" || id.Model != "PowerSensor3 F411" {
		t.Errorf("%+v", id)
	}
	for i, s := range b.face.Stored() {
		if got := b.dev.Sensors()[i]; got.Type != s.Type || got.Vref != s.Vref || got.Sensitivity != s.Sensitivity ||
			got.InUse != s.InUse {
			t.Errorf("sensor %d: %+v, the device stores %+v", i, got, s)
		}
	}
	in := b.dev.Inputs()
	rails, missing := NaturalRails(in)
	setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Rails: rails, Missing: missing}
	if err := setup.Validate(); err != nil {
		t.Error(err)
	}
	if len(rails) != 4 {
		t.Errorf("rails %+v", rails)
	}
	if err := b.dev.Open(t.Context()); err == nil {
		t.Error("a second Open was accepted")
	}
}

// A configuration that a program's end left half read takes the next commands for
// requests to go on.
func TestOpenAfterOneThatWasBrokenOff(t *testing.T) {
	b := emulate(t, pace.Real(time.Now())).onPTY(t, fault.Faults{})
	montest.Interrupted(t, b.plug, b.dev)
}

// The joules that come out are those that the board has spent.
func TestStreamMeasuresTheBoard(t *testing.T) {
	b := emulate(t, pace.Pace{}).onPTY(t, fault.Faults{Fragment: 700})
	out := b.open(t)
	b.collect(t, out, 20_000)
	if e := out.Events(0); len(e) != 0 {
		t.Errorf("events on a perfect line: %+v", e)
	}
	in := b.dev.Inputs()
	rails, _ := NaturalRails(in)
	n := 20_000
	sum := 0.0
	for _, r := range rails {
		l, x, y := r.Linear(in.Channels), out.Counts(r.X), out.Counts(r.Y)
		for i := range n {
			sum += (l.I0 + l.IX*float64(x[i]) + l.IY*float64(y[i])) * (l.V0 + l.VY*float64(y[i]))
		}
	}
	mean := sum / float64(n)
	// The stream begins with frame 0 of a device that runs only when it is read.
	truth := float64(b.board.MeanPower(b.face.BoardTime(0), b.face.BoardTime(uint64(n))))
	if math.Abs(mean/truth-1) > 0.005 {
		t.Errorf("mean %.2f W, the board drew %.2f W", mean, truth)
	}
	// A second stream begins anew.
	again := &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
	b.collect(t, again, 500)
}

func TestFullScaleSensorDoesNotEndTheStream(t *testing.T) {
	b := emulate(t, pace.Pace{}).onPTY(t, fault.Faults{})
	b.face.SaturateSensor7(true)
	out := b.open(t)
	b.collect(t, out, 5000)
	last := len(b.dev.Inputs().Channels) - 1
	for i, v := range out.Counts(last) {
		if v != MaxLevel {
			t.Fatalf("scan %d: %d", i, v)
		}
	}
	again := &montest.Collector{Timebase: out.Timebase, Channels: out.Channels}
	b.collect(t, again, 100) // and the stop was found
}

func TestBadLineLosesOnlyWhatItLost(t *testing.T) {
	b := emulate(t, pace.Pace{}).onPTY(t,
		fault.Faults{Seed: 5, Drop: 2e-4, Duplicate: 2e-4, After: 4000, Fragment: 100})
	out := b.open(t)
	b.collect(t, out, 20_000)
	counts := b.line.Counts()
	if counts.Dropped == 0 || counts.Duplicated == 0 {
		t.Fatalf("the line did nothing: %+v", counts)
	}
	lost := int64(out.Lost())
	if lost == 0 || lost > counts.Dropped {
		t.Errorf("%d scans lost, %d bytes were", lost, counts.Dropped)
	}
	if len(out.Events(measure.EventResync)) == 0 {
		t.Error("no resynchronisation was told")
	}
	ticks, scans := out.Ticks(), out.Scans()
	for i := range scans {
		if ticks[i] != int64(scans[i])*FrameMicros {
			t.Fatalf("scan %d at tick %d, want %d", scans[i], ticks[i], scans[i]*FrameMicros)
		}
	}
}

func TestUnplug(t *testing.T) {
	b := emulate(t, pace.Pace{}).onPTY(t, fault.Faults{Script: []fault.Fault{{Kind: fault.Unplug, At: 200_000}}})
	out := b.open(t)
	err := b.dev.Stream(t.Context(), instrument.SinkOf(out))
	if !errors.Is(err, instrument.ErrDisconnected) {
		t.Fatalf("Stream: %v, want ErrDisconnected", err)
	}
	// What the kernel still held when the line closed, up to 64 KiB, is gone.
	if n := len(out.Scans()); n < 7000 {
		t.Errorf("%d scans of 11 000 scans came through", n)
	}
	if err := b.dev.Close(); err != nil {
		t.Error(err)
	}
	if err := b.dev.Open(t.Context()); !errors.Is(err, instrument.ErrDisconnected) {
		t.Errorf("Open of a pulled device: %v, want ErrDisconnected", err)
	}
}

func TestWriteConfig(t *testing.T) {
	b := emulate(t, pace.Pace{}).onPTY(t, fault.Faults{})
	b.open(t)
	s := b.dev.Sensors()
	s[0].Vref, s[0].Pair, s[1].Pair = 1.6, "gpu", "gpu"
	s[6].InUse, s[7].InUse = false, false
	if err := b.dev.WriteConfig(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	in := b.dev.Inputs()
	if len(in.Channels) != 6 || in.Channels[0].Name != "gpu.current" {
		t.Errorf("%+v", in.Channels)
	}
	out := &montest.Collector{Timebase: in.Timebase, Channels: 6}
	b.collect(t, out, 100)
}

// A device that stalls while its board goes on has lost nothing if it sends all
// afterwards, and as much as the clock says if it does not. In virtual time.
func TestStallInVirtualTime(t *testing.T) {
	for name, tc := range map[string]struct {
		stall, backlog time.Duration
		loses          bool
	}{
		"all sent afterwards": {300 * time.Millisecond, 0, false},
		"buffer overflowed":   {300 * time.Millisecond, 100 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := emulate(t, pace.Pace{Epoch: time.Now(), Backlog: tc.backlog})
				faults := fault.Faults{Script: []fault.Fault{{Kind: fault.Stall, At: 400_000, For: tc.stall}}}
				mine, end := montest.OnPipe(t, b.face, faults)
				defer end()
				var err error
				if b.dev, err = New("tcp:host:1", Defaults()); err != nil {
					t.Fatal(err)
				}
				b.dev.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(mine), nil }
				out := b.open(t)
				b.collect(t, out, 50_000)
				_ = b.dev.Close()
				ticks, scans := out.Ticks(), out.Scans()
				for i := range scans {
					if ticks[i] != int64(scans[i])*FrameMicros {
						t.Fatalf("scan %d at tick %d", scans[i], ticks[i])
					}
				}
				if lost, skipped := out.Lost(), b.face.Skipped(); (skipped > 0) != tc.loses || lost != skipped {
					t.Errorf("%d scans lost, the device threw %d away: %+v", lost, skipped, out.Events(0))
				}
			})
		})
	}
}

// Marks that the driver asks for are events at the frames that the device marked, soon after they were asked for. In
// virtual time.
func TestHardwareMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := emulate(t, pace.Pace{Epoch: began})
		mine, end := montest.OnPipe(t, b.face, fault.Faults{})
		defer end()
		o := Defaults()
		o.Marks = 500 * time.Millisecond
		var err error
		if b.dev, err = New("tcp:host:1", o); err != nil {
			t.Fatal(err)
		}
		b.dev.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(mine), nil }
		out := b.open(t)
		b.collect(t, out, 50_000)
		_ = b.dev.Close()
		marks := 0
		for _, e := range out.Events(measure.EventNote) {
			m, ok := e.HardwareMark()
			if !ok || m.Machine != machineid.Boot() {
				t.Fatalf("%+v", e)
			}
			late := began.Add(b.face.StreamStart() + b.face.BoardTime(e.FirstScan) - b.face.BoardTime(0)).Sub(m.Asked)
			if marks++; late < -FrameMicros*time.Microsecond || late > 5*time.Millisecond {
				t.Errorf("scan %d came %v after it was asked for", e.FirstScan, late)
			}
		}
		if marks < 4 || marks > 6 { // of 2.5 s
			t.Errorf("%d marks", marks)
		}
	})
}

func TestWrongAndSilentDevices(t *testing.T) {
	for name, tc := range map[string]struct {
		answer string
		want   error
	}{
		"silent":      {"", instrument.ErrSilent},
		"other":       {"RIGOL TECHNOLOGIES\r\n", instrument.ErrIdentity},
		"no line end": {"F411-1.6.1", instrument.ErrIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mine, theirs := net.Pipe()
				go func() {
					b := make([]byte, 1)
					for {
						if _, err := theirs.Read(b); err != nil {
							return
						}
						if b[0] == 'V' {
							_, _ = theirs.Write([]byte(tc.answer))
						}
					}
				}()
				d, err := New("tcp:host:1", Defaults())
				if err != nil {
					t.Fatal(err)
				}
				d.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(mine), nil }
				if err := d.Open(t.Context()); !errors.Is(err, tc.want) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				_ = theirs.Close()
			})
		})
	}
}

func TestBadOptions(t *testing.T) {
	if _, err := New("/dev/x", Options{}); err == nil {
		t.Error("silence of 0 was accepted")
	}
	if _, err := New("/dev/x", Options{Silence: time.Second, Marks: time.Microsecond}); err == nil {
		t.Error("marks each microsecond were accepted")
	}
	if _, err := New("nowhere", Defaults()); !errors.Is(err, transport.ErrAddress) {
		t.Errorf("bad address: %v", err)
	}
	d, err := New("/dev/x", Defaults())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Stream(t.Context(), instrument.SinkOf(&montest.Collector{})); err == nil {
		t.Error("Stream of a closed device")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

//go:build linux

package pmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	pmdface "github.com/wattmark/wattmark/monitor/emulator/pmd"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/transport"
)

type bench struct {
	board *board.Board
	face  *pmdface.Face
	plug  *montest.Plug
	line  *fault.Line
	dev   *Device
}

// emulate plugs an emulated device into a pty.
func emulate(t *testing.T, p pace.Pace, cfg pmdface.Config, faults fault.Faults) *bench {
	t.Helper()
	b := &bench{}
	var err error
	if b.board, err = board.New(board.Config{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.board.SetLoad(20*time.Millisecond, load.Compute); err != nil {
		t.Fatal(err)
	}
	if b.face, err = pmdface.New(b.board, p, cfg); err != nil {
		t.Fatal(err)
	}
	b.plug = montest.PlugIn(t, b.face, faults)
	b.line = b.plug.Line
	if b.dev, err = New(b.plug.Path, Defaults()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.dev.Close() })
	return b
}

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

func TestOpenAndMeasure(t *testing.T) {
	b := emulate(t, pace.Pace{}, pmdface.Config{Offsets: [8]int8{1: -3, 3: 2}}, fault.Faults{Fragment: 500})
	if err := b.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id := b.dev.Identity(); id.Model != "PMD-USB" || id.Firmware != "6" {
		t.Errorf("%+v", id)
	}
	in := b.dev.Inputs()
	if got := in.Channels[1].Offset; math.Abs(got+3*amperesPerCount) > 1e-12 {
		t.Errorf("stored offset: %v A", got)
	}
	for range 2 { // a second stream begins anew
		out := collector()
		b.collect(t, out, 4000)
		if e := out.Events(0); len(e) != 0 {
			t.Errorf("events on a perfect line: %+v", e)
		}
		rails, missing := NaturalRails(in)
		if len(rails) != 4 || len(missing) != 1 {
			t.Fatalf("%+v, missing %v", rails, missing)
		}
		for _, r := range rails {
			if err := r.Validate(in.Channels); err != nil {
				t.Error(err)
			}
		}
	}
	if err := b.dev.Close(); err != nil {
		t.Error(err)
	}
	if err := b.dev.Open(t.Context()); err != nil {
		t.Errorf("opened again: %v", err)
	}
}

// The watts of the three rails that it can see are those of the board.
func TestMeasuresTheBoard(t *testing.T) {
	b := emulate(t, pace.Pace{}, pmdface.Config{}, fault.Faults{})
	if _, err := b.board.SetLoad(0, load.Idle); err != nil {
		t.Fatal(err)
	}
	if err := b.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := collector()
	b.collect(t, out, 10_000)
	in := b.dev.Inputs()
	tail, sum := 5000, 0.0 // long after the last step of the load
	rails, _ := NaturalRails(in)
	for _, r := range rails {
		l, x, y := r.Linear(in.Channels), out.Counts(r.X), out.Counts(r.Y)
		for i := tail; i < 10_000; i++ {
			sum += (l.I0 + l.IX*float64(x[i]) + l.IY*float64(y[i])) * (l.V0 + l.VY*float64(y[i]))
		}
	}
	mean := sum / 5000
	truth := 0.0
	end := b.board.At(2 * time.Second)
	for i, r := range b.board.Rails() {
		if r.Name != "pcie_3v3" {
			truth += float64(end[i].I) * float64(end[i].V)
		}
	}
	if math.Abs(mean/truth-1) > 0.02 {
		t.Errorf("mean %.2f W, the board draws %.2f W", mean, truth)
	}
}

func TestPlaysARecordingThroughAPTY(t *testing.T) {
	data := sharedData(t, "3090-square", "PMD_data.bin")
	cfg := pmdface.Config{Play: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
	b := emulate(t, pace.Pace{}, cfg, fault.Faults{Fragment: 1000})
	if err := b.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := collector()
	n := recordings["3090-square"] - 1 // the last record waits for one that follows
	b.collect(t, out, n)
	if e := out.Events(0); len(e) != 0 {
		t.Errorf("events: %+v", e)
	}
}

func TestBadLine(t *testing.T) {
	b := emulate(t, pace.Pace{}, pmdface.Config{},
		fault.Faults{Seed: 3, Drop: 2e-4, Duplicate: 1e-4, After: 3000, Fragment: 90})
	if err := b.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := collector()
	b.collect(t, out, 15_000)
	counts := b.line.Counts()
	faults := uint64(counts.Dropped + counts.Duplicated)
	if faults == 0 {
		t.Fatal("the line did nothing")
	}
	if lost := out.Lost(); lost == 0 || lost > 3*faults {
		t.Errorf("%d scans lost to %d faults", lost, faults)
	}
	if len(out.Events(measure.EventResync)) == 0 {
		t.Error("no resynchronisation was told")
	}
	for c := range 8 { // what came through is what the board has: no shifted bytes
		for i, v := range out.Counts(c) {
			if c%2 == 0 && (v < -20 || v > 1700) || c%2 == 1 && (v < -20 || v > 600) {
				t.Fatalf("channel %d, scan %d: %d", c, i, v)
			}
		}
	}
}

func TestUnplug(t *testing.T) {
	b := emulate(t, pace.Pace{}, pmdface.Config{},
		fault.Faults{Script: []fault.Fault{{Kind: fault.Unplug, At: 200_000}}})
	if err := b.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := collector()
	if err := b.dev.Stream(t.Context(), instrument.SinkOf(out)); !errors.Is(err, instrument.ErrDisconnected) {
		t.Fatalf("%v, want ErrDisconnected", err)
	}
	// What the kernel still held when the line closed, up to 64 KiB, is gone.
	if n := len(out.Scans()); n < 7000 {
		t.Errorf("%d of 11 000 scans came through", n)
	}
}

// pipe is a driver on a net.Pipe, for virtual time.
func pipe(t *testing.T) (*Device, net.Conn) {
	t.Helper()
	mine, theirs := net.Pipe()
	d, err := New("tcp:host:1", Defaults())
	if err != nil {
		t.Fatal(err)
	}
	d.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(mine), nil }
	return d, theirs
}

func TestWrongAndSilentDevices(t *testing.T) {
	for name, tc := range map[string]struct {
		answer string
		want   error
	}{
		"silent": {"", instrument.ErrSilent},
		"other":  {"some quite other device\r\n", instrument.ErrIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, theirs := pipe(t)
				go func() {
					b := make([]byte, 64)
					for {
						n, err := theirs.Read(b)
						if err != nil {
							return
						}
						if n == 1 && tc.answer != "" {
							_, _ = theirs.Write([]byte(tc.answer))
						}
					}
				}()
				if err := d.Open(t.Context()); !errors.Is(err, tc.want) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				_ = theirs.Close()
			})
		})
	}
}

// A device that falls silent for good ends the stream, after what it sent was
// delivered.
func TestSilenceEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := board.New(board.Config{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		face, err := pmdface.New(b, pace.Real(time.Now()), pmdface.Config{})
		if err != nil {
			t.Fatal(err)
		}
		d, theirs := pipe(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		line := fault.New(theirs, fault.Faults{Script: []fault.Fault{{
			Kind: fault.Stall, At: 90_000,
			For: time.Minute,
		}}})
		go func() { _ = face.Run(ctx, line) }()
		if err := d.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := collector()
		if err := d.Stream(t.Context(), instrument.SinkOf(out)); !errors.Is(err, instrument.ErrSilent) {
			t.Errorf("%v, want ErrSilent", err)
		}
		if n := len(out.Scans()); n < 4900 {
			t.Errorf("%d scans", n)
		}
		_ = d.Close()
	})
}

func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"baud": func(o *Options) { o.Baud = 9600 }, "tick": func(o *Options) { o.TickHz = math.NaN() },
		"u_tick": func(o *Options) { o.UTick = -1 }, "silence": func(o *Options) { o.Silence = 0 },
	} {
		o := Defaults()
		change(&o)
		if _, err := New("/dev/x", o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestOpenAfterOneThatWasBrokenOff(t *testing.T) {
	b := emulate(t, pace.Pace{}, pmdface.Config{}, fault.Faults{})
	montest.Interrupted(t, b.plug, b.dev)
}

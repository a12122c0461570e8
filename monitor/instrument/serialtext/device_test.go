//go:build linux

package serialtext

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	textface "github.com/wattmark/wattmark/monitor/emulator/serialtext"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/transport"
)

var allRails = []string{"pcie_3v3", "pcie_12v", "aux_12v_1", "aux_12v_2"}

type rig struct {
	board   *board.Board
	face    *textface.Face
	plugged *montest.Plug
	opts    Options
	dev     *Device
}

// build makes a board whose sketch and pattern fit each other.
func build(t *testing.T, p pace.Pace, cfg textface.Config) *rig {
	t.Helper()
	r := &rig{opts: Defaults()}
	var err error
	r.board = montest.Workload(t, 41*time.Second)
	cfg.Rate = 1000
	if r.face, err = textface.New(r.board, p, cfg); err != nil {
		t.Fatal(err)
	}
	r.opts.Rate, r.opts.Pattern = 1000, r.face.Pattern()
	if cfg.Binary {
		r.opts.Frame = &Frame{Header: "AA 55", Fields: r.face.Pattern()}
		if cfg.Sum {
			r.opts.Frame.Check = "crc16"
		}
	}
	return r
}

func emulate(t *testing.T, cfg textface.Config) *rig {
	t.Helper()
	r := build(t, pace.Pace{}, cfg)
	r.plug(t)
	t.Cleanup(func() { _ = r.dev.Close() })
	return r
}

// plug gives the board a line and power.
func (r *rig) plug(t *testing.T) {
	t.Helper()
	if r.plugged != nil {
		r.plugged.Pull()
	}
	r.plugged = montest.PlugIn(t, r.face, fault.Faults{Fragment: 100})
	var err error
	if r.dev, err = New(r.plugged.Path, r.opts); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) collector() *montest.Collector {
	in := Inputs(r.opts)
	return &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
}

func (r *rig) collect(t *testing.T, n int, then func()) *montest.Collector {
	t.Helper()
	return montest.Collect(t, r.dev, n, then)
}

// truth checks every scan's place against the count that the board put into it,
// and returns how many scans are missing.
func truth(t *testing.T, out *montest.Collector) (missing uint64) {
	t.Helper()
	counts, scans := out.Counts(0), out.Scans()
	for i := range scans {
		if got, want := uint64(counts[i]-counts[0]), scans[i]; got != want {
			t.Fatalf("scan %d is the board's line %d", want, got)
		}
	}
	return scans[len(scans)-1] + 1 - uint64(len(scans))
}

// sketches are the kinds of board.
var sketches = map[string]textface.Config{
	"time":                {},
	"number":              {Seq: true, NoStamp: true, Sum: true},
	"number, time, sum":   {Seq: true, Sum: true, Rails: allRails},
	"number wraps":        {Seq: true, Sum: true, First: math.MaxUint32 - 700},
	"frames":              {Binary: true},
	"frames, wrap, crc16": {Binary: true, Sum: true, First: 65_000},
}

func TestFaultsAreCountedExactly(t *testing.T) {
	coverage.Long(t)
	for name, cfg := range sketches {
		for what, f := range map[string]fault.Fault{
			"nothing":     {Kind: fault.Stall, For: time.Nanosecond},
			"a drop":      {Kind: fault.Drop, Bytes: 23},
			"a duplicate": {Kind: fault.Duplicate, Bytes: 3},
			"corruption":  {Kind: fault.Corrupt, Bytes: 5},
			"a stall":     {Kind: fault.Stall, For: 150 * time.Millisecond},
		} {
			if f.Kind == fault.Corrupt && !cfg.Sum {
				continue // nothing tells a wrong digit from a right one
			}
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				cfg := cfg
				cfg.Numbered = true
				r := emulate(t, cfg)
				if err := r.dev.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				out := r.collect(t, 12_000, func() { r.plugged.Line.Trigger(f) })
				missing := truth(t, out)
				lost := out.Lost()
				if lost != missing || lost > 4 || (f.Kind == fault.Drop || f.Kind == fault.Corrupt) && lost == 0 ||
					f.Kind == fault.Stall && lost > 0 {
					t.Errorf("%d reported lost, %d are missing; %+v", lost, missing, out.Events(0))
				}
				for _, e := range out.Events(measure.EventGap) {
					if !e.Exact {
						t.Errorf("%+v: not exact", e)
					}
				}
			})
		}
	}
}

// The energy that a perfect board reads lies within the stated uncertainty.
func TestEnergyWithinItsUncertainty(t *testing.T) {
	for name, cfg := range map[string]textface.Config{
		"lines": {Seq: true, Sum: true, Rails: allRails}, "frames": {Binary: true, Sum: true, Rails: allRails},
		"numbers": {Seq: true, NoStamp: true, Rails: allRails},
	} {
		r := emulate(t, cfg)
		// The first line after Open is not known, so the load changes once, long after.
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := r.collect(t, 15_000, nil)
		in := r.dev.Inputs()
		setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
		setup.Rails, setup.Missing = instrument.NaturalRails(in)
		got := montest.Energy(t, &setup, out, 0.1, 14.9)
		// Which line came first, the course of the current tells.
		first := align(t, r, in, out)
		want, err := r.board.Energy(r.face.BoardTime(first+100), r.face.BoardTime(first+14_900))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v ± %v, injected %v", name, got.Energy, got.U, want.Total)
		if miss := math.Abs(float64(got.Energy - want.Total)); miss > float64(got.U) ||
			miss > 0.002*float64(want.Total) {
			t.Errorf("%s: %v ± %v, injected %v", name, got.Energy, got.U, want.Total)
		}
	}
}

// align finds the count of the stream's first line by the board's own currents.
func align(t *testing.T, r *rig, in instrument.Inputs, out *montest.Collector) uint64 {
	t.Helper()
	best, at := math.Inf(1), uint64(0)
	c := 4 // aux_12v_1's current
	seen := out.Counts(c)
	for first := range uint64(12_000) {
		sum := 0.0
		for i := 0; i < 600 && sum < best; i += 7 {
			d := in.Channels[c].Value(seen[i]) - float64(r.board.At(r.face.BoardTime(first + uint64(i)))[2].I)
			sum += d * d
		}
		if sum < best {
			best, at = sum, first
		}
	}
	if best > 0.1 {
		t.Fatalf("no line fits: %v", best)
	}
	return at
}

func TestUnplugAndReplug(t *testing.T) {
	r := emulate(t, textface.Config{Numbered: true})
	for range 3 {
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := r.collector()
		line := r.plugged.Line
		out.After, out.Enough = 300, func() { line.Trigger(fault.Fault{Kind: fault.Unplug}) }
		if err := r.dev.Stream(t.Context(), instrument.SinkOf(out)); !errors.Is(err, instrument.ErrDisconnected) {
			t.Fatalf("%v, want ErrDisconnected", err)
		}
		if missing := truth(t, out); missing != 0 || out.Lost() != 0 {
			t.Errorf("%d missing, %d reported", missing, out.Lost())
		}
		if err := r.dev.Close(); err != nil {
			t.Fatal(err)
		}
		r.plug(t)
	}
}

func TestCycles(t *testing.T) {
	montest.Cycles(t, emulate(t, textface.Config{}).dev, 1000)
}

// virtual is a driver and a board on a net.Pipe, in virtual time.
func virtual(t *testing.T, cfg textface.Config, p pace.Pace, f fault.Faults, change func(*Options)) (*rig, func()) {
	t.Helper()
	r := build(t, p, cfg)
	if change != nil {
		change(&r.opts)
	}
	mine, unplug := montest.OnPipe(t, r.face, f)
	var err error
	if r.dev, err = New("tcp:host:1", r.opts); err != nil {
		t.Fatal(err)
	}
	r.dev.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(mine), nil }
	return r, func() { _ = r.dev.Close(); unplug() }
}

// A board that nobody reads skips lines, and its numbers or stamps say so.
func TestSkippedLinesAreExact(t *testing.T) {
	for name, cfg := range sketches {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := cfg
				cfg.Numbered = true
				stall := fault.Faults{Script: []fault.Fault{{Kind: fault.Stall, At: 30_000, For: 3 * time.Second}}}
				r, end := virtual(t, cfg, pace.Pace{Epoch: time.Now(), Backlog: 100 * time.Millisecond}, stall, nil)
				defer end()
				if err := r.dev.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				out := r.collector()
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				if err := r.dev.Stream(ctx, instrument.SinkOf(out)); err != nil {
					t.Fatal(err)
				}
				if missing := truth(t, out); r.face.Skipped() == 0 || out.Lost() != r.face.Skipped() ||
					missing != r.face.Skipped() {
					t.Errorf("%d lost reported, %d missing, %d skipped", out.Lost(), missing, r.face.Skipped())
				}
			})
		})
	}
}

// A board without time and number is placed by the host's clock; what it skips is
// an estimate.
func TestArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := fault.Faults{Script: []fault.Fault{{Kind: fault.Stall, At: 30_000, For: 3 * time.Second}}}
		r, end := virtual(t, textface.Config{NoStamp: true, Numbered: true},
			pace.Pace{Epoch: time.Now(), Backlog: 100 * time.Millisecond}, stall, nil)
		defer end()
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := r.collector()
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		if err := r.dev.Stream(ctx, instrument.SinkOf(out)); err != nil {
			t.Fatal(err)
		}
		gaps := out.Events(measure.EventGap)
		if len(gaps) != 1 || gaps[0].Exact || math.Abs(float64(out.Lost())-float64(r.face.Skipped())) > 30 {
			t.Errorf("%+v for %d skipped", gaps, r.face.Skipped())
		}
		counts, ticks, off := out.Counts(0), out.Ticks(), 0
		for i := range ticks {
			if math.Abs(float64(ticks[i])-1e6*float64(counts[i]-counts[0])) > 20e6 {
				off++
			}
		}
		if off > 4 { // the line held as many when it stalled, and nothing dates them
			t.Errorf("%d lines are more than 20 ms off", off)
		}
	})
}

func TestWrongBoards(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
		is     error
	}{
		"pattern": {
			func(o *Options) { o.Pattern = "{t:us};{a:mA}" }, "text of the pattern is missing",
			instrument.ErrIdentity,
		},
		"decimals": {func(o *Options) { o.Pattern = "{t:us},{a:mA},{v:mV}" }, "write .DIGITS", instrument.ErrIdentity},
		"rate":     {func(o *Options) { o.Rate = 400 }, "set rate: 1000", nil},
		"frames": {
			func(o *Options) { o.Frame = &Frame{Header: "FEED", Fields: "{a:mA:i16}"} }, "no frame",
			instrument.ErrIdentity,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, end := virtual(t, textface.Config{}, pace.Real(time.Now()), fault.Faults{}, c.change)
				defer end()
				err := r.dev.Open(t.Context())
				if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("%v, want %q", err, c.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := net.Pipe()
		d, err := New("tcp:host:1", Defaults())
		if err != nil {
			t.Fatal(err)
		}
		d.Dial = func(context.Context) (transport.Conn, error) { return transport.NewNet(mine), nil }
		if err := d.Open(t.Context()); !errors.Is(err, instrument.ErrSilent) {
			t.Errorf("%v, want ErrSilent", err)
		}
		_ = theirs.Close()
	})
}

func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"pattern": func(o *Options) { o.Pattern = "" }, "rate": func(o *Options) { o.Rate = math.NaN() },
		"comment": func(o *Options) { o.Pattern = "#" + o.Pattern },
		"baud":    func(o *Options) { o.Baud = 1 }, "u_clock": func(o *Options) { o.UClock = -1 },
		"silence": func(o *Options) { o.Silence = 0 },
		"u_gain":  func(o *Options) { o.UGain = math.Inf(1) },
		"ms":      func(o *Options) { o.Pattern = "{t:ms},{a:A}"; o.Rate = 900 },
		"header":  func(o *Options) { o.Frame = &Frame{Header: "A", Fields: "{a:A:i8}"} },
		"order":   func(o *Options) { o.Frame = &Frame{Header: "AA", Fields: "{a:A:i8}", Order: "middle"} },
		"check":   func(o *Options) { o.Frame = &Frame{Header: "AA", Fields: "{a:A:i8}", Check: "md5"} },
		"fields":  func(o *Options) { o.Frame = &Frame{Header: "AA"} },
	} {
		o := Defaults()
		change(&o)
		if _, err := New("/dev/x", o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

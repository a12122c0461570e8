package u2300

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	scpiface "github.com/wattmark/wattmark/monitor/emulator/scpi"
	u2300face "github.com/wattmark/wattmark/monitor/emulator/u2300"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/scpi"
)

type rig struct {
	board *board.Board
	face  *u2300face.Face
	at    string
	pull  func()
	dev   *Device
}

// rails are on the face's inputs in this order.
var rails = []string{"aux_12v_1", "pcie_3v3", "pcie_12v", "aux_12v_2"}

// options are all rails: 8 inputs.
func options(rate float64) Options {
	o := Defaults()
	o.ScanRate, o.Inputs, o.Timeout, o.Block = rate, nil, 300*time.Millisecond, 20*time.Millisecond
	for k, name := range rails {
		o.Inputs = append(o.Inputs,
			Input{Channel: 101 + 2*k, Name: name + ".voltage", PerVolt: meter.Divider, Unipolar: k == 0},
			Input{Channel: 102 + 2*k, Name: name + ".current", Unit: "A", PerVolt: meter.PerVolt})
	}
	return o
}

// build makes a device on a board that is busy for 40 s.
func build(t *testing.T, cfg u2300face.Config) *rig {
	t.Helper()
	r := &rig{}
	var err error
	if r.board, err = board.New(board.Config{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	loads := []load.State{load.Compute, load.Sleep, load.Memory, load.ActiveIdle, load.Half}
	for i := range 300 {
		if _, err := r.board.SetLoad(time.Duration(i)*137*time.Millisecond, loads[i%len(loads)]); err != nil {
			t.Fatal(err)
		}
	}
	epoch := time.Now()
	cfg.Rails, cfg.Now = rails, func() time.Duration { return time.Since(epoch) }
	if r.face, err = u2300face.New(r.board, cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// emulate puts a device on a TCP port of this machine.
func emulate(t *testing.T, cfg u2300face.Config, o Options, fragment int) *rig {
	t.Helper()
	r := build(t, cfg)
	r.plug(t, "127.0.0.1:0", fragment)
	var err error
	o.Timeout = 20 * time.Second // a busy machine is no fault
	if r.dev, err = New("tcp:"+r.at, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.dev.Close() })
	return r
}

// virtual runs a test in virtual time, the driver and the device on pipes.
func virtual(t *testing.T, cfg u2300face.Config, o Options, test func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := build(t, cfg)
		var err error
		if r.dev, err = New("tcp:host:1", o); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r.dev.dial(func() net.Conn {
			mine, theirs := net.Pipe()
			go func() { _ = r.face.Run(ctx, theirs) }()
			return mine
		})
		r.open(t)
		test(t, r)
		_ = r.dev.Close()
		cancel()
	})
}

func (r *rig) plug(t *testing.T, at string, fragment int) {
	t.Helper()
	r.at, r.pull = montest.Serve(t, at, func(ctx context.Context, l net.Listener) error {
		return r.face.Serve(ctx, l, func(c net.Conn) io.ReadWriteCloser {
			return fault.New(c, fault.Faults{Seed: 1, Fragment: fragment})
		})
	})
}

func (r *rig) open(t *testing.T) {
	t.Helper()
	if err := r.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// taker stops a stream after n scans; half way it calls then.
type taker struct {
	*montest.Collector
	n, seen int
	then    func()
	stop    func()
}

func (k *taker) Block(b *measure.Block) error {
	if err := k.Collector.Block(b); err != nil {
		return err
	}
	k.seen += b.Scans()
	if k.then != nil && k.seen >= k.n/2 {
		k.then()
		k.then = nil
	}
	if k.seen >= k.n {
		k.stop()
	}
	return nil
}

func (r *rig) stream(t *testing.T, n int, then func()) (*montest.Collector, error) {
	t.Helper()
	in := r.dev.Inputs()
	out := &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := r.dev.Stream(ctx, instrument.SinkOf(&taker{Collector: out, n: n, then: then, stop: cancel}))
	if err == nil && len(out.Scans()) < n {
		t.Fatalf("only %d scans in 30 s", len(out.Scans()))
	}
	return out, err
}

// runs are the face's acquisitions of one Stream call. That one is the last.
func (r *rig) runs(t *testing.T, n int) []u2300face.Run {
	t.Helper()
	all := r.face.Runs()
	if len(all) < n {
		t.Fatalf("%d acquisitions, want %d", len(all), n)
	}
	return all[len(all)-n:]
}

// placed checks that every scan of a piece that began with an acquisition has the
// values that the board had when it was converted.
func (r *rig) placed(t *testing.T, out *montest.Collector, from, n int, run u2300face.Run) {
	t.Helper()
	in := r.dev.Inputs()
	for ch, c := range in.Channels {
		counts := out.Counts(ch)
		for i := range n {
			at := r.face.ScanTime(run, uint64(i)) + c.Skew.Duration()
			reading := r.board.At(at)[[]int{2, 0, 1, 3}[ch/2]]
			want, tolerance := float64(reading.V), 1e-3
			if ch%2 == 1 {
				want, tolerance = float64(reading.I), 3e-3
			}
			if got := c.Value(counts[from+i]); math.Abs(got-want) > tolerance {
				t.Fatalf("scan %d of %s: %v, the board had %v", i, c.Name, got, want)
			}
		}
	}
}

func TestMeasuresWhatTheBoardDraws(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model    string
		rate     float64
		fragment int
		burst    bool
	}{
		"burst":              {"U2356A", 20_000, 0, true},
		"evenly spaced":      {"U2356A", 20_000, 0, false},
		"a slower model":     {"U2351A", 20_000, 0, true},
		"in fragments":       {"U2356A", 20_000, 100, true},
		"the fastest it can": {"U2356A", 62_500, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(c.rate)
			o.Burst = c.burst
			r := emulate(t, u2300face.Config{Model: c.model, Noise: -1}, o, c.fragment)
			r.open(t)
			if id := r.dev.Identity(); id.Model != c.model || id.Serial != "MY00000001" {
				t.Errorf("%+v", id)
			}
			for range 2 { // a second stream begins anew
				out, err := r.stream(t, 3000, nil)
				if err != nil {
					t.Fatal(err)
				}
				if e := out.Events(0); len(e) != 0 {
					t.Fatalf("%+v", e)
				}
				run := r.runs(t, 1)[0]
				if run.Read != len(out.Scans()) {
					t.Errorf("%d scans delivered, %d were read", len(out.Scans()), run.Read)
				}
				r.placed(t, out, 0, len(out.Scans()), run)
			}
		})
	}
}

// torn is one stream in which something was lost in the middle: what came before
// and after it must be exact, and the gap's size true to the host's clock.
func (r *rig) torn(t *testing.T, out *montest.Collector) {
	t.Helper()
	runs := r.runs(t, 2)
	gaps := out.Events(measure.EventGap)
	if len(gaps) != 1 || gaps[0].Exact {
		t.Fatalf("%+v", gaps)
	}
	before := int(gaps[0].FirstScan)
	after := len(out.Scans()) - before
	r.placed(t, out, 0, before, runs[0])
	r.placed(t, out, before, after, runs[1])
	if runs[1].Read != after || runs[0].Read < before {
		t.Errorf("%d and %d scans delivered, %d and %d were read", before, after, runs[0].Read, runs[1].Read)
	}
	rate := r.dev.opts.ScanRate
	want := (runs[1].Begin-runs[0].Begin).Seconds()*rate - float64(before)
	// The host's clock sees a begin between two messages, and blocks when it asks.
	if off := float64(gaps[0].Scans) - want; math.Abs(off) > 0.005*rate {
		t.Errorf("%d scans said to be lost, the device lost %.0f", gaps[0].Scans, want)
	} else {
		t.Logf("%d scans said to be lost, %.1f ms off", gaps[0].Scans, 1e3*off/rate)
	}
}

func TestOver(t *testing.T) {
	for name, then := range map[string]func(*rig){
		"a full memory": func(*rig) { <-time.After(400 * time.Millisecond) }, // 5000 scans a second into room for 1000
		"at once":       func(r *rig) { r.face.Overflow() },
	} {
		virtual(t, u2300face.Config{Noise: -1, Memory: 8000}, options(5000), func(t *testing.T, r *rig) {
			out, err := r.stream(t, 2000, func() { then(r) })
			if err != nil {
				t.Fatal(name, err)
			}
			if n := len(out.Events(measure.EventOverflow)); n != 1 {
				t.Errorf("%s: %d overflows told", name, n)
			}
			r.torn(t, out)
		})
	}
}

func TestFailedExchanges(t *testing.T) {
	for name, c := range map[string]struct {
		fault scpiface.Fault
		lossy bool
	}{
		"a late block": {
			scpiface.Fault{Kind: scpiface.Late, Match: "WAV:DATA?", For: 400 * time.Millisecond},
			true,
		},
		"a block less":        {scpiface.Fault{Kind: scpiface.Mute, Match: "WAV:DATA?"}, true},
		"a truncated block":   {scpiface.Fault{Kind: scpiface.Truncate, Match: "WAV:DATA?", Bytes: 100}, true},
		"no status":           {scpiface.Fault{Kind: scpiface.Mute, Match: "WAV:STAT?"}, false},
		"a line too much":     {scpiface.Fault{Kind: scpiface.Unsolicited, Match: "WAV:DATA?", Text: "DATA\n"}, true},
		"no block but a line": {scpiface.Fault{Kind: scpiface.Truncate, Match: "WAV:DATA?", Bytes: 1 << 20}, true},
		"a strange status":    {scpiface.Fault{Kind: scpiface.Unsolicited, Match: "WAV:STAT?", Text: "MAYBE\n"}, false},
		"junk behind":         {scpiface.Fault{Kind: scpiface.Junk, Match: "WAV:DATA?", Text: "\x01\n#8"}, false},
	} {
		virtual(t, u2300face.Config{Noise: -1}, options(5000), func(t *testing.T, r *rig) {
			out, err := r.stream(t, 2000, func() { r.face.Inject(c.fault) })
			if err != nil {
				t.Fatal(name, err)
			}
			if r.face.Pending() != 0 {
				t.Errorf("%s: the fault never happened", name)
			}
			if c.lossy {
				r.torn(t, out)
				return
			}
			if e := out.Events(0); len(e) != 0 {
				t.Errorf("%s: %+v", name, e)
			}
			r.placed(t, out, 0, len(out.Scans()), r.runs(t, 1)[0])
		})
	}
}

// A capture's last block is waited for; one that does not come is missing.
func TestTheEnd(t *testing.T) {
	o := options(5000)
	o.Block = 200 * time.Millisecond
	virtual(t, u2300face.Config{Noise: -1}, o, func(t *testing.T, r *rig) {
		in := r.dev.Inputs()
		for lost, fault := range map[int]*scpiface.Fault{
			0:   nil,
			500: {Kind: scpiface.Mute, Match: "WAV:DATA?", Skip: 2},
		} {
			if fault != nil {
				r.face.Inject(*fault)
			}
			out := &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			err := r.dev.Stream(ctx, instrument.SinkOf(out))
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			// 2500 scans until the end, in blocks of 1000.
			if n, want := len(out.Scans()), 3000; fault == nil && n != want || fault != nil && n != 2000 {
				t.Errorf("%d scans", n)
			}
			if off := int(out.Lost()) - lost; off < -100 || off > 100 { // it is asked every 20 ms
				t.Errorf("%d scans said to be lost, want %d", out.Lost(), lost)
			}
		}
	})
}

// The energy lies within its uncertainty, with a device that is off by as much as
// the driver states.
func TestEnergyWithinItsUncertainty(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	const seeds = 5
	var inside atomic.Int32
	t.Cleanup(func() {
		if n := inside.Load(); n < seeds-1 {
			t.Errorf("%d of %d lie within U", n, seeds)
		}
	})
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := emulate(t, u2300face.Config{Seed: seed, Draw: true}, options(20_000), 0)
			r.open(t)
			out, err := r.stream(t, 30_000, nil)
			if err != nil {
				t.Fatal(err)
			}
			in := r.dev.Inputs()
			setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
			setup.Rails, setup.Missing = instrument.NaturalRails(in)
			if len(setup.Rails) != 4 {
				t.Fatal(setup.Rails)
			}
			got := montest.Energy(t, &setup, out, 0.1, 1.4)
			begin := r.runs(t, 1)[0].Begin
			want, err := r.board.Energy(begin+100*time.Millisecond, begin+1400*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v ± %v, injected %v", got.Energy, got.U, want.Total)
			miss := math.Abs(float64(got.Energy - want.Total))
			if miss <= float64(got.U) {
				inside.Add(1)
			}
			if miss > 2*float64(got.U) || got.U > 0.02*got.Energy {
				t.Errorf("%v ± %v, injected %v", got.Energy, got.U, want.Total)
			}
		})
	}
}

func TestUnplugAndReplug(t *testing.T) {
	t.Parallel()
	r := emulate(t, u2300face.Config{Noise: -1}, options(5000), 0)
	at := r.at
	for range 3 {
		r.open(t)
		pull := r.pull
		out, err := r.stream(t, 1<<12, func() { go pull() })
		if !errors.Is(err, instrument.ErrDisconnected) {
			t.Fatalf("%v, want ErrDisconnected", err)
		}
		if n := len(out.Scans()); n == 0 || out.Lost() != 0 {
			t.Errorf("%d scans, %d lost", n, out.Lost())
		}
		r.placed(t, out, 0, len(out.Scans()), r.runs(t, 1)[0])
		_ = r.dev.Close()
		r.pull()
		if err := r.dev.Open(t.Context()); !errors.Is(err, instrument.ErrDisconnected) {
			t.Fatalf("Open of a device that is gone: %v", err)
		}
		r.plug(t, at, 0)
	}
}

// A device that answers, but measures nothing, or fails again and again, is lost.
func TestDevicesThatAreLost(t *testing.T) {
	for name, then := range map[string]func(*rig){
		"stopped by another": func(r *rig) { r.face.NewSession().Send("STOP") },
		"always mute": func(r *rig) {
			r.face.Inject(scpiface.Fault{
				Kind: scpiface.Mute, Match: "WAV:STAT?",
				Times: 100,
			})
		},
	} {
		o := options(5000)
		o.Silence, o.Timeout = 300*time.Millisecond, 150*time.Millisecond
		virtual(t, u2300face.Config{}, o, func(t *testing.T, r *rig) {
			out, err := r.stream(t, 1000, func() { then(r) })
			if !errors.Is(err, instrument.ErrSilent) || len(out.Scans()) < 500 {
				t.Errorf("%s: %d scans, %v", name, len(out.Scans()), err)
			}
		})
	}
}

func TestCycles(t *testing.T) {
	o := Defaults()
	r := emulate(t, u2300face.Config{}, o, 0)
	r.dev.quick()
	montest.Cycles(t, r.dev, 1000)
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		model  string
		change func(*Options)
		says   string
	}{
		"too fast for the model": {"U2351A", func(o *Options) { o.ScanRate = 40_000 }, "set scan_rate: 31250"},
		"channel of another":     {"U2353A", func(o *Options) { o.Inputs[0].Channel = 164 }, "U2353A has 101 to 116"},
		"a rate between two":     {"U2356A", func(o *Options) { o.ScanRate = 1000.4 }, "set scan_rate: 1000"},
		"diff where there is none": {
			"U2353A", func(o *Options) { o.Inputs[0].Channel, o.Inputs[0].Ground = 116, "diff" }, "has 101 to 108",
		},
		"diff's second wire": {
			"U2353A", func(o *Options) { o.Inputs[0].Ground, o.Inputs[1].Channel = "diff", 109 }, "leave that out",
		},
	} {
		o := options(5000)
		c.change(&o)
		r := emulate(t, u2300face.Config{Model: c.model}, o, 0)
		if err := r.dev.Open(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := emulate(t, u2300face.Config{}, options(5000), 0)
	for _, id := range []string{
		"RIGOL TECHNOLOGIES,U2356A,1,1", "Keysight Technologies,U2331A,1,1",
		"AGILENT TECHNOLOGIES,34970A,0,1",
	} {
		r.face.SetIdentity(id)
		if err := r.dev.Open(t.Context()); !errors.Is(err, instrument.ErrIdentity) {
			t.Errorf("%s: %v", id, err)
		}
	}
	r.face.SetIdentity("Agilent Technologies,U2356A,MY1,A.1")
	r.face.Inject(scpiface.Fault{Kind: scpiface.QueueError, Match: "ROUT:CHAN:RANG 10", Err: scpiface.ErrRange})
	if err := r.dev.Open(t.Context()); !errors.Is(err, scpi.ErrInstrument) ||
		!strings.Contains(err.Error(), "the input's range") {
		t.Errorf("got %v", err)
	}
	r.open(t)
	if err := r.dev.Open(t.Context()); err == nil {
		t.Error("opened twice")
	}
}

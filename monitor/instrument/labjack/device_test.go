package labjack

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	labjackface "github.com/wattmark/wattmark/monitor/emulator/labjack"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

type rig struct {
	board  *board.Board
	face   *labjackface.Face
	faults atomic.Pointer[fault.Faults]
	opts   Options
	dev    *Device
	unplug func() // takes the device off the net
}

// rails are on the face's inputs in this order.
var rails = []string{"aux_12v_1", "pcie_3v3", "pcie_12v", "aux_12v_2"}

// emulate puts an emulated device on TCP ports of this machine.
func emulate(t *testing.T, cfg labjackface.Config, faults fault.Faults, paces ...pace.Pace) *rig {
	t.Helper()
	r := &rig{opts: Defaults()}
	r.faults.Store(&faults)
	var err error
	r.board = montest.Workload(t, 14*time.Second)
	cfg.Wrap = func(rw io.ReadWriteCloser) io.ReadWriteCloser {
		return fault.New(rw, *r.faults.Load())
	}
	cfg.Rails = rails
	if r.face, err = labjackface.New(r.board, append(paces, pace.Pace{})[0], cfg); err != nil {
		t.Fatal(err)
	}
	r.opts.Inputs = nil
	for k, name := range rails {
		r.opts.Inputs = append(r.opts.Inputs,
			analog.Input{AIN: 2 * k, Name: name + ".voltage", PerVolt: meter.Divider},
			analog.Input{AIN: 2*k + 1, Name: name + ".current", Unit: "A", PerVolt: meter.PerVolt})
	}
	r.opts.ScanRate = 5000
	r.plug(t, "127.0.0.1:0", "127.0.0.1:0")
	return r
}

// plug puts the device on the net.
func (r *rig) plug(t *testing.T, registers, stream string) (at [2]string) {
	t.Helper()
	var l [2]net.Listener
	for i, a := range []string{registers, stream} {
		var err error
		if l[i], err = net.Listen("tcp", a); err != nil {
			t.Fatal(err)
		}
		at[i] = l[i].Addr().String()
	}
	r.opts.StreamPort = l[1].Addr().(*net.TCPAddr).Port
	if r.dev == nil {
		var err error
		if r.dev, err = New("tcp:"+at[0], r.opts); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.dev.Close() })
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.face.Serve(ctx, l[0], l[1]) }()
	r.unplug = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the device ends with %v", err)
		}
	})
	t.Cleanup(r.unplug)
	return at
}

func (r *rig) stream(t *testing.T, n int, then func()) (*montest.Collector, error) {
	t.Helper()
	return montest.Stream(t, r.dev, n, then)
}

// placed checks that every scan has the value that the board had at its time.
func (r *rig) placed(t *testing.T, out *montest.Collector) {
	t.Helper()
	in := r.dev.Inputs()
	counts, skew := out.Counts(1), in.Channels[1].Skew.Duration() // the first rail's current
	for i, scan := range out.Scans() {
		at := r.face.StreamStart() + time.Duration(math.Round(float64(scan)*1e9/r.opts.ScanRate)) + skew
		want := float64(r.board.At(at)[2].I) // aux_12v_1
		if got := in.Channels[1].Value(counts[i]); math.Abs(got-want) > 3e-3 {
			t.Fatalf("scan %d: %v A, the board had %v A", scan, got, want)
		}
	}
}

func TestMeasuresAndCountsWhatIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults fault.Faults
		lose   int
		exact  bool
	}{
		"nothing":          {fault.Faults{}, 0, true},
		"fragments":        {fault.Faults{Fragment: 300}, 0, true},
		"one scan":         {fault.Faults{}, 1, true},
		"many scans":       {fault.Faults{}, 12_345, true},
		"more than can be": {fault.Faults{}, 65_535, false},
		"a stall": {fault.Faults{Script: []fault.Fault{{
			Kind: fault.Stall, At: 40_000,
			For: 200 * time.Millisecond,
		}}}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := emulate(t, labjackface.Config{Noise: -1}, c.faults)
			if err := r.dev.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			if id := r.dev.Identity(); id.Model != "T7" || id.Serial != "470010000" || id.Firmware != "1.03" {
				t.Errorf("%+v", id)
			}
			for range 2 { // a second stream begins anew
				r.face.Lose(7777, c.lose)
				out, err := r.stream(t, 20_000, nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(out.Scans()) < 20_000 {
					t.Fatalf("%d scans in 20 s", len(out.Scans()))
				}
				if out.Lost() != uint64(c.lose) {
					t.Fatalf("%d reported lost, the device lost %d", out.Lost(), c.lose)
				}
				for _, e := range out.Events(measure.EventGap) {
					if e.Exact != c.exact {
						t.Errorf("%+v", e)
					}
				}
				if n := len(out.Events(measure.EventOverflow)); (n == 1) != (c.lose > 0) {
					t.Errorf("%d overflows told", n)
				}
				r.placed(t, out)
			}
		})
	}
}

// A device that cannot send keeps what fits into its buffer and says what did not.
func TestFullBuffer(t *testing.T) {
	t.Parallel()
	stall := fault.Faults{Script: []fault.Fault{{Kind: fault.Stall, At: 40_000, For: 400 * time.Millisecond}}}
	r := emulate(t, labjackface.Config{Noise: -1}, stall, pace.Pace{Epoch: time.Now(), Backlog: 100 * time.Millisecond})
	if err := r.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, err := r.stream(t, 5000, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lost := r.face.Skipped(); lost == 0 || out.Lost() != lost {
		t.Errorf("%d reported lost, the device lost %d", out.Lost(), lost)
	}
	r.placed(t, out)
}

// The energy lies within its uncertainty: small with the device's own constants,
// wide where the flash holds none that can be right, and then the stream says so.
func TestEnergyWithinItsUncertainty(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	for name, c := range map[string]struct {
		cfg   labjackface.Config
		doubt bool
		most  float64 // of the energy, for U
	}{
		"T7":            {labjackface.Config{}, false, 0.02},
		"T8":            {labjackface.Config{Product: 8}, false, 0.02},
		"T8, 16 bits":   {labjackface.Config{Product: 8, Codes16: true}, false, 0.02},
		"T7, erased":    {labjackface.Config{Calibration: labjackface.Erased}, true, 0.08},
		"T8, erased":    {labjackface.Config{Product: 8, Calibration: labjackface.Erased}, true, 0.4},
		"T8, another's": {labjackface.Config{Product: 8, Calibration: labjackface.Foreign}, true, 0.4},
	} {
		t.Run(name, func(t *testing.T) {
			inside := 0
			seeds := 4
			if testing.Short() {
				seeds = 2
			}
			for seed := range uint64(seeds) {
				cfg := c.cfg
				cfg.Seed, cfg.Draw = seed, true
				r := emulate(t, cfg, fault.Faults{})
				if err := r.dev.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				out := montest.Collect(t, r.dev, 25_000, nil)
				in := r.dev.Inputs()
				setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
				setup.Rails, setup.Missing = instrument.NaturalRails(in)
				got := montest.Energy(t, &setup, out, 0.1, 4.9)
				start := r.face.StreamStart()
				want, err := r.board.Energy(start+100*time.Millisecond, start+4900*time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%v ± %v, injected %v", got.Energy, got.U, want.Total)
				miss := math.Abs(float64(got.Energy - want.Total))
				if miss <= float64(got.U) {
					inside++
				}
				if miss > 2*float64(got.U) || float64(got.U) > c.most*float64(got.Energy) {
					t.Errorf("%v ± %v, injected %v", got.Energy, got.U, want.Total)
				}
				notes := out.Events(measure.EventNote)
				if c.doubt != (len(notes) == 1) || c.doubt && !strings.Contains(notes[0].Detail, "cannot be right") {
					t.Errorf("%+v", notes)
				}
			}
			if inside < seeds-1 {
				t.Errorf("%d of %d lie within U", inside, seeds)
			}
		})
	}
}

// A T8 measures the same, all inputs at once.
func TestT8(t *testing.T) {
	r := emulate(t, labjackface.Config{Product: 8, Noise: -1}, fault.Faults{})
	if err := r.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id := r.dev.Identity(); id.Model != "T8" {
		t.Errorf("%+v", id)
	}
	for _, c := range r.dev.Inputs().Channels {
		if c.Skew != 0 || c.UGain > 1e-3 {
			t.Errorf("%+v", c)
		}
	}
	r.face.Lose(7777, 12)
	out := montest.Collect(t, r.dev, 20_000, nil)
	if out.Lost() != 12 {
		t.Errorf("%d reported lost, the device lost 12", out.Lost())
	}
	r.placed(t, out)
}

// What one model can do and the other cannot is told when it is known which it is.
func TestModelsDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		product float32
		change  func(*Options)
		want    string
	}{
		"range of a T7": {
			8, func(o *Options) { o.Inputs[0].Range = 1 },
			"it is a T8: inputs[0].range 1 V: want 11, 9.6",
		},
		"range of a T8": {
			7, func(o *Options) { o.Inputs[0].Range = 1.2 },
			"it is a T7: inputs[0].range 1.2 V: want 10, 1",
		},
		"rate of a T8": {7, func(o *Options) { o.ScanRate = 35e3 }, "it is a T7: scan_rate 35000 with 8 inputs"},
		"settling":     {8, func(o *Options) { o.Settling = 10 * time.Microsecond }, "at once"},
	} {
		r := emulate(t, labjackface.Config{Product: c.product}, fault.Faults{})
		o := r.opts
		o.Inputs = slices.Clone(o.Inputs)
		c.change(&o)
		d, err := New(r.dev.ID.Address, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Open(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Constants are taken only where they can be the model's.
func TestConstants(t *testing.T) {
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		m  model
		r  int
		s  set
		ok bool
		v  float64 // of code 40000
	}{
		"T7 nominal": {
			models[0], 0,
			set{3.1580578e-4, -3.15805800e-4, 33523, -10.58695652},
			true,
			(40000 - 33523) * 3.1580578e-4,
		},
		"T7 on 1 V": {
			models[0], 1,
			set{3.1580578e-5, -3.15805800e-5, 33600, -1},
			true,
			(40000 - 33600) * 3.1580578e-5,
		},
		"T8, 24-bit codes": {
			models[1], 1,
			set{9.768 / (1 << 23), -9.768 / (1 << 23), 1 << 23, 0},
			true,
			(40000 - 32768) * 9.768 / 32768,
		},
		"T8, 16-bit codes": {
			models[1], 10,
			set{0.019 / 32768, -0.019 / 32768, 32768, 0},
			true,
			(40000 - 32768) * 0.019 / 32768,
		},
		"of another range":  {models[0], 0, set{3.158e-5, -3.158e-5, 33523, 0}, false, 0},
		"of the other sign": {models[0], 0, set{3.158e-4, 3.158e-4, 33523, 0}, false, 0},
		"erased":            {models[0], 0, set{nan, nan, nan, nan}, false, 0},
		"zero":              {models[1], 0, set{}, false, 0},
		"signed codes":      {models[1], 0, set{11.0 / 32768, -11.0 / 32768, 0, 0}, false, 0},
	} {
		sc, ok := c.s.scale(c.m, c.r)
		if ok != c.ok || ok && math.Abs((40000-sc.Zero)*sc.Gain-c.v) > 1e-6*c.v {
			t.Errorf("%s: %+v, %v", name, sc, ok)
		}
	}
	b := [setBytes]byte{0x39, 0xA5, 0x92, 0x31, 0xB9, 0xA5, 0x92, 0x31, 0x47, 0x02, 0xF3, 0x00}
	var s set
	if _, err := binary.Decode(b[:], binary.BigEndian, &s); err != nil || math.Abs(float64(s.PSlope)-3.158e-4) > 1e-7 ||
		s.NSlope != -s.PSlope || s.Center != 33523 {
		t.Errorf("%+v", s)
	}
}

// A stream that is out of step is given up; nothing false is delivered.
func TestSpoiltStream(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault.Fault{
		"a byte lost":    {Kind: fault.Drop, At: 60_001, Bytes: 1},
		"a byte doubled": {Kind: fault.Duplicate, At: 60_001, Bytes: 1},
		"unplugged":      {Kind: fault.Unplug, At: 60_001},
	} {
		t.Run(name, func(t *testing.T) {
			r := emulate(t, labjackface.Config{Noise: -1}, fault.Faults{Script: []fault.Fault{f}})
			if err := r.dev.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			out, err := r.stream(t, 1<<20, nil)
			if !errors.Is(err, instrument.ErrDisconnected) {
				t.Fatalf("%v, want ErrDisconnected", err)
			}
			if n := len(out.Scans()); n < 3000 || n > 3750 || out.Lost() != 0 {
				t.Errorf("%d scans, %d lost", n, out.Lost())
			}
			r.placed(t, out)
			// Opened again it goes on.
			if err := r.dev.Close(); err != nil {
				t.Fatal(err)
			}
			r.faults.Store(&fault.Faults{})
			if err := r.dev.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			out, err = r.stream(t, 1000, nil)
			if err != nil || len(out.Scans()) < 1000 {
				t.Fatalf("%d scans, %v", len(out.Scans()), err)
			}
		})
	}
}

func TestUnplugAndReplug(t *testing.T) {
	t.Parallel()
	r := emulate(t, labjackface.Config{Noise: -1}, fault.Faults{})
	r.unplug()
	r.dev = nil
	at := r.plug(t, "127.0.0.1:0", "127.0.0.1:0")
	for range 3 {
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		unplug := r.unplug
		if _, err := r.stream(t, 1<<20, func() { go unplug() }); err != nil &&
			!errors.Is(err, instrument.ErrDisconnected) {
			t.Fatalf("%v, want ErrDisconnected", err)
		}
		if err := r.dev.Close(); err != nil {
			t.Fatal(err)
		}
		r.unplug()
		if err := r.dev.Open(t.Context()); !errors.Is(err, instrument.ErrDisconnected) {
			t.Fatalf("Open of a device that is gone: %v", err)
		}
		r.plug(t, at[0], at[1])
	}
}

// What stops the stream says what to do.
func TestDeviceStops(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	for status, want := range map[uint16]string{
		statusOverlap: "lower scan_rate", statusOverflow: "overflowed",
		2600: "status 2600",
	} {
		r := emulate(t, labjackface.Config{}, fault.Faults{})
		if err := r.dev.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := r.stream(t, 1<<20, func() { r.face.Stop(status) })
		if err == nil || !strings.Contains(err.Error(), want) ||
			errors.Is(err, instrument.ErrDisconnected) != (status == statusOverflow) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestCycles(t *testing.T) {
	r := emulate(t, labjackface.Config{}, fault.Faults{})
	montest.Cycles(t, r.dev, 1000)
}

func TestOtherDevices(t *testing.T) {
	r := emulate(t, labjackface.Config{Product: 4}, fault.Faults{})
	if err := r.dev.Open(t.Context()); !errors.Is(err, instrument.ErrIdentity) {
		t.Errorf("a T4: %v, want ErrIdentity", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("220 mail.example.org ESMTP\r\n"))
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	d, err := New("tcp:"+l.Addr().String(), Defaults())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Open(t.Context()); !errors.Is(err, instrument.ErrIdentity) {
		t.Errorf("a mail server: %v, want ErrIdentity", err)
	}
	if d, err = New("/dev/ttyUSB0", Defaults()); err != nil {
		t.Fatal(err)
	}
	if err := d.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "Ethernet") {
		t.Errorf("a serial port: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"none": func(o *Options) { o.Inputs = nil }, "rate": func(o *Options) { o.ScanRate = math.NaN() },
		"fast":  func(o *Options) { o.ScanRate = 51e3 },
		"range": func(o *Options) { o.Inputs[0].Range = 5 }, "ain": func(o *Options) { o.Inputs[0].AIN = 14 },
		"twice":    func(o *Options) { o.Inputs[0].AIN = 1 },
		"name":     func(o *Options) { o.Inputs[0].Name = "aux.current" },
		"unit":     func(o *Options) { o.Inputs[0].Unit = "Ohm" },
		"settling": func(o *Options) { o.Settling = time.Millisecond }, "port": func(o *Options) { o.StreamPort = -1 },
		"silence": func(o *Options) { o.Silence = 0 }, "u_gain": func(o *Options) { o.UGain = -1 },
		"per volt": func(o *Options) { o.Inputs[0].PerVolt = math.Inf(1) },
	} {
		o := Defaults()
		change(&o)
		if _, err := New("tcp:h:502", o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

package nidaqmx

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	niface "github.com/wattmark/wattmark/monitor/emulator/nidaqmx"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx/nipb"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/transport"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What keeps a device from being opened says what to do, and leaves nothing on
// the server.
func TestOpeningSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		config niface.Config
		change func(*rig)
		want   []string
		is     error
	}{
		"another device name": {
			change: func(r *rig) { r.opts.Device = "Dev9" },
			want:   []string{"-200220", "device Dev9", "NI MAX"}, is: instrument.ErrIdentity,
		},
		"another device": {
			change: func(r *rig) { r.opts.Serial = "abc" }, want: []string{"1A2B3C0", "not ABC"},
			is: instrument.ErrIdentity,
		},
		"no such input": {
			change: func(r *rig) { r.opts.Inputs[2].AI = 40 },
			want:   []string{"Dev1/ai40", "-200170", "inputs[].ai"}, is: instrument.ErrIdentity,
		},
		"no such pair": {
			change: func(r *rig) { r.opts.Inputs[0].AI = 8 },
			want:   []string{"Dev1/ai8", "-200077", "inputs[].terminal"},
		},
		"a range too large": {
			change: func(r *rig) { r.opts.Inputs[0].Range = 20 },
			want:   []string{"-200077", "inputs[].range"},
		},
		"too fast for eight": {
			change: func(r *rig) { r.opts.Rate = 130_000 },
			want:   []string{"-200081", "lower rate"},
		},
		"too fast for one": {
			change: func(r *rig) { r.opts.Rate, r.opts.Inputs = 1.3e6, r.opts.Inputs[:1] },
			want:   []string{"-200332", "lower rate"},
		},
		"a rate far from any that the clock gives": {
			config: niface.Config{MaxSingle: 10e6},
			change: func(r *rig) { r.opts.Rate, r.opts.Inputs = 8e6, r.opts.Inputs[:1] },
			want:   []string{"not 8e+06", "set rate: 6.6"},
		},
		"the device is not there": {
			change: func(r *rig) { r.face.Unplug(true) },
			want:   []string{"-201003", "plugged in"}, is: instrument.ErrDisconnected,
		},
		"another task uses it": {
			change: func(r *rig) { r.face.Fail("CfgSampClkTiming", reserved) },
			want:   []string{"-50103", "another program"},
		},
		"the driver knows the name": {
			change: func(r *rig) { r.face.Fail("CreateTask", taskExists) },
			want:   []string{"-200089", "session"},
		},
		"a serial line": {
			change: func(r *rig) { r.at = "" }, want: []string{"31763"},
			is: transport.ErrAddress,
		},
		"scale is not told": {
			change: func(r *rig) { r.face.Fail("GetChanAttributeDoubleArray", -200233) },
			want:   []string{"scale of Dev1/ai0", "-200233"},
		},
		"conversions are not told": {
			change: func(r *rig) { r.face.Fail("GetReadAttributeUInt32", -200233) },
			want:   []string{"width of a raw scan"},
		},
		"the buffer cannot be set": {
			change: func(r *rig) { r.face.Fail("CfgInputBuffer", -200077) },
			want:   []string{"buffer of 10000"},
		},
		"the buffer's size is lost": {
			change: func(r *rig) { r.face.Fail("GetBufferAttributeUInt32", -200077) },
			want:   []string{"size of the buffer"},
		},
		"the sample clock is closed": {
			change: func(r *rig) { r.face.Fail("GetTimingAttributeDouble", -200077) },
			want:   []string{"rate of the sample clock"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := emulate(t, c.config)
			c.change(r)
			address := "tcp:" + r.at
			if r.at == "" {
				address = "/dev/ttyUSB0"
			}
			dev, err := New(address, r.opts)
			if err != nil {
				t.Fatal(err)
			}
			err = dev.Open(t.Context())
			if err == nil {
				t.Fatal("opened")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nsays nothing of %q", err, want)
				}
			}
			for _, is := range []error{instrument.ErrIdentity, instrument.ErrDisconnected, transport.ErrAddress} {
				if errors.Is(err, is) != (is == c.is) {
					t.Errorf("%v: is it %v?", err, is)
				}
			}
			if n := r.face.Sessions(); n != 0 {
				t.Errorf("%d sessions were left behind", n)
			}
		})
	}
}

// What else may answer at the address.
func TestNotNIsServer(t *testing.T) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	other, mute, gone := listen(), listen(), listen()
	server := grpc.NewServer()
	go func() { _ = server.Serve(other) }()
	t.Cleanup(server.Stop)
	_ = gone.Close()
	for name, c := range map[string]struct {
		at   net.Listener
		want string
		is   error
	}{
		"another gRPC server":    {other, "no NI-DAQmx there", instrument.ErrIdentity},
		"one that never answers": {mute, "", context.DeadlineExceeded},
		"nobody":                 {gone, "gRPC Device Server running", instrument.ErrDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			dev, err := New("tcp:"+c.at.Addr().String(), Defaults())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := dev.Open(ctx); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What ends a stream says why, and what came before is there.
func TestWhatEndsAStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code int32
		want string
		is   error
	}{
		"the array is too small": {-200229, "-200229", nil},
		"the task is gone":       {invalidTask, "-200088", instrument.ErrDisconnected},
		"the device is gone":     {deviceGone, "plugged in", instrument.ErrDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			r := emulate(t, niface.Config{Codes: numbered})
			r.open(t)
			out, err := r.stream(t, 20_000, func() { r.face.Fail("ReadRaw", c.code) })
			var driver *DriverError
			if !errors.As(err, &driver) || driver.Code != c.code || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v", err)
			}
			if errors.Is(err, instrument.ErrDisconnected) != (c.is != nil) {
				t.Errorf("%v", err)
			}
			if n := len(out.Scans()); n != 10_000 {
				t.Errorf("%d scans, 10000 had come", n)
			}
			r.counted(t, out)
		})
	}
}

// A server that stops answering counts as lost after the silence that is set.
func TestSilence(t *testing.T) {
	t.Parallel()
	r := emulate(t, niface.Config{}, pace.Real(time.Now()))
	r.opts.Interval, r.opts.Silence = 10*time.Millisecond, 200*time.Millisecond
	r.make(t)
	r.open(t)
	_, err := r.stream(t, 1<<20, func() { r.face.Stall(0, 1<<30) })
	if !errors.Is(err, instrument.ErrDisconnected) {
		t.Errorf("%v", err)
	}
}

// A device whose clock stands still answers in time, with nothing.
func TestNoSamples(t *testing.T) {
	t.Parallel()
	r := emulate(t, niface.Config{}, pace.Pace{Epoch: time.Now(), Speed: 1e-6})
	r.opts.Interval, r.opts.Silence = 10*time.Millisecond, 300*time.Millisecond
	r.make(t)
	r.open(t)
	_, err := r.stream(t, 1<<20, nil)
	if !errors.Is(err, instrument.ErrDisconnected) || !errors.Is(err, instrument.ErrSilent) {
		t.Errorf("%v", err)
	}
}

func TestMisuse(t *testing.T) {
	r := emulate(t, niface.Config{})
	if err := r.dev.Stream(t.Context(), instrument.SinkOf(&montest.Collector{})); err == nil {
		t.Error("a stream of what is not open")
	}
	r.open(t)
	if err := r.dev.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "already open") {
		t.Error(err)
	}
	refused := errors.New("the disk is full")
	if err := r.dev.Stream(t.Context(), instrument.SinkOf(refusing{refused})); !errors.Is(err, refused) {
		t.Errorf("%v, want the sink's error", err)
	}
	for range 2 {
		if err := r.dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// refusing is a sink that takes nothing.
type refusing struct{ err error }

func (r refusing) Block(*measure.Block) error { return r.err }
func (r refusing) Event(measure.Event) error  { return r.err }

// The width of a raw sample is that of one input's code to some drivers, and that of a
// whole scan to others; another one is refused.
func TestRawDataWidth(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		for width := uint32(1); width <= 40; width++ {
			known := width == 2 || width == uint32(2*n)
			if width > 4 && width%2 != 0 && !known || width == 3 && n > 2 {
				continue // no converter has it
			}
			r := emulate(t, niface.Config{Width: width})
			r.opts.Inputs = r.opts.Inputs[:n]
			r.make(t)
			err := r.dev.Open(t.Context())
			switch {
			case known && err != nil:
				t.Errorf("%d inputs, %d bytes: %v", n, width, err)
			case !known && (!errors.Is(err, instrument.ErrIdentity) ||
				!strings.Contains(err.Error(), fmt.Sprintf("has %d bytes", width))):
				t.Errorf("%d inputs, %d bytes: %v", n, width, err)
			}
			if err := r.dev.Close(); err != nil {
				t.Error(err)
			}
			r.unplug()
		}
	}
}

// A converter of more bits is refused by its scale also where two inputs of 16 bits have
// as many bytes as one code of 32.
func TestFinerConverterIsRefused(t *testing.T) {
	for _, bits := range []int{18, 24, 32} {
		per := 10 * 1.05 / math.Exp2(float64(bits-1))
		if err := checkScale([]float64{0, per}, 10); !errors.Is(err, instrument.ErrIdentity) ||
			!strings.Contains(err.Error(), "16 bits") {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
	if err := checkScale([]float64{0, 10 * 1.05 / math.Exp2(15)}, 10); err != nil {
		t.Error(err)
	}
}

// A call that outlasts its time by far was broken off by this program's own sleep.
func TestOwnSleepIsNotTheServers(t *testing.T) {
	late := status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	if err := fault(t.Context(), late, nil, 14*time.Second); !errors.Is(err, instrument.ErrDisconnected) ||
		!strings.Contains(err.Error(), "this program was stopped") {
		t.Errorf("%v", err)
	}
	if err := fault(t.Context(), late, nil, 5*time.Millisecond); !errors.Is(err, instrument.ErrDisconnected) ||
		!strings.Contains(err.Error(), "does not answer") {
		t.Errorf("%v", err)
	}
}

// What the buffer loses is counted to the sample, once and again.
func TestExactLosses(t *testing.T) {
	// The buffer holds 10000 scans; a read is 500, and goes on at its middle.
	// The second stall comes on top of what the first has left behind.
	for _, late := range []uint64{0, 1, 5_000, 9_000, 9_999, 10_000, 10_001, 12_345, 100_000, 3_000_001} {
		r := emulate(t, niface.Config{Codes: numbered})
		r.open(t)
		r.face.Stall(7000, late)
		out, err := r.stream(t, 20_000, func() { r.face.Stall(0, late+17) })
		if err != nil {
			t.Fatal(err)
		}
		if lost := r.face.Skipped(); out.Lost() != lost || (lost > 0) != (late >= 9000) {
			t.Errorf("late by %d: %d told lost, %d were", late, out.Lost(), lost)
		}
		for _, e := range out.Events(measure.EventGap) {
			if !e.Exact {
				t.Errorf("%+v", e)
			}
		}
		if o, g := len(out.Events(measure.EventOverflow)), len(out.Events(measure.EventGap)); o != g {
			t.Errorf("%d overflows, %d gaps", o, g)
		}
		r.counted(t, out)
	}
}

// The same against the wall clock, with a read that really hangs.
func TestExactLossesInRealTime(t *testing.T) {
	t.Parallel()
	r := emulate(t, niface.Config{Codes: numbered}, pace.Real(time.Now()))
	r.opts.Interval, r.opts.Buffer = 20*time.Millisecond, 200*time.Millisecond
	r.make(t)
	r.open(t)
	out, err := r.stream(t, 4000, func() { r.face.Stall(0, 2500) })
	if err != nil {
		t.Fatal(err)
	}
	if lost := r.face.Skipped(); lost < 1000 || out.Lost() != lost {
		t.Errorf("%d told lost, %d were", out.Lost(), lost)
	}
	for _, e := range out.Events(measure.EventGap) {
		if !e.Exact {
			t.Errorf("%+v", e)
		}
	}
	r.counted(t, out)
}

// Another program that reads from the same session takes samples away: they are
// missing here, and counted.
func TestSamplesTakenByOthers(t *testing.T) {
	t.Parallel()
	r := emulate(t, niface.Config{Codes: numbered})
	r.open(t)
	var stolen uint64
	out, err := r.stream(t, 5000, func() {
		other, err := New("tcp:"+r.at, Defaults())
		if err == nil {
			err = other.connect(t.Context())
		}
		if err != nil {
			t.Error(err)
			return
		}
		defer other.server.Close()
		reply, err := other.api.ReadRaw(t.Context(), &nipb.ReadRawRequest{
			Task: &nipb.Session{Name: r.opts.Session}, NumSampsPerChan: 77, Timeout: 1, ArraySizeInBytes: 77 * 16,
		})
		if err != nil {
			t.Error(err)
		}
		stolen = uint64(reply.GetSampsRead())
	})
	if err != nil {
		t.Fatal(err)
	}
	if gaps := out.Events(measure.EventGap); stolen != 77 || len(gaps) != 1 || gaps[0].Scans != stolen ||
		!gaps[0].Exact {
		t.Errorf("%d taken, %+v", stolen, gaps)
	}
	r.counted(t, out)
}

// Samples that are late come later; nothing is lost or twice.
func TestSamplesNotYetAvailable(t *testing.T) {
	r := emulate(t, niface.Config{Codes: numbered})
	r.open(t)
	r.face.Late(3000)
	out, err := r.stream(t, 10_000, func() { r.face.Late(0) })
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Events(0)) != 0 {
		t.Errorf("%+v", out.Events(0))
	}
	r.counted(t, out)
}

// A device that has stopped is started again; the gap says that it is estimated.
func TestRestartsAreEstimated(t *testing.T) {
	for name, c := range map[string]struct {
		fixed  bool
		break_ func(*rig)
		exact  uint64 // scans that the device really missed, at least
	}{
		"its own memory overflowed":  {false, func(r *rig) { r.face.Fail("ReadRaw", fifoOverflow) }, 1},
		"reads that cannot be moved": {true, func(r *rig) { r.face.Stall(0, 1500) }, 1500},
		"moving the reads is refused": {
			false,
			func(r *rig) { r.face.Stall(0, 1500); r.face.Fail("SetReadAttributeInt32", -200557) }, 1500,
		},
		"the position is not told": {
			false,
			func(r *rig) { r.face.Stall(0, 1500); r.face.Fail("GetReadAttributeUInt64", -200233) }, 1500,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := piped(t, niface.Config{Codes: numbered, Fixed: c.fixed})
				r.opts.Interval, r.opts.Buffer = 20*time.Millisecond, 200*time.Millisecond
				r.make(t)
				r.open(t)
				before := time.Time{}
				out, err := r.stream(t, 4000, func() { before = time.Now(); c.break_(r) })
				if err != nil {
					t.Fatal(err)
				}
				gaps := out.Events(measure.EventGap)
				if len(gaps) != 1 || gaps[0].Exact || len(out.Events(measure.EventOverflow)) != 1 {
					t.Fatalf("%+v", out.Events(0))
				}
				// The gap is what the host's clock tells.
				most := uint64(time.Since(before).Seconds() * r.opts.Rate)
				if gaps[0].Scans < c.exact || gaps[0].Scans > most {
					t.Errorf("%d scans missing, between %d and %d are", gaps[0].Scans, c.exact, most)
				}
				// What came after is the new start's, scan by scan.
				zero := gaps[0].FirstScan + gaps[0].Scans
				counts := out.Counts(0)
				for i, scan := range out.Scans() {
					want := numbered(0, scan)
					if scan >= zero {
						want = numbered(0, scan-zero)
					}
					if counts[i] != measure.Count(want) {
						t.Fatalf("scan %d: %d, want %d", scan, counts[i], want)
					}
				}
			})
		})
	}
}

// A stream that ends brings what the read in progress holds.
func TestTheTailIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		epoch := time.Now()
		r := piped(t, niface.Config{Codes: numbered})
		r.open(t)
		in := r.dev.Inputs()
		out := &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := time.Duration(0)
		err := r.dev.Stream(ctx, instrument.SinkOf(&until{Collector: out, n: 1000, stop: sync.OnceFunc(func() {
			time.AfterFunc(30*time.Millisecond, func() { ended = time.Since(epoch); cancel() })
		})}))
		if err != nil {
			t.Fatal(err)
		}
		last := r.face.StreamStart() + time.Duration(float64(len(out.Scans()))/r.opts.Rate*1e9)
		if last < ended {
			t.Errorf("samples up to %v, the stream was ended at %v", last, ended)
		}
		r.counted(t, out)
	})
}

package nidaqmx

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	niface "github.com/wattmark/wattmark/monitor/emulator/nidaqmx"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// placed checks that every scan of a channel has the value that the board had
// when that channel was converted.
func (r *rig) placed(t *testing.T, out *montest.Collector) {
	t.Helper()
	in := r.dev.Inputs()
	for c := range in.Channels {
		counts, ch := out.Counts(c), in.Channels[c]
		for i, scan := range out.Scans() {
			at := r.face.StreamStart() +
				time.Duration(math.Round(1e9*(float64(scan)/float64(in.Timebase.TickHz)+float64(ch.Skew))))
			rail := r.board.At(at)[railOf(r.board, rails[c/2])]
			want, most := float64(rail.V), 2e-3
			if ch.Unit == measure.UnitAmpere {
				want, most = float64(rail.I), 5e-3
			}
			if got := ch.Value(counts[i]); math.Abs(got-want) > most {
				t.Fatalf("%s at scan %d: %v, the board had %v", ch.Name, scan, got, want)
			}
		}
	}
}

func TestMeasuresAndIsPlaced(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]float64{
		"padded conversions": 5000, "even conversions": 100_000,
		"a rate to be divided": 7777,
	} {
		t.Run(name, func(t *testing.T) {
			r := emulate(t, niface.Config{Noise: -1})
			r.opts.Rate = rate
			r.make(t)
			r.open(t)
			if id := r.dev.Identity(); id.Model != "USB-6259" || id.Serial != "1A2B3C0" ||
				id.Firmware != "NI-DAQmx 24.5" {
				t.Errorf("%+v", id)
			}
			skew := 11e-6
			if rate == 100_000 {
				skew = 1.25e-6
			}
			in := r.dev.Inputs()
			if got := float64(in.Channels[7].Skew); math.Abs(got-7*skew) > 1e-12 {
				t.Errorf("the last of eight inputs is %v s late, want %v", got, 7*skew)
			}
			if got, want := float64(in.Timebase.TickHz), 20e6/math.Round(20e6/rate); math.Abs(got-want) > 1e-6 {
				t.Errorf("%v scans a second, the clock gives %v", got, want)
			}
			for range 2 { // a second stream begins anew
				out, err := r.stream(t, 20_000, nil)
				if err != nil {
					t.Fatal(err)
				}
				if out.Lost() != 0 || len(out.Events(0)) != 0 {
					t.Errorf("%+v", out.Events(0))
				}
				r.placed(t, out)
			}
		})
	}
}

// Simultaneous converters have no skew.
func TestSimultaneousSampling(t *testing.T) {
	r := emulate(t, niface.Config{Noise: -1, Simultaneous: true, Product: "USB-6356"})
	r.open(t)
	for _, c := range r.dev.Inputs().Channels {
		if c.Skew != 0 {
			t.Errorf("%s: skew %v", c.Name, c.Skew)
		}
	}
	out, err := r.stream(t, 2000, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.placed(t, out)
}

// The energy lies within its uncertainty, with a device that is off by as much as
// the driver states.
func TestEnergyWithinItsUncertainty(t *testing.T) {
	inside := 0
	const seeds = 5
	for seed := range uint64(seeds) {
		r := emulate(t, niface.Config{Seed: seed, Draw: true})
		r.open(t)
		out, err := r.stream(t, 40_000, nil)
		if err != nil {
			t.Fatal(err)
		}
		in := r.dev.Inputs()
		setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
		setup.Rails, setup.Missing = instrument.NaturalRails(in)
		got := montest.Energy(t, &setup, out, 0.1, 7.9)
		start := r.face.StreamStart()
		want, err := r.board.Energy(start+100*time.Millisecond, start+7900*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v ± %v, injected %v", got.Energy, got.U, want.Total)
		miss := math.Abs(float64(got.Energy - want.Total))
		if miss <= float64(got.U) {
			inside++
		}
		if miss > 2*float64(got.U) || got.U > 2e-3*got.Energy {
			t.Errorf("%v ± %v, injected %v", got.Energy, got.U, want.Total)
		}
	}
	if inside < seeds-1 {
		t.Errorf("%d of %d lie within U", inside, seeds)
	}
}

// A signal beyond the range stands at the end of the codes, and is told as such.
func TestOverRange(t *testing.T) {
	r := emulate(t, niface.Config{})
	r.opts.Inputs[1].Range = 0.1 // the clamp gives some volts
	r.make(t)
	r.open(t)
	out, err := r.stream(t, 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	for c, ch := range r.dev.Inputs().Channels {
		for i, n := range out.Counts(c) {
			if ch.OverRange(n) != (c == 1) {
				t.Fatalf("%s, scan %d: code %d over range?", ch.Name, i, n)
			}
		}
	}
}

func TestUnplugAndReplug(t *testing.T) {
	t.Parallel()
	for name, pull := range map[string]struct{ off, on func(*testing.T, *rig) }{
		"the server ends and comes back": {
			func(_ *testing.T, r *rig) { r.unplug() },
			func(t *testing.T, r *rig) { r.plug(t, r.at) },
		},
		"the connection breaks": {
			func(_ *testing.T, r *rig) { r.line.cut() }, nil,
		},
		"the device is pulled": {
			func(_ *testing.T, r *rig) { r.face.Unplug(true) },
			func(_ *testing.T, r *rig) { r.face.Unplug(false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := emulate(t, niface.Config{Codes: numbered}, pace.Real(time.Now()))
			for range 3 {
				r.open(t)
				off := make(chan struct{})
				_, err := r.stream(t, 2000, func() { go func() { defer close(off); pull.off(t, r) }() })
				if err != nil && !errors.Is(err, instrument.ErrDisconnected) {
					t.Fatalf("%v, want ErrDisconnected", err)
				}
				<-off
				if err := r.dev.Close(); err != nil {
					t.Fatal(err)
				}
				if pull.on == nil {
					continue
				}
				if err := r.dev.Open(t.Context()); !errors.Is(err, instrument.ErrDisconnected) {
					t.Fatalf("Open of what is gone: %v", err)
				}
				pull.on(t, r)
			}
			// It goes on.
			r.open(t)
			out, err := r.stream(t, 2000, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.counted(t, out)
		})
	}
}

// A session that is there is somebody's: it is taken over only where told to.
func TestSessionsOfOthers(t *testing.T) {
	r := emulate(t, niface.Config{Codes: numbered})
	r.open(t) // the program that crashed: it never closes
	r.make(t)
	err := r.dev.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), `session "wattmark" exists`) ||
		!strings.Contains(err.Error(), "take_over: true") {
		t.Fatalf("%v", err)
	}
	if errors.Is(err, instrument.ErrIdentity) {
		t.Error("waiting for the other to end is worth it")
	}
	r.opts.TakeOver = true
	r.make(t)
	r.open(t)
	if out, err := r.stream(t, 1000, nil); err != nil || len(out.Scans()) < 1000 {
		t.Errorf("%d scans, %v", len(out.Scans()), err)
	}
	if n := r.face.Sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if err := r.dev.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.face.Sessions(); n != 0 {
		t.Errorf("%d sessions after Close", n)
	}
}

// A session that could not be cleared when it was closed is ours: it is cleared
// when the device is opened again, without being told to.
func TestOwnSessionIsCleared(t *testing.T) {
	r := emulate(t, niface.Config{Codes: numbered})
	r.open(t)
	r.face.Fail("ClearTask", invalidValue)
	if err := r.dev.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.face.Sessions(); n != 1 {
		t.Fatalf("%d sessions: one was to be left", n)
	}
	r.open(t)
	if out, err := r.stream(t, 1000, nil); err != nil || len(out.Scans()) < 1000 {
		t.Errorf("%d scans, %v", len(out.Scans()), err)
	}
}

// A program that was taken over learns it at once: its samples would be another
// task's. It leaves the other alone.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	r := emulate(t, niface.Config{Codes: numbered}, pace.Real(time.Now()))
	r.open(t)
	first := r.dev
	r.opts.TakeOver = true
	other, err := New("tcp:"+r.at, r.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	_, err = r.stream(t, 1<<20, func() {
		if err := other.Open(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, instrument.ErrDisconnected) || !strings.Contains(err.Error(), "another program") {
		t.Fatalf("%v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.face.Sessions(); n != 1 {
		t.Errorf("%d sessions: the other's was to stay", n)
	}
	if err := first.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "take_over") {
		t.Errorf("%v", err)
	}
}

func TestCycles(t *testing.T) {
	r := emulate(t, niface.Config{})
	montest.Cycles(t, r.dev, 1000)
}

type rig struct {
	board  *board.Board
	face   *niface.Face
	opts   Options
	dev    *Device
	at     string
	line   *breakable
	unplug func() // ends the server
	dial   dialer // other than TCP's, or nil
}

// rails are on the face's inputs in this order.
var rails = []string{"aux_12v_1", "pcie_3v3", "pcie_12v", "aux_12v_2"}

// emulate puts an emulated server on a TCP port of this machine.
func emulate(t *testing.T, cfg niface.Config, paces ...pace.Pace) *rig {
	t.Helper()
	r := build(t, cfg, append(paces, pace.Pace{})[0])
	r.plug(t, "127.0.0.1:0")
	r.make(t)
	return r
}

// piped puts an emulated server, at the pace of the clock, behind a pipe of this process, for tests in
// virtual time.
func piped(t *testing.T, cfg niface.Config) *rig {
	t.Helper()
	r := build(t, cfg, pace.Real(time.Now()))
	l := bufconn.Listen(1 << 20)
	r.dial = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	r.serve(t, l)
	r.at = "piped:1"
	r.make(t)
	return r
}

// build makes an emulated device with rails on its inputs.
func build(t *testing.T, cfg niface.Config, p pace.Pace) *rig {
	t.Helper()
	r := &rig{opts: Defaults()}
	var err error
	if r.board, err = board.New(board.Config{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	loads := []load.State{load.Compute, load.Sleep, load.Memory, load.ActiveIdle, load.Half}
	for i := range 100 {
		if _, err := r.board.SetLoad(time.Duration(i)*137*time.Millisecond, loads[i%len(loads)]); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Rails = rails
	if r.face, err = niface.New(r.board, p, cfg); err != nil {
		t.Fatal(err)
	}
	r.opts.Inputs = nil
	for k, name := range rails {
		r.opts.Inputs = append(r.opts.Inputs,
			Input{AI: 2 * k, Name: name + ".voltage", PerVolt: meter.Divider, Terminal: "differential"},
			Input{AI: 2*k + 1, Name: name + ".current", Unit: "A", PerVolt: meter.PerVolt, Range: 5})
	}
	r.opts.Rate, r.opts.Buffer = 5000, 2*time.Second
	return r
}

// make makes the driver anew, with the rig's options.
func (r *rig) make(t *testing.T) {
	t.Helper()
	var err error
	if r.dev, err = New("tcp:"+r.at, r.opts); err != nil {
		t.Fatal(err)
	}
	dev := r.dev
	if r.dial != nil {
		dev.dial = r.dial
	}
	t.Cleanup(func() { _ = dev.Close() })
}

func (r *rig) open(t *testing.T) {
	t.Helper()
	if err := r.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// plug starts the server.
func (r *rig) plug(t *testing.T, at string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	r.at = l.Addr().String()
	r.line = &breakable{Listener: l}
	r.serve(t, r.line)
}

// breakable is a listener whose connections can be cut.
type breakable struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

// Accept remembers each connection.
func (b *breakable) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.conns = append(b.conns, c)
	}
	return c, err
}

// cut breaks all connections. The server goes on.
func (b *breakable) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		_ = c.Close()
	}
	b.conns = nil
}

// serve serves the device on a listener.
func (r *rig) serve(t *testing.T, l net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.face.Serve(ctx, l) }()
	r.unplug = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ends with %v", err)
		}
	})
	t.Cleanup(r.unplug)
}

// until stops a stream after n scans; halfway it calls then.
type until struct {
	*montest.Collector
	n    int
	then func()
	stop func()
	seen int
}

func (u *until) Block(b *measure.Block) error {
	if err := u.Collector.Block(b); err != nil {
		return err
	}
	u.seen += b.Scans()
	if u.then != nil && u.seen >= min(u.n/2, 10_000) {
		u.then()
		u.then = nil
	}
	if u.seen >= u.n {
		u.stop()
	}
	return nil
}

func (r *rig) stream(t *testing.T, n int, then func()) (*montest.Collector, error) {
	t.Helper()
	in := r.dev.Inputs()
	out := &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := r.dev.Stream(ctx, instrument.SinkOf(&until{Collector: out, n: n, then: then, stop: cancel}))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatalf("%d of %d scans in 20 s", len(out.Scans()), n)
	}
	return out, err
}

func railOf(b *board.Board, name string) int {
	for k, r := range b.Rails() {
		if r.Name == name {
			return k
		}
	}
	return -1
}

// numbered is a converter that gives the number of the sample, so that any that
// is lost or misplaced is seen.
func numbered(ai int, sample uint64) int16 { return int16(sample + 1000*uint64(ai)) }

// counted checks that every scan is the one that its index says.
func (r *rig) counted(t *testing.T, out *montest.Collector) {
	t.Helper()
	for c := range r.opts.Inputs {
		counts := out.Counts(c)
		for i, scan := range out.Scans() {
			if want := measure.Count(numbered(r.opts.Inputs[c].AI, scan)); counts[i] != want {
				t.Fatalf("input %d, scan %d: %d, want %d", c, scan, counts[i], want)
			}
		}
	}
}

//go:build linux

package rigol

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/fault"
	"wattmark/monitor/emulator/rigolface"
	"wattmark/monitor/emulator/scpiface"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/insttest"
)

// scope is an emulated scope on a board whose time is the wall clock's.
type scope struct {
	*rigolface.Face
	board   *board.Board
	address string
}

func newScope(t *testing.T, cfg rigolface.Config, fragment int) *scope {
	t.Helper()
	b, err := board.New(board.Config{Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	loads := []board.Load{board.Compute, board.Sleep, board.Memory, board.ActiveIdle, board.Half}
	for i := range 1000 {
		if _, err := b.SetLoad(time.Duration(i)*7*time.Millisecond, loads[i%len(loads)]); err != nil {
			t.Fatal(err)
		}
	}
	if cfg.Now == nil {
		epoch := time.Now()
		cfg.Now = func() time.Duration { return time.Since(epoch) }
	}
	f, err := rigolface.New(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- f.Serve(ctx, l, func(c net.Conn) io.ReadWriteCloser {
			return fault.New(c, fault.Faults{Seed: 1, Fragment: fragment})
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &scope{f, b, "tcp:" + l.Addr().String()}
}

// options are two rails with a clamp of 10 mV/A and a probe each.
func options(window time.Duration, depth int) Options {
	clamp := Input{Scale: 0.05, Offset: -0.1, AmperePerVolt: 100}
	volts := Input{Scale: 0.5, Offset: -12}
	return Options{
		Window: window, Depth: depth, Timeout: 400 * time.Millisecond,
		Inputs: map[string]Input{"ch1": clamp, "ch2": volts, "ch3": clamp, "ch4": volts},
	}
}

// taker keeps what is delivered, and stops the instrument some time after it armed.
type taker struct {
	*insttest.Collector
	stop     func()
	after    time.Duration
	armed    int
	progress uint64
	refuse   bool
	onArmed  func()
	blocks   []measure.Block
}

func (k *taker) Block(b *measure.Block) error {
	if k.refuse {
		return errRefused
	}
	c := b.Slice(k.Timebase, 0, b.Scans())
	for i := range c.Counts {
		c.Counts[i] = append([]measure.Count(nil), c.Counts[i]...)
	}
	k.blocks = append(k.blocks, c)
	return k.Collector.Block(b)
}

var errRefused = errors.New("refused")

func (k *taker) Armed(time.Time) error {
	k.armed++
	time.AfterFunc(k.after, k.stop)
	if k.onArmed != nil {
		k.onArmed()
	}
	return nil
}

func (k *taker) Progress(done, total uint64) { k.progress = done }

// take opens a driver and lets it record for a time.
func take(t *testing.T, s *scope, o Options, d time.Duration, change func(*Device, *taker)) (*taker, instrument.Inputs, *Device, error) {
	t.Helper()
	dev, err := New(s.address, o)
	if err != nil {
		t.Fatal(err)
	}
	dev.poll = 10 * time.Millisecond
	if err := dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in := dev.Inputs()
	k := &taker{Collector: &insttest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}, stop: cancel, after: d}
	if change != nil {
		change(dev, k)
	}
	err = dev.Stream(ctx, k)
	return k, in, dev, err
}

func energy(t *testing.T, k *taker, in instrument.Inputs, from, to measure.Seconds) measure.Result {
	t.Helper()
	rails, missing := NaturalRails(in)
	setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Rails: rails, Missing: missing}
	if err := setup.Validate(); err != nil || len(rails) != 2 {
		t.Fatalf("%d rails, %v", len(rails), err)
	}
	g, err := measure.NewIntegrator(&setup, from, to)
	if err != nil {
		t.Fatal(err)
	}
	for i := range k.blocks {
		if err := g.Add(&k.blocks[i]); err != nil {
			t.Fatal(err)
		}
	}
	r, err := g.Result(measure.Edges{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// truth is what the two rails drew.
func (s *scope) truth(t *testing.T, from, to measure.Seconds) measure.Joule {
	t.Helper()
	e, err := s.board.Energy(s.Begin()+from.Duration(), s.Begin()+to.Duration())
	if err != nil {
		t.Fatal(err)
	}
	return e.Rails[2] + e.Rails[3]
}

func TestEnergyOfAKnownLoad(t *testing.T) {
	s := newScope(t, rigolface.Config{Seed: 1}, 0)
	k, in, dev, err := take(t, s, options(600*time.Millisecond, 300_000), 500*time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := in.Timebase.SampleRate(); math.Abs(float64(got)/500e3-1) > 1e-6 {
		t.Errorf("%v S/s", got)
	}
	n := len(k.Scans())
	if n < 240_000 || n >= 300_000 || k.progress != uint64(n) || k.armed != 1 || k.Lost() != 0 {
		t.Errorf("%d scans of 0.5 s, progress %d, armed %d, lost %d", n, k.progress, k.armed, k.Lost())
	}
	from, to := measure.Seconds(0.01), measure.Seconds(0.45)
	r, want := energy(t, k, in, from, to), s.truth(t, from, to)
	rel := float64(r.Total.Energy/want) - 1
	t.Logf("%+.3f %% of %v, stated ± %v (k = 2); %d scans; %+v", 100*rel, want, r.Total.U, n, dev.Stats())
	if math.Abs(rel) > 3e-3 {
		t.Errorf("%v measured, %v drawn: %+.3f %%", r.Total.Energy, want, 100*rel)
	}
}

// Scopes whose errors lie within their specification: the energy lies within
// the stated uncertainty.
func TestStatedUncertainty(t *testing.T) {
	const scopes = 16
	outside := 0
	for seed := range uint64(scopes) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := rigolface.Config{Seed: seed, Clock: clockLimit * (2*rng.Float64() - 1)}
		for i := range cfg.Gain {
			cfg.Gain[i], cfg.Zero[i] = gainLimit*(2*rng.Float64()-1), zeroLimit*(2*rng.Float64()-1)
		}
		s := newScope(t, cfg, 0)
		k, in, dev, err := take(t, s, options(60*time.Millisecond, 3000), 70*time.Millisecond, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = dev.Close()
		from, to := measure.Seconds(0.002), measure.Seconds(0.058)
		r, want := energy(t, k, in, from, to), s.truth(t, from, to)
		if math.Abs(float64(r.Total.Energy-want)) > float64(r.Total.U) {
			outside++
			t.Logf("seed %d: %v ± %v, drawn %v", seed, r.Total.Energy, r.Total.U, want)
		}
	}
	// At 95 %, more than three of sixteen outside happens once in a thousand times.
	if outside > 3 {
		t.Errorf("%d of %d outside of the stated uncertainty", outside, scopes)
	}
}

// A capture longer than memory holds its first points and says what it misses.
func TestACaptureLongerThanMemory(t *testing.T) {
	s := newScope(t, rigolface.Config{}, 0)
	begin := time.Now()
	k, _, _, err := take(t, s, options(60*time.Millisecond, 3000), 400*time.Millisecond, nil)
	took := time.Since(begin).Seconds()
	if err != nil || len(k.Scans()) != 3000 {
		t.Fatalf("%d scans, %v", len(k.Scans()), err)
	}
	gaps := k.Events(measure.EventGap)
	if len(gaps) != 1 || gaps[0].FirstScan != 3000 || !strings.Contains(gaps[0].Detail, "longer window") {
		t.Fatalf("%+v", gaps)
	}
	const rate = 50_000
	if lost := float64(k.Lost()); lost < 0.33*rate || lost > took*rate {
		t.Errorf("%v scans lost of 0.34 s", lost)
	}
}

// Every fault of the line is mended: not a scan is lost, not one is invented.
func TestFaults(t *testing.T) {
	data := func(k scpiface.Kind) *scpiface.Fault {
		return &scpiface.Fault{Kind: k, Match: ":WAV:DATA?", Skip: 1, Bytes: 700, Text: "beep\n", For: 500 * time.Millisecond}
	}
	for name, c := range map[string]struct {
		fault    *scpiface.Fault
		fragment int
	}{
		"byte by byte":                   {fragment: 1},
		"truncated block":                {fault: data(scpiface.Truncate)},
		"no reply":                       {fault: data(scpiface.Mute)},
		"late reply":                     {fault: data(scpiface.Late)},
		"unsolicited text":               {fault: data(scpiface.Unsolicited)},
		"junk behind a block":            {fault: data(scpiface.Junk)},
		"cable pulled while it delivers": {fault: data(scpiface.Hangup)},
		"cable pulled while it samples":  {fault: &scpiface.Fault{Kind: scpiface.Hangup, Match: ":TRIG:STAT?", Skip: 5}},
		"two replies lost":               {fault: &scpiface.Fault{Kind: scpiface.Mute, Match: ":WAV:DATA?", Times: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(t, rigolface.Config{}, c.fragment)
			k, in, dev, err := take(t, s, options(60*time.Millisecond, 3000), 120*time.Millisecond, func(*Device, *taker) {
				if c.fault != nil {
					s.Inject(*c.fault)
				}
			})
			if err != nil || len(k.Scans()) != 3000 || s.Pending() != 0 {
				t.Fatalf("%d scans, %d faults to come, %v", len(k.Scans()), s.Pending(), err)
			}
			r, want := energy(t, k, in, 0.002, 0.058), s.truth(t, 0.002, 0.058)
			if rel := float64(r.Total.Energy/want) - 1; math.Abs(rel) > 0.02 {
				t.Errorf("%+.2f %% (%+v)", 100*rel, dev.Stats())
			}
		})
	}
}

func TestWhatCannotBeMended(t *testing.T) {
	short := options(60*time.Millisecond, 3000)
	other := func(s *scope) { s.SetIdentity("RIGOL TECHNOLOGIES,DS1054Z,ANOTHER,1") }
	for name, c := range map[string]struct {
		during func(s *scope)
		refuse bool
		want   error
		says   string
	}{
		"another scope at the address": {func(s *scope) {
			s.Inject(scpiface.Fault{Kind: scpiface.Hangup, Match: ":TRIG:STAT?", Skip: 1})
			other(s)
		}, false, instrument.ErrIdentity, "ANOTHER"},
		"switched off and on": {func(s *scope) { s.Do(func() {}); reset(s) }, false, nil, "switched off"},
		"the sink has enough": {nil, true, errRefused, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(t, rigolface.Config{}, 0)
			_, _, _, err := take(t, s, short, 200*time.Millisecond, func(d *Device, k *taker) {
				k.refuse = c.refuse
				if c.during != nil {
					k.onArmed = func() { c.during(s) }
				}
			})
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// reset sends *RST as another client, which no lock keeps out.
func reset(s *scope) {
	c, err := net.Dial("tcp", strings.TrimPrefix(s.address, "tcp:"))
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write([]byte("*RST;*OPC?\n"))
	_, _ = c.Read(make([]byte, 8))
}

func TestRefusedScopes(t *testing.T) {
	s := newScope(t, rigolface.Config{Model: "DS2072A"}, 0)
	d, err := New(s.address, options(time.Second, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Open(t.Context()); !errors.Is(err, instrument.ErrIdentity) || !strings.Contains(err.Error(), "DS2072A") {
		t.Errorf("got %v", err)
	}
	for m, want := range map[string]bool{"DS1054Z": true, "MSO1104Z-S": true, "ds1074z": true, "DS1102E": false, "DHO804": false, "": false, "DS1": false} {
		if ds1000z(m) != want {
			t.Errorf("%s: %v", m, !want)
		}
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Window = 0 },
		func(o *Options) { o.Depth = 12345 },
		func(o *Options) { o.Timeout = 0 },
		func(o *Options) { o.Inputs = nil },
		func(o *Options) { o.Inputs = map[string]Input{"ch5": {Scale: 1}} },
		func(o *Options) { o.Inputs = map[string]Input{"ch1": {Scale: 100}} },
		func(o *Options) { o.Inputs = map[string]Input{"ch1": {Scale: 1, Offset: 1000}} },
		func(o *Options) { o.Inputs = map[string]Input{"ch1": {Scale: 1, Probe: -1}} },
		func(o *Options) { o.Inputs = map[string]Input{"ch1": {Scale: 1, AmperePerVolt: math.NaN()}} },
	} {
		o := options(time.Second, 0)
		change(&o)
		if _, err := New(s.address, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	bad := options(time.Second, 0) // allowed at a large scale only: the scope itself refuses it
	bad.Inputs["ch1"] = Input{Scale: 0.01, Offset: 50}
	if d, err = New(s.address, bad); err != nil {
		t.Fatal(err)
	}
	s.SetIdentity("RIGOL TECHNOLOGIES,DS1054Z,1,1")
	if err := d.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "-222") {
		t.Errorf("got %v", err)
	}
}

func TestWindows(t *testing.T) {
	for w, want := range map[time.Duration]float64{
		6 * time.Second: 0.5, 6001 * time.Millisecond: 1, 12 * time.Second: 1, 600 * time.Millisecond: 0.05,
		24 * time.Second: 2, time.Microsecond: 1e-7, 10 * time.Minute: 50,
	} {
		if got := timeScale(w); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%v gives %v s a division, want %v", w, got, want)
		}
	}
}

func TestOverRangeIsSeen(t *testing.T) {
	s := newScope(t, rigolface.Config{}, 0)
	o := options(60*time.Millisecond, 3000)
	o.Inputs["ch2"] = Input{Scale: 0.5} // 12 V lie far above 2 V
	k, in, _, err := take(t, s, o, 100*time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range k.Counts(1) {
		if !in.Channels[1].OverRange(n) {
			t.Fatalf("count %d", n)
		}
	}
}

func TestNothingLeaks(t *testing.T) {
	s := newScope(t, rigolface.Config{}, 0)
	d, err := New(s.address, options(60*time.Millisecond, 3000))
	if err != nil {
		t.Fatal(err)
	}
	d.quick()
	descriptors := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc here")
		}
		return len(fds)
	}
	cycle := func() {
		if err := d.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	fds, routines := descriptors(), runtime.NumGoroutine()
	cycles := 1000
	if testing.Short() {
		cycles = 100
	}
	for range cycles {
		cycle()
	}
	for _, c := range []struct {
		what  string
		count func() int
		goal  int
	}{{"goroutines", runtime.NumGoroutine, routines}, {"descriptors", descriptors, fds}} {
		for end := time.Now().Add(2 * time.Second); c.count() > c.goal+2 && time.Now().Before(end); {
			runtime.Gosched()
		}
		if n := c.count(); n > c.goal+2 {
			t.Errorf("%d %s, %d before", n, c.what, c.goal)
		}
	}
}

package scope_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	scopeface "github.com/wattmark/wattmark/monitor/emulator/scope"
	scpiface "github.com/wattmark/wattmark/monitor/emulator/scpi"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// Face is an emulated scope.
type Face interface {
	Serve(ctx context.Context, l net.Listener, wrap func(net.Conn) io.ReadWriteCloser) error
	Inject(f scpiface.Fault)
	Pending() int
	SetIdentity(s string)
	Begin() time.Duration
}

// Bench is an emulated scope on a board whose time is the wall clock's and whose
// load changes every 7 ms, listening on a socket.
type Bench struct {
	Face
	Address string
	board   *board.Board
}

// bench serves a face of the suite until the test ends.
func (s *Suite) bench(t *testing.T, cfg scopeface.Config, fragment int) *Bench {
	t.Helper()
	b, err := board.New(board.Config{Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	loads := []load.State{load.Compute, load.Sleep, load.Memory, load.ActiveIdle, load.Half}
	for i := range 1000 {
		if _, err := b.SetLoad(time.Duration(i)*7*time.Millisecond, loads[i%len(loads)]); err != nil {
			t.Fatal(err)
		}
	}
	if cfg.Now == nil {
		epoch := time.Now()
		cfg.Now = func() time.Duration { return time.Since(epoch) }
	}
	f, err := s.New(b, cfg)
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
	return &Bench{f, "tcp:" + l.Addr().String(), b}
}

// taker keeps the samples, and stops the instrument some time after it armed.
type taker struct {
	*montest.Collector
	stop     func()
	after    time.Duration
	armed    int
	at       time.Time // when it armed
	stopped  time.Time // just before its stop
	progress uint64
	refuse   bool
	onArmed  func()
	unwanted chan struct{} // nil for never
	blocks   []measure.Block
}

// errRefused is the error of a sink that has enough.
var errRefused = errors.New("refused")

// Block keeps a copy of the block beside the checks of the Collector.
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

// Armed lets the recording last, from a timer's goroutine: stopped is read behind
// Stream, which ends only after it.
func (k *taker) Armed(at time.Time) error {
	k.armed++
	k.at = at
	time.AfterFunc(k.after, func() {
		k.stopped = time.Now()
		k.stop()
	})
	if k.onArmed != nil {
		k.onArmed()
	}
	return nil
}

// Progress keeps the newest progress.
func (k *taker) Progress(done, _ uint64) { k.progress = done }

// sink is the taker as the scope sees it.
func (k *taker) sink() instrument.Sink {
	return instrument.Sink{Block: k.Block, Event: k.Event, Armed: k.Armed, Progress: k.Progress, Unwanted: k.unwanted}
}

// device makes a driver that polls quickly.
func (s *Suite) device(t *testing.T, address string, o scope.Options) *scope.Device {
	t.Helper()
	d, err := scope.New(scope.Config{Family: s.Family, Address: address, Options: o, Poll: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// take opens a driver and lets it record for a time.
func (s *Suite) take(t *testing.T, b *Bench, o scope.Options, d time.Duration, change func(*taker)) (*taker,
	*scope.Device, error,
) {
	t.Helper()
	dev := s.device(t, b.Address, o)
	if err := dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in := dev.Inputs()
	k := &taker{
		Collector: &montest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}, stop: cancel,
		after: d,
	}
	if change != nil {
		change(k)
	}
	err := dev.Stream(ctx, k.sink())
	return k, dev, err
}

// energy integrates the blocks between two instants of the recording.
func energy(t *testing.T, k *taker, in instrument.Inputs, from, to measure.Seconds) measure.Result {
	t.Helper()
	rails, missing := scope.NaturalRails(in)
	setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Rails: rails, Missing: missing}
	if err := setup.Validate(); err != nil || len(rails) != len(in.Channels)/2 {
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

// truth is the energy of the probed rails: the board's last two, its last but one
// where there are two channels.
func (b *Bench) truth(t *testing.T, channels int, from, to measure.Seconds) (sum measure.Joule) {
	t.Helper()
	e, err := b.board.Energy(b.Begin()+from.Duration(), b.Begin()+to.Duration())
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range e.Rails[len(e.Rails)-2:][:channels/2] {
		sum += j
	}
	return sum
}

// other sends a message as another client, which no lock keeps out.
func (b *Bench) other(message string) {
	c, err := net.Dial("tcp", strings.TrimPrefix(b.Address, "tcp:"))
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write([]byte(message + ";*OPC?\n"))
	_, _ = c.Read(make([]byte, 8))
}

// stopped: the losses of a scope that is stopped at its front panel are reported.
func (s *Suite) stopped(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	pressed := make(chan time.Time, 1)
	k, dev, err := s.take(t, b, s.options(600*time.Millisecond, s.Shallow), 300*time.Millisecond, func(k *taker) {
		k.onArmed = func() {
			time.AfterFunc(100*time.Millisecond, func() { b.other(s.Stop); pressed <- time.Now() })
		}
	})
	if s.Family.Whole { // its contents are unknown then
		if !errors.Is(err, scpi.ErrInstrument) || !strings.Contains(err.Error(), "front panel") || len(k.Scans()) > 0 {
			t.Errorf("%d scans, %v", len(k.Scans()), err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	n, rate := len(k.Scans()), float64(dev.Inputs().Timebase.SampleRate())
	gaps := k.Events(measure.EventGap)
	if len(gaps) != 1 || gaps[0].FirstScan != uint64(n) || !strings.Contains(gaps[0].Detail, "front panel") {
		t.Fatalf("%d scans, %+v", n, gaps)
	}
	if took, most := window(dev.Inputs(), n), (<-pressed).Sub(k.at).Seconds()+0.01; took < 0.05 || float64(took) > most {
		t.Errorf("%v of %v s", took, most)
	}
	if due := float64(n) + float64(k.Lost()); due < k.stopped.Sub(k.at).Seconds()*rate-1 {
		t.Errorf("%v scans held and lost of %v", due, k.stopped.Sub(k.at))
	}
}

// Once takes one recording that fills a shallow memory, which must be whole.
func (s *Suite) Once(t *testing.T) { s.mended(t, nil, 0) }

// mended takes a recording in spite of a fault: not a scan is lost, not one is
// invented.
func (s *Suite) mended(t *testing.T, fault *scpiface.Fault, fragment int) {
	b := s.bench(t, scopeface.Config{}, fragment)
	o := s.options(60*time.Millisecond, s.Shallow)
	if fault != nil && slices.Contains([]scpiface.Kind{scpiface.Truncate, scpiface.Header, scpiface.Mute, scpiface.Late}, fault.Kind) {
		o.Timeout = 600 * time.Millisecond // it is waited for; shorter than a reply is late
	}
	k, dev, err := s.take(t, b, o, 130*time.Millisecond, func(*taker) {
		if fault != nil {
			b.Inject(*fault)
		}
	})
	if err != nil || b.Pending() != 0 {
		t.Fatalf("%d faults to come, %v", b.Pending(), err)
	}
	in, n := dev.Inputs(), len(k.Scans())
	if took := window(in, n); s.Shallow != 0 && n != s.Shallow || took < 0.06 {
		t.Errorf("%d scans, %v", n, took)
	}
	r, want := energy(t, k, in, 0.002, 0.058), b.truth(t, len(in.Channels), 0.002, 0.058)
	if rel := float64(r.Total.Energy/want) - 1; math.Abs(rel) > 0.02 {
		t.Errorf("%+.2f %% (%+v)", 100*rel, dev.Stats())
	}
}

// faults of the line are all mended.
func (s *Suite) faults(t *testing.T) {
	data := func(k scpiface.Kind, bytes int) *scpiface.Fault {
		return &scpiface.Fault{
			Kind: k, Match: s.Data, Skip: 1, Bytes: bytes, Text: "beep\n",
			For: 750 * time.Millisecond,
		}
	}
	for name, c := range map[string]struct {
		fault    *scpiface.Fault
		fragment int
	}{
		"byte by byte":                   {fragment: 1},
		"truncated block":                {fault: data(scpiface.Truncate, 700)},
		"a header and then nothing":      {fault: data(scpiface.Header, 0)},
		"no reply":                       {fault: data(scpiface.Mute, 0)},
		"late reply":                     {fault: data(scpiface.Late, 0)},
		"unsolicited text":               {fault: data(scpiface.Unsolicited, 0)},
		"junk behind a block":            {fault: data(scpiface.Junk, 0)},
		"cable pulled while it delivers": {fault: data(scpiface.Hangup, 0)},
		"cable pulled while it samples":  {fault: &scpiface.Fault{Kind: scpiface.Hangup, Match: s.State, Skip: 3}},
		"errors in the queue": {fault: &scpiface.Fault{
			Kind: scpiface.QueueError, Match: s.State, Skip: 1,
			Times: 3, Err: scpiface.ErrRange,
		}},
		"two replies lost": {fault: &scpiface.Fault{Kind: scpiface.Mute, Match: s.Data, Times: 2}},
	} {
		t.Run(name, beside(func(t *testing.T) { s.mended(t, c.fault, c.fragment) }))
	}
}

// fatal checks that a fault of the line ends a recording with the right error, and that the next
// Open works.
func (s *Suite) fatal(t *testing.T) {
	for name, c := range map[string]struct {
		during func(b *Bench)
		refuse bool
		want   error
		says   string
	}{
		"another scope at the address": {func(b *Bench) {
			b.Inject(scpiface.Fault{Kind: scpiface.Hangup, Match: s.State, Skip: 1})
			b.SetIdentity(s.Another)
		}, false, instrument.ErrIdentity, "answers where"},
		"switched off and on": {func(b *Bench) { b.other("*RST") }, false, nil, "switched off"},
		"the sink has enough": {nil, true, errRefused, ""},
	} {
		t.Run(name, beside(func(t *testing.T) {
			b := s.bench(t, scopeface.Config{}, 0)
			_, _, err := s.take(t, b, s.options(60*time.Millisecond, s.Shallow), 200*time.Millisecond, func(k *taker) {
				k.refuse = c.refuse
				if c.during != nil {
					k.onArmed = func() { c.during(b) }
				}
			})
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		}))
	}
}

// unwanted: a scope that is silent is not waited for where its memory is not wanted,
// as when its monitor is stopped.
func (s *Suite) unwanted(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	_, _, err := s.take(t, b, s.options(60*time.Millisecond, s.Shallow), 100*time.Millisecond, func(k *taker) {
		k.unwanted = make(chan struct{})
		k.onArmed = func() { b.Inject(scpiface.Fault{Kind: scpiface.Mute, Times: 1000}) }
		stop := k.stop
		k.stop = func() {
			stop()
			close(k.unwanted)
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

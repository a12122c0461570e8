package scopetest

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/fault"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/insttest"
	"wattmark/monitor/instrument/scope"
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

// taker keeps what is delivered, and stops the instrument some time after it armed.
type taker struct {
	*insttest.Collector
	stop     func()
	after    time.Duration
	armed    int
	at       time.Time // when it armed
	stopped  time.Time // just before it was told to stop
	progress uint64
	refuse   bool
	onArmed  func()
	unwanted chan struct{} // nil for never
	blocks   []measure.Block
}

var errRefused = errors.New("refused")

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

func (k *taker) Progress(done, _ uint64) { k.progress = done }

// Unwanted is closed by the test, or never.
func (k *taker) Unwanted() <-chan struct{} { return k.unwanted }

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
func (s *Suite) take(t *testing.T, b *Bench, o scope.Options, d time.Duration, change func(*taker)) (*taker, *scope.Device, error) {
	t.Helper()
	dev := s.device(t, b.Address, o)
	if err := dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in := dev.Inputs()
	k := &taker{Collector: &insttest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}, stop: cancel, after: d}
	if change != nil {
		change(k)
	}
	err := dev.Stream(ctx, k)
	return k, dev, err
}

// energy is what the blocks hold between two instants of the recording.
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

// truth is what the probed rails drew: the board's last two, its last but one
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
